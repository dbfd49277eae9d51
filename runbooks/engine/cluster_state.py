"""One cluster as a whole: its inventory, the counts of its runs, and its kill switch, freezes and breaker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from runbooks.engine.cluster_controls import ControlUpdate, thawed, tripped
from runbooks.engine.guardrails.breaker import mass_faults, repeated_failures
from runbooks.engine.guardrails.run_counts import RunCounts
from streams.config.settings import ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.model.control import Control, Trip
from streams.model.incident import Incident
from streams.model.run import EffectState, Mode, Run


@dataclass(slots=True)
class ClusterState:
    """What the runs of a cluster share. `control` is as last read or decided."""

    cluster: str
    view: ClusterView = field(init=False)
    run_counts: RunCounts = field(default_factory=RunCounts)
    control: Control = field(init=False)
    inherited_until: datetime | None = None
    """Until when a call of a former owner may still start."""
    _would_trip: Trip | None = None
    """What would have tripped the breaker if the shadow-mode runs were real."""

    def __post_init__(self) -> None:
        self.view = ClusterView(self.cluster)
        self.control = Control(self.cluster)

    def note_inherited_calls(self, run: Run) -> None:
        """Note until when destructive calls of a run taken over may still start."""
        for planned in run.plan.steps:
            record = run.step(planned.id)
            unknown = record.effect is not None and record.effect.state is EffectState.UNKNOWN
            if planned.destructive and unknown and record.due_at is not None:
                self.inherited_until = max(self.inherited_until or record.due_at, record.due_at)

    def watch(
        self,
        runs: Mapping[str, Run],
        incidents: Mapping[str, Incident],
        policy: ResponderSettings,
        now: datetime,
    ) -> ControlUpdate:
        """Remove freezes that have ended, and trip the breaker when that is due."""
        changed = thawed(self.control, now)
        control, counts = changed.control, self.run_counts
        seen = (control, counts, runs, incidents, self.view, policy, now)
        self._would_trip = mass_faults(*seen, shadow=True)
        if control.breaker is not None:
            return changed
        due = repeated_failures(control, counts, policy.breaker, now) or mass_faults(*seen, shadow=False)
        if due is None:
            return changed
        open_now = tripped(control, due)
        return ControlUpdate(open_now.control, (*changed.notes, *open_now.notes))

    def control_of(self, run: Run) -> Control:
        """The controls that apply to a run. Shadow-mode runs see a breaker of their own, which resets itself."""
        if run.plan.mode is Mode.SHADOW and self.control.breaker is None and self._would_trip is not None:
            return replace(self.control, breaker=self._would_trip)
        return self.control
