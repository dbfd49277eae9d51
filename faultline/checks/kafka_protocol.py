"""Requests that aiokafka lacks: what this user may do with topics and groups, told by the broker without trying anything, and
how the partitions of topics are replicated.

Kafka answers Metadata from version 8 on, and DescribeGroups from version 3 on, with the operations that are allowed as a bit
field (KIP-430). A broker without an authorizer allows all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aiokafka.errors import IncompatibleBrokerVersion, for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Bytes, Int16, Int32, Schema, String

TEXT = String("utf-8")

_NOT_TOLD = -(2**31)

EVERYTHING = frozenset(range(32))
"""Where a broker does not tell, which none does that has an authorizer: it allows all."""


class _MetadataResponse(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", Array(("node_id", Int32), ("host", TEXT), ("port", Int32), ("rack", TEXT))),
        ("cluster_id", TEXT),
        ("controller_id", Int32),
        (
            "topics",
            Array(
                ("error_code", Int16),
                ("name", TEXT),
                ("is_internal", Boolean),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", Array(Int32)),
                        ("isr", Array(Int32)),
                        ("offline_replicas", Array(Int32)),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
        ("cluster_authorized_operations", Int32),
    )


class _MetadataRequest(RequestStruct):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 8
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        ("topics", Array(TEXT)),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
    )


class _TopicRights(Request[_MetadataRequest]):  # type: ignore[misc]
    API_KEY = 3

    def __init__(self, topics: list[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[_MetadataRequest]) -> _MetadataRequest:
        return request_struct_class(self._topics, False, False, True)


class _DescribeGroupsResponse(Response):  # type: ignore[misc]
    API_KEY = 15
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            Array(
                ("error_code", Int16),
                ("group", TEXT),
                ("state", TEXT),
                ("protocol_type", TEXT),
                ("protocol", TEXT),
                (
                    "members",
                    Array(
                        ("member_id", TEXT),
                        ("client_id", TEXT),
                        ("client_host", TEXT),
                        ("metadata", Bytes),
                        ("assignment", Bytes),
                    ),
                ),
                ("authorized_operations", Int32),
            ),
        ),
    )


class _DescribeGroupsRequest(RequestStruct):  # type: ignore[misc]
    API_KEY = 15
    API_VERSION = 3
    RESPONSE_TYPE = _DescribeGroupsResponse
    SCHEMA = Schema(("groups", Array(TEXT)), ("include_authorized_operations", Boolean))


class _GroupRights(Request[_DescribeGroupsRequest]):  # type: ignore[misc]
    API_KEY = 15

    def __init__(self, groups: list[str]) -> None:
        self._groups = groups

    def build(self, request_struct_class: type[_DescribeGroupsRequest]) -> _DescribeGroupsRequest:
        return request_struct_class(self._groups, True)


@dataclass(frozen=True, slots=True)
class PartitionCopies:
    """One partition: the broker that leads it (negative: none), those that should hold a copy, and those with a current one."""

    topic: str
    number: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BrokerState:
    """The Kafka cluster as one broker describes it."""

    cluster_id: str
    brokers: tuple[int, ...]
    partitions: tuple[PartitionCopies, ...]


async def broker_state(client: Any, topics: list[str]) -> BrokerState:
    """The cluster, and every partition of those of the topics that exist.

    Raises:
        NotImplementedError: the broker is older than Kafka 2.3.
    """
    answer = await client._send_request(_TopicRights(topics))
    return BrokerState(
        cluster_id=answer.cluster_id or "",
        brokers=tuple(sorted(node for node, *_ in answer.brokers)),
        partitions=tuple(
            PartitionCopies(name, number, leader, tuple(replicas), tuple(in_sync))
            for error, name, _, partitions, _ in answer.topics
            if not error
            for _, number, leader, _, replicas, in_sync, _ in partitions
        ),
    )


@dataclass(frozen=True, slots=True)
class GroupState:
    """A consumer group: `Stable`, `Empty`, `Dead` (it does not exist), `PreparingRebalance` …, and its members, each by the name
    of its client and its address."""

    state: str
    members: tuple[tuple[str, str], ...]


async def group_state(client: Any, group: str) -> GroupState | None:
    """The state of a group; None for a broker that does not tell it, or not to this user."""
    coordinator = await client.find_coordinator(group)
    try:
        answer = await client._send_request(_GroupRights([group]), coordinator)
    except (IncompatibleBrokerVersion, NotImplementedError):
        return None
    (found,) = answer.groups
    error, _, state, _, _, members, _ = found
    if error:
        return None
    return GroupState(state, tuple((name, host.lstrip("/")) for _, name, host, *_ in members))


async def topic_rights(client: Any, topics: list[str]) -> dict[str, frozenset[int] | None]:
    """The operations that are allowed on each topic, by number; None for one that does not exist.

    A topic that may not even be described has none.
    """
    answer = await client._send_request(_TopicRights(topics))
    found: dict[str, frozenset[int] | None] = {}
    for error_code, name, _, _, operations in answer.topics:
        refused = for_code(error_code).__name__ == "TopicAuthorizationFailedError"
        found[name] = frozenset() if refused else None if error_code else _numbers(operations)
    return found


async def group_rights(client: Any, group: str) -> frozenset[int]:
    """The operations that are allowed on a consumer group, which need not exist yet.

    Raises:
        KafkaError: the group's coordinator is not there yet, or refuses this user.
    """
    coordinator = await client.find_coordinator(group)
    try:
        answer = await client._send_request(_GroupRights([group]), coordinator)
    except (IncompatibleBrokerVersion, NotImplementedError):
        return EVERYTHING  # no broker of Kafka itself: it knows no such request
    (found,) = answer.groups
    if not found[0]:
        return _numbers(found[-1])
    error = for_code(found[0])
    if error.retriable:
        raise error  # the coordinator still loads: that says nothing about rights
    return frozenset()


def _numbers(bits: int) -> frozenset[int]:
    return (
        EVERYTHING if bits == _NOT_TOLD else frozenset(number for number in range(32) if bits >> number & 1)
    )
