"""`docker compose up`, the monitoring apart: healthy by its checks, a line becomes an incident in shadow, and nothing stays."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from faultline.runtime.processes import OPTIONAL, PROCESSES
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.topics import RAW_NODE_LOGS
from tests.containers.composed import SERVICES, Composed
from tests.end_to_end.shippers import off_bus
from tests.testbed import forwarding
from tests.testbed.children import free_port
from tests.testbed.control_plane import ControlPlane, unique
from tests.testbed.engine import Engine
from tests.testbed.images import ROOT
from tests.testbed.waiting import eventually, until

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.containers,
    pytest.mark.kafka,
    pytest.mark.cluster,
    pytest.mark.timeout(1200),
]

PUBLISHED = "127.0.0.1:29092"
PROFILE = "standins"
WITH_STAND_INS = ("--env-file", str(ROOT / "standins.env"), "--profile", PROFILE)
UP = [name for name, service in SERVICES.items() if PROFILE in service.get("profiles", [PROFILE])]
"""What belongs to no profile, and the stand-ins; not what watches them."""
BASE = tuple(name for name in PROCESSES if name not in OPTIONAL)
HISTORY = """
import json, os, urllib.request
url = os.environ["FAULTLINE_SLACK__BASE_URL"] + "/conversations.history?channel=" + os.environ["FAULTLINE_SLACK__CHANNEL"]
ask = urllib.request.Request(url, headers={"Authorization": "Bearer " + os.environ["FAULTLINE_SLACK__TOKEN"]})
print(urllib.request.urlopen(ask, timeout=5).read().decode())
"""


@pytest.fixture(scope="module")
def node(control_plane: ControlPlane) -> Iterator[str]:
    pool = unique("composed")
    yield control_plane.add_nodes(pool, 1)[0]
    control_plane.remove_pool(pool)


@pytest.fixture(scope="module")
def composed(
    engine: Engine, control_plane: ControlPlane, node: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Composed]:
    """The whole file, with the stand-ins, up and healthy."""
    folder = tmp_path_factory.mktemp("composed")
    kubeconfig = folder / "kubeconfig"
    with Composed.prepared(engine, WITH_STAND_INS, {"KUBECONFIG": str(kubeconfig)}) as composed:
        composed.up("kafka")
        address = f"{composed.gateway()}:{free_port()}"
        target = control_plane.server.removeprefix("https://")
        forwarder = forwarding.start(address, target, folder / "forwarding.log")
        write_kubeconfig(control_plane, address, kubeconfig)
        try:
            composed.up(*UP)
            composed.wait_until_healthy(*BASE)
            yield composed
        finally:
            forwarder.stop()


def write_kubeconfig(control_plane: ControlPlane, address: str, target: Path) -> None:
    """One as people have it: whole in itself, and nobody else's to read."""
    flat = control_plane.kubectl("config", "view", "--flatten", "--raw", "-o", "json")
    config = json.loads(flat)
    config["clusters"][0]["cluster"] |= {
        "server": f"https://{address}",
        "tls-server-name": "kubernetes.default.svc",
    }
    target.write_text(yaml.safe_dump(config))
    target.chmod(0o600)


def test_every_process_is_healthy(composed: Composed) -> None:
    assert [name for name in BASE if not composed.is_healthy(name)] == []


async def test_a_line_becomes_an_incident_in_shadow_with_a_thread_and_the_node_stays_open(
    composed: Composed, control_plane: ControlPlane, node: str
) -> None:
    mark = control_plane.audit.mark()
    settings = KafkaSettings(bootstrap=PUBLISHED)
    producer = await clients.started(clients.producer(settings), settings)
    try:
        line = json.dumps(off_bus(node)).encode()
        await producer.send_and_wait(clients.topic_name(settings, RAW_NODE_LOGS), line, key=node.encode())
    finally:
        await producer.stop()

    async def listed() -> bool:
        return node in composed.run_in("responder", "faultline", "incidents", "list")

    async def posted() -> bool:
        history = json.loads(composed.run_in("chat", "python", "-c", HISTORY))
        return any(node in json.dumps(message) for message in history["messages"])

    await eventually(listed, "the incident is listed", timeout_s=240)
    await eventually(posted, "it has a thread", timeout_s=240)
    assert control_plane.get(f"node/{node}")["spec"].get("unschedulable") is None
    assert control_plane.audit.writes(since=mark) == []


def test_taken_down_it_leaves_nothing(composed: Composed, engine: Engine) -> None:
    names = engine.podman("ps", "--format", "{{.Names}}").split()
    assert set(names) == {composed.container(name) for name in UP if name != "topics"}
    # By handle: on a busy machine the number of one that has gone is soon another's.
    processes = {name: os.pidfd_open(engine.inspect(name)["State"]["Pid"]) for name in names}
    try:
        composed.down()
        assert engine.left() == []
        until(lambda: all(has_ended(one) for one in processes.values()), "every process of it is gone")
    finally:
        for one in processes.values():
            os.close(one)
    # The engine's own process of each container goes a moment after its container.
    until(lambda: not processes_of(engine), "no process of the engine runs any more")


def has_ended(process: int) -> bool:
    """Whether the process of a handle has ended: then the handle can be read."""
    return bool(select.select([process], [], [], 0)[0])


def processes_of(engine: Engine) -> str:
    """The processes that name the engine's folder, a line for each."""
    command = ["pgrep", "--full", "--list-full", str(engine.folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
