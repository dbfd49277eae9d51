"""A GPU on which rank after rank fails first is named the third time, though neither its kernel nor its metrics say anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from streams.model.entity import Entity, PodRef
from streams.model.facts import Fact, PodFact
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.world import CLUSTER, World, _signal, at, cluster, failed, gpu, pods, progress

HOUR = 3600.0
LEMON = "n07"
NODES = [f"n{i:02d}" for i in range(1, 41)]
BUSY: dict[str, Sequence[str]] = {"pretrain": NODES[20:36]}

Death = tuple[str, str, int]
"""A job on one host: its name, the host, and which of its ranks fails first."""


def small(name: str, node: str, number: int, start: float) -> list[PodFact]:
    """A job of one pod with all GPUs of a host."""
    return pods(name, [node], since=start - 900, attempt=number)


def dies(name: str, rank: int, start: float, size: int = 8, **how: str) -> list[Signal]:
    """One rank ends, the launcher tells which; those left are killed seconds later."""
    first = failed(name, rank // 8, start, rank=rank, local_rank=rank % 8, **(how or {"exitcode": "1"}))
    rest = [r for r in range(size) if r != rank]
    return [first, *(failed(name, r // 8, start + 4, rank=r, exitcode="-6") for r in rest)]


def play(deaths: Sequence[Death], *, every: float = HOUR, restarts: bool = False) -> World:
    world = World(cluster(BUSY, spare=NODES))
    for number, (name, node, rank) in enumerate(deaths):
        start = number * every
        for fact in small(name, node, number, start):
            world.tell(fact)
        for step in range(3):
            world.see(progress("pretrain", start + step, 100 * number + step))
        for signal in dies(name, rank, start + 60):
            world.see(signal)
        for fact in small(name, node, number, start):
            world.tell(
                replace(
                    fact, phase="Failed", ready=False, ended_at=at(start + 70), observed_at=at(start + 71)
                )
            )
        world.pass_to(start + every - 1000, step=30)
        if restarts:
            world.restart()
    world.pass_to(len(deaths) * every, step=60)
    return world


def accused(world: World) -> list[Incident]:
    return [
        i for i in world.incidents() if i.root.node is not None and i.state is not IncidentState.SUPPRESSED
    ]


THIRD: list[Death] = [("alpha", LEMON, 3), ("beta", LEMON, 3), ("gamma", LEMON, 3)]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("every", [HOUR, 6 * HOUR])
def test_the_third_job_of_one_host_that_fails_first_on_a_gpu_names_it(every: float, restarts: bool) -> None:
    assert accused(play(THIRD[:2], every=every, restarts=restarts)) == []
    (lemon,) = accused(play(THIRD, every=every, restarts=restarts))
    assert (lemon.family, lemon.root.key) == ("silent_node", f"gpu/{LEMON}/index-3")
    assert lemon.certainty is Certainty.LIKELY, "somebody is asked"
    assert "so did train/alpha, train/beta" in lemon.reason
    assert "each time in the rank that stood on its GPU index-3, now rank 3" in lemon.reason


def others(rank: int) -> list[Death]:
    """Programs that fail on other hosts, each in a rank of its own."""
    return [(f"other{i}", NODES[10 + i], 1 + (rank + i) % 7) for i in range(4)]


def test_other_jobs_that_fail_elsewhere_in_other_ranks_do_not_hide_it() -> None:
    mixed = [d for pair in zip(THIRD, others(3)[:3], strict=True) for d in pair]
    assert [i.root.key for i in accused(play(mixed))] == [f"gpu/{LEMON}/index-3"]


QUIET: dict[str, list[Death]] = {
    "one job that is started again on its host": [("alpha", LEMON, 3)] * 5,
    "one job whose rank fails wherever it runs": [("alpha", node, 3) for node in NODES[:5]],
    "one job whose rank fails wherever it runs, and on one host often": [
        ("alpha", LEMON, 3), ("alpha", "n08", 3), ("beta", LEMON, 3), ("beta", "n09", 3), ("gamma", LEMON, 3),
    ],
    "the third, whose rank failed elsewhere before": [
        ("alpha", LEMON, 3), ("beta", LEMON, 3), ("gamma", "n08", 3), ("gamma", LEMON, 3),
    ],
    "a program under many names whose rank fails on all hosts": [
        (f"sweep{i}", (LEMON, "n08", "n09")[i % 3], 3) for i in range(9)
    ],
    "one program under the names of its runs": [(f"tune-run{i}", LEMON, 3) for i in range(5)],
    "another GPU each time": [("alpha", LEMON, 1), ("beta", LEMON, 2), ("gamma", LEMON, 3), ("delta", LEMON, 4)],
    "programs in all ranks of a host": [(f"job{i}", LEMON, 1 + i % 4) for i in range(12)],
    "rank 0": [("alpha", LEMON, 0), ("beta", LEMON, 0), ("gamma", LEMON, 0), ("delta", LEMON, 0)],
}  # fmt: skip


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("name", QUIET)
def test_what_follows_the_program_names_no_gpu(name: str, restarts: bool) -> None:
    assert accused(play(QUIET[name], restarts=restarts)) == []


def test_ranks_that_end_together_prove_nothing() -> None:
    world = World(cluster(BUSY, spare=NODES))
    for number, name in enumerate(("alpha", "beta", "gamma")):
        start = number * HOUR
        for fact in small(name, LEMON, number, start):
            world.tell(fact)
        world.see(*(failed(name, 0, start + 60 + 0.1 * r, rank=r, exitcode="1") for r in (3, 4, 5, 6)))
        world.pass_to(start + HOUR - 100, step=30)
    assert accused(world) == []


def test_of_ranks_that_end_together_the_one_that_crashed_is_first() -> None:
    world = World(cluster(BUSY, spare=NODES))
    for number, name in enumerate(("alpha", "beta", "gamma")):
        start = number * HOUR
        for fact in small(name, LEMON, number, start):
            world.tell(fact)
        world.see(
            *(
                failed(name, 0, start + 60 + 0.1 * r, rank=r, exitcode="-11" if r == 5 else "-6")
                for r in range(1, 8)
            )
        )
        world.pass_to(start + HOUR - 100, step=30)
    assert [i.root.key for i in accused(world)] == [f"gpu/{LEMON}/index-5"]


LARGE: dict[str, Sequence[str]] = {
    "one": ["m01", "m02", LEMON, "m03"],
    "two": [*(f"m{i:02d}" for i in range(4, 9)), LEMON],
    "three": ["m10", LEMON, "m11"],
}


def placed(told: bool) -> list[Fact]:
    return cluster({**BUSY, **LARGE}, spare=[*NODES, *(f"m{i:02d}" for i in range(1, 12))])


def holds(name: str, rank: int, size: int, start: float) -> Signal:
    """NCCL's line of a rank with its GPU."""
    place = Entity(CLUSTER, pod=PodRef("train", f"{name}-worker-{rank // 8}"), rank=rank)
    words = {"rank": rank, "nranks": size, "index": rank % 8, "pci": gpu(rank % 8).pci or ""}
    return _signal("job.rank", place, start, words)  # type: ignore[arg-type]


