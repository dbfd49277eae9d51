"""What every thread holds and should hold: of incidents, of summaries of several, and of notices about channels.

No chat system and no store: the chat process posts what is wanted, a replay writes it down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from faultline.chat.channel_health import Breakage
from faultline.chat.routes import NOWHERE, Routes
from faultline.chat.summaries import Summaries, Summary
from faultline.chat.thread_plan import Slot, Subject, weight
from faultline.chat.thread_sources import ThreadSources
from faultline.chat.trouble_notice import Trouble, notice_slots
from streams.model.clock import parse_rfc3339
from streams.model.conversation import TimelineEntry, Verb
from streams.model.errors import BadInput
from streams.model.incident import Incident, IncidentState
from streams.model.message import plain
from streams.model.thread import ROOT, Thread

log = structlog.get_logger(__name__)

ACTOR_TEXT = 100
"""Characters of a person's name that a thread document keeps."""
_FIRST = (False, False, -1_000_000)
"""The weight of what comes before all incidents."""

NOTHING_BROKEN: Mapping[str, Breakage] = {}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the thread of an incident or a summary holds and should hold. `parent` is the thread of the incident's summary."""

    subject: Subject
    thread: Thread
    slots: tuple[Slot, ...]
    weight: tuple[bool, bool, int]
    parent: Thread | None = None


class WantedThreads:
    """The threads of one partition. `thread_of` gives the document of a thread by id and cluster, or a new one."""

    def __init__(self, sources: ThreadSources, thread_of: Callable[[str, str], Thread]) -> None:
        self._sources = sources
        self._thread_of = thread_of
        self._summaries = Summaries()
        self._roots: dict[str, tuple[int, str]] = {}
        """Generation and message of the root of each summary, as its members know it."""
        self._shown: dict[str, tuple[IncidentState, bool]] = {}
        """What the summary of a member shows of it."""
        self.troubles: dict[str, Trouble] = {}
        self.wake: dict[str, datetime] = {}
        """When to look at an incident again although nothing was reported: the end of a silence."""

    def channel_of(self, name: str, routes: Routes, now: datetime) -> str:
        """The channel in which a thread begins."""
        if (summary := self._summaries.by_id.get(name)) is not None:
            return summary.channel
        incident = self._sources.incidents.get(name)
        if incident is None:
            return routes.default
        jobs = self._sources.jobs_in(incident.cluster)
        return routes.channel_of(incident, now, jobs, audience=self._sources.audience_of(incident))

    def committed(self, name: str) -> None:
        """A thread document was written: what it leads to is planned. Members follow when the root of their summary is new."""
        self._sources.changed[name] = None
        summary = self._summaries.by_id.get(name)
        if summary is None:
            return
        thread = self._thread_of(name, summary.cluster)
        root = thread.post(ROOT)
        stands = (thread.generation, root.ts if root is not None and root.stands else "")
        if self._roots.get(name) != stands:
            self._roots[name] = stands
            self._sources.changed.update(summary.members)

    def joining(self, names: Sequence[str]) -> list[Thread]:
        """The threads of incidents that join a summary now, with it as their parent: to be stored before anything is posted."""
        joined: dict[str, Thread] = {}
        alone: list[tuple[Incident, Thread]] = []
        for name in names:
            incident = self._sources.incidents.get(name)
            if incident is None:
                continue
            thread = self._thread_of(incident.id, incident.cluster)
            if thread.channel == NOWHERE:
                continue
            if thread.parent:
                self._summaries.remember(incident, thread.parent, thread.channel)
            else:
                alone.append((incident, thread))
        # After a restart the stored members come first, so that what is new finds them.
        for incident, thread in alone:
            told = thread.post(ROOT) is not None
            for member, summary in self._summaries.join(incident, thread.channel, told=told).items():
                begun = self._thread_of(member, incident.cluster)
                joined[member] = replace(begun, parent=summary, channel=thread.channel)
        return list(joined.values())

    def wanted(
        self, name: str, now: datetime, broken: Mapping[str, Breakage] = NOTHING_BROKEN
    ) -> Wanted | None:
        """What belongs in a thread now. None for an id that nothing is known of."""
        if (summary := self._summaries.by_id.get(name)) is not None:
            return self._of_summary(summary, now)
        if (trouble := self.troubles.get(name)) is not None:
            thread = self._thread_of(name, trouble.cluster)
            return Wanted(trouble, thread, notice_slots(trouble, thread, broken), _FIRST)
        if (incident := self._sources.incidents.get(name)) is not None:
            return self._of_incident(incident, now)
        return None

    def _of_summary(self, summary: Summary, now: datetime) -> Wanted | None:
        thread = self._thread_of(summary.id, summary.cluster)
        known = self._sources.incidents
        members = [known[name] for name in summary.members if name in known]
        if not members:
            return None
        own = {one.id: self._thread_of(one.id, one.cluster).post(ROOT) is not None for one in members}
        slots = self._sources.summary_slots(summary, thread, now, own)
        return Wanted(summary, thread, slots, min(map(weight, members)))

    def _of_incident(self, incident: Incident, now: datetime) -> Wanted:
        thread = self._thread_of(incident.id, incident.cluster)
        parent = self._thread_of(thread.parent, incident.cluster) if thread.parent else None
        summary = self._summaries.by_id.get(thread.parent)
        siblings = summary.members if summary is not None else ()
        slots = self._sources.slots_of(incident, thread, now, parent, siblings)
        return Wanted(incident, thread, slots, weight(incident), parent)

    def look_again(self, name: str, thread: Thread, now: datetime) -> None:
        """Plan an incident again when it changes by itself, and its summary when that shows it differently now."""
        self.wake.pop(name, None)
        incident = self._sources.incidents.get(name)
        if incident is None:
            return
        if (at := self._sources.changes_at(incident, thread, now)) is not None:
            self.wake[name] = at
        shown = (incident.state, thread.post(ROOT) is not None)
        if thread.parent and self._shown.get(name) != shown:
            self._shown[name] = shown
            self._sources.changed[thread.parent] = None


def with_decision(thread: Thread, entry: TimelineEntry) -> Thread:
    """The thread with what a timeline entry says that people decided about its messages."""
    if entry.event == f"person.{Verb.ACK}":
        return replace(thread, acked_by=plain(entry.actor, ACTOR_TEXT))
    if entry.event == f"person.{Verb.SILENCE}":
        until = str(entry.attributes.get("until", ""))
        try:
            return replace(thread, silenced_until=parse_rfc3339(until))
        except BadInput:
            log.error("silence without a readable end", incident=entry.incident, until=until[:40])
    return thread
