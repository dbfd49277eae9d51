"""The latest incidents, runs, timelines, nodes and controls of every cluster, in memory. Pure: it is given documents.

It is bounded: of incidents that are over, the latest are kept, and of each timeline the latest lines. Whoever shows something
subscribes to the ids of what changed and reads the documents when it is about to show them; so a burst costs one set of ids.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta

from faultline.live_view.overview import Overview, tells_of_run
from runbooks.engine.containment import pending_repairs
from runbooks.engine.guardrails.cordoned_nodes import is_held
from streams.model.control import Control
from streams.model.conversation import TimelineEntry
from streams.model.facts import Fact, JobFact, NodeFact
from streams.model.incident import Incident
from streams.model.run import Run

MAX_OVER = 5_000
"""Incidents kept that are over."""
MAX_LINES = 200
"""Timeline lines kept of one incident, and of what concerns a whole cluster."""
MAX_ANSWERS = 10_000
"""Answers to commands that are remembered."""
KEPT_FOR = timedelta(days=14)
"""How far back finished incidents and timelines are kept."""

Line = tuple[int, TimelineEntry]
"""A timeline entry with its offset."""


class Changes:
    """Ids of what changed since the last look. Never longer than the view itself, however slow its reader is."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}
        self._arrived = asyncio.Event()

    def add(self, name: str) -> None:
        """Called by the view."""
        self._ids[name] = None
        self._arrived.set()

    async def wait(self) -> tuple[str, ...]:
        """The ids of incidents, and names of clusters, that changed since the last call, once there are any."""
        await self._arrived.wait()
        self._arrived.clear()
        ids, self._ids = tuple(self._ids), {}
        return ids


