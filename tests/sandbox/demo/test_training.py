from __future__ import annotations

from datetime import UTC, datetime, timedelta

import orjson

from sandbox.demo.shippers import RunningPod
from sandbox.demo.training import Training

NOW = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
JOB = "team/job"


def pods(uid: str = "a", count: int = 4) -> list[RunningPod]:
    return [
        RunningPod("team", f"job-{n}", f"{uid}-{n}", f"gpu-{n + 1:02d}", "10.0.0.1", JOB, n * 8)
        for n in range(count)
    ]


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_a_job_prints_a_step_a_second_from_its_first_rank() -> None:
    training = Training(JOB, step=100)
    assert training.look(pods(), frozenset(), NOW) == []
    lines = [orjson.loads(r.value) for r in training.look(pods(), frozenset(), after(2.5))]
    assert [line["kubernetes"]["pod_name"] for line in lines] == ["job-0", "job-0"]
    assert "iteration      102/" in lines[1]["log"]
    assert training.moving_since == after(1)


def test_a_job_stands_still_while_a_rank_is_missing_or_on_a_broken_node() -> None:
    training = Training(JOB, step=100)
    assert training.look(pods(count=3), frozenset(), after(9)) == []
    assert training.look(pods(), frozenset({"gpu-02"}), after(20)) == []
    assert training.moving_since is None


def test_a_job_with_new_pods_goes_on_from_its_last_checkpoint() -> None:
    training = Training(JOB, step=104)
    training.look(pods("a"), frozenset(), NOW)
    training.look(pods("a"), frozenset(), after(3.1))
    training.look(pods("a"), frozenset({"gpu-02"}), after(4))
    training.look(pods("b"), frozenset(), after(10))
    (line,) = training.look(pods("b"), frozenset(), after(11))
    assert "iteration      101/" in orjson.loads(line.value)["log"]
    assert training.moving_since == after(11)


def test_a_crashed_job_goes_on_when_its_launcher_has_started_it_again() -> None:
    training = Training(JOB, step=100)
    training.look(pods(), frozenset(), NOW)
    training.crash(after(4))
    assert training.look(pods(), frozenset(), after(3)) == []
    training.look(pods(), frozenset(), after(4))
    assert len(training.look(pods(), frozenset(), after(6))) == 2
