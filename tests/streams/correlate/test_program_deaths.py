"""A program that ends by its own exception closes connections: what its other ranks report of that follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from streams.model.incident import Audience
from streams.model.signal import Signal
from tests.streams.correlate.world import World, at, cluster, failed, pods, xid

NODES = ["n1", "n2", "n3", "n4"]
HOUR = 3600.0
KEY = "KeyError: 'image_sizes'"


def deaths(seconds: float, ranks: Sequence[int] = (9, 17, 25)) -> list[Signal]:
    """Ranks whose store has closed, as they report it when another process is gone."""
    return [
        failed(
            "llama", r // 8, seconds, "store", kind="nccl.error", rank=r, reason="Failed to recv got 0 bytes"
        )
        for r in ranks
    ]


def exceptions(seconds: float, ranks: Sequence[int] = (0, 8, 16, 24), reason: str = KEY) -> list[Signal]:
    return [failed("llama", r // 8, seconds, "exception", rank=r, reason=reason) for r in ranks]


def told(*signals: Signal, nodes: Sequence[str] = NODES, until: float = HOUR) -> World:
    world = World(cluster({"llama": nodes}))
    for one in signals:
        world.see(one)
    world.pass_to(until, step=20)
    return world


@pytest.mark.parametrize("ranks", [(0, 8, 16, 24), (16,)], ids=["of all ranks", "of one rank"])
@pytest.mark.parametrize("apart", [2, -1, 40], ids=["before", "by another clock", "long teardown"])
def test_connections_that_close_with_an_exception_are_the_programs(
    ranks: Sequence[int], apart: float
) -> None:
    for story in (
        [*exceptions(1000, ranks), *deaths(1000 + apart)],
        [*deaths(1000 + apart), *exceptions(1000, ranks)],
    ):
        incident = told(*story).only()
        assert (incident.family, incident.audience) == ("application", Audience.OWNER)
        assert KEY in incident.reason


def test_an_exception_that_is_read_a_minute_late_takes_over_what_it_explains() -> None:
    world = World(cluster({"llama": NODES}))
    world.see(*deaths(1002))
    world.pass_to(1062, step=20)
    world.see(*exceptions(1000))
    world.pass_to(HOUR, step=20)
    assert world.only().family == "application"


def test_a_small_job_that_fails_in_its_first_minutes_is_nobodys_but_its_owners() -> None:
    world = World(cluster({"llama": []}))
    for attempt in range(2):
        begin = 200.0 * attempt
        for pod in pods("llama", NODES[:2], since=begin, attempt=attempt):
            world.tell(pod)
        world.see(*exceptions(begin + 50, (0, 8)), *deaths(begin + 52, (9,)))
        world.end("llama", NODES[:2], begin + 60)
    world.pass_to(HOUR, step=20)
    assert all(incident.audience is Audience.OWNER for incident in world.incidents())


@pytest.mark.parametrize(
    "words",
    [
        [],
        exceptions(100),
        exceptions(1000, reason="OSError: [Errno 5] Input/output error"),
    ],
    ids=["nothing", "an old one", "a failed read"],
)
def test_connections_that_close_without_an_exception_of_the_program_stay_unexplained(
    words: list[Signal],
) -> None:
    assert told(*words, *deaths(1002)).only().family == "hang"


def test_a_gpu_that_fails_first_explains_the_exception_as_well() -> None:
    assert told(xid("n2", 79, 999), *exceptions(1000, (8,)), *deaths(1002)).only().root.node == "n2"


def test_exceptions_of_processes_that_were_asked_to_go_open_nothing() -> None:
    world = World(cluster({"llama": NODES}))
    for pod in pods("llama", NODES):
        world.tell(replace(pod, removed_at=at(990), observed_at=at(991)))
    world.see(*exceptions(1000, reason="RuntimeError: interrupted"), *deaths(1002))
    world.end("llama", NODES, 1010)
    world.pass_to(HOUR, step=20)
    assert not world.incidents()


@pytest.mark.parametrize(
    "how", [{"exitcode": "130"}, {"exitcode": "-2"}, {"subtype": "signal", "signal": "2"}], ids=str
)
@pytest.mark.parametrize("pods_hit", [[0, 1, 2, 3], [0]], ids=["all", "one"])
def test_ranks_of_a_program_that_somebody_interrupts_open_nothing(
    how: dict[str, str], pods_hit: Sequence[int]
) -> None:
    interrupted = [failed("llama", pod, 1000, **how) for pod in pods_hit]  # type: ignore[arg-type]
    assert not told(*interrupted, *deaths(1002)).incidents()
    assert not told(*deaths(1002), *interrupted).incidents()


def test_an_interrupt_long_after_the_ranks_failed_explains_nothing() -> None:
    """Somebody gives up on a job that stands still."""
    assert told(*deaths(1002), failed("llama", 0, 1060, exitcode="130")).only().family == "hang"
