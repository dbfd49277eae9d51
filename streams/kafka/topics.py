"""Every Kafka topic Faultline uses, in one table: name, partitioning, retention, key and value.

`faultline topics apply` creates or alters them after this table, and a process whose topics differ refuses to start.
All internal topics share one partition count and are partitioned by *cluster*, so one task sees one cluster whole: the
correlator needs that to join, the responder to hold a blast radius exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from aiokafka.partitioner import murmur2

DAY_MS = 24 * 3600 * 1000
MAX_RECORD_BYTES = 8 * 1024 * 1024
"""The largest record any topic takes: a 5 MB log line must reach the detector to be accounted for."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as it should be. `partitions` is `raw` (as many as the load needs) or `cluster` (the shared count).

    `more` are settings besides those that all topics have.
    """

    name: str
    partitions: Literal["raw", "cluster"]
    cleanup: Literal["delete", "compact"]
    retention_ms: int | None
    key: str
    value: str
    more: Mapping[str, str] = field(default_factory=dict)

    def config(self, *, min_insync_replicas: int = 1) -> Mapping[str, str]:
        """Topic-level settings, as Kafka spells them."""
        config = {
            "cleanup.policy": self.cleanup,
            "max.message.bytes": str(MAX_RECORD_BYTES),
            "min.insync.replicas": str(min_insync_replicas),
        }
        if self.retention_ms is not None:
            config["retention.ms"] = str(self.retention_ms)
        if self.cleanup == "compact":
            # A consumer that was down for a long weekend must still see tombstones.
            config["delete.retention.ms"] = str(7 * DAY_MS)
        return config | dict(self.more)


def _raw(name: str) -> Topic:
    return Topic(name, "raw", "delete", 7 * DAY_MS, "whatever the shipper sets", "whatever the shipper sends")


RAW_NODE_LOGS = _raw("raw.node-logs")
RAW_JOB_LOGS = _raw("raw.job-logs")
RAW_METRICS = _raw("raw.metrics")
RAW_FABRIC = _raw("raw.fabric")
RAW_K8S_EVENTS = _raw("raw.k8s-events")
RAW_ALERTS = _raw("raw.alerts")
RAW = (RAW_NODE_LOGS, RAW_JOB_LOGS, RAW_METRICS, RAW_FABRIC, RAW_K8S_EVENTS, RAW_ALERTS)

INVENTORY = Topic(
    "inventory", "cluster", "compact", None, "cluster/kind/name", "FactRecord, tombstone when gone"
)
SIGNALS = Topic("signals", "cluster", "delete", 14 * DAY_MS, "cluster", "SignalBatch")
TICKS = Topic("ticks", "cluster", "delete", 3600 * 1000, "cluster", "the time, RFC 3339")
INCIDENTS = Topic("incidents", "cluster", "compact", None, "incident id", "Incident, latest revision")
RUNS = Topic("runs", "cluster", "compact", None, "run id", "Run, latest revision")
THREADS = Topic("threads", "cluster", "compact", None, "incident id", "Thread, latest revision")
NOTICES = Topic(
    "notices",
    "cluster",
    "compact",
    None,
    "sink/incident",
    "Thread, latest revision: a page, silence, annotation or mail",
)
TIMELINE = Topic("timeline", "cluster", "delete", 400 * DAY_MS, "incident id", "TimelineEntry")
COMMANDS = Topic("commands", "cluster", "delete", 400 * DAY_MS, "incident id", "Command")
CONTROLS = Topic("controls", "cluster", "compact", None, "cluster", "Control, latest revision")
DEAD_LETTERS = Topic(
    "dead-letters", "raw", "delete", 14 * DAY_MS, "source topic", "original bytes; DeadLetter in headers"
)
DETECTOR_STATE = Topic(
    "detector-state",
    "raw",
    "compact",
    None,
    "source topic/partition/slot/block",
    "what the detector remembers of a raw partition, a block of rows",
    {
        # Snapshots follow each other every few seconds: old ones must be compacted away in hours, not at 1 GiB a partition.
        "segment.bytes": str(64 * 1024 * 1024),
        # A block that a frozen process writes late must not make an older one of the same key vanish at once.
        "min.compaction.lag.ms": str(3600 * 1000),
    },
)

INSTALLATION = Topic(
    "installation",
    "cluster",
    "delete",
    None,
    "cluster",
    "Claim; the first one holds the topics for its cluster (partition 0 alone)",
    # Never expires, whatever the broker's own limits: without it a second cluster could start here.
    {"retention.ms": "-1", "retention.bytes": "-1"},
)

ALL = (
    *RAW,
    INVENTORY,
    SIGNALS,
    TICKS,
    INCIDENTS,
    RUNS,
    THREADS,
    NOTICES,
    TIMELINE,
    COMMANDS,
    CONTROLS,
    DEAD_LETTERS,
    DETECTOR_STATE,
    INSTALLATION,
)
"""Every topic that `faultline topics apply` looks after, besides the correlator's changelog."""

CORRELATOR_APP = "faultline-correlator"
CHANGELOG = Topic(
    f"{CORRELATOR_APP}-state-changelog",
    "cluster",
    "compact",
    None,
    "row key",
    "one row of the correlator's state",
    {
        # Every start reads all of it. A segment is only compacted when it is closed: by default after a week or a GiB.
        "segment.bytes": str(32 * 1024 * 1024),
        "segment.ms": str(30 * 60 * 1000),
        "min.cleanable.dirty.ratio": "0.2",
        # Every correlator follows it as it is written, so none reads it after days.
        "delete.retention.ms": str(DAY_MS),
    },
)
"""The correlator's state, row by row; followed by every correlator (`streams.correlate.changelog`)."""


def partition_of(cluster: str, partitions: int) -> int:
    """The partition that holds everything of `cluster`: the same as Kafka's default partitioner gives the key `cluster`."""
    return int((murmur2(cluster.encode()) & 0x7FFFFFFF) % partitions)
