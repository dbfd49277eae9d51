"""What the simulated operators do is what their projects document, on a real API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.base import NoLease, Refused
from connectors.jobs.training import TrainingJobs
from connectors.kubernetes.client import Object, path_of
from connectors.kubernetes.errors import NotFound
from streams.job_kinds.job_set import JOB_SET
from streams.job_kinds.kind import JobKind
from streams.job_kinds.known import KNOWN
from streams.model.run import Target
from tests.connectors.jobs.paths import jobs_at
from tests.connectors.jobs.simulated import simulating, without_operators
from tests.connectors.kube_world import KubeWorld
from tests.testbed.simulators.app_wrappers import app_wrapper
from tests.testbed.simulators.job_sets import job_set
from tests.testbed.simulators.mpi_jobs import mpi_job
from tests.testbed.simulators.train_jobs import train_job
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


async def ended(world: KubeWorld, kind: JobKind, *, failed: bool) -> None:
    async def over() -> bool:
        end = kind.end(await world.cluster.get(jobs_at(kind.name, world.namespace, "train")))
        return end is not None and end.failed == failed

    await eventually(over, f"the {kind.name} has {'failed' if failed else 'succeeded'}")


async def test_a_train_job_that_failed_has_failed_for_good(world: KubeWorld) -> None:
    """Kubeflow Trainer, API reference: the condition Failed is final; nothing makes the JobSet of such a job anew."""
    await world.add_node(kubelet=True)
    kind, path = KNOWN["TrainJob"], jobs_at("TrainJob", world.namespace)
    async with simulating("TrainJob", world):
        made = await world.cluster.create(
            path, train_job("train", world.namespace, pool=world.namespace, pods=1)
        )
        (pod,) = await world.all_run(1)
        await crash(world, pod)
        await ended(world, kind, failed=True)
        target = Target("TrainJob", "train", world.namespace, made["metadata"]["uid"])
        for action in ("suspend_job", "resume_job"):
            refused = await TrainingJobs(world.cluster).apply(world.effect(action, target), NoLease())
            assert isinstance(refused, Refused)
            assert "has ended: Failed" in refused.reason
        patches = world.writes(namespace=world.namespace, verb="patch", resource="trainjobs", name="train")
        assert not [one for one in patches if not one.subresource]


async def test_an_app_wrapper_deletes_and_makes_anew_what_it_wraps_and_counts_only_its_own_resets(
    world: KubeWorld,
) -> None:
    """AppWrapper, Framework controller, Fault tolerance: suspending deletes components; a failed pod resets it, then fails it."""
    await world.add_node(kubelet=True)
    kind, path = KNOWN["AppWrapper"], jobs_at("AppWrapper", world.namespace, "train")
    inner = path_of("batch/v1", "jobs", namespace=world.namespace, name="train-job")

    async def made_anew(before: Object) -> Object | None:
        try:
            job = await world.cluster.get(inner)
        except NotFound:
            return None
        running = [pod for pod in await world.pods() if pod["status"].get("phase") == "Running"]
        return job if job["metadata"]["uid"] != before["metadata"]["uid"] and len(running) == 1 else None

    async with simulating("AppWrapper", world):
        wrapper = app_wrapper("train", world.namespace, pool=world.namespace, pods=1)
        wrapper["metadata"]["annotations"] = {"workload.codeflare.dev.appwrapper/retryLimit": "1"}
        await world.cluster.create(jobs_at("AppWrapper", world.namespace), wrapper)
        await world.all_run(1)
        first = await world.cluster.get(inner)
        await world.cluster.patch(path, kind.suspend(True))

        async def suspended() -> bool:
            return bool((await world.cluster.get(path))["status"]["phase"] == "Suspended")

        await eventually(suspended, "it is suspended")
        assert await world.pods() == []
        with pytest.raises(NotFound):
            await world.cluster.get(inner)
        await world.cluster.patch(path, kind.suspend(False))
        second = await eventually(lambda: made_anew(first), "its Job is another one")
        retries = kind.retries(await world.cluster.get(path))
        assert retries is not None
        assert retries.left == 1, "a suspension is no retry"
        await crash(world, (await world.all_run(1))[0])
        await eventually(lambda: made_anew(second), "it has reset itself")
        (pod,) = [pod for pod in await world.pods() if pod["status"].get("phase") == "Running"]
        await crash(world, pod)
        await ended(world, kind, failed=True)


@pytest.mark.nightly  # a control plane of its own
async def test_an_mpi_job_is_over_with_its_launcher(tmp_path: Path) -> None:
    """MPI operator, API reference: suspending resets startTime; the launcher's end is the job's, and workers are cleaned up."""
    kind = KNOWN["MPIJob"]
    with without_operators(tmp_path) as plane:
        async with (
            KubeWorld.on(plane.kubeconfig(), plane.silence, plane) as world,
            simulating("MPIJob", world),
        ):
            await world.add_node(kubelet=True)
            path = jobs_at("MPIJob", world.namespace)
            job = mpi_job("train", world.namespace, pool=world.namespace, pods=3, gpus=1)
            await world.cluster.create(path, job)
            await world.all_run(3)
            await world.cluster.patch(f"{path}/train", kind.suspend(True))

            async def suspended() -> bool:
                shown = await world.cluster.get(f"{path}/train")
                return (
                    kind.is_suspension_seen(shown) and not kind.incarnation(shown) and not await world.pods()
                )

            await eventually(suspended, "it has no pod and no start time")
            await world.cluster.patch(f"{path}/train", kind.suspend(False))
            pods = await world.all_run(3)
            (launcher,) = [pod for pod in pods if "launcher" in pod["metadata"]["name"]]
            name = launcher["metadata"]["name"]
            world.real.annotate("pod", name, "outcome=complete", namespace=world.namespace)
            await ended(world, kind, failed=False)

            async def only_the_launcher() -> bool:
                return [pod["metadata"]["name"] for pod in await world.pods()] == [name]

            await eventually(only_the_launcher, "its workers are gone")
