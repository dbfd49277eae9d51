"""Shadow mode says of a job that a person has suspended what the lever would do: nothing."""

from __future__ import annotations

from dataclasses import replace

from streams.model.run import Mode, StepState
from tests.runbooks.scenes import JOB, OTHER_JOB, Play, cluster, incident, policy

SHADOW = policy(mode=Mode.SHADOW)


def test_a_job_that_a_person_has_suspended_would_be_left_alone_and_its_neighbours_would_be_moved() -> None:
    view = cluster()
    view.put(replace(view.jobs[JOB.key], suspended=True))
    play = Play(incident(jobs=(JOB, OTHER_JOB)), settings=SHADOW, view=view)
    play.tick()
    records = {record.id: record for record in play.run.steps}
    for step in ("suspend", "resume", "verify", "progress"):
        record = records[f"{step}:PyTorchJob/research/llm"]
        assert (record.state, record.verdict) == (StepState.SKIPPED, ""), step
        assert record.reason.startswith("PyTorchJob research/llm is suspended, and not by Faultline"), step
        assert records[f"{step}:Job/research/eval"].verdict == "would", step
    assert not any(note.startswith("step.would") and "research/llm" in note for note in play.notes)


def test_a_job_that_a_live_run_holds_suspended_is_not_told_to_be_a_persons() -> None:
    view = cluster()
    live = Play(incident(), view=view)
    live.play(until="drain_node")
    view.put(replace(view.jobs[JOB.key], suspended=True))
    play = Play(incident(), settings=SHADOW, view=view, others=(live.run,))
    play.tick()
    assert any(planned.action == "suspend_job" for planned in play.run.plan.steps)
    assert not any("not by Faultline" in record.reason for record in play.run.steps)
