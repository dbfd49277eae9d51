"""A job that cannot start on one node, try after try, accuses the node; one that cannot start anywhere accuses none."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from streams.model.incident import Certainty
from streams.model.signal import Signal
from tests.streams.correlate.world import (
    FOUR,
    World,
    at,
    cluster,
    failed,
    job,
    node_fact,
    pods,
    progress,
    sign,
)

CUDA = {"subtype": "cuda_error", "reason": "unknown error"}
REFUSED = {"subtype": "unexpected_admission"}


def tries(count: int, pods: Sequence[int] = (2,), how: dict[str, str] = CUDA) -> list[Signal]:
    """Pods that find no GPU; then all of the job's processes end."""
    found: list[Signal] = []
    for i in range(count):
        found += (failed("llama", pod, 100 * i, **how) for pod in pods)  # type: ignore[arg-type]
        found += (failed("llama", pod, 100 * i + 12, exitcode=1 if pod in pods else -6) for pod in range(4))
    return found


def told(signals: Sequence[Signal], *, mixed: int | None = None) -> World:
    world, signals = World(cluster({"llama": FOUR})), list(signals)
    if mixed is not None:
        random.Random(mixed).shuffle(signals)
    for signal in signals:
        world.see(signal)
    world.pass_to(900, step=10)
    return world


@pytest.mark.parametrize("how", [CUDA, REFUSED], ids=["cuda", "device plugin"])
@pytest.mark.parametrize("mixed", [None, 1, 2])
def test_a_node_on_which_try_after_try_finds_no_gpu_is_asked_about(
    how: dict[str, str], mixed: int | None
) -> None:
    incident = told(tries(3, how=how), mixed=mixed).only()
    assert (incident.root.node, incident.certainty, incident.jobs) == (
        "n3",
        Certainty.LIKELY,
        (job("llama"),),
    )
    assert "cannot start: 3 tries failed on n3" in incident.reason


def test_what_is_known_to_be_wrong_there_is_told_instead() -> None:
    world = told([sign("gpu.driver", "n3", -20, "device_unhealthy"), *tries(3)])
    assert (world.only().family, world.only().root.node) == ("platform_fault", "n3")


def test_a_busy_node_that_drops_connections_is_no_reason_for_finding_no_gpu_there() -> None:
    world = told([sign("node.condition", "n3", -20, "conntrack_full"), *tries(3)])
    assert (world.only().family, world.only().root.node) == ("silent_node", "n3")


QUIET = {
    "once": tries(1),
    "on several nodes: the program, or its image": tries(4, pods=(1, 2)),
    "on one node, and then on another": [*tries(3), failed("llama", 0, 260, **CUDA)],  # type: ignore[arg-type]
    "it ran in between": [*tries(2), progress("llama", 150, 1), progress("llama", 50, 1), *tries(3)[10:]],
}


@pytest.mark.parametrize("name", QUIET)
def test_no_node_is_asked_about_where_the_job_fails_elsewhere_or_runs_in_between(name: str) -> None:
    assert [i for i in told(QUIET[name]).incidents() if i.root.node is not None] == []


def test_a_job_on_one_node_may_carry_the_reason_with_it() -> None:
    world = World(cluster({"llama": ["n1"]}))
    for i in range(4):
        world.see(failed("llama", 0, 100 * i, **CUDA), failed("llama", 0, 100 * i + 9, exitcode=1))  # type: ignore[arg-type]
    world.pass_to(900, step=10)
    assert world.only().root.node is None


def test_one_try_that_failed_is_told_as_the_jobs_own_when_none_follows_for_long() -> None:
    world = told(tries(1))
    assert world.incidents() == []
    world.pass_to(1000, step=10)
    assert world.only().family == "application"


def test_tries_that_end_in_a_start_elsewhere_are_nobodys_fault() -> None:
    world = told([*tries(2), progress("llama", 300, 1), progress("llama", 400, 2)])
    world.pass_to(1500, step=10)
    assert world.revisions == []


def test_a_fabric_manager_that_gave_up_is_why_nothing_starts_on_its_node() -> None:
    gone = sign("gpu.driver", "n3", -20, "fabric_manager", reason="fabric manager is exiting")
    world = told([gone, *tries(3)])
    assert (world.only().family, world.only().root.node) == ("platform_fault", "n3")
    assert "the fabric manager has given up" in world.only().reason


SANDBOX = {"subtype": "sandbox", "reason": "FailedCreatePodSandBox"}


def stuck(
    pods_stuck: Sequence[int],
    *,
    started: Sequence[int],
    minutes: int = 5,
    how: Mapping[str, str] = SANDBOX,
    besides: Sequence[Signal] = (),
) -> World:
    """Pods of a new job that cannot be started while others of it are; each says so every half minute."""
    world = World([node_fact(name) for name in FOUR])
    for i, fact in enumerate(pods("llama", FOUR, since=-30)):
        well = at(10) if i in started else None
        world.tell(
            replace(
                fact,
                created_at=at(-40),
                started_at=well,
                phase="Running" if well else "Pending",
                ready=bool(well),
            )
        )
    if besides:
        world.see(*besides)
    for i in range(2 * minutes):
        for pod in pods_stuck:
            world.see(failed("llama", pod, 30.0 * i, **how))  # type: ignore[arg-type]
    world.pass_to(60 * minutes + 300, step=10)
    return world


def test_a_node_on_which_a_pod_cannot_be_started_while_the_others_are_is_asked_about() -> None:
    incident = stuck([2], started=[0, 1, 3]).only()
    assert (incident.root.node, incident.certainty) == ("n3", Certainty.LIKELY)
    assert (
        "failed on n3 (its pods cannot be started (sandbox)), and its pods on other nodes have started"
        in incident.reason
    )


@pytest.mark.parametrize(
    ("pods_stuck", "started"),
    [([2], []), ([1, 2], [0, 3]), ([2], [0, 1, 2, 3])],
    ids=["none is", "on two", "it is"],
)
def test_no_node_is_asked_about_where_pods_start_nowhere_or_fail_on_several(
    pods_stuck: Sequence[int], started: Sequence[int]
) -> None:
    found = stuck(pods_stuck, started=started).incidents()
    assert [i for i in found if i.root.node is not None] == []
