"""Which run is advanced next, and against what: timers, priorities, call slots. Pure.

An iteration costs what has changed or is due, not what is there: each live run has a timer, and whatever may matter to it (a
revision of its incident, a change of its targets or of another run on them) brings the timer forward.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from runbooks.engine.call_slots import CLUSTER, NEW_TICKETS, QUEUES
from runbooks.engine.guardrails.breaker import may_act
from runbooks.engine.guardrails.evidence import is_old
from runbooks.engine.guardrails.review import ReviewLog
from runbooks.engine.partition_documents import PartitionDocuments
from runbooks.engine.priority_queue import PriorityQueue
from runbooks.engine.run.machine import HELD_RECHECK_S, advance, due_at
from runbooks.engine.run.missing_incident import advance_without_incident, placeholder
from runbooks.engine.run.rollback import holds_a_job
from runbooks.engine.run.transition import RunContext, RunTransition
from runbooks.engine.run_index import age
from streams.config.settings import ResponderSettings
from streams.model.incident import Certainty, Incident
from streams.model.run import Mode, Run

CHANGED_RECHECK_S = 1.0
"""A run that has changed is advanced again after this time, whether or not anything is due."""

CALM_RUNS = 250
"""With more live runs than this, those with nothing urgent to do are checked less often, so that all checks cost the same."""

FIRST, SOON, LATER = range(3)
"""Priorities of runs. The first two may use call slots that the last one cannot take."""


class RunSchedule:
    """Decides which runs are advanced in an iteration, and advances them."""

    def __init__(
        self,
        documents: PartitionDocuments,
        policy: ResponderSettings,
        actions: frozenset[str],
        runbooks: frozenset[str],
        reviews: ReviewLog | None = None,
    ) -> None:
        self._documents = documents
        self._reviews = reviews
        self._policy = policy
        self._actions = actions
        self._runbooks = runbooks
        self._waiting = {(queue, urgent): PriorityQueue() for queue in QUEUES for urgent in (True, False)}
        """Runs that wait for a call slot."""
        self.ready = PriorityQueue()
        """Runs to advance now."""
        self.changed_targets: dict[tuple[str, str], None] = {}
        """Cluster and key of nodes and jobs whose inventory record has changed."""

    def adopt(self, runbooks: frozenset[str], policy: ResponderSettings) -> None:
        """Judge by these from now on."""
        self._runbooks, self._policy = runbooks, policy

    def is_behind(self, now: datetime) -> bool:
        """Whether a run could be advanced right now."""
        free = self._documents.slots.free
        return bool(self.ready) or any(
            queued and free(queue, now, urgent=urgent) > 0
            for (queue, urgent), queued in self._waiting.items()
        )

    def call_up(self, now: datetime) -> None:
        """Make ready: runs that are due, runs whose targets changed, and as many waiting runs as there are free slots."""
        changed, self.changed_targets = self.changed_targets, {}
        for cluster, target in changed:
            self._documents.wake(cluster, target, now)
        called = self._documents.timers.take(until=now)
        for (queue, urgent), queued in self._waiting.items():
            if queued and (free := self._documents.slots.free(queue, now, urgent=urgent)) > 0:
                called += queued.take(int(min(free, len(queued))))
        for run in self._documents.runs.read(called):
            self.ready.bring_forward(run.id, (self._priority(run), not self._is_beyond_doubt(run), age(run)))

    def advance(self, run: Run, now: datetime) -> None:
        """Advance one run as far as it goes now, and queue it for the call slots that it lacks."""
        incident, priority = self._documents.incidents.get(run.incident), self._priority(run)
        urgent_in = self._urgent_in(run, priority)
        context = self._context(run, incident or placeholder(run), now, urgent_in)
        result = (advance if incident is not None else advance_without_incident)(run, context, now)
        self._documents.apply(result, now, urgent_in)
        for (queue, urgent), queued in self._waiting.items():
            if queue in result.waits and urgent is urgent_in[queue]:
                queued.bring_forward(run.id, (priority, age(run)))
            else:
                queued.drop(run.id)
        self._set_timer(run, priority, now)

    def context(self, run: Run, incident: Incident, now: datetime) -> RunContext:
        """What a run is advanced against."""
        return self._context(run, incident, now, self._urgent_in(run, self._priority(run)))

    def _context(
        self, run: Run, incident: Incident, now: datetime, urgent_in: Mapping[str, bool]
    ) -> RunContext:
        documents = self._documents
        state = documents.cluster(run.cluster)
        return RunContext(
            incident, state.view, documents.runs.peers(run), self._policy, self._actions,
            busy=documents.busy(run.cluster), incidents=documents.incidents, runbooks=self._runbooks,
            siblings=tuple(other for other in documents.runs.of(run.incident) if other.id != run.id),
            control=state.control_of(run), run_counts=state.run_counts,
            free_slots=documents.slots.free_slots(
                now, urgent=urgent_in[CLUSTER], urgent_ticket=urgent_in[NEW_TICKETS]
            ),
            reviews=self._reviews,
        )  # fmt: skip

    def _priority(self, run: Run) -> int:
        """How soon the run's calls have to start.

        First the first action against a decisive fault, which is cheap, and runs that are ending, which make way for others; then
        what follows that action, above all where a job is suspended.
        """
        if run.plan.mode is Mode.SHADOW:
            return LATER
        if run.outcome and not run.state.is_over:
            return FIRST
        steps = list(zip(run.plan.steps, run.steps, strict=True))
        if any(planned.action == "suspend_job" and record.effect is not None for planned, record in steps):
            return SOON if holds_a_job(RunTransition(run, run.updated_at)) else LATER
        if not self._is_beyond_doubt(run):
            return LATER
        if all(record.state.is_over for planned, record in steps if planned.destructive):
            return LATER
        return FIRST if run.admitted_at is None else SOON

    def _is_beyond_doubt(self, run: Run) -> bool:
        """Whether its fault is decisive and current: one that was old when it was read waits for an approval anyway."""
        # An incident of which only the summary was read is over.
        incidents = self._documents.incidents
        incident = None if run.incident in incidents.summaries else incidents.get(run.incident)
        if incident is None or incident.certainty is not Certainty.DECISIVE:
            return False
        view = self._documents.cluster(run.cluster).view
        return may_act(run) or not is_old(incident, view, self._policy.freshness_s)

    def _urgent_in(self, run: Run, priority: int) -> dict[str, bool]:
        """For each queue, whether the run's calls go first there. The ticket of a decisive fault does so also after its node is
        cordoned: an operator has to learn of it."""
        if priority < LATER:
            return dict.fromkeys(QUEUES, True)
        ticket = run.plan.mode is not Mode.SHADOW and self._is_beyond_doubt(run)
        return {queue: ticket and queue != CLUSTER for queue in QUEUES}

    def _set_timer(self, before: Run, priority: int, now: datetime) -> None:
        """Set when a run that has just been advanced is advanced again. `priority` is the one it had."""
        run, live = self._documents.runs[before.id], self._documents.runs.live
        if run.id not in live:
            self._documents.timers.drop(run.id)
            return
        # What holds a step may clear without any change of the run or its targets: a window passes, another node is returned.
        pause_s = HELD_RECHECK_S if run is before else CHANGED_RECHECK_S
        if (priority if run is before else self._priority(run)) == LATER:
            pause_s *= max(1.0, len(live) / CALM_RUNS)
        at = now + timedelta(seconds=pause_s)
        due = due_at(run)
        self._documents.timers.put(run.id, min(at, due) if due is not None and due > now else at)
