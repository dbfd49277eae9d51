"""Asking a job for a checkpoint holds to the contract on a real API server: the trainer watches its job, or is called."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from connectors.base import Connector, Done, Effect, NoLease
from connectors.jobs.checkpoint_marks import REQUESTED_AT, REQUESTED_BY
from connectors.jobs.checkpoint_requests import CheckpointRequests
from connectors.kubernetes.client import path_of
from streams.job_kinds.checkpoint_way import LAST, REQUEST
from streams.model.clock import rfc3339, utc_now
from streams.model.run import Target
from tests.connectors.jobs.paths import jobs_at
from tests.connectors.kube_world import KubeWorld
from tests.contract.case import Case
from tests.contract.suite import EffectContract
from tests.testbed import workloads
from tests.testbed.waiting import eventually

everywhere = pytest.mark.parametrize(
    "either_world",
    [
        pytest.param("real", marks=pytest.mark.cluster),
        pytest.param("emulated", marks=[pytest.mark.embedded, pytest.mark.nightly]),
    ],
    indirect=True,
)


class RequestCase(Case):
    """A request to a Job that is told of it by its own annotation."""

    def __init__(self, world: KubeWorld) -> None:
        super().__init__(world.proxy)
        self.world = world
        self.path = jobs_at("Job", world.namespace, "train")

    def effect(self) -> Effect:
        return self.world.effect("request_checkpoint", Target("Job", "train", self.world.namespace))

    def connector(self) -> Connector:
        return CheckpointRequests(self.world.through_proxy())

    async def changes(self) -> int:
        taken = self.world.taken("PATCH", self.path)
        return [patch["metadata"]["annotations"].get(REQUESTED_BY) for patch in taken].count("key-1")

    async def snapshot(self) -> object:
        job = await self.world.cluster.get(self.path)
        marks = job["metadata"].get("annotations") or {}
        return job["spec"], {name: said for name, said in marks.items() if name != LAST}

    async def train(self) -> None:
        """Save whenever the job bears a request that is younger than the last save."""
        while True:
            marks = (await self.world.cluster.get(self.path))["metadata"]["annotations"]
            if marks.get(REQUESTED_AT, "") > marks.get(LAST, ""):
                saved = {LAST: rfc3339(utc_now())}
                await self.world.cluster.patch(self.path, {"metadata": {"annotations": saved}})
            await asyncio.sleep(0.05)


@everywhere
class TestRequestCheckpoint(EffectContract):
    @pytest.fixture
    async def case(self, either_world: KubeWorld) -> AsyncIterator[Case]:
        world = either_world
        made = workloads.indexed_job("train", world.namespace, pool=world.namespace, pods=1, gpus=1)
        made["metadata"]["annotations"] = {REQUEST: "annotation"}
        await world.cluster.create(jobs_at("Job", world.namespace), made)
        case = RequestCase(world)
        trainer = asyncio.create_task(case.train())
        yield case
        trainer.cancel()
        await asyncio.gather(trainer, return_exceptions=True)
        await world.cluster.delete(case.path, propagation="Background")


@pytest.mark.cluster
async def test_the_hook_of_a_running_pod_is_called_once_and_its_answer_is_the_proof(world: KubeWorld) -> None:
    asked: list[str] = []

    async def save(request: web.Request) -> web.Response:
        asked.append((await request.json())["request"] if request.method == "POST" else "poll")
        return web.json_response({"saved": True, "step": 7}, status=200 if len(asked) > 1 else 202)

    app = web.Application()
    app.router.add_route("*", "/save", save)
    runner = web.AppRunner(app)
    await runner.setup()
    place = web.TCPSite(runner, "127.0.0.1", 0)
    await place.start()
    port = int(place.name.rsplit(":", 1)[1])
    await world.add_node(kubelet=True)
    made = workloads.indexed_job("train", world.namespace, pool=world.namespace, pods=1, gpus=1)
    made["spec"]["template"]["metadata"] = made["spec"]["template"].get("metadata") or {}
    made["spec"]["template"]["metadata"].setdefault("annotations", {})[REQUEST] = f"http:{port}/save"
    made["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": port}]
    await world.cluster.create(jobs_at("Job", world.namespace), made)
    (pod,) = await world.all_run(1)
    status = path_of(
        "v1", "pods", namespace=world.namespace, name=pod["metadata"]["name"], subresource="status"
    )
    # The pods of this cluster are objects without processes: the trainer is in this one.
    await world.cluster.patch(status, {"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}})
    effect = world.effect("request_checkpoint", Target("Job", "train", world.namespace))
    requests = CheckpointRequests(world.through_proxy(), reachable=lambda ip: ip == "127.0.0.1")

    async def saved() -> Done | None:
        outcome = await requests.apply(effect, NoLease())
        return outcome if isinstance(outcome, Done) else None

    done = await eventually(saved, "the hook has saved")
    await requests.close()
    await runner.cleanup()
    await world.cluster.delete(jobs_at("Job", world.namespace, "train"), propagation="Background")
    assert done.result == {"step": 7}
    assert asked == ["key-1", "poll"]
