"""Drains of one sick GPU: who holds it is found, and where that cannot be known the whole node goes, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from connectors.base import AlreadyDone, Blocked, Done, Waiting
from connectors.kubernetes.client import Object
from connectors.kubernetes.gpu_devices import SickGpu, claims_of, devices_of
from sandbox.emulated.store import CLAIMS, NODES, PODS, SLICES
from tests.connectors.kubernetes.draining import NAMESPACE, NODE, Draining, draining

SICK, WELL = "GPU-aaaa", "GPU-bbbb"
DRIVER = "gpu.nvidia.com"
CONTEXT = {"family": "gpu_memory", "gpu_uuid": SICK, "gpu_pci": "0000:1b:00"}


def held(world: Draining, name: str, *ids: str, resource: str = "nvidia.com/gpu", **metadata: Any) -> None:
    """A pod of which the kubelet says that a device plugin gave it these devices."""
    world.pod(name, **metadata)

    def has(pod: Object) -> None:
        limits = {resource: str(len(ids))}
        pod["spec"]["containers"][0]["resources"] = {"limits": limits}
        resources = [{"resourceID": one, "health": "Healthy"} for one in ids]
        status = [{"name": resource, "resources": resources}] if ids else []
        pod["status"]["containerStatuses"] = [{"name": "train", "allocatedResourcesStatus": status}]

    world.put(PODS, NAMESPACE, name, has)


def evicted(world: Draining) -> set[str]:
    return {name for name, ends in world.there().items() if ends}


async def test_only_the_pod_on_the_sick_gpu_goes_and_the_drain_is_done_without_the_others() -> None:
    async with draining(scope="gpu") as world:
        world.context = CONTEXT
        held(world, "sick", SICK)
        held(world, "well", WELL)
        assert isinstance(await world.round(), Waiting)
        assert evicted(world) == {"sick"}
        world.end("sick")
        done = await world.round()
        assert evicted(world) == set()
    assert isinstance(done, Done)
    assert done.result["gone"] == ("team-a/sick",)
    assert "the GPU of gpu-07 is held by nobody, 1 pods evicted" in done.detail
    assert "what runs on the others goes on: by allocatedResourcesStatus" in done.detail


@pytest.mark.parametrize(
    "ids",
    [
        (f"{SICK}::0", f"{SICK}::1", f"{WELL}::0"),
        (f"MIG-{SICK}/1/0", f"MIG-{SICK}/2/0", f"MIG-{WELL}/1/0"),
        ("0000:1b:00.0", "00000000:1B:00.0", "0000:3b:00.0"),
    ],
    ids=["shares of one GPU", "partitions of older drivers", "AMD's ids"],
)
async def test_several_pods_on_one_gpu_go_together(ids: Sequence[str]) -> None:
    async with draining(scope="gpu") as world:
        world.context = CONTEXT
        for name, one in zip(("one", "two", "other"), ids, strict=True):
            held(world, name, one)
        await world.round()
        assert evicted(world) == {"one", "two"}


@pytest.mark.parametrize(
    ("context", "ids", "why"),
    [
        ({"family": "gpu_memory"}, (WELL,), "the incident names no GPU"),
        ({"family": "gpu_memory", "gpu_index": 3}, (WELL,), "the incident names no GPU"),
        ({"family": "gpu_nvlink", "gpu_uuid": SICK}, (WELL,), "is not one GPU's own"),
        (CONTEXT, (), "the kubelet does not say which GPUs team-a/train-0 has"),
        (CONTEXT, ("MIG-5c1d",), "whether MIG-5c1d of team-a/train-0 is on GPU"),
        ({"gpu_pci": "0000:1b:00"}, (WELL,), f"whether {WELL} of team-a/train-0 is on GPU"),
    ],
)
async def test_where_the_holder_cannot_be_known_the_whole_node_goes_and_that_is_said(
    context: dict[str, Any], ids: tuple[str, ...], why: str
) -> None:
    async with draining(scope="gpu") as world:
        world.context = context
        held(world, "train-0", *ids)
        if not ids:
            world.put(
                PODS,
                NAMESPACE,
                "train-0",
                lambda pod: pod["spec"]["containers"][0].update(
                    resources={"limits": {"nvidia.com/gpu": "1"}}
                ),
            )
        waiting = await world.round()
        assert evicted(world) == {"train-0"}
    assert isinstance(waiting, Waiting)
    assert "the whole node is drained" in waiting.detail
    assert why in waiting.detail


async def test_while_a_pod_is_just_being_started_nothing_is_done() -> None:
    async with draining(scope="gpu") as world:
        world.context = CONTEXT
        world.pod("starting", phase="Pending")
        held(world, "sick", SICK)
        waiting = await world.round()
        assert evicted(world) == set()
        assert isinstance(waiting, Waiting)
        assert "team-a/starting is just being started" in waiting.detail
        held_now = [
            {"name": "nvidia.com/gpu", "resources": [{"resourceID": f"{WELL}-{n}"} for n in range(8)]}
        ]
        status = {"containerStatuses": [{"allocatedResourcesStatus": held_now}]}
        world.put(PODS, NAMESPACE, "starting", lambda pod: pod["status"].update(status))
        await world.round()
        assert evicted(world) == {"sick"}


async def test_a_drain_of_one_gpu_never_widens_to_the_node_later() -> None:
    async with draining(scope="gpu") as world:
        world.context = CONTEXT
        held(world, "sick", SICK)
        held(world, "well", WELL)
        await world.round()
        world.put(
            PODS,
            NAMESPACE,
            "well",
            lambda pod: pod["status"]["containerStatuses"][0].update(allocatedResourcesStatus=[]),
        )
        await world.round()
        world.put(NODES, None, NODE, lambda node: node["status"]["conditions"][0].update(status="Unknown"))
        await world.round()
        assert evicted(world) == {"sick"}
        world.end("sick")
        assert isinstance(await world.round(), Done)


async def test_a_gpu_that_nobody_holds_needs_no_eviction() -> None:
    async with draining(scope="gpu") as world:
        world.context = CONTEXT
        held(world, "well", WELL)
        done = await world.round()
        assert evicted(world) == set()
    assert isinstance(done, AlreadyDone)
    assert "nobody holds it" in done.detail


async def test_the_holder_is_evicted_by_the_same_rules_as_any_pod() -> None:
    async with draining(scope="gpu") as world:
        world.context = CONTEXT
        held(world, "bare", SICK, ownerReferences=[])
        blocked = await world.round()
        assert evicted(world) == set()
    assert isinstance(blocked, Blocked)
    assert "controller" in blocked.by


def device(name: str, counters: str | None = None, **attributes: str) -> Object:
    made: Object = {"name": name, "attributes": {key: {"string": value} for key, value in attributes.items()}}
    return made | ({"consumesCounters": [{"counterSet": counters, "counters": {}}]} if counters else {})


def slice_of(*devices: Object, pool: str = NODE) -> Object:
    return {
        "metadata": {"name": f"slice-{pool}"},
        "spec": {"nodeName": NODE, "driver": DRIVER, "pool": {"name": pool}, "devices": list(devices)},
    }


def claim(world: Draining, name: str, *devices: str) -> None:
    results = [{"request": "gpu", "driver": DRIVER, "pool": NODE, "device": one} for one in devices]
    status = {"allocation": {"devices": {"results": results}}} if devices else {}
    world.store.create(CLAIMS, NAMESPACE, {"metadata": {"name": name}, "spec": {}, "status": status})


def claiming(world: Draining, name: str, claim_name: str) -> None:
    """A pod that holds GPUs by a claim alone."""
    world.pod(name)

    def claims(pod: Object) -> None:
        pod["spec"]["containers"][0].pop("resources")
        pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim_name}]

    world.put(PODS, NAMESPACE, name, claims)


async def test_by_claims_all_pods_that_share_the_sick_gpu_or_a_part_of_it_go() -> None:
    async with draining(scope="gpu") as world:
        world.context = CONTEXT
        slices = slice_of(
            device("gpu-0", "gpu-0-counters", uuid=SICK),
            device("gpu-0-mig-1g-1", "gpu-0-counters", type="mig"),
            device("gpu-0-mig-1g-2", parentUUID=SICK, type="mig"),
            device("gpu-1", "gpu-1-counters", uuid=WELL),
        )
        world.store.create(SLICES, None, slices)
        for name, devices in {
            "whole": ("gpu-0",),
            "by-counter": ("gpu-0-mig-1g-1",),
            "by-parent": ("gpu-0-mig-1g-2",),
            "well": ("gpu-1",),
        }.items():
            claim(world, name, *devices)
            claiming(world, name, name)
        claiming(world, "shares", "whole")
        waiting = await world.round()
        assert evicted(world) == {"whole", "shares", "by-counter", "by-parent"}
    assert isinstance(waiting, Waiting)
    assert "by ResourceClaims" in waiting.detail


async def test_a_claim_that_is_not_allocated_yet_is_waited_for() -> None:
    async with draining(scope="gpu") as world:
        world.context = CONTEXT
        world.store.create(SLICES, None, slice_of(device("gpu-0", uuid=SICK)))
        claim(world, "new")
        claiming(world, "train-0", "new")
        waiting = await world.round()
        assert evicted(world) == set()
    assert isinstance(waiting, Waiting)
    assert "not allocated yet" in waiting.detail


async def test_a_pod_that_holds_a_device_by_a_claim_is_drained_with_the_gpu_pods_of_a_node() -> None:
    async with draining(only="gpu") as world:
        claim(world, "c", "gpu-0")
        claiming(world, "train-0", "c")
        await world.round()
        assert evicted(world) == {"train-0"}


def test_devices_are_found_by_any_name_of_the_gpu_and_in_every_version_of_the_api() -> None:
    gpu = SickGpu.of({"gpu_pci": "0000:1b:00"})
    assert gpu is not None
    old = slice_of(
        {
            "name": "gpu-0",
            "basic": device("", **{"resource.kubernetes.io/pcieRoot": "x", "pcieBusID": "0000:1B:00.0"}),
        }
    )
    new = slice_of(device("gpu-1", **{"resource.kubernetes.io/pciBusID": "0000:1b:00.0"}), pool="other")
    assert devices_of(gpu, [old, new]) == {(DRIVER, NODE, "gpu-0"), (DRIVER, "other", "gpu-1")}
    assert devices_of(gpu, [slice_of(device("gpu-1", uuid=SICK))]) == set()


def test_the_claims_of_a_pod_are_those_it_names_those_made_for_it_and_those_of_extended_resources() -> None:
    pod: Object = {
        "spec": {
            "resourceClaims": [{"name": "a", "resourceClaimName": "shared"}, {"name": "b"}, {"name": "c"}]
        },
        "status": {
            "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "pod-b-x1"}, {"name": "c"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "pod-ext"},
        },
    }
    assert claims_of(pod) == ["shared", "pod-b-x1", "pod-ext"]
    del pod["status"]["resourceClaimStatuses"]
    assert claims_of(pod) is None
