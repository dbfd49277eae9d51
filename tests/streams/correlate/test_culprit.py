"""Hangs of jobs with nested groups: at whom everybody's waiting ends, and who is left in peace."""

from __future__ import annotations

import pytest

from streams.correlate.job_rules.connection_votes import Addresses
from streams.correlate.job_rules.culprit import find_culprit
from streams.correlate.job_rules.rank_reports import rank_report
from streams.correlate.sightings import sighting
from streams.model.entity import Entity, PodRef
from streams.model.incident import Certainty
from streams.model.signal import Attribute, Severity, signal
from tests.streams.correlate.grid import PER_NODE, Grid
from tests.streams.correlate.world import CLUSTER, at
from tests.work import calls_counted

SIZES = [(8, 4, 2), (8, 8, 16), (4, 4, 8), (2, 2, 16), (8, 1, 16)]
"""Tensor, pipeline, data: 16 to 1,024 ranks; with two or four a node holds several tensor-parallel groups."""


def node_of(rank: int) -> str:
    return f"n{rank // PER_NODE}"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("release", ["2.4", "2.6"])
def test_one_rank_that_stands_still_is_found_through_all_groups(
    size: tuple[int, int, int], release: str
) -> None:
    grid = Grid(*size)
    still = grid.world // 2 + 3
    grid.hang([still], release=release)
    grid.dumps(still, enqueued=62)
    finding = grid.finding()
    assert (finding.node, finding.ranks) == (node_of(still), (still,))
    assert finding.certainty is Certainty.LIKELY, "its neighbours on the node keep up"


@pytest.mark.parametrize("size", SIZES)
def test_one_silent_rank_is_found_and_its_node_not_closed(size: tuple[int, int, int]) -> None:
    grid = Grid(*size)
    still = grid.world // 2 + 3
    grid.hang([still])
    finding = grid.finding()
    assert (finding.node, finding.ranks, finding.silent) == (node_of(still), (still,), True)
    assert finding.certainty is Certainty.LIKELY


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("release", ["2.4", "2.6"])
def test_a_node_that_is_silent_as_a_whole_is_certain(size: tuple[int, int, int], release: str) -> None:
    grid = Grid(*size)
    first = grid.world // 2
    grid.hang(range(first, first + PER_NODE), release=release)
    finding = grid.finding()
    assert (finding.node, finding.certainty) == (node_of(first), Certainty.DECISIVE)
    assert finding.ranks == tuple(range(first, first + PER_NODE))


@pytest.mark.parametrize("size", SIZES)
def test_a_silent_node_is_found_where_lines_name_no_group(size: tuple[int, int, int]) -> None:
    grid = Grid(*size)
    first = grid.world // 2
    grid.hang(range(first, first + PER_NODE), release="2.3")
    finding = grid.finding()
    assert (finding.node, finding.certainty) == (node_of(first), Certainty.DECISIVE)


@pytest.mark.parametrize("size", SIZES)
def test_a_silent_node_is_likely_where_lines_name_ranks_inside_their_groups_only(
    size: tuple[int, int, int],
) -> None:
    grid = Grid(*size)
    first = grid.world // 2
    grid.hang(range(first, first + PER_NODE), release="2.1")
    finding = grid.finding()
    assert (finding.node, finding.certainty) == (node_of(first), Certainty.LIKELY)


@pytest.mark.parametrize("release", ["2.1", "2.3"])
def test_numbers_of_unnamed_groups_are_not_compared(release: str) -> None:
    """One data-parallel group is at 12, the tensor-parallel ones of the others at 900: neither is behind the other."""
    grid = Grid(8, 1, 8)
    for rank in range(grid.world):
        tensor = rank // PER_NODE in (1, 4)
        grid.waits(
            rank, grid.tensor(rank) if tensor else grid.data(rank), 900 if tensor else 12, release=release
        )
    finding = grid.finding()
    assert (finding.node, finding.mismatch) == (None, False)


def test_nodes_whose_logs_are_lost_do_not_hide_where_the_waiting_ends() -> None:
    grid = Grid(8, 4, 4)
    grid.hang([35])
    lost = {"train/llama-1", "train/llama-14"}
    grid.said = [t for t in grid.said if t.pod not in lost]
    finding = grid.finding()
    assert (finding.node, finding.certainty) == (None, Certainty.LIKELY)
    assert finding.suspects == ("n1", "n14", "n4")


