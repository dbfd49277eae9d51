"""The inventory process: turns watch events into records of the `inventory` topic.

It stores no state of its own: the compacted topic itself says what earlier processes published, so objects that vanished
while no process watched get their tombstones. Two of these at once do no harm: both write what the API server says.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from pathlib import Path

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from streams.config.settings import KafkaSettings
from streams.ingest.lldp import SUFFIXES, cables, read_neighbours
from streams.inventory.cluster_inventory import FactChange, Inventory
from streams.inventory.names import NodeLabels
from streams.inventory.topology_file import Cabling, read_topology
from streams.inventory.unserved_kinds import Unserved
from streams.inventory.workloads import Classifier
from streams.kafka import clients
from streams.kafka.topics import INVENTORY, partition_of
from streams.model.clock import Clock, utc_now
from streams.model.codec import decode, encode
from streams.model.errors import BadInput, ConfigError, Unreachable
from streams.model.facts import FactRecord, LinkFact
from streams.model.garbage import collect_seldom
from streams.model.pulse import STATE, Pulse
from streams.model.record import Neighbour
from streams.model.watch import FactsListed, KindListed, Watches, WatchEvent
from streams.telemetry import metrics as shown
from streams.telemetry.registry import Metrics

log = structlog.get_logger()

MOST_EVENTS = 1000
"""Most events published together."""
BEAT_S = 5.0
"""Idle iterations end this often, so that a quiet cluster does not look like a stalled process."""
QUEUE = 500
"""Events queued before the watches are paused: whole objects, a large pod takes 100 kB."""
MOST_SENT = 5_000
"""Records written before the broker's acknowledgement is awaited: at the start of a large cluster all of them come at once."""


