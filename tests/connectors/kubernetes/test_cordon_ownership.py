"""Whose a closed node is, decided from the node alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from connectors.base import Absent, AlreadyDone, Blocked, Done, Effect, Outcome, Refused
from connectors.kubernetes.annotations import EFFECT, INCIDENT, MANAGED, PRIOR, SLINKY_REASON
from connectors.kubernetes.client import Object
from connectors.kubernetes.cordon_ownership import (
    CordonOwner,
    CordonOwnership,
    cordon,
    find,
    ownership_of,
    release,
)
from connectors.kubernetes.guarded_patch import GuardedChange
from streams.model.run import Target
from tests.connectors.objects import effect, made, merged, node

TARGET = Target("Node", "gpu-07")
FIRST, SECOND = effect("cordon_node", TARGET, 1), effect("cordon_node", TARGET, 2)
DISK = {"key": "disk", "effect": "NoSchedule"}
UNCORDONED = {"spec": {"unschedulable": None}}
UNTAINTED = {"spec": {"taints": None}}
OTHER_TAINT = {"spec": {"taints": [{"key": INCIDENT, "value": "mine", "effect": "NoSchedule"}]}}


def closed(*effects: Effect, before: Object | None = None) -> Object:
    found = before or node()
    for one in effects:
        found = made(found, cordon(found, one))
    return found


def undone(of: Object, one: Effect) -> GuardedChange | Outcome:
    return release(of, one, lambda owner: owner.key == one.key)


def test_a_closed_node_is_unschedulable_tainted_and_says_for_what() -> None:
    found = closed(FIRST, before=node(taints=[DISK]))
    assert found["spec"] == {
        "unschedulable": True,
        "taints": [DISK, {"key": INCIDENT, "value": "inc-1", "effect": "NoSchedule"}],
    }
    assert found["metadata"]["annotations"] == {INCIDENT: "inc-1", EFFECT: "key-1", PRIOR: "schedulable"}
    assert isinstance(cordon(found, FIRST), AlreadyDone)
    assert isinstance(find(found, FIRST), AlreadyDone)


@pytest.mark.parametrize(
    "before", [node(), node(taints=[DISK]), node(unschedulable=True), node(unschedulable=True, taints=[DISK])]
)
def test_a_released_node_is_as_it_was_before(before: Object) -> None:
    closed_node = closed(FIRST, before=before)
    after = made(closed_node, undone(closed_node, FIRST))
    assert after["spec"] == before["spec"]
    assert after["metadata"].get("annotations", {}) == {}


def test_a_node_a_person_cordoned_is_never_uncordoned() -> None:
    found = closed(FIRST, before=node(unschedulable=True))
    hold = ownership_of(found)
    assert hold is not None
    assert hold.prior == "unschedulable"
    assert made(found, undone(found, FIRST))["spec"] == {"unschedulable": True}


def test_a_person_who_opens_a_node_that_they_had_closed_keeps_it_open_and_our_marks_go() -> None:
    held = closed(FIRST, SECOND, before=node(unschedulable=True, taints=[DISK]))
    opened: Object = merged(held, {"spec": {"unschedulable": None}})
    assert isinstance(cordon(opened, FIRST), Blocked)
    between = made(opened, undone(opened, FIRST))
    assert between["spec"] == {"taints": [DISK, {"key": INCIDENT, "value": "inc-2", "effect": "NoSchedule"}]}
    after = made(between, undone(between, SECOND))
    assert after["spec"] == {"taints": [DISK]}
    assert after["metadata"].get("annotations", {}) == {}


def written_by(manager: str, *path: str) -> Object:
    """What the API server notes about who set a field."""
    fields: Object = {}
    for step in reversed(path):
        fields = {f"f:{step}": fields}
    return {"metadata": {"managedFields": [{"manager": manager, "operation": "Update", "fieldsV1": fields}]}}


def test_a_node_that_a_person_opened_and_closed_again_is_theirs() -> None:
    for manager, is_ours in (("faultline", True), ("kubectl-cordon", False)):
        found: Object = merged(closed(FIRST), written_by(manager, "spec", "unschedulable"))
        decided = undone(found, FIRST)
        assert isinstance(decided, GuardedChange) is is_ours
        if isinstance(decided, Blocked):
            assert decided.by_person
            assert "cordoned again manually (by kubectl-cordon)" in decided.reason
    taints: Object = merged(closed(FIRST), written_by("kubectl-taint", "spec", "taints"))
    assert isinstance(undone(taints, FIRST), GuardedChange), (
        "taints are one field: whoever adds one owns the list"
    )


@pytest.mark.parametrize("order", [(FIRST, SECOND), (SECOND, FIRST)])
def test_a_node_opens_only_when_its_last_owner_goes(order: tuple[Effect, Effect]) -> None:
    found = closed(FIRST, SECOND)
    first_out, last_out = order
    between = made(found, undone(found, first_out))
    assert between["spec"]["unschedulable"] is True
    assert between["spec"]["taints"][0]["value"] == last_out.incident
    assert ownership_of(between) == CordonOwnership(
        (CordonOwner(last_out.incident, last_out.key),), "schedulable"
    )
    assert isinstance(undone(between, first_out), AlreadyDone)
    assert made(between, undone(between, last_out))["spec"] == {}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (UNCORDONED, "gpu-07 was uncordoned manually"),
        (UNTAINTED, "was removed manually"),
        (OTHER_TAINT, "was changed manually"),
        (
            {"spec": {"unschedulable": None, "taints": None}},
            "gpu-07 was uncordoned and its taint removed manually",
        ),
    ],
)
def test_what_a_person_changed_is_left_to_them(change: Object, says: str) -> None:
    found: Object = merged(closed(FIRST), change)
    same_incident = replace(FIRST, key="key-of-another-step")
    for decided in (cordon(found, FIRST), cordon(found, same_incident), undone(found, FIRST)):
        assert isinstance(decided, Blocked)
        assert decided.by_person
        assert says in decided.reason


def test_a_new_incident_closes_a_node_that_a_person_had_opened_again() -> None:
    opened: Object = merged(closed(FIRST), UNCORDONED)
    found = made(opened, cordon(opened, SECOND))
    hold = ownership_of(found)
    assert hold is not None
    assert hold.owners == (CordonOwner("inc-2", "key-2"),)
    assert [taint["value"] for taint in found["spec"]["taints"]] == ["inc-2"]
    assert isinstance(undone(found, FIRST), AlreadyDone)
    assert made(found, undone(found, SECOND))["spec"] == {}


def test_a_call_that_a_person_answered_since_still_counts_as_made() -> None:
    found = find(merged(closed(FIRST), UNCORDONED), FIRST)
    assert isinstance(found, AlreadyDone)
    assert "manually" in found.detail


def test_a_node_people_keep_for_themselves_is_neither_closed_nor_opened() -> None:
    keep = {"metadata": {"labels": {MANAGED: "false"}}}
    assert isinstance(cordon(merged(node(), keep), FIRST), Refused)
    assert isinstance(undone(merged(closed(FIRST), keep), FIRST), Blocked)


@pytest.mark.parametrize(
    "marks",
    [
        {INCIDENT: "inc-9"},
        {INCIDENT: "inc-9", EFFECT: "a,b", PRIOR: "schedulable"},
        {INCIDENT: "inc-9", EFFECT: "a", PRIOR: "sometimes"},
        {INCIDENT: ",", EFFECT: ",", PRIOR: "schedulable"},
    ],
)
def test_marks_that_make_no_sense_are_nobodys_and_are_left_alone(marks: dict[str, str]) -> None:
    found: Object = merged(node(), {"metadata": {"annotations": marks}})
    assert isinstance(cordon(found, FIRST), Blocked)
    assert isinstance(undone(found, FIRST), AlreadyDone)


@pytest.mark.parametrize("decide", [cordon, undone, find])
def test_another_machine_under_the_same_name_is_not_touched(decide: Any) -> None:
    was = replace(FIRST, target=replace(TARGET, uid="uid-of-the-old-machine"))
    assert isinstance(decide(closed(FIRST), was), Refused | AlreadyDone | Absent)


def test_a_second_incident_is_told_who_closed_the_node_first() -> None:
    found = closed(FIRST)
    decided = cordon(found, SECOND)
    assert isinstance(decided, GuardedChange)
    assert isinstance(decided.then, Done)
    assert decided.then.result["owners"] == ("inc-1", "inc-2")
    assert "inc-1" in decided.then.detail


def told_slinky(node_: Object, *effects: Effect) -> Object:
    for one in effects:
        node_ = made(node_, cordon(node_, replace(one, context={"reason": "XID 79"}), slinky=True))
    return node_


def test_slurm_operator_is_told_the_incident_and_nothing_is_left_of_it() -> None:
    found = told_slinky(node(), FIRST, SECOND)
    assert found["metadata"]["annotations"][SLINKY_REASON] == "faultline inc-1,inc-2: XID 79"
    found = made(found, undone(found, FIRST))
    assert found["metadata"]["annotations"][SLINKY_REASON] == "faultline inc-2: XID 79"
    found = made(found, undone(found, SECOND))
    assert SLINKY_REASON not in (found["metadata"].get("annotations") or {})


def test_what_somebody_else_told_slurm_operator_stays() -> None:
    theirs = {SLINKY_REASON: "bad DIMM"}
    found = told_slinky(merged(node(), {"metadata": {"annotations": theirs}}), FIRST)
    assert found["metadata"]["annotations"][SLINKY_REASON] == "bad DIMM"
    found = made(found, undone(found, FIRST))
    assert found["metadata"]["annotations"] == theirs
