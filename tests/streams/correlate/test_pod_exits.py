"""Pods of a training job that end badly without a word of their launcher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from streams.model.facts import PodFact
from streams.model.incident import Incident
from tests.streams.correlate.world import World, at, cluster, failed, pods, xid

NODES = ["n1", "n2", "n3", "n4"]


def exited(attempt: int, seconds: float, *, code: int = 1, removed: bool = False) -> list[PodFact]:
    """The pods of one try of a job, all ended by themselves."""
    made = pods("llama", NODES)
    return [
        replace(
            pod,
            uid=f"{pod.name}-{attempt}",
            observed_at=at(seconds + 1),
            scheduled_at=at(seconds - 60),
            phase="Failed",
            ended_at=at(seconds),
            exited_at=at(seconds),
            exit_code=code,
            removed_at=at(seconds - 5) if removed else None,
        )
        for pod in made
    ]


def told(tries: Sequence[PodFact], *more: object, until: float = 3000) -> list[Incident]:
    world = World(cluster({"llama": NODES}))
    for signal in more:
        world.see(signal)  # type: ignore[arg-type]
    for pod in tries:
        world.pass_to((pod.observed_at - at(0)).total_seconds(), step=10)
        world.tell(pod)
    world.pass_to(until, step=10)
    return [i for i in world.incidents() if i.merged_into is None]


def test_a_program_that_ends_badly_try_after_try_is_told_to_its_owner() -> None:
    (incident,) = told([*exited(1, 100), *exited(2, 700), *exited(3, 1300)])
    assert (incident.family, incident.root.job.name if incident.root.job else None) == (
        "application",
        "llama",
    )
    assert "exit code 1" in incident.reason


def test_what_was_asked_to_go_may_end_with_any_code() -> None:
    tries = [pod for i in (1, 2, 3) for pod in exited(i, 600 * i, removed=True)]
    assert not told(tries)


def test_what_was_killed_says_nothing_by_itself() -> None:
    tries = [pod for i in (1, 2, 3) for pod in exited(i, 600 * i, code=137)]
    assert not told(tries)


def test_it_goes_to_the_fault_under_it() -> None:
    (incident,) = told(exited(1, 30), xid("n2", 79, 0))
    assert incident.root.node == "n2"
    assert [job.name for job in incident.jobs] == ["llama"]


def test_what_pods_still_tell_of_long_ago_is_no_news() -> None:
    tries = [replace(pod, observed_at=at(2500)) for i in (1, 2, 3) for pod in exited(i, 600 * i)]
    assert not told(tries, until=12_000)


def restarted(attempt: int, seconds: float, nodes: Sequence[str], *, culprit: int = 2) -> list[PodFact]:
    """One try of a job of which one pod fails, and whose controller takes the others away two seconds later to start anew."""
    found: list[PodFact] = []
    for i, pod in enumerate(pods("llama", nodes)):
        named = replace(pod, uid=f"llama-{i}-{attempt}")
        gone_at = seconds if i == culprit else seconds + 3
        ended = replace(
            named,
            observed_at=at(gone_at),
            scheduled_at=at(seconds - 500),
            phase="Failed",
            ended_at=at(gone_at),
            exited_at=at(gone_at),
            exit_code=1 if i == culprit else 143,
        )
        if i == culprit:
            found.append(ended)
        asked = seconds + (7 if i == culprit else 2)
        found.append(replace(ended, observed_at=at(asked + 1), removed_at=at(asked)))
    return sorted(found, key=lambda pod: pod.observed_at)


def turned(times: int) -> list[str]:
    return NODES[times:] + NODES[:times]


def test_pods_that_a_controller_takes_away_to_start_anew_did_not_end_the_one_that_failed() -> None:
    tries = [pod for i in (1, 2, 3) for pod in restarted(i, 600.0 * i, turned(i))]
    words = [
        failed(
            "llama",
            2,
            600.0 * i - 4,
            "exception",
            rank=29,
            reason="zlib.error: Error -3 while decompressing data",
        )
        for i in (1, 2, 3)
    ]
    (incident,) = told(tries, *words)
    assert (incident.family, incident.root.job and incident.root.job.name) == ("application", "llama")
    assert "3 times in the same way, on 3 of its nodes in turn" in incident.reason
    assert "rank 29: zlib.error: Error -3 while decompressing data, each time" in incident.reason


@pytest.mark.parametrize("behind", [0, 4])
def test_peers_of_a_pod_that_a_drain_takes_away_fail_of_that(behind: float) -> None:
    """Also where the clocks of their nodes are seconds behind that of the API server."""
    tries: list[PodFact] = []
    for attempt in (1, 2, 3):
        asked = 600.0 * attempt
        drained, *peers = exited(attempt, asked + 2 - behind)
        tries.append(replace(drained, removed_at=at(asked), exit_code=143, observed_at=at(asked + 1)))
        tries += [replace(pod, observed_at=at(asked + 3)) for pod in peers]
    assert not told(tries)
