"""Jobs that are put off to the next tick end as if they had been judged with every batch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams.correlate import Config
from tests.streams.correlate.test_order import STORIES, Story, essence, outcome
from tests.streams.correlate.world import FOUR, World, at, cluster, timeouts, xid

HASTY = replace(Config(), judged_at_once=0, judged_per_signal=0)


@pytest.mark.parametrize("story", STORIES)
def test_put_off_to_the_tick_every_time_it_ends_as_when_judged_at_once(story: Story) -> None:
    facts, signals = story()  # type: ignore[operator]
    world = World(facts, HASTY)
    for one in sorted(signals, key=lambda s: s.observed_at):
        world.pass_to((one.observed_at - at(0)).total_seconds())
        world.see(one)
    world.pass_to(1900, step=5)
    told = sorted((essence(i) for i in world.incidents()), key=lambda e: str(e[0]))
    assert told == outcome([*facts, signals])


def test_a_job_too_large_for_its_batch_is_judged_with_the_next_tick_and_its_gpu_at_once() -> None:
    world = World(cluster({"llama": FOUR}), replace(Config(), judged_at_once=10, judged_per_signal=0))
    world.see(*timeouts("llama", [r for r in range(32) if r // 8 != 2], 600))
    world.see(xid("n3", 79, 603), *timeouts("llama", range(8), 604, pg="1"))
    (incident,) = world.incidents()
    assert (incident.family, incident.root.node) == ("gpu_off_bus", "n3")
    world.pass_to(700)
    assert world.only().id == incident.id
    assert {p.kind for p in world.only().proofs} >= {"gpu.xid", "nccl.timeout"}


def test_of_several_jobs_that_exceed_their_batch_together_none_is_judged_before_the_next_tick() -> None:
    purse = replace(Config(), judged_at_once=30, judged_per_signal=0)
    world = World(cluster({"llama": FOUR, "gemma": ["m1", "m2"]}), purse)
    world.see(*timeouts("gemma", range(8), 600), *timeouts("llama", range(24), 600))
    verdicts = world.engine._jobs._verdicts
    before = dict(verdicts)
    assert len(before) == 2
    world.see(*timeouts("gemma", [8], 601), *timeouts("llama", [24], 601))
    assert verdicts == before
    world.see(*timeouts("gemma", [9], 602))
    assert verdicts["PyTorchJob/train/gemma"] is not before["PyTorchJob/train/gemma"]
    assert verdicts["PyTorchJob/train/llama"] is before["PyTorchJob/train/llama"]
    world.pass_to(604)
    assert verdicts["PyTorchJob/train/llama"] is not before["PyTorchJob/train/llama"]
