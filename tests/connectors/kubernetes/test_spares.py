"""Whom a spare is released for, and how the reserve is filled up again, decided from the node alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from connectors.base import AlreadyDone, Blocked, Done, Outcome, Refused, Waiting
from connectors.kubernetes.annotations import INCIDENT, MANAGED
from connectors.kubernetes.client import Object
from connectors.kubernetes.guarded_patch import GuardedChange
from connectors.kubernetes.spares import SPARE, let_go, put_back, put_in_reserve, released
from streams.model.run import Target
from tests.connectors.objects import effect, made, merged, node

LOST = Target("Node", "gpu-07")
LISTED = {"spares": "gpu-40=same leaf leaf-1 | gpu-41=its place in the network is not known"}
FIRST = replace(effect("release_spare", LOST, 1), params=LISTED)
SECOND = replace(effect("release_spare", LOST, 2), params=LISTED)
REFILL = replace(effect("return_spare", LOST, 1), params=LISTED)
TAINT = {"key": SPARE, "value": "warm", "effect": "NoExecute"}
DISK = {"key": "disk", "effect": "NoSchedule"}


def spare() -> Object:
    found: Object = merged(node("gpu-40", taints=[DISK, TAINT]), {"metadata": {"labels": {SPARE: "true"}}})
    return found


def given(of: Object, decided: GuardedChange | Outcome) -> Object:
    assert isinstance(decided, GuardedChange), decided
    return made(of, decided)


def test_a_released_spare_loses_its_taint_alone_and_gets_it_back_as_it_was() -> None:
    decided = released(spare(), FIRST)
    out = given(spare(), decided)
    assert isinstance(decided, GuardedChange)
    assert isinstance(decided.then, Done)
    assert decided.then.detail == "gpu-40 takes the place of gpu-07: same leaf leaf-1"
    assert out["spec"]["taints"] == [DISK]
    assert isinstance(released(out, FIRST), AlreadyDone)
    back = given(out, put_back(out, FIRST))
    assert back["spec"]["taints"] == [DISK, TAINT]
    assert back["metadata"]["annotations"] == {}
    assert isinstance(put_back(back, FIRST), AlreadyDone)


@pytest.mark.parametrize(
    "changed",
    [
        {"metadata": {"labels": {SPARE: None}}},
        {"spec": {"taints": [DISK]}},
        {"spec": {"unschedulable": True}},
        {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
        {"metadata": {"labels": {MANAGED: "false"}}},
        {"metadata": {"annotations": {INCIDENT: "inc-9"}}},
    ],
)
def test_a_node_that_is_no_sound_spare_is_not_released(changed: Object) -> None:
    assert isinstance(released(merged(spare(), changed), FIRST), Refused)


def test_a_spare_that_another_incident_has_is_not_given_twice() -> None:
    out = given(spare(), released(spare(), FIRST))
    assert isinstance(released(out, SECOND), Refused)
    assert isinstance(put_back(out, SECOND), AlreadyDone)


@pytest.mark.parametrize("by_hand", [{"spec": {"taints": [TAINT]}}, {"metadata": {"labels": {SPARE: None}}}])
def test_what_a_person_made_of_a_released_spare_is_left_to_them(by_hand: Object) -> None:
    out = given(spare(), released(spare(), FIRST))
    decided = put_back(merged(out, by_hand), FIRST)
    assert isinstance(decided, Blocked)
    assert decided.by_person


def test_the_returned_node_takes_the_place_of_a_spare_that_stays_in_service() -> None:
    back = node("gpu-07")
    decided = put_in_reserve(back, REFILL, await_of="gpu-40")
    reserve = given(back, decided)
    assert reserve["metadata"]["labels"] == {SPARE: "true"}
    assert reserve["spec"]["taints"] == [{"key": SPARE, "effect": "NoSchedule"}]
    assert isinstance(put_in_reserve(reserve, REFILL, await_of="gpu-40"), AlreadyDone)
    used = given(spare(), released(spare(), FIRST))
    kept = given(used, let_go(used, REFILL))
    assert kept["metadata"] == {**node("gpu-40")["metadata"], "labels": {}, "annotations": {}}
    assert isinstance(let_go(kept, REFILL), AlreadyDone)


@pytest.mark.parametrize("not_yet", [{"unschedulable": True}, {"ready": False}])
def test_a_node_that_is_not_back_yet_is_waited_for(not_yet: dict[str, bool]) -> None:
    assert isinstance(put_in_reserve(node("gpu-07", **not_yet), REFILL, await_of="gpu-40"), Waiting)
