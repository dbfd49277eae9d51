"""What a guardrail looks at, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from runbooks.engine.guardrails.closed_nodes import admitted_at, is_shadow, node_targets
from runbooks.engine.guardrails.run_counts import RunCounts
from streams.config.settings import ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.model.control import Control
from streams.model.facts import NodeFact
from streams.model.incident import Incident
from streams.model.run import PlannedStep, Run


class RulingKind(StrEnum):
    """What a ruling means for the step: ask a person, wait until it lifts, or give the run up."""

    ASK = "ask"
    HOLD = "hold"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Ruling:
    """Something against a step. `reason` carries the numbers, `lift` what would make it go on."""

    kind: RulingKind
    rule: str
    reason: str
    lift: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.reason}; {self.lift}"


@dataclass(frozen=True, slots=True)
class GuardContext:
    """Everything a stage may look at. `others` are all other runs of the cluster, finished ones included.

    `run_counts` counts all runs of the cluster, and is made of `others` where it is not given; `control` is what people have
    switched off in the cluster.
    """

    incident: Incident
    run: Run
    step: PlannedStep
    view: ClusterView
    others: Sequence[Run]
    policy: ResponderSettings
    now: datetime
    control: Control | None = None
    run_counts: RunCounts | None = None

    @property
    def numbers(self) -> RunCounts:
        """All runs of the cluster, counted."""
        return self.run_counts if self.run_counts is not None else RunCounts((*self.others, self.run))

    @property
    def let_in(self) -> bool:
        """Whether the limits have let this step in: it may finish then, whatever they say now."""
        return admitted_at(self.run, self.run.step(self.step.id)) is not None

    @property
    def nodes(self) -> set[str]:
        """Names of the nodes that the whole run acts on."""
        return node_targets(self.run)

    @property
    def closed(self) -> frozenset[str]:
        """Names of the nodes that Faultline holds closed, or is about to close."""
        window_s = self.policy.blast_radius.window_s
        return self.numbers.closed(self.view, shadow=self.shadow, now=self.now, window_s=window_s)

    def schedulable(self, pool: str | None) -> frozenset[str]:
        """Names of the pool's GPU nodes that take work: ready, not cordoned by anybody, and not about to be."""
        return self.view.gpu_nodes()[pool].open - self.closed

    @property
    def node(self) -> NodeFact | None:
        """The node the step acts on, as inventory knows it."""
        target = self.step.target
        return self.view.nodes.get(target.name) if target and target.kind == "Node" else None

    @property
    def shadow(self) -> bool:
        """Whether this is a run that only says what it would do."""
        return is_shadow(self.run)


Stage = Callable[[GuardContext], Ruling | None]
"""One rule: None when it has nothing against the step."""
