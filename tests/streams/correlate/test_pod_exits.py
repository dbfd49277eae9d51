"""Pods of a training job that end badly without a word of their launcher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from streams.model.facts import PodFact
from streams.model.incident import Incident
from tests.streams.correlate.world import World, at, cluster, pods, xid

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
