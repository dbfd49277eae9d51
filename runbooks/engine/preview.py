"""What a person's command would do, shown before it is sent: the plan, its digest, and what each guardrail says now. Pure.

It plans by the responder's own code, on what the topics hold. Nothing is decided here: the responder plans anew, and decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from runbooks.engine.approvals import approved
from runbooks.engine.guardrails import STAGES, GuardContext, RulingKind
from runbooks.engine.guardrails.cordoned_nodes import is_shadow
from runbooks.engine.guardrails.policy import ON_ADMISSION
from runbooks.engine.guardrails.prerequisites import confirmed_before
from runbooks.engine.partition_documents import PartitionDocuments
from runbooks.engine.planning import Planner
from runbooks.engine.run.by_hand import (
    as_started,
    facts_for_node,
    holder,
    incident_for_node,
    shown_digest,
    shown_steps,
    superseded,
)
from runbooks.engine.run.continuation import continuation
from runbooks.engine.run.machine import begin
from runbooks.language.conditions import facts_of
from runbooks.language.schema import Runbook
from runbooks.language.select import unmet
from streams.config.settings import ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.model.control import Control
from streams.model.conversation import Command
from streams.model.errors import BadInput
from streams.model.facts import Fact
from streams.model.incident import Incident, IncidentState
from streams.model.run import Plan, Run

_WORDS = {RulingKind.REFUSE: "ends the run", RulingKind.HOLD: "holds", RulingKind.ASK: "asks"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one guardrail says now: `passes`, `holds`, `asks`, `approved by you` or `ends the run`, and why."""

    guardrail: str
    verdict: str
    step: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a person is shown. `refused` says why the responder would start nothing; the rest is what a command carries."""

    incident: Incident
    plan: Plan
    digest: str
    seen: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    refused: str = ""
    remarks: tuple[str, ...] = ()


class Preview:
    """What the responder of a cluster would plan."""

    def __init__(
        self,
        runbooks: Sequence[Runbook],
        policy: ResponderSettings,
        actions: frozenset[str],
        *,
        cluster: str,
        facts: Iterable[Fact],
        runs: Iterable[Run],
        control: Control,
    ) -> None:
        self._policy, self._cluster = policy, cluster
        self._by_id = {runbook.id: runbook for runbook in runbooks}
        documents = self._documents = PartitionDocuments({run.id: run for run in runs}, (), None)
        state = documents.cluster(cluster)
        for fact in facts:
            state.view.put(fact)
        state.control = control
        for run in documents.runs.values():
            documents.count(run)
        self._planner = Planner(documents, runbooks, policy, actions)

    @property
    def view(self) -> ClusterView:
        """The inventory."""
        return self._documents.cluster(self._cluster).view

    @property
    def runbooks(self) -> Mapping[str, Runbook]:
        """By id."""
        return self._by_id

    def start(self, incident: Incident, command: Command, now: datetime) -> Shown:
        """A runbook on an incident. Raises BadInput when it cannot be planned."""
        _check_open(incident)
        plan = self._bound(incident, command, now)
        remarks = [*self._unmatched(incident, command.runbook), *self._why_shadow(incident, now)]
        return self._shown(incident, plan, command, now, shown_digest(plan, incident.id), tuple(remarks))

    def start_on_node(self, node: str, command: Command, now: datetime) -> Shown:
        """A runbook on a node, with the incident that will be opened for it. Raises BadInput when it cannot be planned."""
        if node not in self.view.nodes:
            raise BadInput(f"no node {node} in the inventory")
        incident = incident_for_node(self._cluster, node, facts_for_node(command), self.view, now)
        plan = self._bound(incident, command, now)
        remarks = tuple(self._why_shadow(incident, now))
        return self._shown(incident, plan, command, now, shown_digest(plan, ""), remarks)

    def take_up(self, incident: Incident, old: Run, command: Command, now: datetime) -> Shown:
        """A run that goes on, or one of its steps again. Raises BadInput when it cannot."""
        _check_open(incident)
        known = self._documents.runs.of(incident.id)
        if later := superseded(old, known):
            raise BadInput(later)
        ceiling = self._planner.ceiling(incident, now)
        goes_on = continuation(old, self.view, ceiling, now, step=command.step or "")
        known_book = self._by_id.get(old.plan.runbook)
        remarks = []
        if known_book is None or known_book.revision != old.plan.runbook_revision:
            has = (
                "is none here any more"
                if known_book is None
                else f"has revision {known_book.revision} by now"
            )
            remarks.append(
                f"{old.plan.runbook} {has}; the run goes on by its plan of revision {old.plan.runbook_revision}"
            )
        run = replace(
            self._as_begun(incident, goes_on.plan, command, now), steps=goes_on.records, continues=old.id
        )
        verdicts = tuple(self._verdicts(incident, run, now))
        refused = holder(
            goes_on.plan, incident.id, [*known, *self._planner.rivals(self._cluster, goes_on.plan)]
        )
        return Shown(
            incident,
            goes_on.plan,
            goes_on.plan.digest,
            goes_on.lines,
            verdicts,
            refused,
            (*goes_on.lines, *remarks),
        )

    def _bound(self, incident: Incident, command: Command, now: datetime) -> Plan:
        try:
            return self._planner.bind(incident, command.runbook, command.parameters, now)[1]
        except ValueError as error:
            raise BadInput(str(error)) from error

    def _shown(
        self,
        incident: Incident,
        plan: Plan,
        command: Command,
        now: datetime,
        digest: str,
        remarks: tuple[str, ...],
    ) -> Shown:
        run = self._as_begun(incident, plan, command, now)
        near = [*self._documents.runs.of(incident.id), *self._planner.rivals(self._cluster, plan)]
        return Shown(
            incident, plan, digest, shown_steps(plan, incident.id), tuple(self._verdicts(incident, run, now)),
            holder(plan, incident.id, near), remarks,
        )  # fmt: skip

    @staticmethod
    def _as_begun(incident: Incident, plan: Plan, command: Command, now: datetime) -> Run:
        return as_started(begin(incident, plan, now).run, command, ())

    def _verdicts(self, incident: Incident, run: Run, now: datetime) -> Iterator[Verdict]:
        """Of each guardrail the gravest objection to a step that is still to be taken."""
        state = self._documents.cluster(self._cluster)
        steps = [s for s in run.plan.steps if s.destructive and not run.step(s.id).state.is_over]
        for stage in STAGES:
            if stage is confirmed_before:
                continue  # the order of steps: nothing before them is done yet
            found = None
            for step in steps[:1] if stage in ON_ADMISSION else steps:
                context = GuardContext(
                    incident, run, step, self.view, self._documents.runs.peers(run), self._policy, now,
                    control=state.control_of(run), run_counts=state.run_counts,
                )  # fmt: skip
                if (ruling := stage(context)) is not None and (
                    found is None or ruling.kind is RulingKind.REFUSE
                ):
                    cleared = ruling.kind is RulingKind.ASK and approved(step, run, self._policy, now)
                    word = "approved by you" if cleared and not is_shadow(run) else _WORDS[ruling.kind]
                    found = Verdict(stage.__name__, word, step.id, str(ruling))
            yield found or Verdict(stage.__name__, "passes")

    def _unmatched(self, incident: Incident, runbook: str) -> Iterator[str]:
        parts: Mapping[str, object] = facts_of(incident)
        if missing := unmet(self._by_id[runbook].match, parts):
            yield f"its match does not hold for this incident: {' && '.join(missing)}"

    def _why_shadow(self, incident: Incident, now: datetime) -> Iterator[str]:
        if (held := self._planner.held_back(incident, now)) is not None:
            yield f"in shadow mode: {held.reason}; {held.lifts}"


def _check_open(incident: Incident) -> None:
    if incident.state.is_over:
        raise BadInput(f"{incident.id} is over ({incident.state})")
    if incident.state is IncidentState.SUPPRESSED:
        raise BadInput(f"{incident.id} is suppressed: {incident.reason}")
