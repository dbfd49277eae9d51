"""Correlator and responder in memory, joined as their topics join them: facts, signals and commands in, calls out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from connectors.base import Absent, Done
from runbooks.engine.partition_state import PartitionState
from runbooks.engine.run.transition import LOOKUPS
from runbooks.language.loader import load
from streams.config.settings import ResponderSettings
from streams.model.conversation import Command, TimelineEntry, Verb
from streams.model.facts import Fact, NodeFact
from streams.model.incident import Incident
from streams.model.run import Run
from streams.model.signal import Signal
from tests.runbooks.scenes import ACTIONS, AUTO
from tests.streams.correlate.world import CLUSTER, World, at

EVERY = ACTIONS | {"validate_node", "uncordon_node"}


@dataclass
class Pipeline:
    """A cluster with both processes about it. Nodes that are cordoned show it in their facts, and jobs move when resumed."""

    facts: Iterable[Fact]
    settings: ResponderSettings = AUTO
    actions: frozenset[str] = EVERY
    made: list[tuple[str, str]] = field(default_factory=list)
    timeline: list[TimelineEntry] = field(default_factory=list)
    refuse: dict[str, Any] = field(default_factory=dict)
    """Outcomes other than success, by action."""
    _number: int = 0

    def __post_init__(self) -> None:
        self.world = World()
        self.board = PartitionState(load(), self.settings, self.actions)
        self.nodes: dict[str, NodeFact] = {}
        self._told: dict[str, int] = {}
        for fact in self.facts:
            self.tell(fact)
        self.pass_to(0)

    def tell(self, fact: Fact) -> None:
        """A fact, to both."""
        if isinstance(fact, NodeFact):
            self.nodes[fact.name] = fact
        self.world.tell(fact)
        self.board.take_fact(fact.key, fact)

    def change(self, node: str, **more: Any) -> None:
        """A node looks different now."""
        self.tell(replace(self.nodes[node], observed_at=self.world.now, **more))

    def see(self, *signals: Signal) -> None:
        """What the detector found."""
        self.world.see(*signals)
        self.settle()

    def say(self, verb: Verb, *nodes: str, actor: str = "ada", **more: Any) -> Command:
        """An operator's command now."""
        self._number += 1
        told = Command(f"cmd-{self._number}", "", CLUSTER, verb, actor, self.world.now, nodes=nodes, **more)
        self.repeat(told)
        return told

    def repeat(self, told: Command) -> None:
        """The same command, as it is read again after a takeover."""
        self.board.take_command(told)
        self.settle()

    def answer_to(self, told: Command) -> str:
        """What the timeline says to a command."""
        return "; ".join(e.text for e in self.timeline if e.attributes.get("command") == told.id)

    def pass_to(self, seconds: float, step: float = 5.0) -> None:
        """Let time pass for both."""
        while self.world.now < at(seconds):
            self.world.pass_to(min((self.world.now - at(0)).total_seconds() + step, seconds), step=step)
            self.settle()

    def settle(self) -> None:
        """Until nothing follows from what happened."""
        for _ in range(200):
            for incident in list(self.world.published.values()):
                if self._told.get(incident.id) != incident.revision:
                    self._told[incident.id] = incident.revision
                    self.board.take_incident(incident)
            self.board.advance(self.world.now)
            batch = self.board.collect()
            self.timeline += batch.timeline
            signals = [s for one in batch.signals for s in one.signals]
            if signals:
                self.world.see(*signals)
            for call in batch.calls:
                if call.kind in LOOKUPS:
                    self.board.take_outcome(call, Absent(), self.world.now)
                    continue
                outcome = self.refuse.get(call.effect.action, Done())
                self.board.take_outcome(call, outcome, self.world.now)
                if isinstance(outcome, Done):
                    self._land(f"{'undo ' if call.kind == 'undo' else ''}{call.effect.action}", call.effect)
            if not batch.calls and not signals and not self._news():
                return
        raise AssertionError("it never settles")

    def _news(self) -> bool:
        return any(self._told.get(i.id) != i.revision for i in self.world.published.values())

    def _land(self, action: str, effect: Any) -> None:
        name = effect.target.name
        self.made.append((action, name))
        if action == "cordon_node":
            owners = ",".join(filter(None, (self.nodes[name].owner_incident, effect.incident)))
            self.change(name, unschedulable=True, owner_incident=owners)
        elif action in ("uncordon_node", "undo cordon_node"):
            self.change(name, unschedulable=False, owner_incident=None)

    @property
    def runs(self) -> dict[str, Run]:
        """The runs by incident's node and runbook."""
        return {f"{run.plan.runbook}": run for run in self.board.runs.values()}

    def incident(self, family: str, node: str) -> Incident:
        """The latest incident of a family on a node."""
        found = [i for i in self.world.published.values() if (i.family, i.root.node) == (family, node)]
        assert found, [(i.family, str(i.root)) for i in self.world.published.values()]
        return max(found, key=lambda i: (i.incarnation, i.revision))

    def of(self, node: str) -> list[str]:
        """What was done to a node, in order."""
        return [action for action, name in self.made if name == node]

    def minutes(self, count: float) -> None:
        """Let so many minutes pass."""
        self.pass_to((self.world.now - at(0)).total_seconds() + count * 60, step=30)

    def after(self, minutes: float) -> Any:
        """A time so many minutes from now."""
        return self.world.now + timedelta(minutes=minutes)
