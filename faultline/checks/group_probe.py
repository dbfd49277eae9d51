"""Consumer groups: who is in them, how far they are behind, and whether one that is behind moves.

Lag alone does not tell a process that is stuck from one that is busy, nor from one that has nothing to do: offsets are looked at
twice, and of what waits the oldest record's time is read. Nothing joins a group, and one record of a partition is read at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from importlib.metadata import version
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError

from faultline.checks.finding import CheckFinding
from faultline.checks.kafka_probe import patient
from faultline.checks.kafka_protocol import GroupState, group_state
from faultline.checks.kafka_rights import group_of
from faultline.runtime.settings import Settings
from streams.kafka import clients
from streams.kafka.plain_errors import plain
from streams.model.clock import from_millis, moment, utc_now
from streams.model.errors import Unreachable

SAMPLE_S = 2.5
"""Between the two looks: every process commits at least once a second while it reads."""

STUCK_AFTER = timedelta(seconds=60)
"""A record that waits for longer, in a partition whose offset does not move, is not just in line."""

BEHIND = timedelta(minutes=5)

LOOKED_AT = 64
"""Partitions of which the oldest waiting record is read."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is in one partition. `oldest` is the time of the first record that waits, None where none does: an
    offset may lie behind the end by markers of transactions alone."""

    place: TopicPartition
    begin: int
    end: int
    committed: int
    moved: bool
    oldest: datetime | None = None

    @property
    def records(self) -> int:
        """Offsets between the group and the end."""
        return max(0, self.end - self.committed)


def expected(settings: Settings, processes: tuple[str, ...]) -> dict[str, str]:
    """The group of each process that has one and that these settings make work: the others idle without a group."""
    idle = {
        "chat": settings.slack.token is None,
        "notifier": not settings.notifier.sinks,
        "archive": settings.archive.url is None,
    }
    found = {process: group_of(process, settings.kafka) for process in processes if not idle.get(process)}
    return {process: group for process, group in found.items() if group is not None}


async def probe_groups(settings: Settings, processes: tuple[str, ...]) -> list[CheckFinding]:
    """Every finding about the groups of these processes.

    Raises:
        Unreachable: when no broker answers.
    """
    lags = await read_lags(settings, processes)
    now = utc_now()
    found = [one for process, (state, lag) in lags.items() for one in findings(process, state, lag, now)]
    return [*found, *versions({process: state for process, (state, _) in lags.items()})]


async def read_lags(
    settings: Settings, processes: tuple[str, ...]
) -> dict[str, tuple[GroupState, list[PartitionLag]]]:
    """The group of each process, and its lag in every partition that it has committed to.

    Raises:
        Unreachable: when no broker answers.
    """
    client = clients.admin(settings.kafka)
    reader = clients.consumer(settings.kafka, group=None, fetch_max_wait_ms=100)
    try:
        await clients.started(client, settings.kafka)
        await clients.started(reader, settings.kafka)
        groups = expected(settings, processes)
        states = dict(
            zip(
                groups,
                await asyncio.gather(*(patient(partial(group_state, client, g)) for g in groups.values())),
                strict=True,
            )
        )
        told = {process: group for process, group in groups.items() if states[process] is not None}
        first = {process: await _committed(client, group) for process, group in told.items()}
        await asyncio.sleep(SAMPLE_S)  # what is measured is whether offsets move meanwhile
        second = {process: await _committed(client, group) for process, group in told.items()}
        found: dict[str, tuple[GroupState, list[PartitionLag]]] = {}
        for process in told:
            state = states[process]
            assert state is not None
            found[process] = state, await _lags(reader, first[process], second[process])
        return found
    except KafkaError as error:
        raise Unreachable(f"Kafka at {settings.kafka.bootstrap}: {plain(error)}") from error
    finally:
        await reader.stop()
        await client.close()


async def _committed(client: Any, group: str) -> dict[TopicPartition, int]:
    found = await patient(partial(client.list_consumer_group_offsets, group))
    return {place: about.offset for place, about in found.items() if about.offset >= 0}


async def _lags(
    reader: AIOKafkaConsumer, first: Mapping[TopicPartition, int], second: Mapping[TopicPartition, int]
) -> list[PartitionLag]:
    try:
        begins = await reader.beginning_offsets(list(second))
        ends = await reader.end_offsets(list(second))
    except UnknownTopicOrPartitionError:
        return []  # a topic is gone: the comparison of topics tells that
    lags = [
        PartitionLag(place, begins[place], ends[place], offset, moved=first.get(place) != offset)
        for place, offset in sorted(second.items())
    ]
    waiting = sorted((one for one in lags if one.records), key=lambda one: one.records, reverse=True)
    oldest = await _oldest(reader, waiting[:LOOKED_AT])
    return [
        PartitionLag(one.place, one.begin, one.end, one.committed, one.moved, oldest.get(one.place))
        for one in lags
    ]


async def _oldest(
    reader: AIOKafkaConsumer, waiting: list[PartitionLag]
) -> dict[TopicPartition, datetime | None]:
    """The time of the first record that each of these partitions still has for its group."""
    if not waiting:
        return {}
    places = {one.place: max(one.committed, one.begin) for one in waiting}
    reader.assign(list(places))
    for place, offset in places.items():
        reader.seek(place, offset)
    found: dict[TopicPartition, datetime | None] = {}
    deadline = asyncio.get_running_loop().time() + 1.5
    while len(found) < len(places) and asyncio.get_running_loop().time() < deadline:
        left = [place for place in places if place not in found]
        for place, records in (await reader.getmany(*left, timeout_ms=200, max_records=LOOKED_AT)).items():
            if records:
                found[place] = from_millis(records[0].timestamp)
    return found


def findings(
    process: str, state: GroupState, lags: list[PartitionLag], now: datetime
) -> Iterator[CheckFinding]:
    """What is wrong with the group of one process. Pure."""
    where = f"group of the {process}"
    logs = f"kubectl -n faultline logs deploy/{process} --tail=50"
    waiting = [one for one in lags if one.records and one.oldest is not None]
    records = sum(one.records for one in waiting)
    oldest = min((one.oldest for one in waiting if one.oldest is not None), default=None)
    if back := [one for one in lags if one.committed > one.end]:
        place = back[0].place
        what = (
            f"it has read {place.topic}/{place.partition} up to {back[0].committed}, and the topic ends at {back[0].end}: "
            f"the topic was made anew, or the broker restored from an older copy ({len(back)} partitions)"
        )
        yield CheckFinding(
            "fault", where, what, "stop what acts before any process is restarted, and find out which",
            "faultline guard kill --reason 'the broker went back in time'",
        )  # fmt: skip
    if lost := [one for one in lags if one.committed < one.begin and one.end > one.begin]:
        gone = sum(one.begin - one.committed for one in lost)
        what = f"{gone} records of {len(lost)} partitions were deleted before it read them: the outage was longer than retention"
        yield CheckFinding(
            "warning",
            where,
            what,
            "faults of that time are not known; add processes, or retention.ms",
            logs,
        )
    if state.state in ("Empty", "Dead") or not state.members:
        what = f"nobody is in it; {records} records wait" + (
            f", the oldest since {moment(oldest)}" if oldest else ""
        )
        yield CheckFinding(
            "fault" if records else "warning", where, what, f"start the {process}",
            f"kubectl -n faultline rollout status deploy/{process} --timeout=10s",
        )  # fmt: skip
        return
    if state.state != "Stable":
        what = f"it is in state {state.state}: members come and go"
        yield CheckFinding("warning", where, what, "look again in a minute; then read its log", logs)
    stuck = [one for one in waiting if not one.moved and now - (one.oldest or now) > STUCK_AFTER]
    if stuck:
        place = stuck[0].place
        what = (
            f"it is stuck in {len(stuck)} partitions, first {place.topic}/{place.partition} at {stuck[0].committed}: "
            f"{sum(one.records for one in stuck)} records wait, the oldest since "
            f"{moment(min(one.oldest for one in stuck if one.oldest))}"
        )
        yield CheckFinding("fault", where, what, "read its log; restart it if nothing is in there", logs)
    elif oldest is not None and now - oldest > BEHIND:
        what = f"it is behind: {records} records wait, the oldest since {moment(oldest)}, and it moves"
        yield CheckFinding(
            "warning", where, what, "wait; if the lag grows, add replicas up to the number of partitions",
            f"kubectl -n faultline scale deploy/{process} --replicas=2",
        )  # fmt: skip


def versions(states: Mapping[str, GroupState]) -> Iterator[CheckFinding]:
    """Members of different releases, by the names of their clients. A rolling upgrade looks like this for some minutes."""
    running: dict[str, set[str]] = {}
    for process, state in states.items():
        for name, _ in state.members:
            if name.startswith(clients.CLIENT):
                running.setdefault(name.removeprefix(clients.CLIENT), set()).add(process)
    own = version("faultline")
    if len(running) > 1:
        told = "; ".join(f"{one}: {', '.join(sorted(who))}" for one, who in sorted(running.items()))
        yield CheckFinding(
            "warning", "versions", f"processes of different releases are running: {told}",
            "finish the upgrade, or roll it back", "kubectl -n faultline get pods -L app.kubernetes.io/version",
        )  # fmt: skip
    elif running and own not in running:
        (other,) = running
        what = f"this command is {own}, the processes are {other}"
        yield CheckFinding(
            "note",
            "versions",
            what,
            "use the command of the same release",
            "kubectl -n faultline exec deploy/detector -- faultline doctor",
        )
