"""An incident as a list shows it: what it waits for, and the nodes that stay cordoned for it."""

from __future__ import annotations

from dataclasses import dataclass

from runbooks.engine.containment import PendingRepair, is_contained, shown_state
from runbooks.engine.wait_reasons import waits_for
from streams.model.incident import Incident, IncidentState
from streams.model.run import Run


@dataclass(frozen=True, slots=True)
class Overview:
    """One incident: its document, those of its runs that still matter, and the nodes that stay cordoned for it."""

    incident: Incident
    runs: tuple[Run, ...] = ()
    repairs: tuple[PendingRepair, ...] = ()

    @property
    def standing(self) -> str:
        """Its state as shown to operators."""
        return shown_state(self.incident, self.repairs)

    @property
    def waits_for(self) -> str:
        """What it is waiting for; empty when nothing."""
        if self._run_is_lost:
            return "manual action: a run acted for it, and is not on record any more"
        return waits_for(self.incident, self.runs, self.repairs)

    @property
    def _run_is_lost(self) -> bool:
        """Whether its state or a node's marks show that a run acted, and none is there. Only who has read all runs can tell."""
        if self.runs or self.incident.state.is_over:
            return False
        return bool(self.repairs) or self.incident.state in (
            IncidentState.MITIGATING,
            IncidentState.VERIFYING,
        )

    @property
    def rank(self) -> int:
        """Sort order: 0 open, 1 contained, 2 over."""
        if is_contained(self.incident, self.repairs):
            return 1
        return 2 if self.incident.state.is_over else 0
