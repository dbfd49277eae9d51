"""The kinds whose operators cannot be had here: their definitions, what plays their operators, and a job of each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import tests.testbed
from connectors.kubernetes.client import Object
from connectors.kubernetes.errors import NotFound
from tests.connectors.jobs.paths import jobs_at
from tests.connectors.kube_world import KubeWorld
from tests.testbed import programs
from tests.testbed.control_plane import ControlPlane
from tests.testbed.simulators.app_wrappers import AppWrappers, app_wrapper
from tests.testbed.simulators.job_sets import JobSets, job_set
from tests.testbed.simulators.mpi_jobs import MPIJobs, mpi_job
from tests.testbed.simulators.reconciler import Reconciler
from tests.testbed.simulators.train_jobs import TrainJobs, train_job
from tests.testbed.waiting import eventually

CRDS = Path(tests.testbed.__file__).parent / "crds"


@dataclass(frozen=True)
class Simulated:
    """A kind: its definitions, the controllers at work, and `build(name, namespace, pool=…, pods=…, gpus=…)`."""

    definitions: tuple[str, ...]
    controllers: tuple[type[Reconciler], ...]
    build: Callable[..., Object]


SIMULATED = {
    "JobSet": Simulated(("jobset",), (JobSets,), lambda *where, **how: job_set(*where, jobs=1, **how)),
    "TrainJob": Simulated(("jobset", "trainjob"), (JobSets, TrainJobs), train_job),
    "AppWrapper": Simulated(("appwrapper",), (AppWrappers,), app_wrapper),
    "MPIJob": Simulated(("mpijob",), (MPIJobs,), mpi_job),
}
"""MPIJob is that of the MPI operator, v2beta1: its definition cannot be installed beside the training operator's."""


@contextmanager
def without_operators(folder: Path) -> Iterator[ControlPlane]:
    """A control plane without the training operator."""
    plane = ControlPlane(folder)
    try:
        plane.prepare()
        for name in programs.ORDER:
            if name != "training-operator":
                plane.start_component(name)
        yield plane
    finally:
        plane.stop()


@asynccontextmanager
async def simulating(kind: str, world: KubeWorld) -> AsyncIterator[None]:
    """Serve the kind and let its operators work for a `async with` block; its jobs are deleted at the end."""
    chosen = SIMULATED[kind]
    world.real.define(*(CRDS / f"{name}.yaml" for name in chosen.definitions))
    async with AsyncExitStack() as stack:
        for controller in chosen.controllers:
            await stack.enter_async_context(controller.running(world.cluster, world.namespace))
        yield
        for job in await world.cluster.list_all(jobs_at(kind, world.namespace)):
            path = jobs_at(kind, world.namespace, job["metadata"]["name"])
            with suppress(NotFound):  # it goes with its owner
                await world.cluster.delete(path, propagation="Background")

        async def gone() -> bool:
            return not await world.cluster.list_all(jobs_at(kind, world.namespace))

        await eventually(gone, f"no {kind} is left in {world.namespace}")
