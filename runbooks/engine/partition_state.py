"""Everything known about one partition and what follows from it: documents in, `advance`, then `collect` what changed. Pure.

The responder and the replay use it alike. Nothing that `collect` returns may be acted on before the runs in it are committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from connectors.base import Outcome, Retry
from runbooks.engine.call_slots import TICKET_SYSTEM, WINDOW, CallLimits, system_of
from runbooks.engine.cluster_controls import configured, unreadable_control
from runbooks.engine.commands import CommandHandler
from runbooks.engine.commit_batch import CommitBatch, Outbox
from runbooks.engine.external_changes import ExternalChanges
from runbooks.engine.guardrails import switched_off
from runbooks.engine.guardrails.review import ReviewLog
from runbooks.engine.partition_documents import PartitionDocuments
from runbooks.engine.planning import Planner
from runbooks.engine.priority_queue import PriorityQueue
from runbooks.engine.run.human_decisions import MAX_NOTE
from runbooks.engine.run.missing_incident import placeholder
from runbooks.engine.run.outcomes import concluded, recover
from runbooks.engine.run.shadow_mode import guard_context
from runbooks.engine.run.transition import MAX_REASON, Call, RunTransition, TimelineNote, shortened
from runbooks.engine.run_index import UnreadableRun
from runbooks.engine.run_schedule import RunSchedule
from runbooks.engine.run_summaries import IncidentSummary, RunSummary
from runbooks.language.schema import Runbook
from streams.config.settings import ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.kafka.lazy_documents import LazyDocuments
from streams.model.control import Control
from streams.model.conversation import BY_HAND, CLUSTER_VERBS, Command, Verb
from streams.model.facts import Fact
from streams.model.incident import Certainty, Incident
from streams.model.run import Run

KEEP_FINISHED = timedelta(days=30)
"""How long a finished run is kept once its incident is over: every acquisition of the partition reads it."""

CHECK_FOR_OLD = timedelta(hours=1)
"""How often finished runs are checked for those to delete."""

AT_A_TIME = 100
"""Runs recovered before other tasks get to run."""

READ_LATER = 10
"""Finished runs that an iteration with nothing else to do reads whole."""

LONGEST_HOLD_S = 60.0
"""A ticket system that asks for a longer pause is tried again after this."""


@dataclass(frozen=True, slots=True)
class WorkBudget:
    """How much one iteration handles at most, most urgent first; the next iteration continues.

    An iteration runs without a break and its commit is one transaction: both have to stay short whatever arrives at once.
    """

    incidents: int
    runs: int


UNLIMITED = WorkBudget(10**9, 10**9)
"""For a caller without a broker and without probes to answer in between."""

PER_ITERATION = WorkBudget(50, 100)
"""A few tenths of a second of work, and some megabytes to commit."""


class PartitionState:
    """The state of one partition."""

    def __init__(
        self,
        runbooks: Sequence[Runbook],
        policy: ResponderSettings,
        actions: frozenset[str],
        runs: Mapping[str, Run] | LazyDocuments[Run, RunSummary] | None = None,
        unreadable: Iterable[UnreadableRun] = (),
        *,
        limits: CallLimits | None = None,
        budget: WorkBudget = UNLIMITED,
        acquired: bool = False,
        reviews: ReviewLog | None = None,
        config: str | None = None,
    ) -> None:
        """`acquired`: `recovering` follows before the first `advance`, and counts the runs then.

        `reviews` keeps what every guardrail says of each step in shadow mode. `config` is the version of runbooks and policy:
        runs carry it, and the controls of the cluster say since when it is in force; None says nothing.
        """
        self._policy = policy
        self._config = config
        self._budget = budget
        self._acquired = acquired
        documents = self._documents = PartitionDocuments(runs, unreadable, limits)
        self.runs, self.incidents = documents.runs, documents.incidents
        self._planner = Planner(documents, runbooks, policy, actions, config)
        self._schedule = RunSchedule(
            documents, policy, actions, frozenset(runbook.id for runbook in runbooks), reviews
        )
        self._handler = CommandHandler(documents, self._planner, policy)
        self._external = ExternalChanges()
        self._fresh = PriorityQueue()
        """Incidents with a revision that the planner has not seen."""
        self._arrivals = 0
        self._commands: deque[Command] = deque()
        self._recovered: deque[tuple[str, tuple[TimelineNote, ...]]] = deque()
        """Runs taken over with a call in flight, and what the timeline has to say about it."""
        self._unread: deque[str] = deque()
        """Finished runs that may hold a node and count by their summary: nobody knows yet whether they can be read whole."""
        self._reported_unreadable: set[str] = set()
        self._checked_for_old_at: datetime | None = None
        for name in () if acquired else self._decoded():
            documents.count(self.runs[name])

    def recovering(self, now: datetime) -> Iterator[None]:
        """Take over a predecessor's runs: calls in flight are looked up once their lease is over.

        Yields between batches: there may be ten thousand runs, and the group needs a heartbeat in between.
        """
        for number, (name, summary) in enumerate(list(self.runs.summaries.items()), start=1):
            self._count_finished(name, summary, now)
            if number % AT_A_TIME == 0:
                yield
        for number, name in enumerate(self._decoded(), start=1):
            self._recover(self.runs[name], now)
            if number % AT_A_TIME == 0:
                yield

    def adopt(
        self, runbooks: Sequence[Runbook], policy: ResponderSettings, config: str, now: datetime
    ) -> None:
        """Decide by these from now on, between two calls of `advance`: nothing is decided by half of them.

        Runs keep the plan they have. Limits, switches and approvals are those of `policy` from the next step of every run on.
        """
        longer = _longest_window_s(policy) > _longest_window_s(self._policy)
        self._policy, self._config = policy, config
        self._planner.adopt(runbooks, policy, config)
        self._schedule.adopt(frozenset(runbook.id for runbook in runbooks), policy)
        self._handler.adopt(policy)
        if longer:
            # Runs that had left the shorter window count again: a limit must not forget what it is to limit.
            for name, summary in list(self.runs.summaries.items()):
                self._count_finished(name, summary, now)

    def _decoded(self) -> list[str]:
        return [name for name in self.runs if name not in self.runs.summaries]

    def _recover(self, run: Run, now: datetime) -> None:
        documents = self._documents
        if run.id not in self.runs.live:
            if self._acquired:
                documents.count(run)
            return
        for record in run.steps:
            row = record.effect
            if row is not None and row.action == "open_ticket" and now - row.intended_at < WINDOW:
                documents.slots.opened(row.intended_at)
        result = recover(run, now)
        if result.run != run:
            # Committed a few at a time later on: a successor of ours would find out the same.
            documents.keep(result.run, now)
            self._recovered.append((run.id, result.notes))
        elif self._acquired:
            documents.count(run)
        documents.timers.bring_forward(run.id, now)
        documents.cluster(run.cluster).note_inherited_calls(result.run)

    def _count_finished(self, name: str, summary: RunSummary, now: datetime) -> None:
        """Count a finished run that a guardrail may still ask about: a recent one, or one that holds a node cordoned."""
        policy, state = self._policy, self._documents.cluster(summary.cluster)
        window_s = policy.blast_radius.window_s
        recent = summary.updated_at > now - timedelta(seconds=_longest_window_s(policy))
        if recent and (run := self.runs.get(name)) is not None:
            state.run_counts.put(run)
        elif not recent and summary.may_hold(state.view.nodes, now, window_s):
            state.run_counts.put_ended(
                name, summary.created_at, summary.cordons, summary.jobs, shadow=summary.shadow
            )
            self._unread.append(name)

    def view(self, cluster: str) -> ClusterView:
        """What is known of a cluster's inventory."""
        return self._documents.cluster(cluster).view

    def control(self, cluster: str) -> Control:
        """The kill switch, freezes and breaker of a cluster."""
        return self._documents.cluster(cluster).control

    def take_fact(self, key: str, fact: Fact | None, news_at: datetime | None = None) -> None:
        """A record of the inventory; None for a tombstone.

        `news_at` is when it was published, for a record that no responder has processed before: only those are checked for
        changes made by others.
        """
        cluster, kind, name = (fact.key if fact is not None else key).split("/", 2)
        if news_at is not None:
            self._external.observe(self.view(cluster), key, fact, news_at)
        if fact is not None:
            self.view(fact.cluster).put(fact)
        else:
            self.view(cluster).forget(key)
        if kind in ("node", "job"):
            self._schedule.changed_targets[cluster, f"Node//{name}" if kind == "node" else name] = None

    def take_control(self, control: Control) -> None:
        """A cluster's controls as committed; an older revision than the known one is ignored."""
        state = self._documents.cluster(control.cluster)
        if control.revision > state.control.revision:
            state.control = control

    def take_unreadable_control(self, cluster: str, why: str, now: datetime) -> None:
        """A cluster's control record cannot be decoded: it may hold the kill switch, so that is engaged until an approver
        releases it. A new control record is written in place of the unreadable one."""
        update = unreadable_control(self.control(cluster), why, now)
        self._documents.control(self._documents.cluster(cluster), update, now)

    def take_incident(self, incident: Incident) -> None:
        """A revision of an incident; one that is not newer than the known one is ignored."""
        known = self.incidents.get(incident.id)
        if known is None or incident.revision > known.revision:
            self.incidents[incident.id] = incident
            self._arrivals += 1
            self._fresh.bring_forward(
                incident.id, (incident.certainty is not Certainty.DECISIVE, self._arrivals)
            )

    def take_finished_incident(self, summary: IncidentSummary, raw: bytes) -> bool:
        """Keep an incident encoded when it is over and no run still has to learn of it; False when it has to be decoded."""
        known = self.incidents.summaries.get(summary.id)
        if not summary.state.is_over or (known is None and summary.id in self.incidents):
            return False
        runs = [self.runs.summaries.get(name) for name in self.runs.ids_of(summary.id)]
        if any(run is None or run.incident_revision < summary.revision for run in runs):
            return False
        if known is None or summary.revision > known.revision:
            self.incidents.store(summary.id, raw, summary)
        return True

    def take_command(self, command: Command) -> None:
        """An operator's command, handled in the next `advance`."""
        longest = MAX_NOTE if command.verb is Verb.NOTE else MAX_REASON
        self._commands.append(replace(command, reason=shortened(command.reason, longest)))

    def refuse(self, command: Command, why: str) -> None:
        """A command that this responder must not act on: it is only answered."""
        self._handler.refuse(command, why)

    def take_outcome(self, call: Call, outcome: Outcome, now: datetime) -> None:
        """The outcome of a call."""
        slots = self._documents.slots
        slots.give_back(call.slot)
        if isinstance(outcome, Retry) and (system := system_of(call.effect.action)) == TICKET_SYSTEM:
            # It is down or asks for a pause: a thousand queued tickets must not find that out one by one.
            slots.hold(system, now + timedelta(seconds=min(outcome.after_s, LONGEST_HOLD_S)))
        if (run := self.runs.get(call.run)) is not None:
            self._documents.apply(concluded(run, call.step, call.kind, outcome, now), now)

    def switched_off(self, call: Call, now: datetime) -> str:
        """Why a call that may not have left yet must not leave any more, since a switch changed; empty if it may."""
        run = self.runs.get(call.run)
        if run is None or call.kind != "apply":
            return ""
        context = self._schedule.context(run, self.incidents.get(run.incident) or placeholder(run), now)
        ruling = switched_off(guard_context(RunTransition(run, now), run.planned(call.step), context))
        return str(ruling) if ruling is not None else ""

    def advance(self, now: datetime) -> None:
        """Start runs for new incidents, handle revisions and commands, and advance runs as far as they go now.

        It handles no more than the budget allows: `is_behind` tells whether there is more.
        """
        self._commit_recovered(now)
        # Incidents before commands: a `stop` sent while no responder was running is meant for the run that starts now.
        for incident_id in self._fresh.take(self._budget.incidents):
            self._planner.revise(self.incidents[incident_id], now)
        for command in self._next_commands():
            self._catch_up_with(command.incident, now)
            self._handler.handle(command, now)
        # After runs were planned: a change is put on the timeline of every incident with a run on its target.
        decoded = (self.incidents[name] for name in self.incidents if name not in self.incidents.summaries)
        for change, note, incident_id in self._external.take(decoded, self.runs.on, now):
            self._documents.outbox.note(note, incident_id, change.cluster, change.at)
        # Runs that ended by a command or a call's outcome since the last iteration.
        self._planner.continue_ended(now, self._budget.incidents)
        # The breaker sees all that was planned, and trips before any of it moves.
        for state in list(self._documents.clusters.values()):
            if self._config is not None:
                self._documents.control(state, configured(state.control, self._config, now), now)
            self._documents.control(state, state.watch(self.runs, self.incidents, self._policy, now), now)
        self._schedule.call_up(now)
        for name in self._schedule.ready.take(self._budget.runs):
            if (run := self.runs.get(name)) is not None:
                self._catch_up_with(run.incident, now)
                self._schedule.advance(self.runs[name], now)
        self._delete_old(now)
        # Again: what follows a run that escalated just now starts in the same commit.
        self._planner.continue_ended(now, self._budget.incidents)
        if not self._has_work_left(now):
            self._read_ended()
        self._report_unreadable(now)

    def due_at(self) -> datetime | None:
        """The earliest time at which `advance` may have something to do without news."""
        due: datetime | None = self._documents.timers.first_key
        return due

    def is_behind(self, now: datetime) -> bool:
        """Whether the last `advance` left something undone that can be done now."""
        return bool(self._unread) or self._has_work_left(now)

    def collect(self) -> CommitBatch:
        """Everything that has changed since the last call."""
        outbox, self._documents.outbox = self._documents.outbox, Outbox()
        return outbox.batch(self.runs, self.control)

    @property
    def controls(self) -> list[Control]:
        """The controls of every cluster of the partition."""
        return [state.control for state in self._documents.clusters.values()]

    @property
    def systems_called(self) -> list[str]:
        """The system of every call in flight."""
        return self._documents.slots.systems

    @property
    def next_command(self) -> str | None:
        """The id of the first command that was taken and is not handled yet; None when all are."""
        return self._commands[0].id if self._commands else None

    @property
    def last_command(self) -> str | None:
        """The id of the latest command that was taken and is not handled yet."""
        return self._commands[-1].id if self._commands else None

    def _next_commands(self) -> Iterator[Command]:
        """The commands of this iteration, in their order: of those that plan a run no more than of incidents, and what is for the
        whole cluster first. A kill switch must not wait behind two thousand runbooks."""
        waiting, planned = self._commands, 0
        self._commands = deque(command for command in waiting if command.verb not in CLUSTER_VERBS)
        yield from (command for command in waiting if command.verb in CLUSTER_VERBS)
        while self._commands and planned < self._budget.incidents:
            command = self._commands.popleft()
            planned += command.verb in BY_HAND
            yield command

    def _has_work_left(self, now: datetime) -> bool:
        documents = self._documents
        return bool(
            self._fresh or self._recovered or documents.ended or self._commands
        ) or self._schedule.is_behind(now)

    def _read_ended(self) -> None:
        """Read some of the finished runs that may hold a node, once nothing else waits: an operator has to learn of one that is
        damaged, and its node then counts by its marks."""
        for _ in range(min(READ_LATER, len(self._unread))):
            name = self._unread.popleft()
            cluster = summary.cluster if (summary := self.runs.summaries.get(name)) is not None else ""
            if self.runs.get(name) is None and cluster:
                self._documents.cluster(cluster).run_counts.drop(name)

    def _commit_recovered(self, now: datetime) -> None:
        """Add some recovered runs to the next commit, with a line on their timelines."""
        for _ in range(min(self._budget.runs, len(self._recovered))):
            name, notes = self._recovered.popleft()
            if (run := self.runs.get(name)) is None:
                continue
            self._documents.outbox.runs[name] = None
            for note in notes:
                self._documents.outbox.note(note, run.incident, run.cluster, now)

    def _catch_up_with(self, incident_id: str, now: datetime) -> None:
        """Handle an incident's latest revision out of order: no run acts on an earlier one."""
        if incident_id in self._fresh:
            self._fresh.drop(incident_id)
            self._planner.revise(self.incidents[incident_id], now)

    def _delete_old(self, now: datetime) -> None:
        """Delete runs that finished long ago, where their incident is over too."""
        if self._checked_for_old_at is not None and now < self._checked_for_old_at + CHECK_FOR_OLD:
            return
        self._checked_for_old_at = now
        for name in [name for name in self.runs if name not in self.runs.live]:
            run = self.runs.summaries.get(name) or self.runs[name]
            old = run.finished_at is not None and run.finished_at < now - KEEP_FINISHED
            if old and self._documents.is_over(run.incident) is not False:
                self._documents.cluster(run.cluster).run_counts.drop(name)
                self.runs.forget(name)
                self._documents.outbox.deleted.append(name)

    def _report_unreadable(self, now: datetime) -> None:
        """Report each unreadable finished run once, with the consequences."""
        for run in [
            run for name, run in self.runs.unreadable.items() if name not in self._reported_unreadable
        ]:
            self._reported_unreadable.add(run.id)
            self._documents.outbox.note(_unreadable_note(run), run.incident, run.cluster, now)


def _longest_window_s(policy: ResponderSettings) -> float:
    """How far back a limit looks at most."""
    windows = policy.blast_radius.window_s, policy.breaker.failures_window_s, policy.breaker.mass_window_s
    return max(windows)


def _unreadable_note(run: UnreadableRun) -> TimelineNote:
    text = (
        f"the finished run {run.id} cannot be read and is skipped: no other run is started for this incident, and nodes "
        f"that it holds cordoned have to be returned to service manually: {run.reason[:MAX_REASON]}"
    )
    return TimelineNote("run.lost", text, None, {"run": run.id})
