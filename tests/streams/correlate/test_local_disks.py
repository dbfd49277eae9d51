"""A disk of a node that does not answer: the rank that reads from it is silent, and the disk is at fault again an hour later."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streams.model.incident import Certainty, IncidentState
from streams.model.signal import Severity, Signal
from tests.streams.correlate.world import FOUR, GPUS, World, at, cluster, sign, timeouts, xid

HUNG = 1200.0
"""When the collective began that hangs; its watchdogs speak 600 s later."""
MUTE = 17
"""The rank that says nothing, on `FOUR[2]`, whose other ranks go on."""


def slow(seconds: float, node: str = FOUR[2], device: str = "nvme4") -> Signal:
    return sign("node.storage", node, seconds, "nvme_timeout", device=device)


def dead(seconds: float, node: str = FOUR[2], device: str = "nvme4n1") -> Signal:
    return sign("node.storage", node, seconds, "fs_shutdown", severity=Severity.CRITICAL, device=device)


def hang() -> list[Signal]:
    return timeouts("llama", [r for r in range(4 * GPUS) if r != MUTE], HUNG + 600)


def told(signals: Sequence[Signal], until: float = 4000, seed: int | None = None) -> World:
    world = World(cluster({"llama": FOUR}, spare=[f"n{i}" for i in range(20, 30)]))
    world.play(signals, until, seed)
    return world


def standing(world: World) -> list[str]:
    left = [i for i in world.published.values() if i.state is not IncidentState.MERGED]
    return sorted(i.family for i in left)


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("began", [400.0, 1000.0, 1230.0])
def test_a_rank_that_is_silent_on_a_node_whose_disk_does_not_answer_waits_for_the_disk(
    began: float, seed: int | None
) -> None:
    lines = [slow(began), slow(HUNG + 30), *hang()]
    incident = told(lines, until=2100, seed=seed).only()
    assert (incident.family, incident.root.node, incident.root.gpu) == ("host_fault", FOUR[2], None)
    assert (incident.fault_at, incident.certainty) == (at(began), Certainty.LIKELY)
    assert [job.name for job in incident.jobs] == ["llama"]
    assert "the rest said nothing: ranks 17" in incident.reason


@pytest.mark.parametrize(
    "lines",
    [[slow(300)], [slow(2000)], [slow(HUNG, node="n20")], []],
    ids=["long before", "long after", "another node", "no disk"],
)
def test_a_disk_that_errs_at_another_time_or_place_does_not_make_a_rank_silent(lines: list[Signal]) -> None:
    assert standing(told([*lines, *hang()])) == ["silent_node"]


def test_a_gpu_that_is_lost_there_is_still_what_the_others_wait_for() -> None:
    world = told([xid(FOUR[2], 79, HUNG - 1), slow(HUNG + 30), *hang()])
    assert standing(world) == ["gpu_off_bus"]


def failing(since: float) -> list[Signal]:
    return [slow(since), slow(since + 90), slow(since + 180)]


@pytest.mark.parametrize("seed", [None, 3])
def test_a_disk_that_fails_again_within_the_hour_is_the_same_fault(seed: int | None) -> None:
    incident = told([*failing(100), dead(2400)], seed=seed).only()
    assert (incident.family, incident.fault_at, incident.closed_at) == ("host_fault", at(100), None)
    assert {"node.storage.nvme_timeout", "node.storage.fs_shutdown"} <= set(map(str, incident.facts["signs"]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("again", "device"), [(6000.0, "nvme4n1"), (2400.0, "nvme5n1")], ids=["hours later", "another disk"]
)
def test_another_disk_and_another_day_are_another_fault(again: float, device: str) -> None:
    assert standing(told([*failing(100), dead(again, device=device)], until=8000)) == ["host_fault"] * 2


def test_what_every_disk_has_now_and_then_does_not_add_up_over_hours() -> None:
    assert not told([slow(100 + 2400 * i) for i in range(5)], until=12000).incidents()


def test_a_task_that_hangs_beside_a_failing_disk_is_the_disks() -> None:
    hung = sign("node.kernel", FOUR[2], 400, "hung_task")
    assert told([*failing(100), hung, dead(500)]).only().facts["signs"] == (
        "node.storage.fs_shutdown",
        "node.storage.nvme_timeout",
    )
