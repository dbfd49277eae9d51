"""What the simulated operators do is what their projects document, on a real API server."""

from __future__ import annotations

import pytest

from connectors.kubernetes.client import Object, path_of
from streams.job_kinds.job_set import JOB_SET
from tests.connectors.jobs.paths import jobs_at
from tests.connectors.jobs.simulated import simulating
from tests.connectors.kube_world import KubeWorld
from tests.testbed.simulators.job_sets import job_set
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.cluster


async def crash(world: KubeWorld, pod: Object) -> None:
    world.real.annotate("pod", pod["metadata"]["name"], "outcome=crash", namespace=world.namespace)


async def test_a_job_set_restarts_as_a_whole_while_it_may_and_then_fails_for_good(world: KubeWorld) -> None:
    """JobSet, Failure policy: maxRestarts; RestartJobSet recreates all Jobs; then the condition Failed, which is final."""
    for _ in range(2):
        await world.add_node(kubelet=True)
    path = jobs_at("JobSet", world.namespace)
    async with simulating("JobSet", world):
        await world.cluster.create(
            path, job_set("train", world.namespace, pool=world.namespace, pods=1, restarts=1)
        )
        pods = await world.all_run(2)
        before = {pod["metadata"]["uid"] for pod in pods}
        await crash(world, pods[0])

        async def anew() -> list[Object] | None:
            running = [pod for pod in await world.pods() if pod["status"].get("phase") == "Running"]
            fresh = [pod for pod in running if pod["metadata"]["uid"] not in before]
            return fresh if len(fresh) == len(running) == 2 else None

        again = await eventually(anew, "both Jobs were made anew")
        restarted = await world.cluster.get(f"{path}/train")
        assert (restarted["status"]["restarts"], JOB_SET.end(restarted)) == (1, None)
        retries = JOB_SET.retries(restarted)
        assert retries is not None
        assert retries.left == 0
        await crash(world, again[0])

        async def failed() -> bool:
            end = JOB_SET.end(await world.cluster.get(f"{path}/train"))
            return end is not None and end.failed

        await eventually(failed, "no restart is left")

        async def nothing_runs() -> bool:
            jobs = await world.cluster.list_all(path_of("batch/v1", "jobs", namespace=world.namespace))
            return all((job.get("status") or {}).get("active", 0) == 0 for job in jobs)

        await eventually(nothing_runs, "the other Job has gone with it")


async def test_jobs_of_a_set_that_have_completed_stay_so_when_it_is_suspended_and_resumed(
    world: KubeWorld,
) -> None:
    """JobSet, API reference: `suspend` suspends all running child Jobs; replicatedJobsStatus counts those that succeeded."""
    await world.add_node(kubelet=True)
    path = jobs_at("JobSet", world.namespace)
    async with simulating("JobSet", world):
        made = job_set("train", world.namespace, pool=world.namespace, pods=1, gpus=1)
        await world.cluster.create(path, made)
        first, *_ = await world.all_run(2)
        world.real.annotate("pod", first["metadata"]["name"], "outcome=complete", namespace=world.namespace)

        async def one_done() -> bool:
            return JOB_SET.pods(await world.cluster.get(f"{path}/train")) == 1

        await eventually(one_done, "one Job is complete, and one pod should run")
        await world.cluster.patch(f"{path}/train", JOB_SET.suspend(True))

        async def suspended() -> bool:
            active = [pod for pod in await world.pods() if pod["status"].get("phase") != "Succeeded"]
            return JOB_SET.is_suspension_seen(await world.cluster.get(f"{path}/train")) and not active

        await eventually(suspended, "the other Job's pod is gone")
        await world.cluster.patch(f"{path}/train", JOB_SET.suspend(False))

        async def resumed() -> bool:
            phases = sorted(pod["status"].get("phase") for pod in await world.pods())
            seen = JOB_SET.is_suspension_seen(await world.cluster.get(f"{path}/train"))
            return phases == ["Running", "Succeeded"] and not seen

        await eventually(resumed, "only the Job that was not complete runs again")
