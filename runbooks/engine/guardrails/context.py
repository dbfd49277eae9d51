"""What a guardrail is given, and its verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from runbooks.engine.guardrails.cordoned_nodes import admitted_at, is_shadow, node_targets
from runbooks.engine.guardrails.run_counts import RunCounts
from streams.config.settings import ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.model.control import Control
from streams.model.facts import NodeFact
from streams.model.incident import Incident
from streams.model.run import PlannedStep, Run


class RulingKind(StrEnum):
    """What a ruling means for the step: ask for approval, wait until it clears, or end the run."""

    ASK = "ask"
    HOLD = "hold"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Ruling:
    """An objection to a step. `reason` has the numbers, `clears` says what would clear it."""

    kind: RulingKind
    rule: str
    reason: str
    clears: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.reason}; {self.clears}"


def ask(rule: str, reason: str, clears: str) -> Ruling:
    """The step needs an approval."""
    return Ruling(RulingKind.ASK, rule, reason, clears)


def hold(rule: str, reason: str, clears: str) -> Ruling:
    """The step waits."""
    return Ruling(RulingKind.HOLD, rule, reason, clears)


def refuse(rule: str, reason: str) -> Ruling:
    """The step must not be taken: the run ends."""
    return Ruling(RulingKind.REFUSE, rule, reason, "manual action required")


@dataclass(frozen=True, slots=True)
class GuardContext:
    """Everything a stage may look at.

    `others` are the runs that have a target or the incident in common with this one. `run_counts` counts all runs of the cluster
    (built from `others` where it is not given), `control` holds its kill switch, freezes and breaker.
    """

    incident: Incident
    run: Run
    step: PlannedStep
    view: ClusterView
    others: Iterable[Run]
    policy: ResponderSettings
    now: datetime
    control: Control | None = None
    run_counts: RunCounts | None = None

    @property
    def counts(self) -> RunCounts:
        """The counts of all runs of the cluster."""
        return self.run_counts if self.run_counts is not None else RunCounts((*self.others, self.run))

    @property
    def admitted(self) -> bool:
        """Whether the limits have admitted this step: then it may finish, whatever they say now."""
        return admitted_at(self.run, self.run.step(self.step.id)) is not None

    @property
    def nodes(self) -> set[str]:
        """Names of the nodes that the whole run acts on."""
        return node_targets(self.run)

    @property
    def cordoned(self) -> frozenset[str]:
        """Names of the nodes that Faultline holds cordoned, or is about to cordon."""
        window_s = self.policy.blast_radius.window_s
        return self.counts.cordoned(self.view, shadow=self.shadow, now=self.now, window_s=window_s)

    def schedulable(self, pool: str | None) -> frozenset[str]:
        """Names of the pool's schedulable GPU nodes: ready, not cordoned by anybody, and not about to be."""
        return self.view.gpu_nodes()[pool].open - self.cordoned

    @property
    def node(self) -> NodeFact | None:
        """The node the step acts on, as the inventory shows it."""
        target = self.step.target
        return self.view.nodes.get(target.name) if target and target.kind == "Node" else None

    @property
    def shadow(self) -> bool:
        """Whether this run is in shadow mode."""
        return is_shadow(self.run)


Stage = Callable[[GuardContext], Ruling | None]
"""One rule: None when it has no objection."""
