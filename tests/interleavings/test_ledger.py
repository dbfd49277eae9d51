"""The ledger is checked: it says nothing of what is right, and finds each wrong that is done before its eyes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interleavings.ending import left_behind
from tests.interleavings.ledger import Ledger

US, PERSON = "faultline", "person"
TAINT = {"key": "faultline.dev/incident", "value": "inc-1", "effect": "NoSchedule"}
MARKS = {
    "faultline.dev/incident": "inc-1",
    "faultline.dev/effect": "key-1",
    "faultline.dev/prior": "schedulable",
}
OPEN: dict[str, Any] = {"spec": {}}
CLOSED: dict[str, Any] = {"spec": {"unschedulable": True}}
HELD: dict[str, Any] = {"spec": {"unschedulable": True, "taints": [TAINT]}, "annotations": MARKS}
JOINED: dict[str, Any] = {**HELD, "annotations": {**MARKS, "faultline.dev/prior": "unschedulable"}}
OUT: dict[str, Any] = {**HELD, "labels": {"faultline.dev/managed": "false"}}


def told(*changes: tuple[str, dict[str, Any]], kind: str = "Node", what: str = "MODIFIED") -> Ledger:
    """A ledger that has seen an open node, then each change with its author."""
    ledger = Ledger()
    for number, (author, how) in enumerate([("site", OPEN), *changes]):
        meta = {
            "name": "gpu-1",
            "uid": "u1",
            "annotations": how.get("annotations"),
            "labels": how.get("labels"),
        }
        last = number == len(changes)
        ledger.take(author, what if last else "MODIFIED", kind, {"metadata": meta, "spec": how["spec"]})
    return ledger


def rules(ledger: Ledger) -> set[str]:
    found = [*ledger.problems, *left_behind(ledger, [])]
    return {problem.split(":")[0] for problem in found}


@pytest.mark.parametrize(
    "changes",
    [
        [(US, HELD), (US, OPEN)],
        [(PERSON, CLOSED), (US, JOINED), (US, CLOSED)],
        [(US, HELD), (PERSON, {"spec": {"taints": [TAINT]}, "annotations": MARKS})],
        [(US, HELD), (PERSON, OUT)],
    ],
    ids=["closed and released", "joined and left", "opened by a person", "opted out while held"],
)
def test_what_is_right_is_no_problem(changes: list[tuple[str, dict[str, Any]]]) -> None:
    assert rules(told(*changes)) == set()


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("foreign_undone", [(PERSON, CLOSED), (US, OPEN)]),
        ("foreign_undone", [(PERSON, CLOSED), (US, JOINED), (US, OPEN)]),
        ("foreign_undone", [(PERSON, {"spec": {"suspend": True}}), (US, OPEN)]),
        ("foreign_undone", [(PERSON, {"spec": {"taints": [{**TAINT, "key": "theirs"}]}}), (US, OPEN)]),
        (
            "foreign_undone",
            [(US, HELD), (PERSON, {**HELD, "spec": {"taints": [TAINT]}}), (PERSON, HELD), (US, OPEN)],
        ),
        ("foreign_touched", [(US, {"spec": {"parallelism": 3}})]),
        ("foreign_touched", [(US, {"spec": {}, "annotations": {"theirs": "x"}})]),
        ("opted_out", [(US, HELD), (PERSON, OUT), (US, {**OPEN, "labels": OUT["labels"]})]),
        ("done_again", [(US, HELD), (PERSON, {"spec": {}, "annotations": MARKS}), (US, HELD)]),
        ("whole", [(US, {"spec": {"taints": [TAINT]}, "annotations": MARKS})]),
        ("whole", [(US, CLOSED)]),
        ("known", [(US, HELD)]),
    ],
)
def test_a_wrong_is_found(rule: str, changes: list[tuple[str, dict[str, Any]]]) -> None:
    assert rule in rules(told(*changes))


def test_a_deletion_and_an_eviction_from_an_open_node_are_found() -> None:
    assert rules(told((US, OPEN), what="DELETED")) == {"deleted"}
    ledger = told((US, HELD), (US, OPEN))
    pod: dict[str, Any] = {"metadata": {"name": "p", "uid": "p"}, "spec": {"nodeName": "gpu-1"}}
    ledger.take("controllers", "ADDED", "Pod", pod)
    ledger.call_begins()
    ledger.take(US, "MODIFIED", "Pod", {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "now"}})
    assert rules(ledger) == {"deleted"}
