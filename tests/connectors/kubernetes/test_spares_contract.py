"""Releasing spares and filling the reserve up again hold to the contract, on a real API server and on the emulated one."""

from __future__ import annotations

import pytest

from connectors.base import AlreadyDone, Connector, Done, Effect, NoLease, Refused
from connectors.kubernetes.annotations import annotations_of, labels_of
from connectors.kubernetes.client import Object
from connectors.kubernetes.spares import RELEASED_BY, SPARE, TAKES_PLACE_BY, Spares
from streams.model.run import Target
from tests.connectors.kube_world import NODES, KubeWorld
from tests.contract.case import Case
from tests.contract.suite import ConnectorContract, EffectContract

RESERVE: Object = {
    "metadata": {"labels": {SPARE: "true"}},
    "spec": {"taints": [{"key": SPARE, "value": "warm", "effect": "NoSchedule"}]},
}


async def reserve(world: KubeWorld, *, pods: int = 0) -> str:
    """A node in reserve; with `pods` it has been given out already and they run there."""
    name = await world.add_node(kubelet=True)
    await world.patch_node(name, RESERVE)
    for _ in range(pods):
        await world.add_pod(name)
    return name


class SpareCase(Case):
    """An effect on a lost node and its one spare."""

    deadline_s = 120.0
    action = "release_spare"

    def __init__(self, world: KubeWorld, lost: str, spare: str) -> None:
        super().__init__(world.proxy)
        self.world, self.lost, self.spare = world, lost, spare

    def effect(self) -> Effect:
        return self.world.effect(self.action, Target("Node", self.lost), spares=f"{self.spare}=same leaf")

    def connector(self) -> Connector:
        return Spares(self.world.through_proxy())

    async def changes(self) -> int:
        keys = [
            marks(body).get(RELEASED_BY, "") for body in self.world.taken("PATCH", f"{NODES}/{self.spare}")
        ]
        return keys.count("key-1") - keys.count(None)

    async def snapshot(self) -> object:
        shown = []
        for name in (self.lost, self.spare):
            node = await self.world.node(name)
            taints = [t for t in node["spec"].get("taints") or [] if t["key"] == SPARE]
            shown.append((taints, labels_of(node).get(SPARE), annotations_of(node).get(RELEASED_BY)))
        return shown

    async def foreign_change(self) -> None:
        await self.world.patch_node(self.spare, RESERVE)


class RefillCase(SpareCase):
    action = "return_spare"

    async def changes(self) -> int:
        return [
            TAKES_PLACE_BY in marks(body) for body in self.world.taken("PATCH", f"{NODES}/{self.lost}")
        ].count(True)


def marks(body: Object) -> Object:
    return (body.get("metadata") or {}).get("annotations") or {}


class TestReleaseSpare(ConnectorContract):
    @pytest.fixture
    async def case(self, either_world: KubeWorld) -> Case:
        return SpareCase(either_world, await either_world.add_node(), await reserve(either_world))


class TestReturnSpare(EffectContract):
    """The spare is in use, so that the returned node takes its place."""

    @pytest.fixture
    async def case(self, either_world: KubeWorld) -> Case:
        world = either_world
        case = RefillCase(world, await world.add_node(kubelet=True), await reserve(world))
        release = world.effect("release_spare", Target("Node", case.lost), spares=f"{case.spare}=same leaf")
        assert isinstance(await Spares(world.cluster).apply(release, NoLease()), Done)
        await world.add_pod(case.spare)
        return case


@pytest.mark.cluster
async def test_of_two_incidents_at_once_each_gets_a_spare_of_its_own_and_a_third_gets_none(
    world: KubeWorld,
) -> None:
    spares = [await reserve(world), await reserve(world)]
    listed = " | ".join(f"{name}=same leaf" for name in spares)
    connector = Spares(world.cluster)
    given = []
    for number in (1, 2, 3):
        effect = world.effect("release_spare", Target("Node", "lost"), key=f"key-{number}", spares=listed)
        given.append(await connector.apply(effect, NoLease()))
    first, second, third = given
    assert isinstance(first, Done)
    assert isinstance(second, Done)
    assert {first.result["spare"], second.result["spare"]} == set(spares)
    assert isinstance(third, Refused)
    assert third.moot


@pytest.mark.cluster
async def test_an_idle_spare_goes_back_when_the_lost_node_is_sound(world: KubeWorld) -> None:
    lost, spare = await world.add_node(kubelet=True), await reserve(world)
    connector, listed = Spares(world.cluster), f"{spare}=same leaf"
    release = world.effect("release_spare", Target("Node", lost), spares=listed)
    assert isinstance(await connector.apply(release, NoLease()), Done)
    refill = world.effect("return_spare", Target("Node", lost), spares=listed)
    assert isinstance(await connector.apply(refill, NoLease()), Done)
    node = await world.node(spare)
    assert [t["value"] for t in node["spec"]["taints"] if t["key"] == SPARE] == ["warm"]
    assert SPARE not in labels_of(await world.node(lost))
    assert isinstance(await connector.apply(refill, NoLease()), AlreadyDone)
