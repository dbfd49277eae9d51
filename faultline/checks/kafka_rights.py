"""What each process does with each topic: the rights that its user needs on a broker with an authorizer.

A test holds the topics against the table in docs/architecture.md. Besides these every process describes all topics and their
settings at its start, and reads and writes `installation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from streams.config.settings import KafkaSettings
from streams.kafka.clients import group_name
from streams.kafka.topics import (
    CHANGELOG,
    COMMANDS,
    CONTROLS,
    CORRELATOR_APP,
    DEAD_LETTERS,
    DETECTOR_STATE,
    INCIDENTS,
    INSTALLATION,
    INVENTORY,
    NOTICES,
    RAW,
    RAW_ALERTS,
    RAW_K8S_EVENTS,
    RUNS,
    SIGNALS,
    THREADS,
    TICKS,
    TIMELINE,
    Topic,
)


class Operation(IntEnum):
    """Operations of Kafka's ACLs, by their number in the protocol (AclOperation)."""

    READ = 3
    WRITE = 4
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10


@dataclass(frozen=True, slots=True)
class ProcessRights:
    """The topics that a process reads and writes. `transactions`: one transactional id for each partition it owns."""

    reads: tuple[Topic, ...]
    writes: tuple[Topic, ...]
    has_group: bool = False
    transactions: bool = False


RIGHTS: Mapping[str, ProcessRights] = {
    "detector": ProcessRights(
        (*RAW, DETECTOR_STATE), (SIGNALS, DEAD_LETTERS, DETECTOR_STATE), has_group=True
    ),
    "inventory": ProcessRights((INVENTORY,), (INVENTORY,)),
    "correlator": ProcessRights(
        (SIGNALS, INVENTORY, TICKS, CHANGELOG),
        (TICKS, INCIDENTS, TIMELINE, DEAD_LETTERS, CHANGELOG),
        has_group=True,
    ),
    "responder": ProcessRights(
        (INVENTORY, INCIDENTS, CONTROLS, COMMANDS, RUNS),
        (RUNS, CONTROLS, TIMELINE, SIGNALS, DEAD_LETTERS),
        has_group=True,
        transactions=True,
    ),
    "chat": ProcessRights(
        (INVENTORY, INCIDENTS, RUNS, TIMELINE, THREADS),
        (THREADS, DEAD_LETTERS),
        has_group=True,
        transactions=True,
    ),
    "notifier": ProcessRights(
        (INVENTORY, INCIDENTS, RUNS, CONTROLS, TIMELINE, THREADS, NOTICES),
        (NOTICES, DEAD_LETTERS),
        has_group=True,
        transactions=True,
    ),
    "gateway": ProcessRights(
        (INVENTORY, INCIDENTS, RUNS, TIMELINE, CONTROLS), (COMMANDS, RAW_ALERTS, RAW_K8S_EVENTS)
    ),
    "archive": ProcessRights(
        (SIGNALS, INVENTORY, INCIDENTS, RUNS, TIMELINE, COMMANDS, CONTROLS), (), has_group=True
    ),
}
"""By process."""


def operations_on(topic: Topic, processes: tuple[str, ...]) -> dict[Operation, list[str]]:
    """The operations that these processes need on a topic, each with those that need it."""
    needed: dict[Operation, list[str]] = {
        Operation.DESCRIBE: [*processes],
        Operation.DESCRIBE_CONFIGS: [*processes],
    }
    for name in processes:
        rights = RIGHTS[name]
        if topic in rights.reads or topic is INSTALLATION:
            needed.setdefault(Operation.READ, []).append(name)
        if topic in rights.writes or topic is INSTALLATION:
            needed.setdefault(Operation.WRITE, []).append(name)
    return needed


def group_of(process: str, settings: KafkaSettings) -> str | None:
    """The consumer group of a process; None for one without."""
    if not RIGHTS[process].has_group:
        return None
    return (
        settings.topic_prefix + CORRELATOR_APP if process == "correlator" else group_name(settings, process)
    )


def transactional_ids(process: str, settings: KafkaSettings) -> list[str]:
    """The transactional ids of a process, as the broker sees them."""
    if not RIGHTS[process].transactions:
        return []
    return [f"{settings.topic_prefix}faultline-{process}-{n}" for n in range(settings.cluster_partitions)]