@pytest.mark.parametrize("by_address", [True, False])
@pytest.mark.parametrize("restarts", [False, True])
def test_of_jobs_on_many_hosts_the_gpu_is_named_where_it_is_the_same(
    by_address: bool, restarts: bool
) -> None:
    world = World(placed(told=by_address))
    for number, (name, nodes) in enumerate(LARGE.items()):
        start, rank, size = number * HOUR, 8 * list(nodes).index(LEMON) + 6, 8 * len(nodes)
        if by_address:
            world.see(*(holds(name, r, size, start) for r in range(size)))
        for signal in dies(name, rank, start + 60, size):
            world.see(signal)
        world.pass_to(start + HOUR - 100, step=30)
        if restarts:
            world.restart()
    (lemon,) = accused(world)
    key = gpu(6).key if by_address else "index-6"
    assert (lemon.root.key, lemon.certainty) == (f"gpu/{LEMON}/{key}", Certainty.LIKELY)


def test_of_jobs_on_many_hosts_whose_gpus_differ_the_host_is_named() -> None:
    world = World(placed(told=False))
    for number, (name, nodes) in enumerate(LARGE.items()):
        start, rank = number * HOUR, 8 * list(nodes).index(LEMON) + 1 + number
        for signal in dies(name, rank, start + 60, 8 * len(nodes)):
            world.see(signal)
        world.pass_to(start + HOUR - 100, step=30)
    assert [i.root.key for i in accused(world)] == [f"node/{LEMON}"]


def test_a_job_on_many_hosts_and_jobs_on_one_count_together() -> None:
    world = play(THIRD[:2])
    for fact in [*pods("one", LARGE["one"], since=2 * HOUR - 900)]:
        world.tell(fact)
    for signal in dies("one", 19, 2 * HOUR + 60, 32):
        world.see(signal)
    world.pass_to(3 * HOUR, step=30)
    assert [i.root.key for i in accused(world)] == [f"gpu/{LEMON}/index-3"]
