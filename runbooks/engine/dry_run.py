"""The responder in memory, in shadow mode, on a given clock: what would have been done. No connector is ever called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from runbooks.engine.commit_batch import CommitBatch
from runbooks.engine.guardrails.review import ReviewLog
from runbooks.engine.partition_state import PartitionState
from runbooks.language.schema import TICKETS, Runbook
from streams.config.settings import ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.model.control import Control
from streams.model.conversation import Command, TimelineEntry
from streams.model.facts import Fact
from streams.model.incident import Incident
from streams.model.run import Mode, Run, RunOutcome
from streams.model.signal import Signal

ACTIONS = TICKETS | {
    "cordon_node", "uncordon_node", "drain_node", "suspend_job", "resume_job", "verify_job", "release_spare", "return_spare",
    "request_checkpoint",
}  # fmt: skip
"""A replay decides like an installation without connectors for node work (reset, reboot, replace)."""


@dataclass(frozen=True, slots=True)
class ActionTarget:
    """The target, as the command line prints it."""

    kind: str
    name: str
    namespace: str | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace + '/' if self.namespace else ''}{self.name}"


@dataclass(frozen=True, slots=True)
class ActionLine:
    """One decision: `verdict` is `would`, `refused` or `needs_approval`, `at` the capture's own time."""

    incident: str
    runbook: str
    step: str
    action: str
    target: ActionTarget
    verdict: str
    reason: str
    at: datetime
    record: str = "action"


class ShadowResponder:
    """Give it inventory, incidents, commands and the time in the order of the capture, then ask for `actions`.

    `actions` are what an installation has connectors for. `observe` gets what a responder would have committed at each step,
    `reviews` what every guardrail says of it.
    """

    def __init__(
        self,
        runbooks: Sequence[Runbook],
        settings: ResponderSettings | None = None,
        *,
        actions: frozenset[str] = frozenset(ACTIONS),
        observe: Callable[[CommitBatch], None] | None = None,
        reviews: ReviewLog | None = None,
    ) -> None:
        policy = (settings or ResponderSettings()).model_copy(update={"mode": Mode.SHADOW})
        self._state = PartitionState(runbooks, policy, actions, reviews=reviews)
        self.timeline: list[TimelineEntry] = []
        """All timeline entries, in their order."""
        self._observe = observe

    def take_fact(self, key: str, fact: Fact | None, at: datetime | None = None) -> None:
        """A record of the inventory; None for a tombstone. With its time, changes by others are put on the timeline."""
        self._state.take_fact(key, fact, at)

    def take_incident(self, incident: Incident, now: datetime) -> tuple[Signal, ...]:
        """A revision of an incident; returns the `run.*` signals for the correlator."""
        self._state.take_incident(incident)
        return self.tick(now)

    def take_command(self, command: Command, now: datetime) -> tuple[Signal, ...]:
        """A person's command; returns the signals for the correlator that follow from it."""
        self._state.take_command(command)
        return self.tick(now)

    def take_control(self, control: Control) -> None:
        """The controls of a cluster as another responder wrote them: they count, whatever this one made of its own."""
        known = self._state.control(control.cluster)
        self._state.take_control(replace(control, revision=max(control.revision, known.revision + 1)))

    def tick(self, now: datetime) -> tuple[Signal, ...]:
        """Advance the clock; returns the new `run.*` signals."""
        self._state.advance(now)
        changes = self._state.collect()
        assert not changes.calls, "a run in shadow makes no calls"
        self.timeline += changes.timeline
        if self._observe is not None:
            self._observe(changes)
        return tuple(signal for batch in changes.signals for signal in batch.signals)

    def view(self, cluster: str) -> ClusterView:
        """What is known of a cluster's inventory."""
        return self._state.view(cluster)

    def control(self, cluster: str) -> Control:
        """The kill switch, freezes and breaker of a cluster."""
        return self._state.control(cluster)

    @property
    def runs(self) -> tuple[Run, ...]:
        """Every run, in the order of their ids."""
        return tuple(self._state.runs[key] for key in sorted(self._state.runs))

    def runs_of(self, incident: str) -> Sequence[Run]:
        """The runs of an incident, oldest first."""
        return self._state.runs.of(incident)

    def actions(self) -> tuple[ActionLine, ...]:
        """What would have been done, by incident, in the order of the plan. The same feed gives the same lines."""
        lines: list[ActionLine] = []
        for run in sorted(self.runs, key=lambda r: (r.incident, r.created_at, r.id)):
            if run.outcome is not RunOutcome.SHADOWED:
                continue
            for planned in run.plan.steps:
                record = run.step(planned.id)
                target = planned.target
                if not record.verdict or target is None:
                    continue
                lines.append(
                    ActionLine(
                        incident=run.incident,
                        runbook=run.plan.runbook,
                        step=planned.id,
                        action=planned.action,
                        target=ActionTarget(target.kind, target.name, target.namespace),
                        verdict=record.verdict,
                        reason=record.reason,
                        at=record.started_at or run.created_at,
                    )
                )
        return tuple(lines)
