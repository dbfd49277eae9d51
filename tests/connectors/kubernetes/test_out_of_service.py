"""When a dead node is declared out of service and when that ends, decided from the objects alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from connectors.base import Blocked, Outcome, Refused, Waiting
from connectors.kubernetes.annotations import GIVEN_UP, INCIDENT, MANAGED
from connectors.kubernetes.client import Object
from connectors.kubernetes.cordon_ownership import cordon, release
from connectors.kubernetes.drain import back_in_service, give_up
from connectors.kubernetes.guarded_patch import GuardedChange
from connectors.kubernetes.objects import is_ready
from connectors.kubernetes.out_of_service import (
    OVERDUE_S,
    TAINT,
    given_up_for,
    hangs,
    is_out_of_service,
    taken_back,
)
from streams.model.clock import rfc3339
from streams.model.run import Target
from tests.connectors.objects import effect, made, merged, node, pod

TARGET = Target("Node", "gpu-07", uid="uid-gpu-07")
DRAIN, OTHER_DRAIN = effect("drain_node", TARGET), effect("drain_node", TARGET, 2)
CORDON, OTHER_CORDON = effect("cordon_node", TARGET), effect("cordon_node", TARGET, 2)
GRACE_ENDS = datetime(2026, 5, 4, 12, tzinfo=UTC)
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}


def closed(*, ready: bool = False) -> Object:
    one = node(ready=ready, taints=[UNREACHABLE])
    return made(one, cordon(one, CORDON))


def given_up() -> Object:
    return made(closed(), give_up(closed(), DRAIN))


def revived(one: Object) -> Object:
    found: Object = merged(one, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    return found


def keys(one: Object) -> list[str]:
    return [taint["key"] for taint in one["spec"].get("taints") or []]


@pytest.mark.parametrize(
    ("after_s", "is_hanging"), [(-30, False), (0, False), (OVERDUE_S - 1, False), (OVERDUE_S, True)]
)
def test_a_pod_hangs_when_its_grace_is_over_and_not_when_it_begins(after_s: float, is_hanging: bool) -> None:
    now = GRACE_ENDS + timedelta(seconds=after_s)
    assert hangs(pod("worker-0", deletionTimestamp=rfc3339(GRACE_ENDS)), now) is is_hanging
    assert not hangs(pod("worker-1"), now)


@pytest.mark.parametrize("status", ["Unknown", "False", None])
def test_a_node_that_does_not_say_that_it_is_ready_is_not(status: str | None) -> None:
    conditions = [{"type": "Ready", "status": status}] if status else []
    assert not is_ready({"status": {"conditions": conditions}})
    assert is_ready(node())


def test_a_dead_node_that_we_hold_is_declared_out_of_service_and_keeps_all_else() -> None:
    one = given_up()
    assert TAINT in one["spec"]["taints"]
    assert set(keys(closed())) < set(keys(one))
    assert given_up_for(one) == "inc-1"
    again = give_up(one, DRAIN)
    assert isinstance(again, Waiting), "it is declared once"


@pytest.mark.parametrize(
    ("one", "outcome"),
    [
        (closed(ready=True), Waiting),
        (node(ready=False, unschedulable=True), Waiting),
        (merged(closed(), {"metadata": {"uid": "of-another-machine"}}), Refused),
        (merged(closed(), {"metadata": {"labels": {MANAGED: "false"}}}), Refused),
        (merged(closed(), {"spec": {"unschedulable": None}}), Blocked),
        (merged(closed(), {"spec": {"taints": [UNREACHABLE]}}), Blocked),
        (node(ready=False), Refused),
    ],
    ids=["ready", "a persons cordon", "another machine", "kept off", "uncordoned", "untainted", "open"],
)
def test_no_other_node_is_declared_out_of_service(one: Object, outcome: type[Outcome]) -> None:
    assert isinstance(give_up(one, DRAIN), outcome)


def test_a_node_that_another_incident_closed_is_not_ours_to_declare() -> None:
    decided = give_up(closed(), OTHER_DRAIN)
    assert isinstance(decided, Waiting)
    assert "not cordoned for this incident" in decided.detail


def test_a_person_who_takes_the_declaration_back_has_the_last_word() -> None:
    by_hand = merged(given_up(), {"spec": {"taints": closed()["spec"]["taints"]}})
    decided = give_up(by_hand, DRAIN)
    assert isinstance(decided, Blocked)
    assert decided.by_person


def test_what_somebody_else_declared_is_used_and_left_to_them() -> None:
    theirs = TAINT | {"effect": "NoExecute"}
    one = merged(closed(), {"spec": {"taints": [*closed()["spec"]["taints"], theirs]}})
    assert isinstance(give_up(one, DRAIN), Waiting)
    after = made(one, release(one, CORDON, lambda owner: True))
    assert after["spec"]["taints"] == [UNREACHABLE, theirs]
    marked = merged(one, {"metadata": {"annotations": {GIVEN_UP: "inc-1"}}})
    assert theirs in merged(marked, taken_back(marked))["spec"]["taints"]


def test_a_node_that_is_ready_again_is_in_service_again() -> None:
    one = revived(given_up())
    after = made(one, back_in_service(one, DRAIN))
    assert not is_out_of_service(after)
    assert given_up_for(after) is None
    assert INCIDENT in keys(after), "it stays closed"
    assert isinstance(back_in_service(after, DRAIN), Waiting)
    assert isinstance(back_in_service(given_up(), DRAIN), Waiting), "but not before"


@pytest.mark.parametrize("ready", [True, False])
def test_the_declaration_goes_with_the_cordon(ready: bool) -> None:
    one = revived(given_up()) if ready else given_up()
    after = made(one, release(one, CORDON, lambda owner: owner.key == CORDON.key))
    assert after["spec"] == {"taints": [UNREACHABLE]}
    assert after["metadata"]["annotations"] == {}


def test_the_declaration_goes_with_the_incident_it_was_made_for_while_others_hold_the_node() -> None:
    shared = made(given_up(), cordon(given_up(), OTHER_CORDON))
    left = made(shared, release(shared, CORDON, lambda owner: owner.key == CORDON.key))
    assert not is_out_of_service(left)
    assert INCIDENT in keys(left)
    kept = made(shared, release(shared, OTHER_CORDON, lambda owner: owner.key == OTHER_CORDON.key))
    assert is_out_of_service(kept)
    assert given_up_for(kept) == "inc-1"


def test_the_command_a_person_is_told_removes_the_declaration_too() -> None:
    decided = release(merged(given_up(), {"spec": {"unschedulable": None}}), CORDON, lambda owner: True)
    assert isinstance(decided, Blocked)
    assert f"{TAINT['key']}-" in decided.reason


def test_a_cordon_that_is_not_followed_by_a_declaration_writes_none() -> None:
    decided = release(closed(), CORDON, lambda owner: True)
    assert isinstance(decided, GuardedChange)
    assert GIVEN_UP not in decided.patch["metadata"]["annotations"]
