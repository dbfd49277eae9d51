"""From incidents to runs: which runbook is started, what a new revision changes, and what comes after a run has ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from runbooks.engine.approvals import known_groups
from runbooks.engine.escalation import (
    due_step,
    entity_names,
    faulty_entity,
    is_above,
    is_nondestructive,
    offered,
)
from runbooks.engine.guardrails.rollout import Held, held_by_rollout
from runbooks.engine.job_history import history_of
from runbooks.engine.partition_documents import PartitionDocuments
from runbooks.engine.run.by_hand import (
    as_started,
    holder,
    lacking,
    note_of_start,
    parameters_in,
    shown_digest,
    targets_of,
    with_parameters,
)
from runbooks.engine.run.continuation import Continuation
from runbooks.engine.run.human_decisions import is_untouched, may_be_replanned, replanned, revised
from runbooks.engine.run.machine import begin
from runbooks.engine.run.plan import MAX_STEPS, plan
from runbooks.engine.run.transition import RunReport, TimelineNote, shortened
from runbooks.language.conditions import Plain
from runbooks.language.job_history import JobHistory
from runbooks.language.schema import Runbook
from runbooks.language.select import select
from streams.config.settings import ResponderSettings
from streams.model.codec import encode
from streams.model.conversation import Command, Verb
from streams.model.errors import BadInput
from streams.model.incident import Incident, IncidentState
from streams.model.kinds import IncidentFamily
from streams.model.planned_work import PlannedWork, work_of
from streams.model.run import Mode, Plan, Run, RunOutcome, run_id, stricter

MAX_PLANNED_BYTES = 320 * 1024
"""The largest run that is started: it may grow to 2.5 times that, and the store limits documents to 1 MiB."""


class Planner:
    """Starts, revises and replans the runs of incidents."""

    def __init__(
        self,
        documents: PartitionDocuments,
        runbooks: Sequence[Runbook],
        policy: ResponderSettings,
        actions: frozenset[str],
        config: str | None = None,
    ) -> None:
        """`config` is the version of runbooks and policy, which every run that is started carries."""
        self._documents = documents
        self._actions = actions
        self.adopt(runbooks, policy, config)
        self._full: set[str] = set()
        """Runs reported as too large to be extended."""

    def adopt(self, runbooks: Sequence[Runbook], policy: ResponderSettings, config: str | None) -> None:
        """Plan by these from now on. A run keeps its plan."""
        self._runbooks = runbooks
        self._by_id = {runbook.id: runbook for runbook in runbooks}
        self._policy = policy
        self._config = config

    def revise(self, incident: Incident, now: datetime) -> None:
        """Start a run for a new incident, or give its runs the new revision."""
        documents = self._documents
        runs = documents.runs.of(incident.id)
        if not runs:
            self._begin(incident, now)
            return
        for run in runs:
            if run.id in documents.runs.live:
                documents.timers.bring_forward(run.id, now)
            if incident.revision > run.incident_revision:
                self._revise_run(run, incident, now)
        # The latest run alone may give way: an earlier one has ended or has been superseded itself.
        self._replan(incident, documents.runs[runs[-1].id], now)
        documents.ended[incident.id] = None

    def continue_ended(self, now: datetime, most: int) -> None:
        """Start the next run of incidents whose last one has ended, at most so many.

        That is one whose run escalates, and one that was over in the meantime and has come back.
        """
        documents, begun = self._documents, 0
        while documents.ended and begun < most:
            incident_id = next(iter(documents.ended))
            del documents.ended[incident_id]
            if documents.is_over(incident_id) is not False:
                continue
            incident, runs = documents.incidents[incident_id], documents.runs.of(incident_id)
            if not runs or not all(r.state.is_over for r in runs) or any(r.overruled for r in runs):
                continue
            last = runs[-1]
            if last.outcome is RunOutcome.ESCALATED:
                self._begin(incident, now, after=last)
            elif last.incident_over or incident.flaps > last.flaps:
                # A fault that comes and goes is one run with a count, unless the run has changed something or was decided about.
                self._begin(incident, now, instead=last if is_untouched(last) else None)
            else:
                continue
            begun += 1

    def _revise_run(self, run: Run, incident: Incident, now: datetime) -> None:
        runbook = self._by_id.get(run.plan.runbook)
        bound = None
        # Another revision of the runbook would bind other steps: what was approved and started stays as it was planned.
        if runbook and runbook.revision == run.plan.runbook_revision and not incident.state.is_over:
            runbook = _as_planned(runbook, run)
            bound = self._bound(incident, runbook, run.plan.mode, now)
        keep = self._root_of_survivor(incident)
        result = revised(run, incident, bound, now, keep)
        if too_large := _too_large(result.run, run):
            if run.id not in self._full:
                note = TimelineNote("run.not_extended", too_large, None, {"run": run.id})
                self._documents.outbox.note(note, run.incident, run.cluster, now)
            self._full.add(run.id)
            result = revised(run, incident, None, now, keep)
        self._documents.apply(result, now)

    def _begin(
        self, incident: Incident, now: datetime, *, after: Run | None = None, instead: Run | None = None
    ) -> None:
        """Start a run for the incident, or plan one anew.

        `after` is a run that failed and names the next escalation step, `instead` one that has changed nothing: it gets the plan.
        """
        runs = self._documents.runs
        if incident.state.is_over or incident.state is IncidentState.SUPPRESSED:
            return
        if unreadable := runs.unreadable_of(incident.id):
            # What that run did to the job and the node is unknown, and must not be done again.
            self._leave(incident, f"its finished run {unreadable[0].id} cannot be read", now)
            return
        if not runs.of(incident.id) and (lost := self._lost_run(incident)):
            # Only noted: a report would change the incident's state, and with it what shows that a run was there.
            self._note_none(incident, lost, now)
            return
        step = after.plan.escalation if after is not None else None
        work = work_of(incident.facts) if incident.family == IncidentFamily.PLANNED_WORK else None
        if step is None and work is not None and work.runbook:
            self._begin_by_hand(incident, work, now)
            return
        if step is None:
            choice = select(incident, self._runbooks, self.history(incident))
            chosen, why = choice.runbook, choice.why
        else:
            chosen = offered(self._by_id.get(step.to), self._by_id, self._actions)
            why = f"the next escalation step {step.to} is no known runbook"
        if chosen is None:
            self._leave(incident, why, now)
            return
        held = self.held_back(incident, now)
        ceiling = self._policy.mode if held is None else Mode.SHADOW
        chosen, why = self._escalated(incident, chosen, ceiling, now)
        if after is not None:
            reasons = (f"next escalation step after {after.plan.runbook}", after.reason, why)
            why = "; ".join(reason for reason in reasons if reason)
        if held is not None and self._policy.mode is not Mode.SHADOW and chosen.mode is not Mode.SHADOW:
            why = "; ".join(filter(None, (why, f"{held.reason}; {held.lifts}")))
        bound = self._bound(incident, chosen, ceiling, now)
        if bound is None:
            if after is not None:
                self._leave(incident, f"{chosen.id} cannot be planned for it", now)
            return
        round_ = self.next_round(incident.id, bound, instead.id if instead is not None else "")
        came_from = after.id if after is not None else ""
        if instead is not None:
            result = replanned(instead, incident, bound, now, round_=round_, why=why)
        else:
            result = begin(incident, bound, now, round_=round_, escalated_from=came_from, why=why)
        result = replace(result, run=replace(result.run, config=self._config))
        if why := oversized(result.run):
            self._leave(incident, why, now)
            return
        self._documents.apply(result, now)

    def _begin_by_hand(self, incident: Incident, work: PlannedWork, now: datetime) -> None:
        """Start the runbook that a person asked for on a node, once its incident is open; anything but the plan that they were
        shown is left to them."""
        if work.over or any(work.request in run.commands for run in self._documents.runs.of(incident.id)):
            return
        try:
            runbook, bound = self.bind(incident, work.runbook, parameters_in(work.parameters), now)
        except (BadInput, ValueError) as error:
            self._leave(incident, str(error), now)
            return
        if shown_digest(bound, incident.id) != work.shown:
            why = (
                f"the plan of {runbook.id} is another one by now than {work.by} was shown; "
                f"`faultline runbook run {runbook.id} --incident {incident.id}` shows it and starts it"
            )
            self._leave(incident, why, now)
            return
        if rival := holder(bound, incident.id, self.rivals(incident.cluster, bound)):
            self._leave(incident, rival, now)
            return
        told = Command(
            work.request, incident.id, incident.cluster, Verb.RUN, work.by, incident.evident_at or now,
            digest=bound.digest, reason=work.reason, runbook=runbook.id,
        )  # fmt: skip
        self.start(incident, bound, told, now)

    def bind(
        self, incident: Incident, name: str, parameters: Mapping[str, Plain], now: datetime
    ) -> tuple[Runbook, Plan]:
        """A runbook that a person asks for, bound to the incident as any other: no further than the settings and the rollout of
        the node's pool allow.

        Raises:
            BadInput: there is no such runbook, or a parameter is wrong.
            ValueError: it cannot be planned for the incident.
        """
        known = self._by_id.get(name)
        if known is None:
            raise BadInput(f"{name[:100]} is no runbook of this responder")
        runbook = with_parameters(known, parameters)
        ceiling = self.ceiling(incident, now)
        view = self._documents.cluster(incident.cluster).view
        teams = self._policy.tenants
        bound = plan(incident, runbook, view, ceiling, self._actions, self.history(incident), teams)
        if why := lacking(runbook, incident, bound):
            raise BadInput(why)
        return runbook, bound

    def start(self, incident: Incident, bound: Plan, command: Command, now: datetime) -> str:
        """Start the run that a person asked for; why it is not started, empty when it is."""
        round_ = self.next_round(incident.id, bound, "")
        why = f"started by hand by {command.actor}"
        result = begin(incident, bound, now, round_=round_, why=why)
        run = as_started(result.run, command, known_groups(command, self._policy))
        run = replace(run, config=self._config)
        if too_large := oversized(run):
            return too_large
        note = note_of_start(run, command, f"started runbook {bound.runbook} by hand")
        self._documents.apply(replace(result, run=run, notes=(note, *result.notes)), now)
        return ""

    def take_up(
        self, incident: Incident, old: Run, goes_on: Continuation, command: Command, now: datetime
    ) -> str:
        """Start the run that goes on with `old`; why it is not started, empty when it is."""
        bound = goes_on.plan
        what = (
            f"did {command.step} of {old.id} again"
            if command.verb is Verb.REDO
            else f"took up {old.id} again"
        )
        why = f"{command.actor} {what}: {'; '.join(goes_on.lines)}"
        round_ = self.next_round(incident.id, bound, "")
        result = begin(incident, bound, now, round_=round_, why=shortened(why))
        run = as_started(result.run, command, known_groups(command, self._policy))
        run = replace(run, steps=goes_on.records, continues=old.id, config=self._config)
        if too_large := oversized(run):
            return too_large
        note = note_of_start(run, command, what)
        self._documents.apply(replace(result, run=run, notes=(note, *result.notes)), now)
        return ""

    def ceiling(self, incident: Incident, now: datetime) -> Mode:
        """How far a run may go at most, by the settings and the rollout of the node's pool."""
        return self._policy.mode if self.held_back(incident, now) is None else Mode.SHADOW

    def rivals(self, cluster: str, bound: Plan) -> list[Run]:
        """The runs on what the plan acts on."""
        runs = self._documents.runs
        names = {name: None for key in targets_of(bound) for name in runs.ids_on(cluster, key)}
        return runs.read(name for name in names if name in runs.live)

    def next_round(self, incident: str, bound: Plan, instead: str) -> int:
        """The first round of the runbook that no other run of the incident has or had: keys of effects must differ."""
        runs, book = self._documents.runs, (bound.runbook, bound.runbook_revision)
        taken = {
            run.round
            for run in runs.of(incident)
            if run.id != instead and (run.plan.runbook, run.plan.runbook_revision) == book
        }
        round_ = 1
        while round_ in taken or ((name := run_id(incident, *book, round_)) in runs and name != instead):
            round_ += 1
        return round_

    def _leave(self, incident: Incident, why: str, now: datetime) -> None:
        """Report that no run is started for the incident and that it waits for an operator."""
        self._note_none(incident, why, now)
        report = RunReport("run.awaiting_approval", reason=why)
        self._documents.outbox.report(report, incident.id, incident.cluster, now)

    def _lost_run(self, incident: Incident) -> str:
        """What shows that a run of the incident was there that is not there any more; empty where nothing does.

        An incident is mitigated once its run has reported that it began, in the same commit; and its cordon stands on a node. So
        the topic was made anew, or the broker restored from an older copy.
        """
        view = self._documents.cluster(incident.cluster).view
        named = dict.fromkeys(filter(None, (incident.root.node, faulty_entity(incident).node)))
        marked = [n for n in named if (node := view.nodes.get(n)) is not None and incident.id in node.owners]
        if not marked and incident.state not in (IncidentState.MITIGATING, IncidentState.VERIFYING):
            return ""
        shown = f"node {', '.join(marked)} carries its cordon" if marked else f"it is {incident.state}"
        return (
            f"{shown}, so a run has acted for it, and none is on record: runs were lost. What that run did is not known and not "
            "done again; see to its node and jobs, then start a runbook by hand or resolve the incident"
        )

    def _note_none(self, incident: Incident, why: object, now: datetime) -> None:
        note = TimelineNote("run.none", f"manual action required: {why}")
        self._documents.outbox.note(note, incident.id, incident.cluster, now)

    def held_back(self, incident: Incident, now: datetime) -> Held | None:
        """Why the incident's node is left alone by the rollout of its pool."""
        node = faulty_entity(incident).node
        if node is None:
            return None
        state = self._documents.cluster(incident.cluster)
        return held_by_rollout(node, state.view, self._policy.rollout, state.control, now)

    def _escalated(
        self, incident: Incident, runbook: Runbook, ceiling: Mode, now: datetime
    ) -> tuple[Runbook, str]:
        """The escalation step that is due, by what has been tried for the same GPU, node or job."""
        if runbook.escalation is None:
            return runbook, ""
        shadow = stricter(runbook.mode, ceiling) is Mode.SHADOW
        entity = faulty_entity(incident)
        # An incident that was merged into another was no crash of its own.
        history = [
            run
            for run in self._documents.runs.counted_for(incident.cluster, entity_names(entity))
            if not is_nondestructive(run) or not self._is_merged(run.incident)
        ]
        step = due_step(
            runbook,
            entity,
            history,
            self._by_id,
            now,
            shadow=shadow,
            incident=incident.id,
            actions=self._actions,
        )
        return step.runbook, step.why

    def history(self, incident: Incident) -> JobHistory:
        """What was done before for its jobs; an installation in shadow mode counts what would have been done."""
        runs, cluster = self._documents.runs, incident.cluster
        return history_of(
            incident,
            self._documents.cluster(cluster).view,
            lambda job: runs.on(cluster, job),
            shadow=self._policy.mode is Mode.SHADOW,
            diagnoses="diagnose_nodes" in self._actions,
        )

    def _is_merged(self, incident_id: str) -> bool:
        incidents = self._documents.incidents
        known = incidents.summaries.get(incident_id) or incidents.get(incident_id)
        return known is not None and known.state is IncidentState.MERGED

    def _bound(self, incident: Incident, runbook: Runbook, ceiling: Mode, now: datetime) -> Plan | None:
        """The runbook bound to the incident; None when that is not possible, with the reason on the timeline."""
        view = self._documents.cluster(incident.cluster).view
        try:
            teams = self._policy.tenants
            return plan(incident, runbook, view, ceiling, self._actions, self.history(incident), teams)
        except ValueError as error:
            self._note_none(incident, error, now)
            return None

    def _replan(self, incident: Incident, run: Run, now: datetime) -> None:
        """Give a run that has only asked or told so far the plan of another runbook, when the evidence now fits that one."""
        if incident.state.is_over or not may_be_replanned(run):
            return
        better = select(incident, self._runbooks, self.history(incident)).runbook
        if better is None or better.id == run.plan.runbook:
            return
        # A run that escalation chose stays, unless the incident no longer names the node it would act on.
        if not is_above(run.plan.runbook, better, self._by_id) or _has_lost_its_node(run, incident):
            self._begin(incident, now, instead=run)

    def _root_of_survivor(self, incident: Incident) -> dict[str, str]:
        """For a merged incident: the root node of the incident at the end of all merges, with that incident's id.

        The node is not uncordoned before that incident's own run holds it.
        """
        incidents = self._documents.incidents
        other, seen = incidents.get(incident.merged_into or ""), {incident.id}
        while other is not None and other.state is IncidentState.MERGED and other.id not in seen:
            seen.add(other.id)
            other = incidents.get(other.merged_into or "")
        if other is None or not other.root.node or other.state.is_over:
            return {}
        return {other.root.node: other.id}


