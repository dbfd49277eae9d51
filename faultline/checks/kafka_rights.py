"""What each process and each kind of user does with each topic: the rights that a principal needs on a broker with an authorizer.

A test holds the topics against the table in docs/architecture.md. Besides these every process describes all topics and their
settings at its start, and reads `installation`. Only `topics apply` writes there: whoever may write it can bind the topics to
another cluster, which stops every process.

No principal has a right on the cluster itself: since Kafka 2.8 an idempotent producer needs WRITE on a topic and no more.
`faultline topics acls` prints all of it as commands, as Strimzi's KafkaUsers or as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11


@dataclass(frozen=True, slots=True)
class ProcessRights:
    """The topics that a principal reads and writes. `transactions`: one transactional id for each partition it owns.

    `deletes`: topics of which it may delete records. `describes`: all topics and their settings. `manages`: makes and alters
    them. `sees_groups`: how far every process has read. `transactional_id`: the one it has besides.
    """

    reads: tuple[Topic, ...]
    writes: tuple[Topic, ...]
    has_group: bool = False
    transactions: bool = False
    deletes: tuple[Topic, ...] = ()
    describes: bool = True
    manages: bool = False
    sees_groups: bool = False
    transactional_id: str = ""


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


_SHOWN = (INVENTORY, INCIDENTS, RUNS, TIMELINE, CONTROLS)
_LOOKED_AT = (*_SHOWN, SIGNALS, TICKS, THREADS, NOTICES, COMMANDS, DEAD_LETTERS, INSTALLATION)

USERS: Mapping[str, ProcessRights] = {
    # `topics apply` and `topics diff`; the one that binds the topics to a cluster.
    "topics": ProcessRights((INSTALLATION,), (INSTALLATION,), manages=True),
    # Commands that only look, `doctor`. Not raw.*: jobs print secrets.
    "viewer": ProcessRights(_LOOKED_AT, (), sees_groups=True),
    # The same, and decisions: approve, freeze, kill switch.
    "operator": ProcessRights(_LOOKED_AT, (COMMANDS,), sees_groups=True),
    "mcp": ProcessRights((*_SHOWN, INSTALLATION), ()),
    # `capture`, `why-not` on raw lines.
    "capture": ProcessRights((*RAW, *_LOOKED_AT), (), sees_groups=True),
    # `dead-letters retry` and `purge`.
    "dead-letters": ProcessRights(
        (DEAD_LETTERS, INSTALLATION),
        (DEAD_LETTERS, *RAW, SIGNALS),
        deletes=(DEAD_LETTERS,),
        transactional_id="faultline-dead-letters",
    ),
    # One for each raw topic: who ships job logs, which users write, must not be able to write node logs.
    **{
        f"shipper-{topic.name.removeprefix('raw.')}": ProcessRights((), (topic,), describes=False)
        for topic in RAW
    },
}
"""By kind of user: people's commands, and what feeds the pipeline."""

EVERYBODY: Mapping[str, ProcessRights] = {
    **{name: replace(rights, reads=(*rights.reads, INSTALLATION)) for name, rights in RIGHTS.items()},
    **USERS,
}
"""Processes and users, each with all of its topics."""


def topic_operations(name: str, topic: Topic) -> frozenset[Operation]:
    """What the principal of this name does with a topic."""
    rights = EVERYBODY[name]
    found = {Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS} if rights.describes else set[Operation]()
    if topic in rights.reads:
        found.add(Operation.READ)
    if topic in rights.writes:
        found |= {Operation.WRITE, Operation.DESCRIBE}
    if topic in rights.deletes:
        found.add(Operation.DELETE)
    if rights.manages:
        found |= {Operation.CREATE, Operation.ALTER, Operation.ALTER_CONFIGS}
    return frozenset(found)


def operations_on(topic: Topic, processes: tuple[str, ...]) -> dict[Operation, list[str]]:
    """The operations that these processes need on a topic, each with those that need it."""
    needed: dict[Operation, list[str]] = {}
    for name in processes:
        for operation in sorted(topic_operations(name, topic)):
            needed.setdefault(operation, []).append(name)
    return needed


def group_of(process: str, settings: KafkaSettings) -> str | None:
    """The consumer group of a process; None for one without."""
    if not EVERYBODY[process].has_group:
        return None
    return (
        settings.topic_prefix + CORRELATOR_APP if process == "correlator" else group_name(settings, process)
    )


def transaction_prefix(process: str, settings: KafkaSettings) -> str:
    """What the transactional ids of a process begin with, as the broker sees them; the partition's number follows."""
    return f"{settings.topic_prefix}faultline-{process}-"


def transactional_ids(process: str, settings: KafkaSettings) -> list[str]:
    """The transactional ids of a process, as the broker sees them."""
    if not EVERYBODY[process].transactions:
        return []
    return [f"{transaction_prefix(process, settings)}{n}" for n in range(settings.cluster_partitions)]
