"""What reached correlator and responder from outside besides raw lines: inventory, people's commands, controls, reports of runs.

A replay's responder works in shadow mode: it plans and judges, and calls nobody. So what it cannot find out again is taken from
the capture:

- `commands` are handed to it at their Kafka time. What people decide about one incident it handles as the responder did.
- `controls` (kill switch, freezes, breaker, rollbacks) count as they were written, whatever tripped or released them. Then
  commands about the whole cluster are left out: their result is in the controls. Without that topic the commands count.
- `run.*` signals. Where every run of an incident was in shadow mode, or there was none, the replay's responder reports the same
  as the recorded one did, and the recorded reports are left out: taken as well they would hide a responder that decides
  otherwise. A run that was carried out reports what connectors answered (the job trains again, the drain failed), which only the
  record knows: for its incident the recorded reports count, and those of the replay's shadow run are left out, whose end would
  put an incident that is being mitigated back to open.
- `node.planned_work` follows from commands: the recorded ones count only in a capture without commands.

A record that cannot be read is left out and counted, as production writes it to `dead-letters` and goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypeVar

from faultline.replay.capture import Capture
from faultline.replay.topic_records import StoredTopic, in_time_order
from streams.kafka.topics import COMMANDS, CONTROLS, INCIDENTS, INVENTORY, RUNS
from streams.model.codec import decode
from streams.model.control import Control
from streams.model.conversation import CLUSTER_VERBS, Command
from streams.model.errors import BadInput
from streams.model.facts import Fact, FactRecord
from streams.model.incident import Incident, IncidentState
from streams.model.kinds import SignalKind
from streams.model.record import RawRecord
from streams.model.run import Mode, Run
from streams.model.signal import Signal


class FactNews(NamedTuple):
    """An inventory fact with its time and key; `fact` is None for a deletion."""

    at: datetime
    key: str
    fact: Fact | None


@dataclass(frozen=True, slots=True)
class CommandNews:
    """A person's command, at the time at which the responder could read it."""

    at: datetime
    command: Command


@dataclass(frozen=True, slots=True)
class ControlNews:
    """The controls of a cluster as the responder wrote them."""

    at: datetime
    control: Control


News = FactNews | CommandNews | ControlNews
T = TypeVar("T")
_COUNTED = (IncidentState.RESOLVED, IncidentState.MERGED)
_ORDER: Mapping[type[News], int] = {FactNews: 0, ControlNews: 1, CommandNews: 2}


@dataclass(frozen=True, slots=True)
class _Bound:
    mode: Mode


@dataclass(frozen=True, slots=True)
class _RunMode:
    """A run's document, of which only this is needed."""

    incident: str
    plan: _Bound


def is_report(signal: Signal) -> bool:
    """Whether the responder made a signal; all others are the detector's."""
    return signal.kind.startswith("run.") or signal.kind == SignalKind.NODE_PLANNED_WORK


class RunReports:
    """Which reports of runs count: those that are recorded, or those of the replay's own responder."""

    def __init__(self, carried_out: Collection[str] = (), *, has_commands: bool = False) -> None:
        """`carried_out` are incidents with a run that was not in shadow mode."""
        self._carried_out = frozenset(carried_out)
        self._has_commands = has_commands

    @classmethod
    def of(cls, capture: Capture) -> RunReports:
        """As a capture's runs and commands have it."""
        runs = (decoded(capture, _RunMode, record) for record in _with_state(capture, RUNS.name))
        incidents = {run.incident for run in runs if run is not None and run.plan.mode is not Mode.SHADOW}
        return cls(incidents, has_commands=COMMANDS.name in capture.records)

    def counts_recorded(self, signal: Signal) -> bool:
        """Whether a recorded signal is taken: the detector's always are."""
        if not is_report(signal):
            return True
        if signal.kind == SignalKind.NODE_PLANNED_WORK:
            return not self._has_commands
        is_by_command = signal.kind == SignalKind.RUN_RESOLVED
        return _incident_of(signal) in self._carried_out or (is_by_command and not self._has_commands)

    def counts_recorded_report(self, signal: Signal) -> bool:
        """Whether a recorded signal is a report that is taken, where everything else is detected again."""
        return is_report(signal) and self.counts_recorded(signal)

    def counts_own(self, signal: Signal) -> bool:
        """Whether a signal of the replay's responder is taken."""
        return signal.kind == SignalKind.NODE_PLANNED_WORK or _incident_of(signal) not in self._carried_out

    @property
    def must_be_read(self) -> bool:
        """Whether the recorded reports matter to a replay that takes everything else from raw records."""
        return bool(self._carried_out)