def test_a_collective_that_all_have_joined_and_others_wait_for_is_no_proof() -> None:
    """The ranks of one tensor-parallel group do not come out of it: their links, their GPUs or their program."""
    grid = Grid(8, 4, 4)
    grid.hang(range(40, 48), inside=True)
    finding = grid.finding()
    assert (finding.node, finding.rule, finding.certainty) == ("n5", "stuck collective", Certainty.LIKELY)
    assert finding.ranks == tuple(range(40, 48))


def test_data_parallel_groups_that_all_wait_complete_name_nobody() -> None:
    grid = Grid(8, 1, 8)
    for rank in range(grid.world):
        grid.waits(rank, grid.data(rank), 12, "_REDUCE_SCATTER_BASE")
    finding = grid.finding()
    assert (finding.node, finding.suspects, finding.rule) == (None, (), "all equal")


def test_counts_of_sends_and_receives_are_not_compared() -> None:
    """The first stage has sent less than the middle ones: that is how a pipeline works."""
    grid = Grid(8, 4, 1)
    for rank in range(grid.world):
        grid.waits(rank, grid.pipeline(rank), 10 + 20 * grid.place(rank)[2], "RECV")
    finding = grid.finding()
    assert (finding.node, finding.suspects) == (None, ())


def test_ranks_that_wait_for_each_other_in_two_groups_are_a_matter_of_the_program() -> None:
    grid = Grid(2, 1, 8)
    for rank in range(grid.world):
        if grid.place(rank)[0]:
            grid.waits(rank, grid.data(rank), 12)
        else:
            grid.waits(rank, grid.tensor(rank), 900)
    for rank in range(0, grid.world, 2):
        grid.dumps(rank, 11, grid.data(rank))
    finding = grid.finding()
    assert (finding.node, finding.certainty) == (None, Certainty.WEAK)


