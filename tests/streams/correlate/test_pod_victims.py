"""Jobs that a node's incident names, however small: their pods found no usable GPU there and died."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams.model.facts import PodFact
from streams.model.kinds import WorkloadClass
from streams.model.signal import Signal
from tests.streams.correlate.test_given_back_software import Told, dies, story
from tests.streams.correlate.world import sign

BROKEN = "n01"
REASONS = ["system not yet initialized", "no CUDA-capable device is detected"]


def no_fabric_manager(until: float = 900) -> list[Told]:
    """The fabric manager of a node does not start, and its unit says so as often as it is tried."""
    return [
        sign("gpu.driver", BROKEN, second, "version_mismatch", client_version="570.1")
        for second in range(0, int(until), 30)
    ]


def pod_of(told: list[Told]) -> PodFact:
    """Its pod as it is last seen."""
    return [one for one in told if isinstance(one, PodFact)][-1]


def as_batch(told: list[Told]) -> list[Told]:
    """Of a job that trains nothing, which the inventory follows for its GPUs alone."""
    kept = [one for one in told if isinstance(one, Signal | PodFact)]
    return [replace(one, workload=WorkloadClass.BATCH) if isinstance(one, PodFact) else one for one in kept]


def named(told: list[Told], seed: int | None = None) -> list[str]:
    (incident,) = [one for one in story(*told, seed=seed, until=2400) if one.root.node == BROKEN]
    return [job.name for job in incident.jobs]


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("trains", [True, False])
def test_who_found_no_gpu_on_a_node_and_died_is_named_however_small(
    trains: bool, reason: str, seed: int | None
) -> None:
    runs = [dies(f"eval-{i}", BROKEN, 200 + 60 * i, 220 + 60 * i, reason) for i in range(4)]
    small = [one for run in runs for one in (run if trains else as_batch(run))]
    assert named([*no_fabric_manager(), *small], seed) == [f"eval-{i}" for i in range(4)]


NOT_ITS: dict[str, list[Told]] = {
    "on another node": dies("eval", "n02", 200, 220),
    "an hour before": dies("eval", BROKEN, -3400, -3380),
    "for its own error": dies("eval", BROKEN, 200, 220, "device-side assert triggered"),
    "it goes on without": dies("eval", BROKEN, 200, 220)[:-1],
    "it ended well": [*dies("eval", BROKEN, 200, 220)[:-1], replace(pod_of(dies("eval", BROKEN, 200, 220)), phase="Succeeded")],
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_ITS)
def test_who_met_nothing_of_it_is_not_named(name: str) -> None:
    assert named([*no_fabric_manager(), *as_batch(NOT_ITS[name])]) == []


def test_of_very_many_no_more_are_named_than_a_document_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.correlate.publish.affected_jobs.MAX_NAMED", 3)
    small = [one for i in range(6) for one in as_batch(dies(f"eval-{i}", BROKEN, 200 + 60 * i, 220 + 60 * i))]
    assert named([*no_fabric_manager(), *small]) == ["eval-0", "eval-1", "eval-2"]
