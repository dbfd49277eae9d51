"""A Kafka broker for a machine that has none: librdkafka's mock cluster, out of the confluent-kafka wheel, in a child process.

    async with running(KafkaSettings(), log=path) as broker:
        ... broker.settings.bootstrap ...

It supports produce (idempotent and transactional), fetch, and consumer groups with offset commits. Its limits:

- No admin API: topics are created here, with the table's partition counts, and settings say `managed_topics=False`.
- Control records of transactions carry a wrong checksum: settings say `check_crcs=False`.
- Offsets sent within a transaction are not stored: a group that commits that way starts at the earliest record again.
- A producer is not fenced by the next of its transactional id: crash and takeover tests need a real broker.
- Isolation is not kept: a read-committed reader sees records of a transaction that is still open, or was aborted.
- A fetch that waits is not woken by new records: latency is the consumer's `fetch_max_wait_ms`, so keep that small.
- No compaction, about 5 MB kept per partition, all in memory: for minutes of use, not days.
- A member that does not leave the group holds its partitions for its session timeout.

The child has a line protocol. It prints `{"bootstrap": …}` once; then each line on its standard input is answered with
`ok` or `error …`: `errors API_KEY CODE…` (the next requests of that kind fail with it), `down`, `up`, `stop`. It exits when its
standard input closes.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox.emulated.child_processes import Child, answer
from streams.config.settings import KafkaSettings
from streams.model.errors import ConfigError

_PRODUCER = 0
_ALL_BROKERS = -1
_JOIN_DELAY_MS = 100
"""How long a new group waits for more members. Kafka's own 3 s would be most of a demo story."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker. `settings` are those every client of it has to use."""

    child: Child
    settings: KafkaSettings

    async def fail_next(self, api_key: int, *codes: int) -> None:
        """Fail the next requests of that kind (Produce is 0, Fetch 1, OffsetCommit 8 …) with these error codes."""
        await self.child.ask(f"errors {api_key} {' '.join(map(str, codes))}")

    async def down(self) -> None:
        """Close all connections and accept no new ones."""
        await self.child.ask("down")

    async def up(self) -> None:
        """Accept connections again."""
        await self.child.ask("up")


def settings_for(bootstrap: str, base: KafkaSettings | None = None) -> KafkaSettings:
    """Settings that fit the embedded broker; partition counts and prefix are taken from `base`."""
    base = base or KafkaSettings(raw_partitions=2, cluster_partitions=2)
    return base.model_copy(
        update={
            "bootstrap": bootstrap,
            "replication_factor": 1,
            "min_insync_replicas": 1,
            "session_timeout_ms": 6000,
            "check_crcs": False,
            "managed_topics": False,
        }
    )


@asynccontextmanager
async def running(base: KafkaSettings | None = None, *, log: Path) -> AsyncIterator[Broker]:
    """A broker with every topic of the table, for as long as the context lasts."""
    from streams.kafka.provisioning import wanted_topics  # the child must not pay for importing Kafka clients

    settings = settings_for("", base)
    topics = [f"{topic.name}:{topic.partitions}" for topic in wanted_topics(settings)]
    command = (sys.executable, "-m", "sandbox.emulated.broker", *topics)
    child = await Child.start("broker", command, log=log, talks=True)
    try:
        ready = json.loads(await child.line())
        yield Broker(child, settings_for(ready["bootstrap"], base))
    finally:
        await child.stop()


class _MockCluster:
    """The few calls of librdkafka's mock interface that are used here. Handles are opaque pointers."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        for name in ("rd_kafka_new", "rd_kafka_mock_cluster_new"):
            getattr(library, name).restype = ctypes.c_void_p
        library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        library.rd_kafka_err2str.restype = ctypes.c_char_p
        why = ctypes.create_string_buffer(512)
        client = library.rd_kafka_new(_PRODUCER, None, why, ctypes.c_size_t(len(why)))
        if not client:
            raise ConfigError(f"librdkafka cannot start: {why.value.decode()}")
        handle = library.rd_kafka_mock_cluster_new(ctypes.c_void_p(client), 1)
        if not handle:
            raise ConfigError("librdkafka cannot open the embedded broker's port")
        self._handle = ctypes.c_void_p(handle)
        library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._handle, ctypes.c_int32(_JOIN_DELAY_MS))

    @property
    def bootstrap(self) -> str:
        return str(self._library.rd_kafka_mock_cluster_bootstraps(self._handle).decode())

    def create(self, topic: str, partitions: int) -> None:
        self._check(self._library.rd_kafka_mock_topic_create(self._handle, topic.encode(), partitions, 1))

    def push_errors(self, api_key: int, codes: Sequence[int]) -> None:
        array = (ctypes.c_int * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(
            self._handle, ctypes.c_int16(api_key), ctypes.c_size_t(len(codes)), array
        )

    def set_down(self, down: bool) -> None:
        call = (
            self._library.rd_kafka_mock_broker_set_down if down else self._library.rd_kafka_mock_broker_set_up
        )
        self._check(call(self._handle, ctypes.c_int32(_ALL_BROKERS)))

    def _check(self, code: int) -> None:
        if code:
            raise ValueError(self._library.rd_kafka_err2str(code).decode())


def find_library() -> Path:
    """The librdkafka that came with the confluent-kafka wheel.

    Raises:
        ConfigError: when the installed package has none beside it (built from source, or not installed).
    """
    found = importlib.util.find_spec("confluent_kafka")
    if found is None or found.origin is None:
        raise ConfigError("the embedded broker needs the package confluent-kafka")
    package = Path(found.origin).parent
    for folder in (package.with_name("confluent_kafka.libs"), package / ".dylibs"):
        for path in sorted(folder.glob("librdkafka*")):
            return path
    raise ConfigError(
        "the embedded broker needs confluent-kafka from a wheel: its librdkafka is not beside it"
    )


def _obey(cluster: _MockCluster, line: str) -> None:
    match line.split():
        case ["errors", api_key, *codes] if codes:
            cluster.push_errors(int(api_key), [int(code) for code in codes])
        case ["down"]:
            cluster.set_down(True)
        case ["up"]:
            cluster.set_down(False)
        case _:
            raise ValueError("unknown command")


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until told to stop or until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.emulated.broker")
    parser.add_argument("topics", nargs="*", metavar="NAME:PARTITIONS")
    topics = parser.parse_args(arguments).topics
    cluster = _MockCluster(ctypes.CDLL(str(find_library())))
    for topic in topics:
        name, _, partitions = topic.rpartition(":")
        cluster.create(name, int(partitions))
    print(json.dumps({"bootstrap": cluster.bootstrap}), flush=True)
    for line in sys.stdin:
        if line.strip() == "stop":
            print("ok", flush=True)
            return
        answer(lambda command: _obey(cluster, command), line)


if __name__ == "__main__":
    main()