def test_two_culprits_on_two_nodes_name_none() -> None:
    grid = Grid(8, 1, 8)
    for rank in range(grid.world):
        if rank not in (9, 33):
            grid.waits(rank, grid.tensor(rank) if rank // 8 in (1, 4) else grid.data(rank), 900)
    for rank in (9, 33):
        grid.dumps(rank, 899, grid.tensor(rank))
    finding = grid.finding()
    assert (finding.node, finding.suspects, finding.certainty) == (None, ("n1", "n4"), Certainty.LIKELY)


def test_different_sizes_in_one_collective_are_the_programs_fault() -> None:
    grid = Grid(8, 1, 4)
    for rank in range(grid.world):
        size = 4096 if rank != 12 else 4000
        grid.waits(rank, grid.all_ranks(), 31, numel_in=size, numel_out=size)
    finding = grid.finding()
    assert (finding.mismatch, finding.node) == (True, None)
    assert "4000 and 4096" in finding.why


def test_two_spellings_of_one_operation_are_no_mismatch() -> None:
    grid = Grid(8, 1, 4)
    for rank in range(grid.world):
        grid.waits(rank, grid.all_ranks(), 31, "ALLREDUCE" if rank % 2 else "ALLREDUCE_BARRIER")
    assert not grid.finding().mismatch


def test_a_desync_report_of_one_rank_is_as_good_as_everybodys_word() -> None:
    grid = Grid(8, 1, 4)
    grid.waits(0, grid.all_ranks(), 310)
    grid.say(0, "nccl.error", 600.1, {"rank": 0, "subtype": "desync", "pg": "0", "reason": "finish", "seq": 310,
                                      "ranks": ", ".join(str(r) for r in range(32) if r // 8 != 2)})  # fmt: skip
    grid.say(0, "nccl.error", 600.2, {"rank": 0, "subtype": "desync", "pg": "0", "reason": "join", "seq": 309,
                                      "ranks": "16, 17, 18, 19, 20, 21, 22, 23"})  # fmt: skip
    finding = grid.finding()
    assert (finding.node, finding.rule, finding.certainty) == ("n2", "never joined", Certainty.DECISIVE)


def test_a_desync_report_counts_ranks_inside_the_group_it_is_of() -> None:
    grid = Grid(8, 1, 4)
    for rank in range(16, 24):
        if rank != 19:
            grid.waits(rank, grid.tensor(rank), 310)
    report: dict[str, Attribute] = {
        "subtype": "desync",
        "pg": grid.tensor(16).guid,
        "reason": "join",
        "seq": 309,
    }
    grid.say(16, "nccl.error", 600.1, {"rank": 16, "ranks": "3", **report})
    finding = grid.finding()
    assert (finding.node, finding.ranks) == ("n2", (19,))


def test_a_dump_that_lists_the_members_of_a_group_shows_who_is_missing() -> None:
    """A group at no even distance, as expert-parallel ones are, and no place in it printed."""
    grid = Grid(8, 1, 4)
    members = (1, 6, 13, 27)
    for rank in range(grid.world):
        if rank in members and rank != 13:
            grid.say(rank, "nccl.timeout", 600, {"rank": rank, "pg": "77", "seq": 5, "op": "ALLTOALL_BASE", "elapsed_ms": 600_009,
                                                 "ranks": "1,6,13,27", "subtype": "flight_recorder"})  # fmt: skip
        elif rank != 13:
            grid.waits(rank, grid.tensor(rank), 900)
    grid.dumps(13, 62)
    finding = grid.finding()
    assert (finding.node, finding.ranks) == ("n1", (13,))


def test_victims_are_told_with_what_clears_them() -> None:
    grid = Grid(8, 4, 4)
    grid.hang([19])
    grid.dumps(19, 62)
    cleared = dict(grid.finding().cleared)
    assert cleared
    assert node_of(19) not in cleared
    assert all("because it waits in" in reason for reason in cleared.values())


def test_a_large_job_is_judged_in_a_moment() -> None:
    grid = Grid(8, 8, 16)
    grid.hang([515])
    episode, placements = grid.episode(), grid.placements
    with calls_counted() as count:
        find_culprit(episode, placements)
    assert count[0] < 1024 * 300


def relayed(grid: Grid, rank: int, *, beside: bool = False) -> None:
    """A watchdog's line of a rank that Ray's driver prints in the first pod: without an address where it stands beside it."""
    said: dict[str, Attribute] = {
        "rank": rank,
        "pg": "0",
        "pg_rank": rank,
        "seq": 12,
        "elapsed_ms": 600_009,
    }
    line = signal(
        "nccl.timeout", Entity(CLUSTER, pod=PodRef("train", "llama-0"), rank=rank), severity=Severity.ERROR,
        occurred_at=at(600), observed_at=at(601), attributes=said if beside else {**said, "ip": f"10.0.0.{rank // 8}"},
    )  # fmt: skip
    seen = sighting(line)
    assert seen is not None
    grid.said.append(rank_report(seen, grid.placements[0]))


def test_lines_that_a_driver_relays_neither_place_a_rank_nor_make_others_silent() -> None:
    """Ray prints the lines of all workers in the first pod's log, and folds those that look alike into one."""
    grid = Grid(8, 1, 4)
    for rank in (8, 16, 25):
        relayed(grid, rank)
    finding = grid.finding()
    assert (finding.node, finding.silent) == (None, False)


def test_what_workers_print_in_their_own_pods_tells_who_is_silent_although_a_driver_relays() -> None:
    grid = Grid(8, 1, 4)
    grid.hang(range(16, 24))
    relayed(grid, 8)
    finding = grid.finding()
    assert (finding.node, finding.silent, finding.certainty) == (node_of(16), True, Certainty.LIKELY)


def test_workers_beside_the_driver_do_not_make_others_silent_whose_lines_were_folded() -> None:
    grid = Grid(8, 1, 2)
    for rank in range(8):
        relayed(grid, rank, beside=True)
    relayed(grid, 9)
    finding = grid.finding()
    assert (finding.node, finding.silent) == (None, False)


def test_a_group_of_which_a_driver_printed_one_member_is_not_taken_for_complete() -> None:
    """Ranks 40 to 47 are silent; of those that wait for them the lines were folded but for a few."""
    grid = Grid(8, 2, 4)
    for rank in (8, 9, 10):
        grid.waits(rank, grid.pipeline(rank), 61, "SEND", ip="10.0.0.1")
    for rank in (0, 16):
        grid.waits(rank, grid.data(rank), 12, "_REDUCE_SCATTER_BASE", ip=f"10.0.0.{rank // 8}")
    finding = grid.finding(Addresses({f"10.0.0.{n}": f"n{n}" for n in range(8)}))
    assert (finding.node, finding.suspects) == (None, ())
    assert "whether others said nothing is not known" in finding.why