def _as_planned(runbook: Runbook, run: Run) -> Runbook:
    """The runbook with the values that its parameters had when a person started it."""
    if not run.started_by:
        return runbook
    values = {
        name: value
        for name, value in run.plan.parameters.items()
        if name in runbook.parameters and not isinstance(value, tuple)
    }
    return with_parameters(runbook, values)


def oversized(run: Run) -> str:
    """Why a run may not be started: its document is too large; empty when it may."""
    size = len(encode(run))
    if size <= MAX_PLANNED_BYTES:
        return ""
    return f"the plan of {run.plan.runbook} has {size} bytes, limit {MAX_PLANNED_BYTES}"


def _too_large(run: Run, before: Run) -> str:
    """Why a run may not be extended; empty when it may. Its document has to fit the store until it ends."""
    steps, size = len(run.plan.steps), 0
    if steps <= len(before.plan.steps):
        return ""
    if steps <= MAX_STEPS and (size := len(encode(run))) <= MAX_PLANNED_BYTES:
        return ""
    has = f"{steps} steps, limit {MAX_STEPS}" if not size else f"{size} bytes, limit {MAX_PLANNED_BYTES}"
    return f"manual action required for the added steps: with them the run would have {has}"


def _has_lost_its_node(run: Run, incident: Incident) -> bool:
    """Whether the run would act on a node that its incident no longer names."""
    nodes = {step.target.name for step in run.plan.steps if step.target and step.target.kind == "Node"}
    return bool(nodes) and faulty_entity(incident).node not in nodes
