"""Fragments and overrides: one number changed without a copy, and every value still knows the place it came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from runbooks.engine.run.plan import plan
from runbooks.language.loader import library_of, load, load_text
from runbooks.language.schema import Runbook
from streams.model.errors import ConfigError
from streams.model.run import Mode, run_id
from tests.runbooks.scenes import cluster, incident

BASE = """\
id: base
revision: 3
owner: team
mode: auto
description: something to test with
match: incident.family == "gpu_off_bus"
parameters:
  wait_s: {type: number, default: 600, max: 900}
steps:
  - include: closing
  - id: drain
    action: drain_node
    target: root_node
    needs: [cordon]
    params: {only: gpu, bare: true}
    deadline_s: {cel: parameters.wait_s}
    retry: {attempts: 3, first_s: 9}
"""

FRAGMENT = """\
fragment: closing
description: closes the node of the culprit
parameters:
  tries: {type: integer, default: 5}
steps:
  - id: cordon
    action: cordon_node
    target: root_node
    undo: true
    retry: {attempts: {cel: parameters.tries}}
"""

OVERRIDE = """\
override: base
base: 3
revision: 2
mode: approve
priority: 70
parameters: {wait_s: 300, tries: 7}
escalation: {to: other}
steps:
  drain:
    params: {only: all}
    retry: {first_s: 4}
    on_failure: escalate
