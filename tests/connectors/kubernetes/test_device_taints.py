"""The sick GPU tainted as a device: shown before it takes effect, made once, and removed by nobody but its incident."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from connectors.base import Blocked, Done, NoLease, Refused, Waiting
from connectors.kubernetes.annotations import INCIDENT
from connectors.kubernetes.client import Object
from connectors.kubernetes.device_taints import SAYS_WITHIN_S, rule_name
from connectors.kubernetes.nodes import NodeConnector
from connectors.kubernetes.pod_roles import CHECKPOINT_GRACE
from sandbox.emulated.store import NODES, PODS, SLICES, TAINT_RULES, Selector
from streams.model.run import Target
from tests.connectors.kubernetes.draining import NAMESPACE, NODE, Draining, draining
from tests.connectors.kubernetes.test_gpu_scope import (
    CONTEXT,
    DRIVER,
    SICK,
    WELL,
    claim,
    claiming,
    device,
    evicted,
    slice_of,
)
from tests.connectors.objects import effect

DEVICE = (DRIVER, NODE, "gpu-0")
WOULD = "1 pod needs to be evicted in 1 namespace"


def prepared(world: Draining, **pod: Any) -> None:
    """Two GPUs given out by DRA, a pod on each."""
    world.context = CONTEXT
    world.store.create(SLICES, None, slice_of(device("gpu-0", uuid=SICK), device("gpu-1", uuid=WELL)))
    for name, held in (("sick", "gpu-0"), ("well", "gpu-1")):
        claim(world, name, held)
        claiming(world, name, name)


def rules(world: Draining) -> list[Object]:
    return world.store.list(TAINT_RULES, Selector())


def effects(world: Draining) -> list[str]:
    return [rule["spec"]["taint"]["effect"] for rule in rules(world)]


def cluster_says(world: Draining, message: str = WOULD) -> None:
    """What the controller of device taints does with a rule without effect."""

    def says(rule: Object) -> None:
        generation = rule["metadata"]["generation"]
        one = {
            "type": "EvictionInProgress",
            "status": "False",
            "message": message,
            "observedGeneration": generation,
        }
        rule["status"] = {"conditions": [one]}

    for rule in rules(world):
        world.put(TAINT_RULES, None, rule["metadata"]["name"], says)


async def test_whom_it_would_evict_is_asked_and_shown_before_it_takes_effect() -> None:
    async with draining(scope="gpu", device_taint="NoExecute") as world:
        prepared(world)
        asked = await world.round()
        assert isinstance(asked, Waiting)
        assert effects(world) == ["None"]
        (rule,) = rules(world)
        assert rule["metadata"]["name"] == rule_name(world.step, DEVICE)
        assert rule["spec"]["deviceSelector"] == {"driver": DRIVER, "pool": NODE, "device": "gpu-0"}
        cluster_says(world)
        shown = await world.round()
        assert isinstance(shown, Waiting)
        assert WOULD in shown.detail
        assert effects(world) == ["None"]
        assert evicted(world) == set()
        await world.round()
        assert effects(world) == ["NoExecute"]
        assert evicted(world) == {"sick"}
        world.end("sick")
        done = await world.round()
        assert effects(world) == ["NoExecute"]
    assert isinstance(done, Done)
    assert WOULD in str(done.result["device_taint"])


async def test_a_cluster_that_says_nothing_is_not_waited_for_for_ever() -> None:
    async with draining(scope="gpu", device_taint="NoSchedule") as world:
        prepared(world)
        await world.round()
        world.pass_time(SAYS_WITHIN_S + 1)
        shown = await world.round()
        assert isinstance(shown, Waiting)
        assert "nothing within the time" in shown.detail
        await world.round()
        assert effects(world) == ["NoSchedule"]


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: pod["metadata"].update(ownerReferences=[]),
        lambda pod: pod["metadata"].update(annotations={"karpenter.sh/do-not-disrupt": "true"}),
        lambda pod: pod["metadata"].update(annotations={CHECKPOINT_GRACE: "1h"}),
    ],
    ids=["bare", "protected", "asks for its checkpoint"],
)
async def test_a_pod_that_the_drain_spares_is_not_executed_by_the_cluster_either(change: Any) -> None:
    async with draining(scope="gpu", device_taint="NoExecute") as world:
        prepared(world)
        world.put(PODS, NAMESPACE, "sick", change)
        await world.round()
        cluster_says(world)
        await world.round()
        await world.round()
        assert effects(world) == ["NoSchedule"]


async def test_a_crash_at_any_point_makes_no_second_rule() -> None:
    async with draining(scope="gpu", device_taint="NoExecute") as world:
        prepared(world)
        await world.round()
        world.prior = {}
        await world.look()
        await world.round()
        cluster_says(world)
        await world.round()
        await world.round()
        world.prior = {}
        await world.look()
        await world.round()
        await world.round()
        assert effects(world) == ["NoExecute"]


async def test_a_rule_that_a_person_removed_is_not_made_again() -> None:
    async with draining(scope="gpu", device_taint="NoExecute") as world:
        prepared(world)
        await world.round()
        cluster_says(world)
        await world.round()
        world.store.remove(TAINT_RULES, rules(world)[0])
        stopped = await world.round()
        assert effects(world) == []
        assert evicted(world) == set()
    assert isinstance(stopped, Blocked)
    assert stopped.by_person


async def test_a_rule_of_somebody_else_under_that_name_is_left_alone() -> None:
    async with draining(scope="gpu", device_taint="NoExecute") as world:
        prepared(world)
        theirs = {"metadata": {"name": rule_name(world.step, DEVICE)}, "spec": {"taint": {"effect": "None"}}}
        world.store.create(TAINT_RULES, None, theirs)
        before = copy.deepcopy(rules(world))
        refused = await world.round()
        assert rules(world) == before
    assert isinstance(refused, Refused)


async def test_the_rules_go_with_the_cordon_and_only_ours() -> None:
    async with draining(scope="gpu", device_taint="NoSchedule") as world:
        prepared(world)
        await world.round()
        (ours,) = rules(world)
        for name, label, node in (
            ("other", "inc-2", NODE),
            ("elsewhere", "inc-1", "gpu-08"),
            ("by-hand", "inc-1", None),
        ):
            about: Object = {"name": name, "labels": {INCIDENT: label}, "annotations": {}}
            if node:
                about["annotations"] = {**ours["metadata"]["annotations"], "faultline.dev/node": node}
            world.store.create(TAINT_RULES, None, {"metadata": about, "spec": ours["spec"]})
        release = replace(effect("uncordon_node", Target("Node", NODE)), key="key-9")
        assert isinstance(await NodeConnector(world.cluster).apply(release, NoLease()), Done)
        assert sorted(rule["metadata"]["name"] for rule in rules(world)) == ["by-hand", "elsewhere", "other"]
        assert "unschedulable" not in world.store.get(NODES, None, NODE)["spec"]


async def test_a_node_that_a_person_opened_keeps_its_rules_for_them_to_see() -> None:
    async with draining(scope="gpu", device_taint="NoSchedule") as world:
        prepared(world)
        await world.round()
        world.put(NODES, None, NODE, lambda node: node["spec"].pop("unschedulable"))
        release = effect("uncordon_node", Target("Node", NODE))
        blocked = await NodeConnector(world.cluster).apply(release, NoLease())
        (rule,) = rules(world)
    assert isinstance(blocked, Blocked)
    assert f"`kubectl delete devicetaintrules {rule['metadata']['name']}` takes off" in blocked.reason


async def test_where_no_driver_publishes_the_gpu_the_drain_goes_on_without_a_taint_and_says_so() -> None:
    async with draining(scope="gpu", device_taint="NoExecute") as world:
        world.context = CONTEXT
        done = await world.round()
        assert rules(world) == []
    assert "no device taint: no DRA driver publishes the GPU" in getattr(done, "detail", "")