class LiveView:
    """What the topics hold now. `take_…` documents as they arrive; `ready` once everything written before is taken."""

    def __init__(self) -> None:
        self.ready = False
        self._incidents: dict[str, Incident] = {}
        self._over: OrderedDict[str, None] = OrderedDict()
        self._runs: dict[str, dict[str, Run]] = {}
        self._incident_of: dict[str, str] = {}
        self._tickets: dict[str, str] = {}
        self._lines: dict[str, deque[Line]] = {}
        self._nodes: dict[str, dict[str, NodeFact]] = {}
        self._owned: dict[str, dict[str, NodeFact]] = {}
        self._jobs: dict[str, dict[str, JobFact]] = {}
        self._controls: dict[str, Control] = {}
        self._answers: OrderedDict[str, list[TimelineEntry]] = OrderedDict()
        self._waiting: dict[str, list[asyncio.Event]] = {}
        self._readers: set[Changes] = set()
        self._orphans: frozenset[str] = frozenset()
        """Incidents of which runs or lines were known at the last `forget`, but not they themselves."""

    # -- what arrives

    def take_incident(self, incident: Incident) -> None:
        """A revision of an incident. Older ones are ignored: a correlator may publish them again after a takeover."""
        known = self._incidents.get(incident.id)
        if known is not None and incident.revision < known.revision:
            return
        self._incidents[incident.id] = incident
        self._over.pop(incident.id, None)
        if incident.state.is_over:
            self._over[incident.id] = None
            self._forget_oldest()
        self._changed(incident.id)

    def take_run(self, key: str, run: Run | None) -> None:
        """The latest revision of a run, or None when it was deleted."""
        if run is None:
            incident = self._incident_of.pop(key, "")
            if (gone := self._runs.get(incident, {}).pop(key, None)) is not None:
                self._forget_tickets(gone)
                self._changed(incident)
            return
        self._incident_of[run.id] = run.incident
        self._runs.setdefault(run.incident, {})[run.id] = run
        self._tickets.update(dict.fromkeys(_tickets(run), run.incident))
        self._changed(run.incident)

    def take_entry(self, entry: TimelineEntry, offset: int) -> None:
        """A timeline entry. Entries about a whole cluster are kept under the cluster's name."""
        name = entry.incident or entry.cluster
        lines = self._lines.setdefault(name, deque(maxlen=MAX_LINES))
        if lines and lines[-1][0] >= offset:
            return
        lines.append((offset, entry))
        command = entry.attributes.get("command")
        if isinstance(command, str):
            self._answers.setdefault(command, []).append(entry)
            while len(self._answers) > MAX_ANSWERS:
                self._answers.popitem(last=False)
            for waiting in self._waiting.get(command, ()):
                waiting.set()
        self._changed(name)

    def take_fact(self, key: str, fact: Fact | None) -> None:
        """A node or a job of the inventory under its record key, or None when it was deleted. Other kinds are ignored."""
        cluster, kind, name = [*key.split("/", 2), "", ""][:3]
        if kind == "node":
            nodes = self._nodes.setdefault(cluster, {})
            before = nodes.pop(name, None)
            for owner in before.owners if before else ():
                self._owned.get(owner, {}).pop(name, None)
                self._changed(owner)
            if isinstance(fact, NodeFact):
                nodes[name] = fact
                for owner in fact.owners:
                    self._owned.setdefault(owner, {})[name] = fact
                    self._changed(owner)
        elif kind == "job":
            jobs = self._jobs.setdefault(cluster, {})
            if isinstance(fact, JobFact):
                jobs[fact.job.key] = fact
            else:
                jobs.pop(name, None)

    def take_control(self, control: Control) -> None:
        """The safety controls of a cluster."""
        self._controls[control.cluster] = control
        self._changed(control.cluster)

    # -- what is shown

    @property
    def clusters(self) -> tuple[str, ...]:
        """Every cluster that anything is known of, by name."""
        found = {incident.cluster for incident in self._incidents.values()}
        return tuple(sorted(found | self._nodes.keys() | self._controls.keys()))

    def incident(self, name: str) -> Incident | None:
        """The latest revision of an incident, by its whole id."""
        return self._incidents.get(name)

    def find(self, prefix: str) -> list[str]:
        """The ids that begin with `prefix`, with or without `inc-`."""
        wanted = prefix if prefix.startswith("inc-") else f"inc-{prefix}"
        return [wanted] if wanted in self._incidents else [n for n in self._incidents if n.startswith(wanted)]

    def overview(self, name: str) -> Overview | None:
        """An incident with its runs, oldest first, and the nodes that stay cordoned for it; None when it is not known."""
        incident = self._incidents.get(name)
        if incident is None:
            return None
        runs = self.runs(name)
        repairs = pending_repairs(
            name, runs, self.nodes(incident.cluster), self._owned.get(name, {}).values()
        )
        return Overview(incident, runs, repairs, tells_of_run(self.timeline(name)))

    def overviews(self, *, everything: bool = False) -> list[Overview]:
        """Open incidents, then contained ones, then (`everything`) those over; each newest first."""
        held = {name for name, nodes in self._owned.items() if any(map(is_held, nodes.values()))}
        shown: list[Overview] = []
        for name, incident in self._incidents.items():
            if not (everything or not incident.state.is_over or name in held or self._runs.get(name)):
                continue
            one = self.overview(name)
            if one is not None and (everything or one.rank < 2):
                shown.append(one)
        shown.sort(key=lambda one: (one.incident.opened_at, one.incident.id), reverse=True)
        return sorted(shown, key=lambda one: one.rank)

    def runs(self, incident: str) -> tuple[Run, ...]:
        """The runs of an incident, oldest first."""
        return tuple(sorted(self._runs.get(incident, {}).values(), key=lambda run: (run.created_at, run.id)))

    def holds_node(self, name: str) -> bool:
        """Whether a node says that it is kept for the incident."""
        return bool(self._owned.get(name))

    def incident_of_ticket(self, ticket: str) -> str | None:
        """The incident that a ticket was opened for, by the ticket's key, as far as its run is known."""
        return self._tickets.get(ticket)

    def incident_of_answer(self, prefix: str) -> str | None:
        """The incident of the latest answered command whose id begins with `prefix`."""
        found = next((name for name in reversed(self._answers) if name.startswith(prefix)), None)
        return self._answers[found][0].incident if found is not None else None

    def timeline(self, name: str) -> tuple[TimelineEntry, ...]:
        """The latest lines about an incident (or, under its name, about a whole cluster), oldest first."""
        return tuple(entry for _, entry in self._lines.get(name, ()))

    def nodes(self, cluster: str) -> Mapping[str, NodeFact]:
        """The nodes of a cluster by name."""
        return self._nodes.get(cluster, {})

    def jobs(self, cluster: str) -> Mapping[str, JobFact]:
        """The jobs of a cluster by their key."""
        return self._jobs.get(cluster, {})

    def control(self, cluster: str) -> Control:
        """The safety controls of a cluster; the defaults where nobody changed any."""
        return self._controls.get(cluster) or Control(cluster)

    # -- following it

    @contextmanager
    def changes(self) -> Iterator[Changes]:
        """Ids of what changes from now on, while the context lasts."""
        reader = Changes()
        self._readers.add(reader)
        try:
            yield reader
        finally:
            self._readers.discard(reader)

    async def answers(self, command: str, wait_s: float) -> tuple[TimelineEntry, ...]:
        """The responder's answers to a command, as soon as there is one; empty after `wait_s`."""
        if command not in self._answers and wait_s > 0:
            arrived = asyncio.Event()
            waiting = self._waiting.setdefault(command, [])
            waiting.append(arrived)
            try:
                async with asyncio.timeout(wait_s):
                    await arrived.wait()
            except TimeoutError:
                pass
            finally:
                waiting.remove(arrived)
                if not waiting:
                    self._waiting.pop(command, None)
        return tuple(self._answers.get(command, ()))

    def forget(self, now: datetime) -> None:
        """Drop what ended before `KEPT_FOR`, and runs and lines of unknown incidents. One that still holds a node stays."""
        for name in list(self._over):
            incident = self._incidents[name]
            if now - (incident.closed_at or incident.updated_at) <= KEPT_FOR:
                continue
            if not self.holds_node(name):
                self._drop(name)
        # A run may arrive before its incident, so what is alone goes only when it is alone twice in a row.
        orphans = self._runs.keys() | {name for name, lines in self._lines.items() if lines[-1][1].incident}
        orphans -= self._incidents.keys()
        for name in orphans & self._orphans:
            self._drop(name)
        self._orphans = frozenset(orphans)

    def _forget_oldest(self) -> None:
        while len(self._over) > MAX_OVER:
            oldest = next((name for name in self._over if not self.holds_node(name)), None)
            if oldest is None:
                return
            self._drop(oldest)

    def _drop(self, name: str) -> None:
        self._over.pop(name, None)
        self._incidents.pop(name, None)
        for run in self._runs.pop(name, {}).values():
            self._incident_of.pop(run.id, None)
            self._forget_tickets(run)
        self._lines.pop(name, None)
        self._changed(name)

    def _forget_tickets(self, run: Run) -> None:
        for ticket in _tickets(run):
            self._tickets.pop(ticket, None)

    def _changed(self, name: str) -> None:
        for reader in self._readers:
            reader.add(name)


def _tickets(run: Run) -> Iterator[str]:
    """The keys of the tickets that a run opened or wrote in."""
    for step in run.steps:
        ticket = step.effect.result.get("ticket") if step.effect is not None else None
        if isinstance(ticket, str):
            yield ticket
