"""Who has to know: of what a program did to itself its owner, of all else and of the largest jobs those on call."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest

from streams.model.incident import Audience
from streams.model.signal import Attribute, Signal
from tests.streams.correlate.world import (
    World,
    cluster,
    failed,
    nccl_error,
    pods,
    progress,
    rank_error,
    summary,
    timeout,
    timeouts,
    xid,
)

FOUR = ["n1", "n2", "n3", "n4"]
MANY = [f"n{i}" for i in range(1, 33)]
"""As many as make 256 GPUs."""


@pytest.mark.parametrize(
    ("nodes", "audience"), [(FOUR, Audience.OWNER), (MANY[:-1], Audience.OWNER), (MANY, Audience.ON_CALL)]
)
def test_a_program_that_fails_by_itself_is_its_owners_unless_very_many_gpus_stand_still(
    nodes: list[str], audience: Audience
) -> None:
    world = World(cluster({"llama": nodes}))
    world.see(*(xid(node, 31, 10) for node in nodes), *(failed("llama", i, 11) for i in range(len(nodes))))
    world.pass_to(200)
    incident = world.only()
    assert (incident.family, incident.audience) == ("application", audience)


@pytest.mark.parametrize(
    ("nodes", "more", "audience"),
    [
        (FOUR[:2], (), Audience.OWNER),
        (FOUR[:2], (nccl_error("llama", 5, 21),), Audience.ON_CALL),
        (MANY[:16], (), Audience.ON_CALL),
    ],
    ids=["two nodes", "a connection fails as well", "a large job"],
)
def test_a_small_job_whose_ranks_only_waited_for_each_other_at_its_start_is_its_owners(
    nodes: list[str], more: tuple[Signal, ...], audience: Audience
) -> None:
    world = World(cluster({"llama": nodes}))
    waited: dict[str, Attribute] = {"subtype": "store", "reason": "waiting for clients", "seconds": 20}
    world.see(*(rank_error("llama", rank, 20, waited) for rank in (0, 8)), *more)
    world.pass_to(600)
    assert (world.only().family, world.only().root.job is not None) == ("hang", True)
    assert world.only().audience is audience


def test_ranks_that_call_different_collectives_are_the_programs() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*timeouts("llama", range(31), 600), timeout("llama", 31, 601, op="BROADCAST"))
    world.pass_to(700)
    assert (world.only().family, world.only().audience) == ("application", Audience.OWNER)


@pytest.mark.parametrize(
    ("behind", "speaking", "audience"),
    [
        ([17], [17], Audience.OWNER),
        ([17], [], Audience.ON_CALL),
        (range(16, 24), range(16, 24), Audience.ON_CALL),
        (range(16, 24), [], Audience.ON_CALL),
    ],
    ids=["one that speaks", "one that says nothing", "a whole node", "a whole node that says nothing"],
)
def test_a_rank_behind_the_others_of_its_node_is_the_programs_while_it_speaks(
    behind: Collection[int], speaking: Collection[int], audience: Audience
) -> None:
    world = World(cluster({"llama": FOUR}))
    spoken = [summary("llama", r, 604, enqueued=99) for r in speaking]
    world.see(*timeouts("llama", [r for r in range(32) if r not in behind], 600), *spoken)
    world.pass_to(700)
    assert (world.only().family, world.only().root.node) == ("silent_node", "n3")
    assert world.only().audience is audience


@pytest.mark.parametrize(("behind", "audience"), [(3, Audience.OWNER), (None, Audience.ON_CALL)])
def test_a_rank_that_is_behind_in_a_job_of_one_node_is_the_programs(
    behind: int | None, audience: Audience
) -> None:
    world = World(cluster({"llama": ["n1"]}))
    spoken = [] if behind is None else [summary("llama", behind, 604, enqueued=99)]
    world.see(*timeouts("llama", [r for r in range(8) if r != behind], 600), *spoken)
    world.pass_to(900)
    assert (world.only().family, world.only().audience) == ("hang", audience)


def test_a_node_on_which_ranks_of_two_jobs_are_behind_is_for_those_on_call() -> None:
    world = World(cluster({"llama": FOUR, "gemma": ["n3", "n5", "n6"]}))
    world.see(*timeouts("llama", [r for r in range(32) if r != 17], 600))
    world.see(summary("llama", 17, 604, enqueued=99))
    world.see(*timeouts("gemma", [r for r in range(24) if r != 1], 620))
    world.see(summary("gemma", 1, 624, enqueued=99))
    world.pass_to(800)
    (node,) = (i for i in world.incidents() if i.root.node == "n3")
    assert (node.family, node.audience) == ("silent_node", Audience.ON_CALL)


@pytest.mark.parametrize("code", [79, 48])
def test_hardware_is_for_those_on_call(code: int) -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", code, 10))
    world.pass_to(200)
    assert world.only().audience is Audience.ON_CALL


def test_a_hang_that_nobody_explains_is_for_those_on_call() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*timeouts("llama", range(32), 600))
    world.pass_to(700)
    assert (world.only().family, world.only().audience) == ("hang", Audience.ON_CALL)


def test_a_program_that_fails_on_one_gpu_again_may_not_be_to_blame() -> None:
    world = World(cluster({"llama": FOUR}))
    for attempt in range(4):
        begin = 2000.0 * attempt
        world.pass_to(begin + 1, step=20)
        for pod in pods("llama", FOUR, since=begin, attempt=attempt):
            world.tell(pod)
        world.see(progress("llama", begin + 300, 10 * attempt + 10))
        world.pass_to(begin + 1000, step=20)
        world.see(xid("n2", 31, begin + 1000), failed("llama", 1, begin + 1001, exitcode=1))
        world.end("llama", FOUR, begin + 1010)
    world.pass_to(9000, step=20)
    assert Audience.ON_CALL in {incident.audience for incident in world.incidents()}


@pytest.mark.parametrize("gpus", [(0, 0, 0, 0), (0, 0, 3, 0)], ids=["the same GPU", "another one between"])
def test_a_program_on_one_node_that_fails_on_its_first_gpu_again_and_again_is_its_owners(
    gpus: Sequence[int],
) -> None:
    """Somebody works on a kernel: each try starts on the GPU that the program takes first."""
    world = World(cluster({"probe": ["n1"]}))
    for attempt, index in enumerate(gpus):
        begin = 600.0 * attempt
        world.see(
            xid("n1", 31, begin + 100, index=index),
            failed("probe", 0, begin + 101, "cuda_error", reason="an illegal memory access was encountered"),
        )
        world.pass_to(begin + 500, step=20)
    incident = world.only()
    assert (incident.family, incident.audience) == ("application", Audience.OWNER)


def test_those_who_were_called_once_follow_it_to_its_end() -> None:
    """The rank that had said nothing speaks after all: what was reported to those on call stays theirs."""
    world = World(cluster({"llama": FOUR}))
    world.see(*timeouts("llama", [r for r in range(32) if r != 17], 600))
    world.pass_to(700)
    assert world.only().audience is Audience.ON_CALL
    world.restart()
    world.see(summary("llama", 17, 604, enqueued=99))
    world.pass_to(900)
    assert "never enqueued" in world.only().reason
    assert world.only().audience is Audience.ON_CALL
