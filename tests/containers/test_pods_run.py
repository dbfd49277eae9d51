"""`kubectl apply -k k8s/base`, and every pod of it in a container: user, read-only root, rights, limits and probes as written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from faultline.runtime.processes import OPTIONAL, PROCESSES
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.topics import RAW_NODE_LOGS
from tests.containers.cluster import Installed
from tests.containers.pods import memory_limit
from tests.deploy.manifests import overlay
from tests.end_to_end.shippers import off_bus
from tests.testbed.control_plane import ControlPlane, unique
from tests.testbed.engine import Engine
from tests.testbed.waiting import eventually, until

BASE = tuple(name for name in PROCESSES if name not in OPTIONAL)

pytestmark = [pytest.mark.containers, pytest.mark.kafka, pytest.mark.cluster, pytest.mark.timeout(1200)]

# What an operator of one broker sets, in the Secret that the pods read their environment from.
SECRET = {
    "FAULTLINE_KAFKA__REPLICATION_FACTOR": "1",
    "FAULTLINE_KAFKA__MIN_INSYNC_REPLICAS": "1",
    "FAULTLINE_RESPONDER__MODE": "auto",
    "FAULTLINE_RESPONDER__BLAST_RADIUS__MAX_SHARE": "1",
}
ACCOUNTS = "system:serviceaccount:faultline:"
RESPONDER = f"{ACCOUNTS}responder"


@pytest.fixture(scope="module")
def installed(
    engine: Engine, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    folder = tmp_path_factory.mktemp("pods")
    with Installed.running(engine, control_plane, folder, SECRET) as installed:
        yield installed


@pytest.fixture(scope="module")
def nodes(control_plane: ControlPlane) -> Iterator[list[str]]:
    """GPU nodes, labelled as the GPU operator labels them, so that no pod of Faultline is placed there."""
    pool = unique("pods")
    yield control_plane.add_nodes(pool, 4, labels={"nvidia.com/gpu.present": "true"})
    control_plane.remove_pool(pool)


@pytest.fixture(scope="module")
def running(installed: Installed, nodes: list[str]) -> dict[str, list[str]]:
    """The containers of every Deployment, by its name, once all are ready."""
    (job,) = installed.made_pods("topics")
    assert installed.run_to_its_end(job) == 0, installed.engine.logs(job["metadata"]["name"])
    started = {name: [installed.start(pod) for pod in installed.made_pods(name)] for name in BASE}
    installed.wait_until_ready(*(name for names in started.values() for name in names))
    return started


def test_every_pod_becomes_ready(installed: Installed, running: dict[str, list[str]]) -> None:
    assert {name: len(pods) for name, pods in running.items()} == {
        "detector": 2,
        "inventory": 1,
        "correlator": 2,
        "responder": 2,
        "chat": 2,
        "notifier": 2,
        "gateway": 2,
    }
    installed.complain(*(name for names in running.values() for name in names))


async def test_a_gpu_off_the_bus_closes_its_node_and_no_other(
    installed: Installed, running: dict[str, list[str]], nodes: list[str], control_plane: ControlPlane
) -> None:
    bad, *good = nodes
    mark = control_plane.audit.mark()
    settings = KafkaSettings(bootstrap=installed.bootstrap)
    producer = await clients.started(clients.producer(settings), settings)
    try:
        line = orjson.dumps(off_bus(bad))
        await producer.send_and_wait(clients.topic_name(settings, RAW_NODE_LOGS), line, key=bad.encode())
    finally:
        await producer.stop()
    await eventually(lambda: closed(control_plane, bad), f"{bad} is cordoned", timeout_s=240)
    assert not any([await closed(control_plane, node) for node in good])
    changed = [w for w in control_plane.audit.writes(since=mark) if w.user.startswith(ACCOUNTS)]
    assert {(w.user, w.verb, w.name) for w in changed if w.resource == "nodes"} == {(RESPONDER, "patch", bad)}
    for name in (name for names in running.values() for name in names):
        installed.complain(name)
        assert not installed.judgement(name).lost_readiness


async def closed(control_plane: ControlPlane, node: str) -> bool:
    return bool(control_plane.get(f"node/{node}")["spec"].get("unschedulable"))


def test_nobody_comes_near_the_limit_of_memory(installed: Installed, running: dict[str, list[str]]) -> None:
    for process in running:
        for pod in installed.made_pods(process):
            name = pod["metadata"]["name"]
            assert not installed.engine.inspect(name)["State"]["OOMKilled"]
            assert installed.peak_memory(name) < memory_limit(pod) / 2, name


def test_with_work_on_nodes_the_responder_finds_its_templates(
    installed: Installed, running: dict[str, list[str]], tmp_path: Path
) -> None:
    installed.apply(overlay(tmp_path, "node-work"))
    installed.refresh()
    # The new one comes before an old one may go: the old have not been reported ready to this API server.
    added = until(
        lambda: [p for p in installed.pods("responder") if p["metadata"]["name"] not in running["responder"]],
        "a responder with templates is admitted",
    )
    name = installed.start(added[0])
    installed.wait_until_ready(name)
    running["responder"].append(name)


def test_every_process_ends_in_order_within_its_grace_period_and_starts_again(
    installed: Installed, running: dict[str, list[str]]
) -> None:
    ended = {name: installed.end(pods[0]) for name, pods in running.items()}
    assert ended == dict.fromkeys(BASE, 0)
    again = [installed.start_again(pods[0]) for pods in running.values()]
    installed.wait_until_ready(*again)
    assert {name: installed.end(name) for name in again} == dict.fromkeys(again, 0)
