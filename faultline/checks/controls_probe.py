"""What holds Faultline back on purpose, so that nobody looks for a fault where a switch is on; and dead letters that grow."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from faultline.checks.finding import CheckFinding
from faultline.runtime.settings import Settings
from streams.config.settings import KafkaSettings, ResponderSettings
from streams.kafka import clients
from streams.kafka.offsets_by_time import first_since
from streams.kafka.plain_errors import plain
from streams.kafka.topics import CONTROLS, DEAD_LETTERS, partition_of
from streams.model.clock import moment, span, utc_now
from streams.model.codec import decode
from streams.model.control import Control
from streams.model.errors import BadInput, Unreachable
from streams.model.run import Mode

LONG = timedelta(hours=12)
"""A switch that is on for longer was probably forgotten."""

LETTERS = 100
"""Dead letters of an hour that are a finding by themselves; fewer are one where the hour before had none."""


async def probe_controls(settings: Settings) -> list[CheckFinding]:
    """Every finding about the controls of this cluster. Reads its partition of `controls`, which is compacted, a record a change.

    Raises:
        Unreachable: when no broker answers.
    """
    kafka, cluster = settings.kafka, settings.cluster
    number = partition_of(cluster, kafka.cluster_partitions)
    try:
        latest = await clients.read_to_end(kafka, CONTROLS, number)
    except KafkaError as error:
        raise Unreachable(f"Kafka at {kafka.bootstrap}: {plain(error)}") from error
    record = latest.get(cluster)
    try:
        control = decode(Control, record.value or b"") if record is not None else Control(cluster)
    except BadInput as error:
        what = f"the record of this cluster cannot be read, and counts as an engaged kill switch: {error}"
        return [
            CheckFinding("fault", "controls", what, "release it by hand once you know why", "faultline guard")
        ]
    return list(control_findings(control, settings.responder, utc_now()))


def control_findings(control: Control, policy: ResponderSettings, now: datetime) -> Iterator[CheckFinding]:
    """What is switched on in one cluster. Pure."""
    if control.kill_switch is not None:
        on = control.kill_switch
        why = f": {on.reason}" if on.reason else ""
        what = f"the kill switch is engaged by {on.actor} since {moment(on.at)}{why}"
        yield CheckFinding(
            "warning", "kill switch", what, "release it when its reason is gone",
            "faultline guard unkill --reason 'its reason is gone'",
        )  # fmt: skip
    if policy.kill_switch:
        what = "responder.kill_switch is on in the settings: no destructive step starts"
        yield CheckFinding(
            "warning", "kill switch", what, "set it to false", "kubectl -n faultline edit configmap faultline"
        )
    if control.breaker is not None:
        trip = control.breaker
        what = f"the breaker tripped at {moment(trip.at)} by {trip.rule}: {trip.reason}"
        yield CheckFinding(
            "warning", "breaker", what, "look for what the faults have in common, then reset it",
            "faultline guard reset --reason 'looked at'",
        )  # fmt: skip
    for freeze in control.freezes:
        if freeze.has_ended(now):
            continue
        scope = freeze.scope or "the cluster"
        end = f"until {moment(freeze.until)}" if freeze.until else "without an end"
        old = freeze.until is None and now - freeze.at > LONG
        what = f"{freeze.actor} froze {scope} {span(now - freeze.at)} ago, {end}"
        thaw = f"faultline guard thaw{f' --scope {freeze.scope}' if freeze.scope else ''} --reason 'over'"
        yield CheckFinding(
            "warning" if old else "note", "freeze", what, "thaw it when its reason is gone", thaw
        )
    for row in control.rolled_back:
        what = f"{row.actor} put pool {row.pool} back to observing {span(now - row.at)} ago"
        yield CheckFinding(
            "note",
            "rollout",
            what,
            "lift it when its reason is gone",
            f"faultline rollout lift {row.pool} --reason 'over'",
        )
    for closed in policy.closed_times:
        if (until := closed.until(now)) is not None:
            what = f"{closed.kind} {closed.name} holds destructive steps back until {moment(until)}"
            yield CheckFinding("note", "responder.closed_times", what, "nothing: it ends", "faultline guard")
    if policy.mode is Mode.SHADOW:
        what = "responder.mode is shadow: nothing outside is changed"
        yield CheckFinding(
            "note",
            "responder.mode",
            what,
            "read the report before you change it",
            "faultline shadow report --since 30d",
        )


async def probe_dead_letters(settings: KafkaSettings) -> list[CheckFinding]:
    """Whether dead letters grow: how many of the last hour there are, and of the day, by offsets alone.

    Raises:
        Unreachable: when no broker answers.
    """
    reader = clients.consumer(settings, group=None, read_committed=False, fetch_max_wait_ms=100)
    name, now = clients.topic_name(settings, DEAD_LETTERS), utc_now()
    try:
        await clients.started(reader, settings)
        metadata = await reader._client.fetch_all_metadata()
        places = [TopicPartition(name, number) for number in sorted(metadata.partitions_for_topic(name) or ())]  # fmt: skip
        if not places:
            return []
        ends = await reader.end_offsets(places)
        counts = []
        for since in (now - timedelta(hours=1), now - timedelta(hours=25)):
            first = await first_since(reader, places, since)
            counts.append(sum(ends[place] - first[place].offset for place in places))
        return list(letter_findings(counts[0], counts[1] - counts[0]))
    except KafkaError as error:
        raise Unreachable(f"Kafka at {settings.bootstrap}: {plain(error)}") from error
    finally:
        await reader.stop()


def letter_findings(last_hour: int, day_before: int) -> Iterator[CheckFinding]:
    """A finding where more records cannot be read than in the hours before. Pure."""
    if last_hour == 0:
        return
    usual = day_before / 24
    grows = last_hour >= LETTERS or (day_before == 0 and last_hour >= 10)
    if grows and last_hour > 3 * usual:
        what = f"{last_hour} in the last hour, {usual:.0f} an hour on the day before"
        yield CheckFinding(
            "warning",
            "dead letters",
            what,
            "look which shipper changed its format",
            "faultline dead-letters groups --since 1h",
        )
