"""The same things seen, brought to the correlator in another way: late, twice, in other batches, with restarts in between."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from streams.correlate import Changes, Engine
from streams.model.facts import Fact
from streams.model.incident import Incident, IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.world import CLUSTER, START, at

Arrival = tuple[float, Fact | Signal]
"""When something is read, in seconds after the story's beginning, and what."""

BEFORE, AFTER = -50.0, 2600.0
TICK = 10.0


def on_time(facts: Sequence[Fact], signals: Sequence[Signal]) -> list[Arrival]:
    """Everything as it should be: facts before the story, each signal in the moment in which it was observed."""
    return [*((BEFORE, fact) for fact in facts), *((_observed(signal), signal) for signal in signals)]


@dataclass(frozen=True)
class Disturbance:
    """How badly things are delivered."""

    delay_s: float
    """Half of the signals come this much too late at most: far longer than anything is waited for."""
    facts_delay_s: float
    repeated: float
    """Share of the signals that come twice."""
    restarts: float
    """Share of the arrivals after which a new process goes on from the rows."""
    seed: int

    def deliver(self, facts: Sequence[Fact], signals: Sequence[Signal]) -> list[Arrival]:
        """The disturbed delivery."""
        chance = random.Random(self.seed)
        arrivals: list[Arrival] = [(BEFORE + chance.uniform(0, self.facts_delay_s), fact) for fact in facts]
        for signal in signals:
            for _ in range(1 + (chance.random() < self.repeated)):
                late = chance.uniform(0, self.delay_s if chance.random() < 0.5 else 3)
                arrivals.append((_observed(signal) + late, signal))
        return arrivals


def essence(incident: Incident) -> tuple[Any, ...]:
    """What must not depend on how things came."""
    return (
        incident.id,
        incident.root,
        incident.family,
        incident.incarnation,
        incident.state,
        incident.certainty,
        incident.severity,
        incident.title,
        incident.reason,
        incident.jobs,
        incident.nodes,
        incident.fault_at,
        incident.closed_at,
        incident.impact,
        incident.facts,
        incident.flaps,
        incident.candidates,
        [(p.signal_id, p.role, p.count) for p in incident.proofs],
    )


def outcome(
    arrivals: Sequence[Arrival], *, restarts: float = 0, seed: int = 0, until: float = AFTER
) -> list[Incident]:
    """What stands when everything was read and time has passed. Signals of one moment are one batch."""
    chance = random.Random(seed)
    rows: dict[str, bytes] = {}
    engine = Engine(CLUSTER, rows)
    published: dict[str, Incident] = {}

    def note(changes: Changes) -> None:
        for incident in changes.incidents:
            before = published.get(incident.id)
            assert incident.revision == (before.revision + 1 if before else 1)
            published[incident.id] = incident

    now = BEFORE - 10
    for moment, group in groupby(sorted(arrivals, key=lambda a: a[0]), key=lambda a: a[0]):
        while now + TICK < moment:
            now += TICK
            note(engine.on_tick(at(now)))
        now = max(now, moment)
        things = [thing for _, thing in group]
        for fact in (t for t in things if not isinstance(t, Signal)):
            note(engine.on_fact(fact.key, fact, at(now)))
        if signals := [t for t in things if isinstance(t, Signal)]:
            note(engine.on_signals(signals, at(now)))
        if chance.random() < restarts:
            engine = Engine(CLUSTER, rows)
    while now < until:
        now += TICK if now < AFTER else 60
        note(engine.on_tick(at(now)))
    return standing(published)


def standing(published: dict[str, Incident]) -> list[Incident]:
    """Without what became part of another incident, and what lost its reason."""
    kept = [
        i
        for i in published.values()
        if i.state is not IncidentState.MERGED and not i.reason.startswith("Withdrawn")
    ]
    return sorted(kept, key=lambda i: i.id)


def _observed(signal: Signal) -> float:
    return (signal.observed_at - START).total_seconds()
