"""An incident as a list shows it: what it waits for, and the nodes that stay cordoned for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from runbooks.engine.containment import PendingRepair, is_contained, shown_state
from runbooks.engine.wait_reasons import waits_for
from streams.model.conversation import TimelineEntry
from streams.model.incident import Incident, IncidentState
from streams.model.run import Run


def tells_of_run(entries: Iterable[TimelineEntry]) -> bool:
    """Whether lines of a timeline tell of a run."""
    return any(entry.event == "run.planned" for entry in entries)


@dataclass(frozen=True, slots=True)
class Overview:
    """One incident: its document, those of its runs that still matter, and the nodes that stay cordoned for it."""

    incident: Incident
    runs: tuple[Run, ...] = ()
    repairs: tuple[PendingRepair, ...] = ()
    had_run: bool = False
    """Whether its timeline tells of a run; False, too, where nobody has looked."""

    @property
    def standing(self) -> str:
        """Its state as shown to operators."""
        return shown_state(self.incident, self.repairs)

    @property
    def waits_for(self) -> str:
        """What it is waiting for; empty when nothing."""
        if self.runs or self.incident.state.is_over:
            return waits_for(self.incident, self.runs, self.repairs)
        # Only who has read all runs can tell that none is there although a node's marks, its state or its timeline show one.
        if self.repairs or self.incident.state in (IncidentState.MITIGATING, IncidentState.VERIFYING):
            return "manual action: a run acted for it, and is not on record any more"
        if self.had_run and self.incident.state is IncidentState.AWAITING_HUMAN:
            return "manual action: a run was planned for it, and is not on record any more: its runs are lost"
        return waits_for(self.incident, self.runs, self.repairs)

    @property
    def rank(self) -> int:
        """Sort order: 0 open, 1 contained, 2 over."""
        if is_contained(self.incident, self.repairs):
            return 1
        return 2 if self.incident.state.is_over else 0