def _incident_of(signal: Signal) -> str:
    return str(signal.attributes.get("incident", ""))


def news_of(capture: Capture, facts: Iterable[FactNews]) -> list[News]:
    """Facts, controls and commands of a capture in the order in which a replay takes them."""
    controls = [
        ControlNews(record.timestamp, control)
        for record in in_time_order(capture.records.get(CONTROLS.name, ()))
        if (control := decoded(capture, Control, record)) is not None
    ]
    commands = [
        CommandNews(record.timestamp, command)
        for record in in_time_order(capture.records.get(COMMANDS.name, ()))
        if (command := decoded(capture, Command, record)) is not None
        if command.verb not in CLUSTER_VERBS or not controls
    ]
    news: list[News] = [*facts, *controls, *commands]
    return sorted(news, key=lambda one: (one.at, _ORDER[type(one)]))


def state_of(capture: Capture) -> Iterator[FactNews | ControlNews | Incident]:
    """What was known when the capture begins: incidents that were over, inventory and controls, as they were written.

    Incidents that were open then begin anew, from the records of the warm-up.
    """
    for record in in_time_order(capture.state.get(INCIDENTS.name, ())):
        incident = decoded(capture, Incident, record)
        if incident is not None and incident.state in _COUNTED:
            yield incident
    for record in in_time_order(capture.state.get(INVENTORY.name, ())):
        if record.value is not None and (news := fact_news(capture, record)) is not None:
            yield news
    for record in in_time_order(capture.state.get(CONTROLS.name, ())):
        if (control := decoded(capture, Control, record)) is not None:
            yield ControlNews(record.timestamp, control)


def recorded_runs(capture: Capture) -> tuple[Run, ...]:
    """The runs that production carried out or planned, each as it was last."""
    latest: dict[bytes, RawRecord] = {}
    for record in in_time_order(_with_state(capture, RUNS.name)):
        latest[record.key or b""] = record
    return tuple(run for one in latest.values() if (run := decoded(capture, Run, one)) is not None)


def fact_news(capture: Capture, record: RawRecord) -> FactNews | None:
    """One record of the inventory topic; None when it cannot be read."""
    if record.key is None or record.key.count(b"/") < 2:
        why = "an inventory record needs its key, CLUSTER/KIND/NAME"
        capture.unread.add(record, why, lambda: where(capture, record))
        return None
    told = decoded(capture, FactRecord, record)
    if told is None and record.value is not None:
        return None
    return FactNews(record.timestamp, record.key.decode(errors="replace"), told.fact if told else None)


def _with_state(capture: Capture, topic: str) -> Iterator[RawRecord]:
    yield from capture.state.get(topic, ())
    yield from capture.records.get(topic, ())


def decoded(capture: Capture, kind: type[T], record: RawRecord) -> T | None:
    """What a record holds; None for a tombstone, and for one that cannot be read, which the capture keeps in `unread`."""
    if record.value is None:
        return None
    try:
        return decode(kind, record.value)
    except BadInput as error:
        capture.unread.add(record, str(error), lambda: where(capture, record))
        return None


def where(capture: Capture, record: RawRecord) -> str:
    """File and line of a record, or its coordinates."""
    held = capture.records.get(record.topic)
    return held.where(record) if isinstance(held, StoredTopic) else record.coordinates
