from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from faultline.replay.capture import Capture, Meta
from faultline.replay.kafka_capture.surroundings import write_surroundings
from faultline.replay.what_if.edits import Edit, EditKind
from faultline.replay.what_if.sides import Files, Given, names_without_effect, sides
from faultline.runtime.settings import Settings
from runbooks.language.loader import library_of, load
from streams.config.settings import ResponderSettings
from streams.model.errors import BadInput
from streams.model.record import RawRecord

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
CAPTURE = Capture(Meta("c", NOON, NOON), {}, topology="leaf-01:\n  Ethernet0: {node: a, nic: mlx5_0}\n")
SHIPPED = {book.id for book in load()}
OWN = """\
id: {name}
revision: 1
owner: gpu-platform
mode: approve
description: A ticket of our own.
match: incident.family == "gpu_off_bus"
steps:
  - {{id: ticket, action: open_ticket, target: incident, describe: look at it}}
"""


def runbooks(folder: Path, *names: str) -> Path:
    folder.mkdir()
    for name in names:
        (folder / f"{name}.yaml").write_text(OWN.format(name=name))
    return folder


def ids(files: Files) -> set[str]:
    return set(library_of(files).loaded)


def edited(edits: tuple[Edit, ...]) -> list[str]:
    return [str(edit) for edit in edits]


def test_without_an_edit_both_sides_are_one() -> None:
    found = sides(CAPTURE, Settings(), Given())
    assert found.after is found.before
    assert found.edits == ()


def test_a_setting_is_named_with_both_values() -> None:
    found = sides(CAPTURE, Settings(), Given(settings=("responder.blast_radius.max_nodes=5",)))
    assert edited(found.edits) == ["responder.blast_radius.max_nodes: 3 → 5"]
    assert found.before.settings.responder.blast_radius.max_nodes == 3
    assert found.after.settings.responder.blast_radius.max_nodes == 5


def test_a_setting_that_no_replay_decides_by_is_told() -> None:
    found = sides(
        CAPTURE, Settings(), Given(settings=("kafka.bootstrap=broker:1", "responder.kill_switch=on"))
    )
    assert names_without_effect(found.edits) == ["kafka.bootstrap"]


def test_runbooks_replace_those_of_the_settings_and_what_ships_stays(tmp_path: Path) -> None:
    before, after = runbooks(tmp_path / "before", "old", "kept"), runbooks(tmp_path / "after", "kept", "new")
    settings = Settings(responder=ResponderSettings(runbook_dirs=(before,)))
    found = sides(CAPTURE, settings, Given(runbooks=(after,)))
    assert ids(found.before.runbooks) - SHIPPED == {"old", "kept"}
    assert ids(found.after.runbooks) - SHIPPED == {"kept", "new"}
    assert ids(found.after.runbooks) >= SHIPPED
    assert [edit.where for edit in found.edits] == ["new runbook", "old runbook"]
    assert found.edits[0].file == str(after / "new.yaml")


@pytest.fixture
def captured(tmp_path: Path) -> Capture:
    """A capture with the settings and runbooks that it was decided with."""
    folder = tmp_path / "capture"
    folder.mkdir()
    own = ResponderSettings(runbook_dirs=(runbooks(tmp_path / "then", "old"),), kill_switch=True)
    write_surroundings(folder, Settings(responder=own), str)
    return replace(CAPTURE, settings=folder / "settings.yaml", runbooks=folder / "runbooks")


def test_what_a_capture_was_decided_with_counts_before_the_settings_of_the_command(captured: Capture) -> None:
    found = sides(captured, Settings(), Given(settings=("responder.blast_radius.max_nodes=5",)))
    assert found.before.settings.responder.kill_switch
    assert ids(found.before.runbooks) == SHIPPED | {"old"}
    assert edited(found.edits) == ["responder.blast_radius.max_nodes: 3 → 5"]


def test_settings_that_are_chosen_count_before_those_of_the_capture(captured: Capture) -> None:
    given = Given(settings=("responder.blast_radius.max_nodes=5",))
    found = sides(captured, Settings(), given, are_chosen=True)
    assert not found.before.settings.responder.kill_switch
    assert ids(found.before.runbooks) == SHIPPED


def test_runbooks_replace_the_captures_own_and_leave_its_library(captured: Capture, tmp_path: Path) -> None:
    found = sides(captured, Settings(), Given(runbooks=(runbooks(tmp_path / "now", "new"),)))
    assert ids(found.after.runbooks) == SHIPPED | {"new"}
    assert [edit.where for edit in found.edits] == ["new runbook", "old runbook"]


def test_a_topology_names_the_cables_that_differ(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text("leaf-01:\n  Ethernet0: {node: b, nic: mlx5_0}\n")
    found = sides(CAPTURE, Settings(), Given(topology=file))
    assert edited(found.edits) == ["topology leaf-01.Ethernet0.node: a → b"]
    assert found.after.capture.topology == file.read_text()


def test_a_catalog_names_its_rows(tmp_path: Path) -> None:
    (tmp_path / "xid.yaml").write_text("codes: [{codes: [48], action: contact_support}]")
    found = sides(CAPTURE, Settings(), Given(catalog=tmp_path))
    (edit,) = found.edits
    assert (edit.kind, str(edit)) == (
        EditKind.CATALOG, "xid.yaml codes.48.action: workflow_xid_48 → contact_support",
    )  # fmt: skip
    assert (found.before.catalog, found.after.catalog) == (None, tmp_path)


def test_every_fault_of_an_edit_is_told_together(tmp_path: Path) -> None:
    (tmp_path / "xidd.yaml").write_text("codes: []")
    (tmp_path / "xid.yaml").write_text("codes: [{codes: [48], action: [wrong]}]")
    (tmp_path / "sxid.yaml").write_text("effects: [")
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "families.yaml").write_text("families: {gpu_off_bus: {rank: high}}")
    broken = runbooks(tmp_path / "broken", "fine")
    (broken / "binary.yaml").write_bytes(b"\xff\xfe")
    (broken / "bad.yaml").write_text("id: bad\nsteps: nonsense\n")
    file = tmp_path / "topology"
    file.write_text("leaf-01: [")
    given = Given(("responder.killswitch=on",), None, (broken,), tmp_path, file)
    with pytest.raises(BadInput) as error:
        sides(CAPTURE, Settings(), given)
    told = str(error.value)
    for part in (
        "did you mean kill_switch?",
        "bad.yaml:",
        "binary.yaml:1:1: cannot be read",
        "xid.yaml:1:23: code 48: action: must be text",
        "sxid.yaml:",
        "families.yaml:1:26: families.gpu_off_bus.rank",
        "there is no table xidd.yaml; did you mean xid.yaml?",
        "topology",
    ):
        assert part in told


def test_a_topology_is_refused_where_the_capture_holds_what_the_inventory_published(tmp_path: Path) -> None:
    record = RawRecord("inventory", 0, 0, NOON, b"c/node/a", None)
    file = tmp_path / "topology.yaml"
    file.write_text("{}")
    with pytest.raises(BadInput, match="the capture holds the inventory as it was published"):
        sides(replace(CAPTURE, records={"inventory": [record]}), Settings(), Given(topology=file))
