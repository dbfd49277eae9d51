"""What a guardrail looks at, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from runbooks.view import ClusterView
from streams.model.incident import Incident
from streams.model.inventory import NodeFact
from streams.model.run import Mode, PlannedStep, Run
from streams.model.settings import ResponderSettings


class Kind(StrEnum):
    """What a ruling means for the step: ask a person, wait until it lifts, or give the run up."""

    ASK = "ask"
    HOLD = "hold"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Ruling:
    """Something against a step. `reason` carries the numbers, `lift` what would make it go on."""

    kind: Kind
    rule: str
    reason: str
    lift: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.reason}; {self.lift}"


@dataclass(frozen=True, slots=True)
class Case:
    """Everything a stage may look at. `others` are all other runs of the cluster, finished ones included."""

    incident: Incident
    run: Run
    step: PlannedStep
    view: ClusterView
    others: Sequence[Run]
    policy: ResponderSettings
    now: datetime

    @property
    def node(self) -> NodeFact | None:
        """The node the step acts on, as inventory knows it."""
        target = self.step.target
        return self.view.nodes.get(target.name) if target and target.kind == "Node" else None

    @property
    def shadow(self) -> bool:
        """Whether this is a run that only says what it would do."""
        return self.run.plan.mode is Mode.SHADOW


Stage = Callable[[Case], Ruling | None]
"""One rule: None when it has nothing against the step."""
