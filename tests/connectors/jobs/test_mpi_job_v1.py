"""MPIJobs of the training operator (kubeflow.org/v1), through that operator: a cluster that has them has no others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.connectors.jobs.test_jobs_contract import ResumeCase, SuspendCase, created, job, stopped
from tests.connectors.jobs.test_jobs_on_a_cluster import leave_the_bad_node
from tests.connectors.kube_world import KubeWorld
from tests.contract.case import Case
from tests.contract.suite import ConnectorContract, EffectContract
from tests.testbed.control_plane import ControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

KIND, VERSION = "MPIJob", "kubeflow.org/v1"


@pytest.fixture(scope="module")
def mpi_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane.running(tmp_path_factory.mktemp("mpi"), operated=(KIND,)) as running:
        yield running


@pytest.fixture
async def mpi_world(mpi_plane: ControlPlane) -> AsyncIterator[KubeWorld]:
    async with KubeWorld.on(mpi_plane.kubeconfig(), mpi_plane.silence, mpi_plane) as world:
        yield world


async def test_an_mpi_job_leaves_its_bad_node_and_is_whole_elsewhere(mpi_world: KubeWorld) -> None:
    await leave_the_bad_node(mpi_world, KIND)


class TestSuspendMpiJob(ConnectorContract):
    @pytest.fixture
    async def case(self, mpi_world: KubeWorld) -> Case:
        await created(mpi_world, KIND, await job(KIND, mpi_world), pods=2)
        return SuspendCase(mpi_world, KIND, VERSION)


class TestResumeMpiJob(EffectContract):
    @pytest.fixture
    async def case(self, mpi_world: KubeWorld) -> Case:
        await created(mpi_world, KIND, stopped(KIND, await job(KIND, mpi_world)))
        return ResumeCase(mpi_world, KIND, VERSION)
