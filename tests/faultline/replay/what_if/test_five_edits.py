"""What-if on five edits lists exactly the incidents that they affect.

`AFFECTED` was written down from what each edit means, before it was run; the files in `golden` are the whole output. To write
them anew after a wanted change: `UPDATE_GOLDEN=1 pytest tests/faultline/replay/what_if/test_five_edits.py`, and read the diff.
"""

import os
from functools import cache
from pathlib import Path

import pytest

from faultline.cli.what_if_text import show_what_if
from faultline.replay.what_if.result import WhatIf, what_if
from faultline.replay.what_if.sides import Given, sides
from faultline.runtime.settings import Settings
from tests.faultline.replay.simulated import simulated

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
EDITS = HERE / "edits"

GIVEN = {
    # A hang is told only after an hour of silence, and the records end before that.
    "threshold": ("month", Given(settings=("correlator.hang_settle_s=3600",))),
    # A failed disk is a ticket for the storage team, and nothing else.
    "runbook": ("month", Given(runbooks=(EDITS / "runbooks",))),
    # A third node may be closed within the hour.
    "guardrail": ("month", Given(settings=("responder.blast_radius.max_per_window=9",))),
    # An uncorrectable memory error asks for support, and is no longer decisive.
    "catalog_row": ("month", Given(catalog=EDITS / "rows")),
    # The paused port is another host's.
    "topology": ("pfc_storm_port", Given()),
}
AFFECTED = {
    "threshold": [("lab-19 holds up its job", {"incident", "action", "ticket"})],
    "runbook": [("Host fault on lab-05", {"runbook", "action", "step"})],
    "guardrail": [("GPU memory error on lab-07", {"verdict"})],
    "catalog_row": [("GPU memory error on lab-07", {"certainty", "verdict", "step"})],
    "topology": [("PFC storm from gpu-a06-02", {"culprit", "impact", "action"})],
}


@cache
def compared(edit: str, folder: Path) -> WhatIf:
    source, given = GIVEN[edit]
    if edit == "topology":
        cabling = simulated(source).topology
        port = cabling.index("  Ethernet128:", cabling.index("leaf-02:"))
        file = folder / "topology.yaml"
        file.write_text(cabling[:port] + cabling[port:].replace("gpu-a06-01", "gpu-a06-02", 1))
        given = Given(topology=file)
    return what_if(source, sides(simulated(source), Settings(), given))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("edits")


@pytest.mark.parametrize("edit", GIVEN)
def test_an_edit_lists_exactly_the_incidents_that_it_affects(
    edit: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    found = compared(edit, folder)
    differing = [(p.either.title, {one.aspect.value for one in p.differences}) for p in found.differing]
    assert differing == AFFECTED[edit]
    assert found.summary.differing == len(differing)
    assert all(one.causes for pair in found.differing for one in pair.differences)
    show_what_if(found)
    printed, golden = capsys.readouterr().out, GOLDEN / f"{edit}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(printed)
    assert printed == golden.read_text()
