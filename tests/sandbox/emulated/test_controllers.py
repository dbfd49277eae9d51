from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sandbox.emulated.controllers import ControllerPace, Controllers
from sandbox.emulated.store import JOBS, NODES, PODS, PYTORCH_JOBS, Store, holds
from streams.model.clock import parse_rfc3339
from tests.sandbox.emulated.kube import job, node, pytorch_job


class World:
    """A cluster whose clock the test moves."""

    def __init__(self, nodes: int) -> None:
        self.now = datetime(2026, 5, 4, 12, tzinfo=UTC)
        self.store = Store(lambda: self.now)
        self.controllers = Controllers(self.store)
        for number in range(1, nodes + 1):
            self.store.create(NODES, None, node(f"gpu-{number:02d}"))
        self.pass_s(0)

    def pass_s(self, seconds: float) -> None:
        for _ in range(max(1, int(seconds / 0.2))):
            self.now += timedelta(seconds=0.2)
            self.controllers.step()

    def pods(self) -> dict[str, str | None]:
        return {p["metadata"]["name"]: p["spec"].get("nodeName") for p in self.store.list(PODS)}

    def suspend(self, name: str, value: bool) -> None:
        thing = self.store.get(JOBS, "team", name)
        self.store.put(JOBS, thing | {"spec": {**thing["spec"], "suspend": value}})


def test_a_job_is_running_on_nodes_of_its_own() -> None:
    world = World(4)
    world.store.create(JOBS, "team", job("asr", 4))
    world.pass_s(2)
    assert world.pods() == {f"asr-{i}": f"gpu-{i + 1:02d}" for i in range(4)}
    assert world.store.get(JOBS, "team", "asr")["status"]["ready"] == 4


def test_the_pods_of_a_pytorchjob_say_who_they_are() -> None:
    world = World(2)
    world.store.create(PYTORCH_JOBS, "team", pytorch_job("llm", 2))
    world.pass_s(2)
    roles = [p["metadata"]["labels"]["training.kubeflow.org/replica-type"] for p in world.store.list(PODS)]
    assert sorted(roles) == ["master", "worker"]
    assert holds(world.store.get(PYTORCH_JOBS, "team", "llm"), "Running")


def test_a_job_that_does_not_fit_whole_is_not_placed_at_all() -> None:
    world = World(3)
    world.store.create(JOBS, "team", job("asr", 4))
    world.pass_s(2)
    assert set(world.pods().values()) == {None}
    why = world.store.list(PODS)[0]["status"]["conditions"][0]
    assert why["reason"] == "Unschedulable"
    assert "Insufficient nvidia.com/gpu" in why["message"]


def test_a_suspended_job_has_no_pods_and_a_resumed_one_has_new_ones() -> None:
    world = World(4)
    world.store.create(JOBS, "team", job("asr", 4))
    world.pass_s(2)
    before = {p["metadata"]["uid"] for p in world.store.list(PODS)}
    world.suspend("asr", True)
    world.pass_s(2)
    assert world.pods() == {}
    assert holds(world.store.get(JOBS, "team", "asr"), "Suspended")
    world.suspend("asr", False)
    world.pass_s(2)
    after = {p["metadata"]["uid"] for p in world.store.list(PODS)}
    assert len(after) == 4
    assert not after & before
    assert not holds(world.store.get(JOBS, "team", "asr"), "Suspended")


@pytest.mark.parametrize(
    "closing",
    [
        {"unschedulable": True},
        {"taints": [{"key": "faultline.dev/incident", "value": "inc-1", "effect": "NoSchedule"}]},
    ],
)
def test_a_closed_node_gets_no_pods(closing: dict[str, object]) -> None:
    world = World(2)
    thing = world.store.get(NODES, None, "gpu-01")
    world.store.put(NODES, thing | {"spec": {**thing["spec"], **closing}})
    world.store.create(JOBS, "team", job("asr", 1))
    world.pass_s(2)
    assert world.pods() == {"asr-0": "gpu-02"}


def test_a_node_with_a_gpu_less_takes_no_pod_that_wants_all() -> None:
    world = World(2)
    world.controllers.gpus["gpu-01"] = 7
    world.pass_s(1)
    world.store.create(JOBS, "team", job("asr", 1))
    world.pass_s(2)
    assert world.pods() == {"asr-0": "gpu-02"}


@pytest.mark.parametrize("is_silent", [True, False])
def test_a_node_out_of_service_lets_go_of_its_pods_only_while_it_is_not_ready(is_silent: bool) -> None:
    world = World(2)
    world.controllers.pace = ControllerPace(stop_s=3600)
    world.store.create(JOBS, "team", job("asr", 1))
    world.pass_s(2)
    if is_silent:
        world.controllers.silent.add("gpu-01")
    world.pass_s(3)
    world.suspend("asr", True)
    world.pass_s(2)
    thing = world.store.get(NODES, None, "gpu-01")
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoSchedule"}
    taints = [*thing["spec"].get("taints", []), taint]
    world.store.put(NODES, thing | {"spec": {**thing["spec"], "taints": taints}})
    world.pass_s(2)
    assert world.pods() == ({} if is_silent else {"asr-0": "gpu-01"})


def test_a_pods_deletion_timestamp_is_the_end_of_its_grace() -> None:
    world = World(1)
    world.store.create(JOBS, "team", job("asr", 1))
    world.pass_s(2)
    world.controllers.silent.add("gpu-01")
    world.store.delete(PODS, "team", "asr-0")
    about = world.store.list(PODS)[0]["metadata"]
    assert parse_rfc3339(about["deletionTimestamp"]) - world.now > timedelta(seconds=29)


def test_a_silent_node_is_not_ready_and_keeps_its_pods_in_terminating() -> None:
    world = World(1)
    world.store.create(JOBS, "team", job("asr", 1))
    world.pass_s(2)
    world.controllers.silent.add("gpu-01")
    world.pass_s(3)
    gone = world.store.get(NODES, None, "gpu-01")
    assert next(c for c in gone["status"]["conditions"] if c["type"] == "Ready")["status"] == "Unknown"
    world.suspend("asr", True)
    world.pass_s(5)
    assert "deletionTimestamp" in world.store.list(PODS)[0]["metadata"]
    world.controllers.silent.discard("gpu-01")
    world.pass_s(2)
    assert world.pods() == {}
    assert holds(world.store.get(NODES, None, "gpu-01"), "Ready")
    assert not world.store.get(NODES, None, "gpu-01")["spec"]["taints"]


def test_looking_again_changes_nothing() -> None:
    world = World(4)
    world.store.create(JOBS, "team", job("asr", 4))
    world.pass_s(3)
    version = world.store.version
    world.pass_s(5)
    assert world.store.version == version
