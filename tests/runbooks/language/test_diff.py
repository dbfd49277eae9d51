"""Two versions of a runbook: what a person must know before the new one is used."""

from __future__ import annotations

import pytest

from runbooks.language.diff import compare
from runbooks.language.loader import load_text

OLD = """\
id: book
revision: 1
owner: team
mode: approve
description: something to test with
match: incident.family == "gpu_off_bus"
parameters:
  wait_s: {type: number, default: 600, max: 900}
steps:
  - id: cordon
    action: cordon_node
    target: root_node
    undo: true
    approval: {group: leads, quorum: 2}
  - id: suspend
    action: suspend_job
    target: root_node_jobs
    needs: [cordon]
    waves: {size: 2}
    undo: true
  - id: resume
    action: resume_job
    target: root_node_jobs
    needs: [suspend]
    deadline_s: {cel: parameters.wait_s}
    describe: starts again
"""

CHANGES = {
    "a mode that touches more": ("mode: approve", "mode: auto", "danger", "mode", "approve → auto"),
    "a mode that touches less": ("mode: approve", "mode: shadow", "note", "mode", "approve → shadow"),
    "other incidents": ('"gpu_off_bus"', '"hang"', "danger", "match", '== "hang"'),
    "a new destructive step": (
        "  - id: resume", "  - {id: reset, action: reset_gpu, target: root_node, needs: [cordon]}\n  - id: resume",
        "danger", "steps.reset", "new, destructive: reset_gpu on root_node"),
    "a new harmless step": (
        "  - id: resume", "  - {id: tell, action: notify, target: incident}\n  - id: resume",
        "note", "steps.tell", "new: notify on incident"),
    "another target": ("target: root_node_jobs\n    needs: [cordon]", "target: jobs\n    needs: [cordon]",
        "danger", "steps.suspend.target", "root_node_jobs → jobs"),
    "no way back": ("    undo: true\n    approval", "    approval", "danger", "steps.cordon.undo", "true → false"),
    "fewer people asked": ("quorum: 2", "quorum: 1", "danger", "steps.cordon.approval", "quorum: 1"),
    "other people asked": ("leads", "anybody", "danger", "steps.cordon.approval", "{group: leads, quorum: 2} → {group: anybody"),
    "larger waves": ("size: 2", "size: 3", "danger", "steps.suspend.waves", "{size: 2, pause_s: 0} → {size: 3"),
    "smaller waves": ("size: 2", "size: 1", "note", "steps.suspend.waves", "→ {size: 1"),
    "going on in spite of a failure": ("deadline_s: {", "on_failure: continue\n    deadline_s: {",
        "danger", "steps.resume.on_failure", "stop → continue"),
    "another default": ("default: 600", "default: 700", "note", "parameters.wait_s.default", "600 → 700"),
    "another deadline": ("{cel: parameters.wait_s}", "300", "note", "steps.resume.deadline_s", "{cel: parameters.wait_s} → 300"),
    "other words": ("starts again", "starts anew", "note", "steps.resume.describe", "starts again → starts anew"),
    "a first rung": ("owner: team", "owner: team\nescalation: {to: replace}", "danger", "escalation", "none → {to: replace"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_told_with_its_weight(name: str) -> None:
    before, after, weight, where, text = CHANGES[name]
    assert before in OLD
    new = load_text(OLD.replace(before, after).replace("revision: 1", "revision: 2"), "new.yaml")
    told = [change for change in compare(load_text(OLD, "old.yaml"), new) if change.where != "revision"]
    assert [(change.weight, change.where) for change in told] == [(weight, where)]
    assert text in told[0].text


def test_a_change_without_a_new_revision_is_a_danger_of_its_own() -> None:
    new = load_text(OLD.replace("size: 2", "size: 1"), "new.yaml")
    told = {change.where: change for change in compare(load_text(OLD, "old.yaml"), new)}
    assert told["revision"].weight == "danger"
    assert told["revision"].text.startswith("still 1")


def test_the_same_twice_is_no_change_however_it_is_laid_out() -> None:
    old = load_text(OLD, "old.yaml")
    laid_out = OLD.replace(
        'match: incident.family == "gpu_off_bus"', 'match: >-\n  incident.family ==\n  "gpu_off_bus"'
    )
    assert compare(old, old) == ()
    assert compare(old, load_text(laid_out, "new.yaml")) == ()


def test_dangers_come_first_and_a_step_that_gives_back_is_missed() -> None:
    cut = (
        OLD[: OLD.index("  - id: resume")]
        .replace("default: 600", "default: 700")
        .replace("revision: 1", "revision: 2")
    )
    told = compare(load_text(OLD, "old.yaml"), load_text(cut, "new.yaml"))
    assert [(change.weight, change.where) for change in told] == [
        ("danger", "steps.resume"), ("note", "parameters.wait_s.default"), ("note", "revision"),
    ]  # fmt: skip


def test_a_runbook_that_is_new_says_what_it_destroys_and_one_that_is_gone_whom_it_leaves() -> None:
    book = load_text(OLD, "old.yaml")
    (new,) = compare(None, book)
    assert new.text.endswith("destructive: cordon_node root_node, suspend_job root_node_jobs")
    (gone,) = compare(book, None)
    assert (gone.weight, gone.where) == ("danger", "runbook")
