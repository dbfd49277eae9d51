"""The process on a broker: facts go out, and what an earlier process left behind is put right."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import NewTopic

from sandbox.emulated import broker as embedded
from streams.config.settings import KafkaSettings
from streams.inventory.process import InventoryProcess, read_back
from streams.kafka import clients
from streams.kafka.topics import INVENTORY, partition_of
from streams.model.errors import ConfigError, Unreachable
from streams.model.facts import FactRecord, LinkFact
from streams.model.pulse import Pulse
from streams.model.watch import Emit, KindListed, ObjectChange, WatchEvent
from tests.streams.inventory.objects import AT, kubeflow_pod, node, pytorch_job
from tests.testbed.waiting import eventually

NODES, PODS, JOBS = "v1/Node", "v1/Pod", "kubeflow.org/v1/PyTorchJob"


class Told:
    """Watches that tell what the test puts into them."""

    def __init__(self, *events: WatchEvent) -> None:
        self.kinds = frozenset({NODES, PODS, JOBS})
        self._events: asyncio.Queue[WatchEvent] = asyncio.Queue()
        self.say(*events)

    def say(self, *events: WatchEvent) -> None:
        for event in events:
            self._events.put_nowait(event)

    async def run(self, emit: Emit) -> None:
        while True:
            await emit(await self._events.get())


def listed(kind: str, *names: tuple[str, str]) -> KindListed:
    return KindListed(AT, kind, frozenset(names))


def everything() -> list[WatchEvent]:
    """A node, a pod of a PyTorchJob before its job, and the lists that name them."""
    objects = [node(), kubeflow_pod("w0", "worker", 0), pytorch_job()]
    return [
        *(ObjectChange(AT, "ADDED", obj) for obj in objects),
        listed(NODES, ("", "gpu-01")),
        listed(PODS, ("team-a", "w0")),
        listed(JOBS, ("team-a", "train")),
    ]


@pytest.fixture(
    params=[
        pytest.param("kafka", marks=pytest.mark.kafka),
        pytest.param("embedded", marks=[pytest.mark.embedded, pytest.mark.nightly]),
    ]
)
async def settings(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[KafkaSettings]:
    """A broker with an empty inventory topic, under a prefix of this test's own."""
    base = KafkaSettings(cluster_partitions=3, topic_prefix=f"{tmp_path.name}.", replication_factor=1)
    if request.param == "embedded":
        async with embedded.running(base, log=tmp_path / "broker.log") as broker:
            yield broker.settings
        return
    real = base.model_copy(update={"bootstrap": request.getfixturevalue("kafka").bootstrap})
    admin = clients.admin(real)
    await clients.started(admin, real)
    topic = NewTopic(clients.topic_name(real, INVENTORY), 3, 1, topic_configs=dict(INVENTORY.config()))
    await admin.create_topics([topic])
    await admin.close()
    yield real


@asynccontextmanager
async def running(process: InventoryProcess) -> AsyncIterator[None]:
    task = asyncio.create_task(process.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=60)
        assert task.done(), "the process goes on after its cancellation"
        assert task.cancelled(), task.exception()


Facts = dict[str, FactRecord | None]


async def published(settings: KafkaSettings, enough: Callable[[Facts], bool], cluster: str = "c1") -> Facts:
    async def look() -> Facts | None:
        found = await read_back(cluster, settings)
        return found if enough(found) else None

    return await eventually(look, "the facts are published")


async def until_ready(pulse: Pulse) -> None:
    """Wait until the process says so, which it does when all it had to write is acknowledged."""

    async def is_ready() -> bool:
        return pulse.is_ready

    await eventually(is_ready, "the process is ready")


async def test_facts_are_published_whole_and_vanished_objects_get_tombstones_after_a_restart(
    settings: KafkaSettings,
) -> None:
    watches = Told(*everything())
    async with running(InventoryProcess("c1", settings, watches)):
        facts = await published(settings, lambda found: len(found) == 3)
    pod = facts["c1/pod/team-a/w0"]
    assert pod is not None
    assert getattr(pod.fact, "rank", None) == 8

    meanwhile_gone = [event for event in everything() if isinstance(event, KindListed)]
    meanwhile_gone[0] = listed(NODES)
    watches = Told(*(e for e in everything() if isinstance(e, ObjectChange) and e.object["kind"] != "Node"))
    watches.say(*meanwhile_gone)
    async with running(InventoryProcess("c1", settings, watches)):
        left = await published(settings, lambda found: len(found) == 2)
    assert left == {key: fact for key, fact in facts.items() if "/node/" not in key}


async def test_a_deleted_pod_leaves_a_tombstone_in_the_partition_of_its_cluster(
    settings: KafkaSettings,
) -> None:
    watches = Told(*everything())
    async with running(InventoryProcess("c1", settings, watches)):
        await published(settings, lambda found: len(found) == 3)
        watches.say(ObjectChange(AT, "DELETED", kubeflow_pod("w0", "worker", 0)))
        await published(settings, lambda found: len(found) == 2)
    records = await _records(settings)
    assert [(key, bool(value)) for key, value in records[-1:]] == [("c1/pod/team-a/w0", False)]
    assert len(records) == 4, "each fact once, and one tombstone"


