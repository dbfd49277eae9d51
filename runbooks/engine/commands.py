"""Operators' commands: to the runs of an incident, to a node that is held, or to the cluster as a whole. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from runbooks.engine.cluster_controls import commanded
from runbooks.engine.maintenance import has_acted, started, stopped, works
from runbooks.engine.node_release import NodeHold, choose, holds_of, node_of, release
from runbooks.engine.partition_documents import PartitionDocuments
from runbooks.engine.person_runs import PersonRuns
from runbooks.engine.planning import Planner
from runbooks.engine.run.human_decisions import because, decided, remark, runs_for
from runbooks.engine.run.transition import RunReport, TimelineNote
from streams.config.settings import ResponderSettings
from streams.model.clock import to_the_second
from streams.model.conversation import BY_HAND, CLUSTER_VERBS, Command, Verb
from streams.model.drill import is_drill_host

MAX_REMARKS = 1000
"""Ids of silences and notes remembered for incidents without a run. After a takeover one that is written twice shows twice."""


class CommandHandler:
    """Applies commands to the documents of a partition. Each is answered on the timeline under its id."""

    def __init__(self, documents: PartitionDocuments, planner: Planner, policy: ResponderSettings) -> None:
        self._documents = documents
        self._person_runs = PersonRuns(documents, planner, policy)
        self._policy = policy
        self._resolved: dict[str, Command] = {}
        """Who resolved an incident: the correlator takes a moment until it publishes that it is over."""
        self._remarks: dict[str, None] = {}

    def adopt(self, policy: ResponderSettings) -> None:
        """Judge people's commands by this from now on."""
        self._policy = policy
        self._person_runs.adopt(policy)

    def handle(self, command: Command, now: datetime) -> None:
        """Give a command to every run of the incident that it is about, or to the cluster."""
        documents = self._documents
        if command.verb in CLUSTER_VERBS:
            state = documents.cluster(command.cluster)
            until = state.inherited_until
            in_flight_until = until if until is not None and now < until else None
            update = commanded(state.control, command, self._policy, now, in_flight_until=in_flight_until)
            documents.control(state, update, now, command.incident)
            return
        if command.verb is Verb.RELEASE:
            self._release(command, now)
            return
        if command.verb is Verb.DRILL:
            self._drill(command, now)
            return
        if command.verb in BY_HAND:
            if why := self._person_runs.handle(command, now):
                self.refuse(command, why)
            return
        if command.verb in (Verb.MAINTENANCE, Verb.MAINTENANCE_STOP):
            self._maintenance(command, now)
            return
        if command.verb is Verb.RESOLVE:
            if why := self._over_already(command):
                self.refuse(command, why)
                return
            self._resolved[command.incident] = command
        runs = runs_for(command, documents.runs.of(command.incident))
        for run in runs:
            documents.apply(decided(run, command, self._policy, now), now)
        if runs:
            return
        if command.verb in (Verb.SILENCE, Verb.NOTE):
            self._remark(command, now)
            return
        if command.verb is Verb.SNOOZE:
            self.refuse(command, "this incident has no run")
            return
        what = f"{command.verb} by {command.actor}"
        if command.verb is Verb.HAND_OVER:
            what = f"taken over by {command.actor}{because(command)}"
        text = f"{what}: this incident has no run"
        self._note(command, f"person.{command.verb}", text, command.at)
        if command.verb is Verb.RESOLVE:
            report = RunReport("run.resolved", actor=command.actor, reason=command.reason)
            documents.outbox.report(report, command.incident, command.cluster, command.at)

    def _remark(self, command: Command, now: datetime) -> None:
        """A line on the timeline of an incident that has no run to remember the command's id."""
        if command.id in self._remarks:
            return
        self._remarks[command.id] = None
        if len(self._remarks) > MAX_REMARKS:
            self._remarks.pop(next(iter(self._remarks)))
        self._documents.outbox.note(remark(command, now), command.incident, command.cluster, now)

    def refuse(self, command: Command, why: str) -> None:
        """Answer a command that changes nothing here."""
        text = f"{command.verb} by {command.actor} not accepted: {why}"
        self._note(command, "command.refused", text, command.at)

    def _over_already(self, command: Command) -> str:
        """Why there is nothing left to resolve; empty where there is. A run with work left can always be ended."""
        name, first, runs = command.incident, self._resolved.get(command.incident), self._documents.runs
        if first is not None and first.id != command.id:
            return f"{first.actor} resolved it at {to_the_second(first.at)}"
        if not self._documents.is_over(name) or any(run in runs.live for run in runs.ids_of(name)):
            return ""
        incident = self._documents.incidents.get(name)
        if incident is None or incident.closed_at is None:
            return f"{name} is already over"
        part = f", as part of {incident.merged_into}" if incident.merged_into else ""
        return f"{name} has been over since {to_the_second(incident.closed_at)}{part}"

    def _release(self, command: Command, now: datetime) -> None:
        """Return a node to service, or say what prevents it."""
        node, documents = node_of(command), self._documents
        runs = documents.runs.on(command.cluster, f"Node//{node}")
        if any(command.id in run.commands for run in runs):
            return
        fact = documents.cluster(command.cluster).view.nodes.get(node)
        chosen = choose(command, runs, fact, self._policy, now)
        if isinstance(chosen, NodeHold):
            documents.apply(release(chosen, command, holds_of(runs, node), now), now)
            return
        text = f"release of {node[:253]} by {command.actor} not accepted: {chosen}"
        self._note(command, "person.release_refused", text, now)

    def _drill(self, command: Command, now: datetime) -> None:
        """Answer for a drill's host that its incidents are planned in shadow mode only. An older responder cannot say that."""
        host = node_of(command)
        if not is_drill_host(host) or host in self._documents.cluster(command.cluster).view.nodes:
            text = (
                f"drill on {host[:253]} by {command.actor} not accepted: it is no name that only drills have"
            )
            self._note(command, "person.drill_refused", text, now)
            return
        text = f"drill on {host[:253]} by {command.actor}: what is found there is planned in shadow mode and never acted on"
        self._note(command, "person.drill", text, now)

    def _maintenance(self, command: Command, now: datetime) -> None:
        """Begin, extend or end planned work on nodes, and tell the correlator."""
        documents, view = self._documents, self._documents.cluster(command.cluster).view
        runs = {
            run.id: run
            for name in dict.fromkeys(command.nodes)
            for run in documents.runs.on(command.cluster, f"Node//{name}")
        }
        about = {run.incident for run in runs.values()} - documents.incidents.summaries.keys()
        known = works(i for name in sorted(about) if (i := documents.incidents.get(name)) is not None)
        if command.verb is Verb.MAINTENANCE:
            answer = started(command, view.nodes, known, self._policy, now)
        else:
            touched = {run.incident for run in runs.values() if has_acted(run)}
            untouched = frozenset(i.id for i in known.values()) - touched
            answer = stopped(command, known, untouched, self._policy, now)
        if answer.refusal:
            self.refuse(command, answer.refusal)
            return
        for made in answer.signals:
            documents.outbox.signal(made)
        self._note(command, f"person.{command.verb}", answer.text, now)
        for name in answer.calls_off:
            over = replace(command, id=f"{command.id}/{name}", incident=name, verb=Verb.RESOLVE, nodes=())
            self.handle(over, now)

    def _note(self, command: Command, event: str, text: str, at: datetime) -> None:
        note = TimelineNote(event, text, command.actor, {"command": command.id, "via": command.via})
        self._documents.outbox.note(note, command.incident, command.cluster, at)
