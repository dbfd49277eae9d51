"""What is kept from one batch to the next tells the same as reading everything afresh."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.trouble import CLUSTER, Cluster, bad_day, moment
from streams.correlate import Changes, Engine
from streams.correlate.cause_sources.services import ServiceCauses
from streams.correlate.cause_sources.shared import SharedCauses
from streams.correlate.job_rules.pod_readings import PodReadings
from streams.correlate.job_rules.rank_reports import Rank
from streams.correlate.job_rules.wait_for_graph import Collective, _sinks
from streams.model.facts import Fact, PodFact
from streams.model.signal import Signal
from tests.effort import tries
from tests.streams.correlate.fault_mix import TROUBLES, Trouble, surroundings
from tests.streams.correlate.world import FOUR, World, at, cluster, failed, not_ready, sign

SEEDS = st.integers(0, 2**32)


class _Everything(set[str]):
    """A set that contains whatever it is asked for."""

    def __contains__(self, item: object) -> bool:
        return True


def _read_afresh(engine: Engine) -> None:
    """Make an engine forget all that it keeps between batches only to be quicker."""
    cache, publisher = engine._evidence_cache, engine._publisher
    readings: tuple[PodReadings[Any], ...] = (cache._reports, cache._failures)
    for kept in readings:
        kept._of_pod.clear()
        kept._of_job.clear()
    cache._nodes.clear()
    cache._judged.clear()
    publisher._written._kept.clear()
    for source in engine._causes.sources:
        if isinstance(source, ServiceCauses):
            source._told.clear()
        if isinstance(source, SharedCauses):
            source._telling = _Everything()


def _of_groups(engine: Engine) -> list[object]:
    """All evidence of nodes that is kept for what they share."""
    (shared,) = (source for source in engine._causes.sources if isinstance(source, SharedCauses))
    indexes = (shared._troubled, shared._absent, shared._domains, shared._software, shared._storage)
    return [*(i._of_node for i in indexes), shared._followers, shared._devices, shared._trays]


class _Both:
    """An engine, and its twin that reads everything afresh each time."""

    def __init__(self, name: str, facts: Iterable[Fact]) -> None:
        self.rows: tuple[dict[str, bytes], dict[str, bytes]] = ({}, {})
        self.engines = [Engine(name, rows) for rows in self.rows]
        self.said = 0
        for fact in facts:
            self.fact(fact)

    def fact(self, fact: Fact) -> None:
        self._same(e.on_fact(fact.key, fact, fact.observed_at) for e in self._ready())

    def gone(self, fact: Fact, now: Any) -> None:
        self._same(e.on_fact(fact.key, None, now) for e in self._ready())

    def see(self, signals: list[Signal], now: Any) -> None:
        self._same(e.on_signals(signals, now) for e in self._ready())

    def tick(self, now: Any) -> None:
        self._same(e.on_tick(now) for e in self._ready())

    def _ready(self) -> Iterator[Engine]:
        _read_afresh(self.engines[1])
        return iter(self.engines)

    def _same(self, changes: Iterable[Changes]) -> None:
        kept, afresh = changes
        assert kept == afresh
        assert self.rows[0] == self.rows[1]
        assert _of_groups(self.engines[0]) == _of_groups(self.engines[1])
        self.said += len(kept.incidents)


def _batches(chance: random.Random, signals: list[Signal]) -> Iterator[list[Signal]]:
    while signals:
        size = chance.choice([1, 1, 3, 10, 40, 200])
        yield signals[:size]
        signals = signals[size:]


def _besides(chance: random.Random) -> list[Signal]:
    """Failures of programs, and what nodes and jobs say of what they share with others."""
    seen = [failed(name, 0, chance.uniform(0, 1800)) for name in ("llama", "gemma")]
    pulled: dict[str, Any] = {"reason": "Failed", "registry": "registry.east.example"}
    for name in ("llama", "gemma") if chance.random() < 0.3 else ():
        start = chance.uniform(0, 1000)
        seen += [failed(name, 1, start + 70 * i, "image_pull", **pulled) for i in range(6)]
    start = chance.uniform(0, 1800)
    seen += [sign("node.storage", n, start + i, "nfs", server="filer-3") for i, n in enumerate(["n1", "n3"])]
    seen += [sign("node.condition", "n9", start + 60 * i, "node_status") for i in range(chance.randrange(5))]
    return seen


troubles = st.lists(
    st.builds(Trouble, st.sampled_from(sorted(TROUBLES)), st.floats(0, 1800), SEEDS), min_size=1, max_size=6
)


@settings(max_examples=tries(150))
@given(troubles, SEEDS, st.booleans(), st.booleans())
def test_any_faults_in_any_order_and_any_batches(
    found: list[Trouble], seed: int, moved: bool, in_time: bool
) -> None:
    chance = random.Random(seed)
    facts = surroundings(moved=moved)
    chance.shuffle(facts)
    late = facts[: len(facts) // 4]
    both = _Both("east", facts[len(late) :])
    signals = [s for one in found for s in one.signals()]
    signals += _besides(chance)
    signals.sort(key=lambda s: s.observed_at)
    if not in_time:
        chance.shuffle(signals)
    now = at(0)
    for batch in _batches(chance, signals):
        now = max(now, *(s.observed_at for s in batch))
        both.see(batch, now if chance.random() < 0.9 else None)
        if late and chance.random() < 0.5:
            both.fact(late.pop())
        if chance.random() < 0.3:
            now += timedelta(seconds=chance.choice([1, 20, 90]))
            both.tick(now)
    for fact in late:
        both.fact(fact)
    for fact in facts:
        if isinstance(fact, PodFact) and chance.random() < 0.2:
            both.gone(fact, now)
    for minutes in (1, 5, 20, 90, 600, 602, 604, 1500, 1502, 1504):
        both.tick(now + timedelta(minutes=minutes))


def test_a_bad_day_of_many_jobs() -> None:
    world = Cluster(200, 20, nodes_a_job=8, nics=1)
    _, signals = bad_day(world, 15, every_s=2.0)
    both, chance = _Both(CLUSTER, world.facts()), random.Random(7)
    for batch in _batches(chance, signals):
        both.see(batch, batch[-1].observed_at)
        both.tick(batch[-1].observed_at)
    for seconds in (1500, 3000, 30_000):
        both.tick(moment(seconds))
    assert both.said > 15


def test_of_a_node_that_is_well_again_and_forgotten_nothing_is_kept_for_what_it_shares() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(not_ready("n3", 0))
    (shared,) = (s for s in world.engine._causes.sources if isinstance(s, SharedCauses))
    assert shared._absent._of_node.keys() == {"n3"}
    world.see(not_ready("n3", 40, ready=True))
    world.pass_to(40_000, step=300)
    assert _of_groups(world.engine) == [{}] * 8
    assert not shared._telling


RANKS: st.SearchStrategy[Rank] = st.integers(0, 12)
GRAPHS = st.dictionaries(RANKS, st.lists(RANKS, unique=True, max_size=4))


@given(GRAPHS)
def test_the_ends_of_waiting_are_where_nothing_leads_out(found: dict[Rank, list[Rank]]) -> None:
    edges: dict[Rank | Collective, list[Rank | Collective]] = {n: [*others] for n, others in found.items()}
    edges |= {n: [] for others in found.values() for n in others if n not in found}
    reached = {n: _reached(edges, n) for n in edges}
    alike = {n: frozenset({n, *(o for o in reached[n] if n in reached[o])}) for n in edges}
    ends = {alike[n] for n in edges if reached[n] <= alike[n]}
    sinks = [frozenset(component) for component in _sinks(edges)]
    assert set(sinks) == ends
    assert len(sinks) == len(ends)


def _reached(
    edges: dict[Rank | Collective, list[Rank | Collective]], start: Rank | Collective
) -> set[Rank | Collective]:
    found, left = set[Rank | Collective](), list(edges[start])
    while left:
        node = left.pop()
        if node not in found:
            found.add(node)
            left += edges[node]
    return found
