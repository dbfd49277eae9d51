"""Commands of people who start a runbook themselves, or take up a run that ended early. Pure.

Who may is decided here, as for approvals. What is started is a run like any other: every guardrail, limit and approval holds, and
the person's word counts as one approval of the plan that they were shown. A command that is repeated starts nothing more.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from runbooks.engine.approvals import may_relax_controls, stale
from runbooks.engine.node_release import SCOPE, node_of
from runbooks.engine.partition_documents import PartitionDocuments
from runbooks.engine.planning import Planner
from runbooks.engine.run.by_hand import (
    facts_for_node,
    holder,
    incident_for_node,
    shown_digest,
    shown_steps,
    superseded,
    what_changed,
)
from runbooks.engine.run.continuation import continuation
from runbooks.engine.run.transition import TimelineNote
from streams.config.settings import ResponderSettings
from streams.model.clock import to_the_second
from streams.model.conversation import Command, Verb
from streams.model.entity import Entity
from streams.model.errors import BadInput
from streams.model.incident import Incident, IncidentState
from streams.model.kinds import SignalKind
from streams.model.planned_work import SHOWN
from streams.model.run import Plan
from streams.model.signal import Severity, signal

AHEAD_S = 60.0
"""By how much the clock of whoever sends a command may be ahead: a later time would keep a stored command fresh for too long."""

MAX_ACCEPTED = 5000
"""Ids of commands on nodes that are remembered until their incident is open."""


_NO_DIGEST = "it names no plan: a person starts only what they were shown"


class PersonRuns:
    """Starts the runs that people ask for."""

    def __init__(self, documents: PartitionDocuments, planner: Planner, policy: ResponderSettings) -> None:
        self._documents = documents
        self._planner = planner
        self._policy = policy
        self._accepted: dict[str, None] = {}
        """Commands on nodes that were accepted here. After a takeover a repeated one gives the same signal, which counts once."""

    def adopt(self, policy: ResponderSettings) -> None:
        """Judge who may start a run by this from now on."""
        self._policy = policy

    def handle(self, command: Command, now: datetime) -> str:
        """Do what the command asks for; why not, empty when it is done or was already."""
        if command.verb is not Verb.RUN:
            return self._take_up(command, now)
        return self._on_incident(command, now) if command.incident else self._on_node(command, now)

    def not_allowed(self, command: Command, now: datetime) -> str:
        """Why nobody looks at what the command asks for: who sent it, or when."""
        if not may_relax_controls(command, self._policy):
            return f"{command.actor} is not an approver"
        if command.at > now + timedelta(seconds=AHEAD_S):
            return f"it was given at {to_the_second(command.at)}, which is still to come: check the clock it was sent by"
        return stale(command, self._policy, now)

    def open_incident(self, name: str) -> Incident | str:
        """The incident that a run is to be started for, or why none can be."""
        documents = self._documents
        if documents.is_over(name):
            return f"{name} is over"
        incident = documents.incidents.get(name)
        if incident is None:
            return f"no incident {name} is known here"
        if incident.state is IncidentState.SUPPRESSED:
            return f"{name} is suppressed: {incident.reason}"
        if lost := documents.runs.unreadable_of(name):
            return f"its finished run {lost[0].id} cannot be read, and what it did is not known"
        return incident

    def _on_incident(self, command: Command, now: datetime) -> str:
        runs = self._documents.runs
        if any(command.id in run.commands for run in runs.of(command.incident)):
            return ""
        if why := self.not_allowed(command, now):
            return why
        incident = self.open_incident(command.incident)
        if isinstance(incident, str):
            return incident
        try:
            _, bound = self._planner.bind(incident, command.runbook, command.parameters, now)
        except (BadInput, ValueError) as error:
            return str(error)
        if why := self._held_or_changed(command, bound, incident.id):
            return why
        return self._planner.start(incident, bound, command, now)

    def _take_up(self, command: Command, now: datetime) -> str:
        """Go on with a run that ended early, or do one of its steps again."""
        runs = self._documents.runs
        known = runs.of(command.incident)
        if any(command.id in run.commands for run in known):
            return ""
        if why := self.not_allowed(command, now):
            return why
        incident = self.open_incident(command.incident)
        if isinstance(incident, str):
            return incident
        old = next((run for run in known if run.id == command.run), None)
        if old is None:
            return f"{command.incident} has no run {command.run[:100]}"
        if later := superseded(old, known):
            return later
        step = (command.step or "") if command.verb is Verb.REDO else ""
        if command.verb is Verb.REDO and not step:
            return "it names no step"
        view, ceiling = self._documents.cluster(command.cluster).view, self._planner.ceiling(incident, now)
        try:
            goes_on = continuation(old, view, ceiling, now, step=step)
        except BadInput as error:
            return str(error)
        near = [*known, *self._planner.rivals(command.cluster, goes_on.plan)]
        if rival := holder(goes_on.plan, incident.id, near):
            return rival
        if command.digest != goes_on.plan.digest:
            if not command.digest:
                return _NO_DIGEST
            return f"{old.id} is not as it was shown: {what_changed(command.seen, goes_on.lines)}"
        return self._planner.take_up(incident, old, goes_on, command, now)

    def _held_or_changed(self, command: Command, bound: Plan, incident: str) -> str:
        runs = self._documents.runs
        near = [*runs.of(incident), *self._planner.rivals(command.cluster, bound)]
        return holder(bound, incident, near) or changed(command, bound, incident)

    def _on_node(self, command: Command, now: datetime) -> str:
        """Have the incident opened that a run on a node needs; the run is started once it is there."""
        documents, node = self._documents, node_of(command)
        view = documents.cluster(command.cluster).view
        on_it = documents.runs.on(command.cluster, f"Node//{node}")
        if command.id in self._accepted or any(command.id in run.commands for run in on_it):
            return ""
        if why := self.not_allowed(command, now):
            return why
        if not command.scope.startswith(SCOPE) or node not in view.nodes:
            return f"no node {node[:253]} in the inventory"
        if command.until is None or command.until <= now:
            return "it does not say until when it may begin, or that is over"
        facts = facts_for_node(command)
        incident = incident_for_node(command.cluster, node, facts, view, now)
        try:
            _, bound = self._planner.bind(incident, command.runbook, command.parameters, now)
        except (BadInput, ValueError) as error:
            return str(error)
        if why := self._held_or_changed(command, bound, ""):
            return why
        made = signal(
            SignalKind.NODE_PLANNED_WORK,
            Entity(command.cluster, node=node),
            severity=Severity.INFO,
            occurred_at=min(command.at, now),
            observed_at=now,
            attributes={**facts, SHOWN: shown_digest(bound, ""), "command": command.id, "via": command.via},
        )
        documents.outbox.signal(made)
        self._accepted[command.id] = None
        if len(self._accepted) > MAX_ACCEPTED:
            self._accepted.pop(next(iter(self._accepted)))
        why = f": {command.reason}" if command.reason else ""
        text = f"{command.actor} starts runbook {command.runbook} on {node} by hand{why}; it begins with its incident"
        note = TimelineNote("person.run", text, command.actor, {"command": command.id, "via": command.via})
        documents.outbox.note(note, "", command.cluster, now)
        return ""


def changed(command: Command, bound: Plan, incident: str) -> str:
    """Why the plan is not the one that the person was shown; empty when it is."""
    if command.digest == shown_digest(bound, incident):
        return ""
    if not command.digest:
        return _NO_DIGEST
    return (
        f"the plan has changed since it was shown: {what_changed(command.seen, shown_steps(bound, incident))}"
    )