"""

OTHER = BASE.replace("id: base", "id: other").replace("revision: 3", "revision: 1")
FILES = {"base.yaml": BASE, "other.yaml": OTHER, "closing.yaml": FRAGMENT, "site.yaml": OVERRIDE}


def put_together(**changed: str) -> Runbook:
    library = library_of((FILES | {f"{name}.yaml": text for name, text in changed.items()}).items())
    assert library.faults == []
    return library.loaded["base"].runbook


def test_what_is_included_stands_where_it_was_called_for() -> None:
    (book,) = [b for b in library_of(FILES.items()).runbooks if b.id == "other"]
    assert [step.id for step in book.steps] == ["cordon", "drain"]
    assert sorted(book.parameters) == ["tries", "wait_s"]
    cordon, drain = plan(incident(), book, cluster(), Mode.AUTO).steps
    assert (cordon.retry.attempts, drain.deadline_s, book.revision) == (5, 600, 1)


def test_an_include_changes_what_it_names_also_in_a_fragment_of_its_fragment() -> None:
    change = "include: outer\n    steps: {cordon: {describe: ours, retry: {first_s: 4}}}"
    outer = fragment("outer", "include: closing")
    library = library_of(
        (FILES | {"base.yaml": BASE.replace("include: closing", change), "o.yaml": outer}).items()
    )
    assert library.faults == []
    cordon, other = library.loaded["base"].runbook.steps[0], library.loaded["other"].runbook.steps[0]
    assert (cordon.describe, cordon.retry.first_s, cordon.undo) == ("ours", 4, True)
    assert cordon.retry.attempts == other.retry.attempts
    assert (other.describe, other.retry.first_s) == ("", 1)
    place = {one.key: one.place for one in library.loaded["base"].origins()}["steps.cordon.describe"]
    assert place == "base.yaml:11:32"


def test_an_override_changes_what_it_names_and_nothing_else() -> None:
    book = put_together()
    cordon, drain = plan(incident(), book, cluster(), Mode.AUTO).steps
    assert (book.mode, book.priority, book.owner) == (Mode.APPROVE, 70, "team")
    assert (cordon.retry.attempts, drain.deadline_s) == (7, 300)
    assert dict(drain.params) == {"only": "all", "bare": True}
    assert (drain.retry.attempts, drain.retry.first_s) == (3, 4)
    assert drain.on_failure == "escalate"


def test_the_same_fragment_in_another_runbook_stays_as_it_is() -> None:
    books = library_of(FILES.items()).loaded
    assert books["base"].runbook.parameters["tries"].default == 7
    assert books["other"].runbook.parameters["tries"].default == 5


def test_every_pair_of_base_and_override_is_a_revision_of_its_own() -> None:
    plain = load_text(BASE.replace("  - include: closing\n", "").replace("needs: [cordon]", "").replace(
        "  - id: drain\n    action: drain_node", "  - id: drain\n    action: notify").replace(
        "    params: {only: gpu, bare: true}\n", ""), "base.yaml")  # fmt: skip
    again = put_together(site=OVERRIDE.replace("revision: 2", "revision: 4"))
    newer = put_together(
        base=BASE.replace("revision: 3", "revision: 4"), site=OVERRIDE.replace("base: 3", "base: 4")
    )
    revisions = [plain.revision, put_together().revision, again.revision, newer.revision]
    assert revisions == [3, 3002, 3004, 4002]
    assert len({run_id("inc-1", "base", revision) for revision in revisions}) == 4


def test_every_value_knows_its_file_line_and_column() -> None:
    loaded = library_of(FILES.items()).loaded["base"]
    places = {one.key: one.place for one in loaded.origins()}
    assert places["steps.drain.params.only"] == "site.yaml:10:20"
    assert places["steps.drain.params.bare"] == "base.yaml:15:31"
    assert places["steps.cordon.action"] == "closing.yaml:7:13"
    assert places["parameters.wait_s.default"] == "site.yaml:6:22"
    assert places["parameters.wait_s.max"] == "base.yaml:8:45"
    assert places["revision"] == "site.yaml:3:11"
    foreign = {one.key for one in loaded.foreign()}
    assert {"mode", "priority", "steps.drain.on_failure", "steps.cordon.id"} <= foreign
    assert not foreign & {"id", "owner", "match", "steps.drain.action"}


FAULTS = {
    "a step that is none": ("site", "  drain:", "  drian:", "site.yaml:9:3: steps.drian: base has no such step, did you"),
    "a parameter that is none": ("site", "wait_s: 300", "wait: 300", "site.yaml:6:14: parameters.wait: base has no such"),
    "a key that is none": ("site", "on_failure:", "on_failur:", "site.yaml:12:5: steps.drain.on_failur: there is no such"),
    "a key that an override may not change": (
        "site", "mode: approve", 'match: "true"', "site.yaml:4:1: match: there is no such key"),
    "a value out of its bounds": ("site", "wait_s: 300", "wait_s: 901", "site.yaml:6:22: parameters.wait_s.default: 901 i"),
    "a value of another type": ("site", "only: all", "only: 3", "site.yaml:10:20: steps.1.params.only: expected text"),
    "a word that is none": ("site", "mode: approve", "mode: later", "site.yaml:4:7: mode: 'later' is none of"),
    "a base that has changed": (
        "site", "base: 3", "base: 2", "site.yaml:2:7: base: base is now at revision 3, this was written for 2: comp"),
    "no revision": ("site", "revision: 2\n", "", "site.yaml:1:1: revision: it is missing"),
    "a runbook that is none": ("site", "override: base", "override: bass", "site.yaml:1:11: override: there is no runbook ba"),
    "an override of an override": (
        "site", "override: base", "id: x\noverride: base", "site.yaml:1:1: id: there is no such key"),
    "a rung that is none": ("site", "to: other", "to: othre", "site.yaml:7:18: escalation.to: there is no runbook othre"),
    "a ladder in a circle": (
        "other", "owner: team", "owner: team\nescalation: {to: base}", "escalation.to: escalates in a circle: base → other → b"),
    "a fragment that is none": ("base", "include: closing", "include: closin", "base.yaml:10:14: include: there is no fragment"),
    "a fragment of another revision": (
        "base", "include: closing", "include: closing\n    revision: 2", "base.yaml:11:15: include: closing is now at revision"),
    "a change of a step that is none": (
        "base", "include: closing", "include: closing\n    steps: {cordn: {describe: a}}", "base.yaml:11:13: steps.cordn: clos"),
    "a change that is none": (
        "base", "include: closing", "include: closing\n    steps: {cordon: {undo: false}}", "base.yaml:11:22: steps.cordon.undo"),
    "a step beside an include": ("base", "include: closing", "include: closing\n    id: x", "base.yaml:11:5: id: there is no"),
    "a fault in a fragment": ("closing", "target: root_node", "target: node", "closing.yaml:8:13: steps.0.target: 'node' is"),
    "a need that the fragment's user lacks": ("closing", "undo: true", "needs: [a]", "closing.yaml:9:12: steps.0.needs: step "),
    "a parameter twice": ("closing", "tries:", "wait_s: {type: text, default: a}\n  tries:", "closing.yaml:4:3: parameters.wa"),
    "a step twice": ("base", "id: drain", "id: cordon", "base.yaml:11:9: steps.1.id: step id cordon is used twice"),
    "an id twice": ("other", "id: other", "id: base", "other.yaml:1:5: id base is also in base.yaml"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_at_its_place_in_its_own_file(name: str) -> None:
    file, old, new, message = FAULTS[name]
    assert old in FILES[f"{file}.yaml"]
    files = FILES | {f"{file}.yaml": FILES[f"{file}.yaml"].replace(old, new, 1)}
    faults = library_of(files.items()).faults
    assert any(message in fault for fault in faults), faults
    assert len(set(faults)) == len(faults)
    assert all(fault.split(":")[0] in files for fault in faults)


def fragment(name: str, *items: str) -> str:
    steps = "\n".join(f"  - {item}" for item in items)
    return f"fragment: {name}\ndescription: something shared\nsteps:\n{steps}\n"


def book(*items: str) -> str:
    steps = "\n".join(f"  - {item}" for item in items)
    return f'id: b\nrevision: 1\nowner: t\nmode: auto\ndescription: to test with\nmatch: "true"\nsteps:\n{steps}\n'


def step(name: str) -> str:
    return f"{{id: {name}, action: notify, target: incident}}"


def test_a_fragment_that_includes_itself_is_refused_however_long_the_way() -> None:
    files = {
        "b.yaml": book("include: one"),
        "one.yaml": fragment("one", step("a"), "include: two"),
        "two.yaml": fragment("two", "include: three"),
        "three.yaml": fragment("three", "include: one"),
    }
    faults = library_of(files.items()).faults
    assert faults == ["three.yaml:4:14: include: a fragment includes itself: one → two → three → one"]


def test_fragments_that_double_at_each_level_do_not_explode() -> None:
    files = {"b.yaml": book("include: f0")} | {
        f"f{i}.yaml": fragment(f"f{i}", f"include: f{i + 1}", f"include: f{i + 1}") for i in range(7)
    }
    files["f7.yaml"] = fragment("f7", *[step(f"s{i}") for i in range(30)])
    (fault,) = library_of(files.items()).faults
    assert "more than 30 with what is included" in fault


def test_a_long_chain_of_fragments_is_refused() -> None:
    files = {"b.yaml": book("include: f0"), "f2000.yaml": fragment("f2000", step("end"))} | {
        f"f{i}.yaml": fragment(f"f{i}", f"include: f{i + 1}") for i in range(2000)
    }
    (fault,) = library_of(files.items()).faults
    assert "nested in more than 8 fragments" in fault


def test_a_directory_may_hold_all_kinds_of_files_and_cases_are_left_out(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "base.cases.yaml").write_text("cases: []\n")
    assert {"base", "other"} == {r.id for r in load([tmp_path], shipped=False)}
    (tmp_path / "site.yaml").write_text(
        OVERRIDE.replace("drain:", "x:").replace("priority: 70", "prioriti: 1")
    )
    with pytest.raises(ConfigError, match=r"site.yaml:5:1: prioriti: there is no such key"):
        load([tmp_path])


def test_an_installation_changes_a_shipped_runbook(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(
        "override: gpu-off-bus\nrevision: 1\nsteps:\n  drain: {deadline_s: 1200}\n"
    )
    shipped = {r.id: r for r in load()}
    ours = {r.id: r for r in load([tmp_path])}
    assert set(ours) == set(shipped)
    assert ours["gpu-off-bus"].revision == shipped["gpu-off-bus"].revision * 1000 + 1
    assert {s.id: s.deadline_s for s in ours["gpu-off-bus"].steps}["drain"] == 1200