class InventoryProcess:
    """Publishes the facts of one cluster until cancelled.

    Facts are held back until every watched kind has been listed, but no longer than `settle_within_s` after the first: a
    kind that Faultline may not list must not hold back all others. Missing kinds of `asked_for`, the job kinds in the
    settings, are logged as warnings repeatedly.
    """

    def __init__(
        self,
        cluster: str,
        settings: KafkaSettings,
        watches: Watches,
        *,
        topology_file: Path | None = None,
        lldp_folder: Path | None = None,
        labels: NodeLabels | None = None,
        classifier: Classifier | None = None,
        asked_for: Collection[str] = (),
        selector: Sequence[str] = (),
        settle_within_s: float = 30.0,
        clock: Clock = utc_now,
        pulse: Pulse | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._metrics = metrics or Metrics("inventory")
        self._metrics.watch(self._look)
        self._cluster = cluster
        self._settings = settings
        self._watches = watches
        self._topology_file = topology_file
        self._lldp_folder = lldp_folder
        self._settle_within_s = settle_within_s
        self._clock = clock
        self._pulse = pulse or Pulse()
        self._inventory = Inventory(cluster, labels, classifier, selector)
        self._unserved = Unserved(asked_for, self._pulse)
        self._unlisted = set(watches.kinds)
        self._events: asyncio.Queue[WatchEvent] = asyncio.Queue(QUEUE)

    @property
    def settled(self) -> bool:
        """Whether all objects of the cluster have been published; from then on every change is."""
        return self._inventory.settled

    async def run(self) -> None:
        """Publish until cancelled. The watches retry through API server outages.

        Raises:
            Unreachable: when Kafka does not answer, at the start or for longer than the producer retries.
            ConfigError: when the topology file or an LLDP table cannot be used.
        """
        if self._topology_file is not None or self._lldp_folder is not None:
            lldp = _lldp_links(self._cluster, self._lldp_folder, self._clock) if self._lldp_folder else []
            file = (
                _topology(self._cluster, self._topology_file, self._clock)
                if self._topology_file
                else Cabling()
            )
            # The topology file comes last: what an operator wrote down overrides what devices hear of each other.
            self._inventory.links({link.key: link for link in (*lldp, *file.links)}.values())
            self._inventory.places(file.places)
            log.info("cabling loaded", links=len(file.links), lldp_links=len(lldp), nodes=len(file.places))
        with self._pulse.waiting(STATE):
            published = await read_back(self._cluster, self._settings, self._pulse.beat)
            self._inventory.adopt(published)
            log.info("adopted the facts published earlier", cluster=self._cluster, facts=len(published))
            producer = await clients.started(clients.producer(self._settings), self._settings)
        collect_seldom()
        tasks = {
            asyncio.create_task(self._watches.run(self._events.put), name="watches"),
            asyncio.create_task(self._publish(producer), name="publish"),
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await producer.stop()

    async def _look(self) -> None:
        kinds: Counter[tuple[str, ...]] = Counter((key.split("/", 2)[1],) for key in self._inventory.facts)
        self._metrics.replace(shown.INVENTORY_FACTS, kinds)

    async def _publish(self, producer: AIOKafkaProducer) -> None:
        now = asyncio.get_running_loop().time
        settle_by: float | None = None
        while True:
            changes: list[FactChange] = []
            for event in await self._next_events(None if settle_by is None else settle_by - now()):
                changes += self._learn(event)
                if isinstance(event, KindListed):
                    self._unserved.update(event)
                if isinstance(event, KindListed | FactsListed):
                    self._unlisted.discard(event.kind)
                    settle_by = now() + self._settle_within_s if settle_by is None else settle_by
            if not self.settled and settle_by is not None and (not self._unlisted or now() >= settle_by):
                changes += self._settle()
                settle_by = float("inf")
            await self._send(producer, changes)
            self._pulse.count("facts", len(changes))
            self._metrics.add(shown.INVENTORY_CHANGES, len(changes))
            if self.settled:
                self._unserved.remind(now())
            self._pulse.ready(self.settled)

    async def _next_events(self, within_s: float | None) -> list[WatchEvent]:
        """The first event and all that are queued behind it; empty when none arrives in time."""
        try:
            async with asyncio.timeout(BEAT_S if within_s is None else min(within_s, BEAT_S)):
                events = [await self._events.get()]
        except TimeoutError:
            return []
        while len(events) < MOST_EVENTS and not self._events.empty():
            events.append(self._events.get_nowait())
        return events

    def _learn(self, event: WatchEvent) -> list[FactChange]:
        try:
            return self._inventory.apply(event)
        except BadInput as error:
            log.warning("skipped a malformed Kubernetes object", reason=str(error))
            return []

    def _settle(self) -> list[FactChange]:
        changes = self._inventory.settle()
        if self._unlisted:
            log.warning("publishing without the kinds that could not be listed", kinds=sorted(self._unlisted))
        log.info("inventory complete", cluster=self._cluster, facts=len(self._inventory.facts))
        collect_seldom()
        return changes

    async def _send(self, producer: AIOKafkaProducer, changes: list[FactChange]) -> None:
        """Write the newest of each key, and wait until all of it is acknowledged."""
        topic = clients.topic_name(self._settings, INVENTORY)
        partition = partition_of(self._cluster, self._settings.cluster_partitions)
        newest = iter(dict(changes).items())
        try:
            while some := list(islice(newest, MOST_SENT)):
                sent = [
                    await producer.send(topic, encode(record) if record else None, key.encode(), partition)
                    for key, record in some
                ]
                await asyncio.gather(*sent)
        except KafkaError as error:
            raise Unreachable(
                f"Kafka at {self._settings.bootstrap} does not accept facts: {error!r}"
            ) from error


async def read_back(
    cluster: str, settings: KafkaSettings, progress: Callable[[], None] = lambda: None
) -> dict[str, FactRecord | None]:
    """The facts of one cluster as the topic holds them now, by key; None for one that cannot be read.

    `progress` is called after each batch.

    Raises:
        Unreachable: when no broker answers.
    """
    partition = partition_of(cluster, settings.cluster_partitions)
    try:
        latest = await clients.read_to_end(settings, INVENTORY, partition, progress)
    except KafkaError as error:
        raise Unreachable(f"Kafka at {settings.bootstrap} does not answer: {error!r}") from error
    clients.honour_cancellation()
    mine = {key: record.value for key, record in latest.items() if key.startswith(f"{cluster}/")}
    return {key: _read(key, value) for key, value in mine.items() if value is not None}


def _read(key: str, value: bytes) -> FactRecord | None:
    try:
        return decode(FactRecord, value)
    except BadInput as error:
        log.warning("replacing an inventory record with an incompatible schema", key=key, reason=str(error))
        return None


def _topology(cluster: str, file: Path, clock: Clock) -> Cabling:
    try:
        return read_topology(cluster, file.read_text(encoding="utf-8"), clock())
    except OSError as error:
        raise ConfigError(f"cannot read inventory.topology_file {file}: {error.strerror}") from error
    except (BadInput, UnicodeDecodeError) as error:
        raise ConfigError(f"inventory.topology_file {file}: {error}") from error


def _lldp_links(cluster: str, folder: Path, clock: Clock) -> list[LinkFact]:
    """The cables in LLDP tables: one file for each device, named like it."""
    neighbours: list[Neighbour] = []
    try:
        for file in sorted(f for f in folder.iterdir() if f.is_file() and not f.name.startswith(".")):
            try:
                neighbours += read_neighbours(
                    file.stem if file.suffix in SUFFIXES else file.name, file.read_text(encoding="utf-8")
                )
            except (BadInput, UnicodeDecodeError) as error:
                raise ConfigError(f"inventory.lldp_folder: {file.name}: {error}") from error
    except OSError as error:
        raise ConfigError(f"cannot read inventory.lldp_folder {folder}: {error.strerror}") from error
    return cables(cluster, neighbours, clock())
