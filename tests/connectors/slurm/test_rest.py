"""The same steps by slurmrestd's HTTP, through a stand-in before a real slurmctld, with everything that a network does to it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from connectors.base import AlreadyDone, Connector, Done, Effect, NoLease, Refused, Retry
from connectors.slurm.commands import Commands
from connectors.slurm.connector import Slurm
from connectors.slurm.rest import Rest
from tests.connectors.slurm.slurmrestd import VERSION, Slurmrestd
from tests.connectors.slurm.worlds import carried_out, on_job, on_node, slurm_of
from tests.contract.case import Case
from tests.contract.faults import Answer, FaultProxy
from tests.contract.suite import ConnectorContract, EffectContract
from tests.testbed.slurm import SlurmCluster
from tests.testbed.waiting import until

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with SlurmCluster.running(nodes=2) as running:
        yield running


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("SLURM_JWT=token-1\n")
    return tmp_path / "token"


class RestCase(Case):
    """An effect by HTTP; the requeue goes by the commands, past the proxy."""

    def __init__(self, proxy: FaultProxy, cluster: SlurmCluster, token_file: Path) -> None:
        super().__init__(proxy)
        self.cluster = cluster
        self.token_file = token_file

    def connector(self) -> Connector:
        commands = Commands(config=self.cluster.config)
        rest = Rest(
            self.proxy.url,
            user="root",
            token_file=self.token_file,
            version=VERSION,
            timeout_s=1.0,
            requeues=commands,
        )
        return slurm_of(rest)

    def refusal(self) -> Answer:
        error = {
            "error": "Access/permission denied",
            "error_number": 2002,
            "description": "Failed",
            "source": "x",
        }
        return Answer(500, json.dumps({"errors": [error]}), {"Content-Type": "application/json"})


class CordonCase(RestCase):
    def effect(self) -> Effect:
        return on_node("cordon_node", "gpu-1")

    async def changes(self) -> int:
        return self.cluster.nodes()["gpu-1"].comment.count("key-1")

    async def foreign_change(self) -> None:
        self.cluster.run("scontrol", "update", "NodeName=gpu-1", "State=DRAIN", "Reason=I look at it")

    async def snapshot(self) -> object:
        node = self.cluster.nodes()["gpu-1"]
        return node.drained, node.reason, node.comment


class SuspendCase(RestCase):
    """`changes` counts how often the job was put back into the queue and is held by this effect."""

    job = 0

    def effect(self) -> Effect:
        return on_job("suspend_job", self.job)

    async def changes(self) -> int:
        job = self.cluster.job(self.job)
        return job.restarts if job.held or job.restarts > 1 else 0

    async def foreign_change(self) -> None:
        self.cluster.run("scontrol", "release", str(self.job))

    async def snapshot(self) -> object:
        job = self.cluster.job(self.job)
        return job.held, job.restarts, job.admin_comment


@pytest.fixture
async def proxy(cluster: SlurmCluster) -> AsyncIterator[FaultProxy]:
    async with Slurmrestd(cluster).served() as url, FaultProxy(url) as between:
        yield between


@pytest.mark.nightly
class TestCordonNode(ConnectorContract):
    @pytest.fixture
    async def case(self, proxy: FaultProxy, cluster: SlurmCluster, token_file: Path) -> AsyncIterator[Case]:
        yield CordonCase(proxy, cluster, token_file)
        cluster.run("scontrol", "update", "NodeName=gpu-1", "State=UNDRAIN", "Comment=")
        until(lambda: cluster.nodes()["gpu-1"].states == {"IDLE"}, "gpu-1 is idle")


@pytest.mark.nightly
class TestSuspendJob(EffectContract):
    @pytest.fixture
    async def case(self, proxy: FaultProxy, cluster: SlurmCluster, token_file: Path) -> AsyncIterator[Case]:
        made = SuspendCase(proxy, cluster, token_file)
        made.job = cluster.submit(1)
        yield made
        cluster.run("scancel", str(made.job))
        until(lambda: not any(node.busy for node in cluster.nodes().values()), "the nodes are free")


def _replace(file: Path, token: str | None) -> None:
    file.unlink()
    if token is not None:
        file.write_text(token)


def rest(url: str, token_file: Path, requeues: Commands | None = None) -> Slurm:
    return slurm_of(Rest(url, user="root", token_file=token_file, requeues=requeues))


async def test_a_job_is_moved_by_http_and_only_its_requeue_by_a_command(
    cluster: SlurmCluster, token_file: Path
) -> None:
    job, server = cluster.submit(1), Slurmrestd(cluster)
    async with server.served() as url:
        slurm = rest(url, token_file, Commands(config=cluster.config))
        assert isinstance(await carried_out(slurm, on_job("suspend_job", job)), Done)
        assert isinstance(await carried_out(slurm, on_job("resume_job", job, "key-5-1", avoid="gpu-1")), Done)
        back = await carried_out(slurm, on_job("verify_job", job))
        assert isinstance(back, Done)
        assert dict(back.result)["placements"] == (f"{job}=gpu-2",)
        await slurm.close()
    assert f"POST /slurm/{VERSION}/job/{job}" in server.seen
    cluster.run("scancel", str(job))


async def test_without_the_commands_a_running_job_is_not_moved(
    cluster: SlurmCluster, token_file: Path
) -> None:
    job = cluster.submit(1)
    async with Slurmrestd(cluster).served() as url:
        slurm = rest(url, token_file)
        refused = await slurm.apply(on_job("suspend_job", job), NoLease())
        assert isinstance(refused, Refused)
        assert "slurm.commands" in refused.reason
        await slurm.close()
    assert (cluster.job(job).running, cluster.job(job).admin_comment) == (True, "")
    cluster.run("scancel", str(job))


async def test_a_token_that_is_replaced_is_read_again(cluster: SlurmCluster, token_file: Path) -> None:
    server = Slurmrestd(cluster)
    async with server.served() as url:
        slurm, effect = rest(url, token_file), on_node("drain_node", "gpu-1")
        server.token = "token-2"
        assert isinstance(await slurm.lookup(effect), Retry)
        _replace(token_file, "token-2")
        assert not isinstance(await slurm.lookup(effect), Retry)
        _replace(token_file, None)
        assert isinstance(await slurm.lookup(effect), Retry)
        await slurm.close()


async def test_what_nobody_knows_is_missing_and_no_failure(cluster: SlurmCluster, token_file: Path) -> None:
    async with Slurmrestd(cluster).served() as url:
        slurm = rest(url, token_file)
        assert isinstance(await slurm.apply(on_node("cordon_node", "gpu-9"), NoLease()), Refused)
        gone = await slurm.apply(on_job("suspend_job", 99_999), NoLease())
        assert isinstance(gone, Refused)
        assert gone.moot
        assert isinstance(await slurm.apply(on_node("uncordon_node", "gpu-9"), NoLease()), AlreadyDone)
        await slurm.close()
