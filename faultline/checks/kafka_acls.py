"""The table of `kafka_rights` as ACLs: commands of Kafka's own tool, Strimzi's KafkaUsers, or JSON.

Every topic is named in full and no wildcard is used, so a topic that another installation adds to the same broker stays closed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from faultline.checks.kafka_rights import (
    EVERYBODY,
    Operation,
    group_of,
    topic_operations,
    transaction_prefix,
)
from streams.config.settings import KafkaSettings
from streams.kafka.clients import topic_name
from streams.kafka.topics import ALL, CHANGELOG

AS_ADMIN = '--command-config "$ADMIN"'
"""Whoever runs one of Kafka's own tools on a broker with logins names the client file of a user who may."""

Kind = Literal["topic", "group", "transactional-id"]

STRIMZI_KINDS: dict[Kind, str] = {"topic": "topic", "group": "group", "transactional-id": "transactionalId"}


@dataclass(frozen=True, slots=True)
class Acl:
    """What one principal may do with one resource. `prefixed`: with all whose names begin so."""

    who: str
    kind: Kind
    name: str
    operations: tuple[Operation, ...]
    prefixed: bool = False

    @property
    def words(self) -> list[str]:
        """The operations as Kafka and Strimzi spell them."""
        return [operation.name.title().replace("_", "") for operation in self.operations]


def acls_of(who: str, settings: KafkaSettings) -> list[Acl]:
    """Every ACL of a process or user, and nothing more than it needs."""
    rights, found = EVERYBODY[who], list[Acl]()
    for topic in (*ALL, CHANGELOG):
        if operations := topic_operations(who, topic):
            found.append(Acl(who, "topic", topic_name(settings, topic), tuple(sorted(operations))))
    read_group = (Operation.READ, Operation.DESCRIBE)
    if (group := group_of(who, settings)) is not None:
        found.append(Acl(who, "group", group, read_group))
    if rights.sees_groups:
        found.append(
            Acl(who, "group", f"{settings.topic_prefix}faultline-", (Operation.DESCRIBE,), prefixed=True)
        )
    transact = (Operation.WRITE, Operation.DESCRIBE)
    if rights.transactions:
        found.append(Acl(who, "transactional-id", transaction_prefix(who, settings), transact, prefixed=True))
    if rights.transactional_id:
        found.append(Acl(who, "transactional-id", settings.topic_prefix + rights.transactional_id, transact))
    return found


def as_commands(found: Iterable[Acl], principal: str) -> Iterator[str]:
    """A `kafka-acls.sh` command for each; `{name}` in `principal` is the process or user."""
    for acl in found:
        parts = ["kafka-acls.sh", "--add", "--allow-principal", principal.format(name=acl.who)]
        for word in acl.words:
            parts += ["--operation", word]
        parts += [f"--{acl.kind}", acl.name]
        parts += ["--resource-pattern-type", "prefixed"] if acl.prefixed else []
        yield f'{parts[0]} --bootstrap-server "$BOOTSTRAP" {AS_ADMIN} {shlex.join(parts[1:])}'


def as_json(found: Iterable[Acl], principal: str) -> list[dict[str, Any]]:
    """One object for each."""
    return [
        {
            "principal": principal.format(name=acl.who),
            "resource": acl.kind,
            "name": acl.name,
            "pattern": "prefixed" if acl.prefixed else "literal",
            "operations": acl.words,
        }
        for acl in found
    ]


def as_strimzi(names: Iterable[str], settings: KafkaSettings, *, cluster: str, login: str) -> str:
    """A KafkaUser for each name, in Strimzi's API `kafka.strimzi.io/v1`; `login` is `tls` or `scram-sha-512`.

    Strimzi's principal of a TLS user is `CN=NAME`, of the other the name itself.
    """
    return yaml.safe_dump_all(
        (
            {
                "apiVersion": "kafka.strimzi.io/v1",
                "kind": "KafkaUser",
                "metadata": {
                    "name": f"faultline-{name}",
                    "labels": {"strimzi.io/cluster": cluster, "app.kubernetes.io/part-of": "faultline"},
                },
                "spec": {
                    "authentication": {"type": login},
                    "authorization": {
                        "type": "simple",
                        "acls": [
                            {
                                "resource": {
                                    "type": STRIMZI_KINDS[acl.kind],
                                    "name": acl.name,
                                    "patternType": "prefix" if acl.prefixed else "literal",
                                },
                                "operations": acl.words,
                            }
                            for acl in acls_of(name, settings)
                        ],
                    },
                },
            }
            for name in names
        ),
        sort_keys=False,
        explicit_start=True,
    )
