"""A sweep looks only at what may be old enough to go, and forgets the same as one that looks at everything."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta

import pytest

from streams.correlate import Config
from streams.correlate.state.retention import Retention
from streams.correlate.state.store import SightingStore
from streams.model.facts import Fact
from streams.model.signal import Signal
from tests.effort import tries
from tests.streams.correlate.fault_mix import TROUBLES, Trouble, surroundings
from tests.streams.correlate.world import World, all_ended, at

CONFIG = Config(retention=timedelta(minutes=12), prune_every=timedelta(seconds=20))


@dataclass(frozen=True)
class Story:
    """A few troubles in an hour and a half, and when the process is restarted."""

    facts: list[Fact]
    signals: list[Signal]
    restart_at: float


def story(seed: int) -> Story:
    chance = random.Random(seed)
    facts = [
        *surroundings(moved=seed % 2 == 0),
        *all_ended("gemma", ["m1", "m2"], chance.choice([700, 1500])),
    ]
    troubles = [Trouble(chance.choice(sorted(TROUBLES)), chance.uniform(0, 1200), seed + i) for i in range(5)]
    return Story(
        sorted(facts, key=lambda fact: fact.observed_at),
        sorted((s for trouble in troubles for s in trouble.signals()), key=lambda s: s.observed_at),
        chance.uniform(300, 2500),
    )


def told(story: Story) -> World:
    """What is left when most of it is forgotten."""
    world, step = World(config=CONFIG), 20
    for second in range(0, 5400, step):
        begun, now = at(second - step if second else -9999), at(second)
        for fact in (fact for fact in story.facts if begun < fact.observed_at <= now):
            world.tell(fact)
        if seen := [s for s in story.signals if begun < s.observed_at <= now]:
            world.see(*seen)
        if second <= story.restart_at < second + step:
            world.restart()
        world.pass_to(second)
    return world


@pytest.mark.parametrize("seed", range(tries(20, quick=4)))
def test_a_sweep_forgets_the_same_as_one_that_looks_at_everything(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = story(seed)
    short = told(one)
    monkeypatch.setattr(SightingStore, "reaching_before", lambda store, _cut: sorted(store.reporting))
    monkeypatch.setattr(Retention, "_pods_to_prune", lambda retention, _cut: list(retention._state.pods))
    whole = told(one)
    assert short.revisions == whole.revisions
    assert short.rows == whole.rows
