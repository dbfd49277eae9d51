"""Runs of one program that hang one after the other: a rank's number that comes back is the program's, a host is the host's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streams.model.facts import Fact
from streams.model.signal import Signal
from tests.streams.correlate.world import (
    GPUS,
    World,
    cluster,
    job,
    not_ready,
    timeouts,
)

FIRST, OTHERS = ("n1", "n2", "n3", "n4"), ("n5", "n6", "n7", "n8")
RANK = 19
"""Of eight on the third node of each run."""
SHUFFLED = ("n3", "n5", "n6", "n7")
"""The third node of the first run is the first one here."""


def run(name: str, seconds: float, silent: Sequence[int] = (RANK,)) -> list[Signal]:
    """Watchdogs of all ranks but these."""
    return timeouts(name, [rank for rank in range(4 * GPUS) if rank not in silent], seconds)


def facts(**jobs: Sequence[str]) -> list[Fact]:
    return cluster({name.replace("_", "-"): nodes for name, nodes in jobs.items()}, spare=(*FIRST, *OTHERS))


def seen(known: Sequence[Fact], signals: Sequence[Signal], seed: int | None = None) -> World:
    world = World(known)
    world.play(signals, 3600, seed)
    return world


TWICE = [*run("llama", 600), *run("llama-r2", 2400)]


def test_the_same_rank_on_another_host_is_the_program() -> None:
    incident = seen(facts(llama=FIRST, llama_r2=OTHERS), TWICE).only()
    assert (incident.family, incident.root.key) == ("hang", f"job/{job('llama').key}")
    assert incident.jobs == (job("llama"), job("llama-r2"))
    assert "llama-r2 on n7" in incident.reason


def test_so_it_is_however_often_it_is_started_again() -> None:
    known = facts(llama=FIRST, llama_r2=OTHERS, llama_r3=("n2", "n4", "n6", "n8"))
    incident = seen(known, [*TWICE, *run("llama-r3", 3000)]).only()
    assert (incident.family, incident.root.key) == ("hang", f"job/{job('llama').key}")
    assert incident.jobs == (job("llama"), job("llama-r2"), job("llama-r3"))


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_read_first(seed: int) -> None:
    incident = seen(facts(llama=FIRST, llama_r2=OTHERS), TWICE, seed).only()
    assert (incident.family, incident.root.key) == ("hang", f"job/{job('llama').key}")


def test_the_same_rank_on_the_same_host_is_one_incident_of_that_host_with_a_count() -> None:
    incident = seen(facts(llama=FIRST, llama_r2=FIRST), TWICE).only()
    assert (incident.family, incident.root.key) == ("silent_node", "node/n3")
    assert incident.jobs == (job("llama"), job("llama-r2"))
    assert incident.facts["hangs"] == 2
    assert "2 times ranks there were waited for, by train/llama, train/llama-r2" in incident.reason


def test_so_is_another_rank_on_the_same_host() -> None:
    signals = [*run("llama", 600), *run("llama-r2", 2400, silent=[2])]
    incident = seen(facts(llama=FIRST, llama_r2=SHUFFLED), signals).only()
    assert (incident.root.key, incident.facts["hangs"]) == ("node/n3", 2)


HOSTS: dict[str, tuple[Sequence[Fact], Sequence[Signal]]] = {
    "another program": (facts(llama=FIRST, gemma=OTHERS), [*run("llama", 600), *run("gemma", 2400)]),
    "another rank": (
        facts(llama=FIRST, llama_r2=OTHERS), [*run("llama", 600), *run("llama-r2", 2400, silent=[RANK + 1])],
    ),
    "all ranks of a node": (
        facts(llama=FIRST, llama_r2=OTHERS),
        [*run("llama", 600, silent=range(16, 24)), *run("llama-r2", 2400, silent=range(16, 24))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTS)
def test_two_hosts_are_two_incidents_where_it_is(what: str) -> None:
    known, signals = HOSTS[what]
    found = seen(known, signals).incidents()
    assert [(i.family, i.root.key) for i in found] == [("silent_node", "node/n3"), ("silent_node", "node/n7")]


def test_a_node_that_was_missed_meanwhile_is_why_all_the_same() -> None:
    known = facts(llama=FIRST, llama_r2=OTHERS)
    found = seen(known, [*TWICE, not_ready("n7", 1830)]).incidents()
    assert [i.root.key for i in found] == ["node/n3", "node/n7"]