async def test_a_cluster_on_the_same_partition_is_left_alone(settings: KafkaSettings) -> None:
    other = next(
        name for name in (f"c{n}" for n in range(2, 50)) if partition_of(name, 3) == partition_of("c1", 3)
    )
    async with running(InventoryProcess(other, settings, Told(*everything()))):
        await published(settings, lambda found: len(found) == 3, other)
    pulse, nothing = Pulse(), Told(listed(NODES), listed(PODS), listed(JOBS))
    async with running(InventoryProcess("c1", settings, nothing, pulse=pulse)):
        await until_ready(pulse)
        assert len(await read_back(other, settings)) == 3


async def test_a_kind_that_cannot_be_listed_does_not_silence_the_others(settings: KafkaSettings) -> None:
    watches = Told(ObjectChange(AT, "ADDED", node()), listed(NODES, ("", "gpu-01")))
    pulse = Pulse()
    process = InventoryProcess("c1", settings, watches, settle_within_s=0.2, pulse=pulse)
    assert not pulse.is_ready
    async with running(process):
        facts = await published(settings, lambda found: len(found) == 1)
        await until_ready(pulse)
    assert list(facts) == ["c1/node/gpu-01"]
    assert process.settled


async def test_the_cabling_file_is_published(settings: KafkaSettings, tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text("leaf-1: {Ethernet0: {node: gpu-01, nic: mlx5_0}}")
    async with running(InventoryProcess("c1", settings, Told(*everything()), topology_file=file)):
        facts = await published(settings, lambda found: len(found) == 4)
    assert "c1/link/leaf-1/Ethernet0" in facts


async def test_a_cabling_file_that_is_wrong_is_named(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text("leaf-1: 3")
    for wrong in (file, tmp_path / "missing.yaml"):
        with pytest.raises(ConfigError, match=r"inventory\.topology_file"):
            await InventoryProcess("c1", KafkaSettings(), Told(), topology_file=wrong).run()


async def test_cables_that_devices_hear_of_are_published_and_people_know_better(
    settings: KafkaSettings, tmp_path: Path
) -> None:
    file, folder = tmp_path / "topology.yaml", tmp_path / "lldp"
    file.write_text("leaf-1: {Ethernet0: {node: gpu-01, nic: mlx5_7}}")
    folder.mkdir()
    (folder / "leaf-1.txt").write_text(
        "LocalPort    RemoteDevice    RemotePortID    Capability    RemotePortDescr\n"
        "-----------  --------------  --------------  ------------  ---------------\n"
        "Ethernet0    gpu-01          eth2            O\n"
        "Ethernet4    gpu-02          eth2            O\n"
    )
    process = InventoryProcess("c1", settings, Told(*everything()), topology_file=file, lldp_folder=folder)
    async with running(process):
        facts = await published(settings, lambda found: len(found) == 5)
    links = {key: record.fact for key, record in facts.items() if "/link/" in key and record}
    nics = {key: fact.nic for key, fact in links.items() if isinstance(fact, LinkFact)}
    assert nics == {"c1/link/leaf-1/Ethernet0": "mlx5_7", "c1/link/leaf-1/Ethernet4": "eth2"}


async def test_an_lldp_table_that_is_wrong_is_named(tmp_path: Path) -> None:
    (tmp_path / "leaf-1.txt").write_text("what is this")
    for wrong in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ConfigError, match=r"inventory\.lldp_folder"):
            await InventoryProcess("c1", KafkaSettings(), Told(), lldp_folder=wrong).run()


async def test_a_broker_that_does_not_answer_ends_the_process_by_name() -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1 "):
        await InventoryProcess("c1", KafkaSettings(bootstrap="127.0.0.1:1"), Told()).run()


async def _records(settings: KafkaSettings) -> list[tuple[str, bytes | None]]:
    """Every record of the cluster's partition, in order."""
    where = TopicPartition(clients.topic_name(settings, INVENTORY), partition_of("c1", 3))
    consumer = await clients.started(clients.consumer(settings, group=None, fetch_max_wait_ms=100), settings)
    try:
        consumer.assign([where])
        await consumer.seek_to_beginning(where)
        end = (await consumer.end_offsets([where]))[where]
        records: list[tuple[str, bytes | None]] = []
        while await consumer.position(where) < end:
            for record in (await consumer.getmany(where, timeout_ms=200)).get(where, []):
                records.append((record.key.decode(), record.value))
        return records
    finally:
        await consumer.stop()


async def test_a_kind_of_jobs_that_is_not_served_stands_in_the_answer_of_ready_until_its_crd_comes(
    settings: KafkaSettings,
) -> None:
    missing = KindListed(AT, JOBS, None, served=False)
    watches, pulse = Told(listed(NODES), listed(PODS), missing), Pulse()
    async with running(InventoryProcess("c1", settings, watches, asked_for=[JOBS], pulse=pulse)):
        await until_ready(pulse)
        assert pulse.states == {"kinds_not_served": [JOBS]}
        watches.say(listed(JOBS))
        await eventually(lambda: _answer(not pulse.states), "the kind is served")


async def _answer(value: bool) -> bool:
    return value
