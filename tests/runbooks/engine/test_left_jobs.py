"""One job of several that refuses its stop is left to its owner; the others are moved and verified."""

from __future__ import annotations

from dataclasses import replace

import pytest

from connectors.base import Blocked, Outcome, Refused
from runbooks.engine.run.outcomes import recover
from runbooks.language.loader import load_text
from streams.inventory.cluster_view import ClusterView
from streams.model.facts import PodFact
from streams.model.run import Mode, RunOutcome, StepState
from tests.runbooks.scenes import ACTIONS, CLUSTER, JOB, NOW, OTHER_JOB, Play, cluster, incident, policy

TICKETLESS = ACTIONS - {"open_ticket"}
REFUSED = Refused("PyTorchJob research/llm is opted out (faultline.dev/managed=false)")
PERSON = Blocked.person("it was suspended and resumed manually")


def both_on_the_node() -> ClusterView:
    view = cluster()
    view.put(PodFact(CLUSTER, "research", "eval-9", "p9", NOW, node="node-03", job=OTHER_JOB))
    return view


def opted_out(view: ClusterView) -> ClusterView:
    fact = view.jobs[JOB.key]
    view.put(replace(fact, managed=False))
    return view


def states(play: Play, job: str) -> dict[str, StepState]:
    return {
        planned.action: play.run.step(planned.id).state
        for planned in play.run.plan.steps
        if planned.target is not None and planned.target.name == job
    }


def played(
    play: Play, outcome: Outcome | None = None, action: str = "suspend_job", name: str = "llm"
) -> None:
    """Every call succeeds but the one of the job, which has the outcome."""
    play.tick()
    for _ in range(60):
        if not play.air:
            if play.run.state.is_over:
                return
            play.tick(31)
            continue
        call = play.air[0]
        refuses = outcome is not None and call.effect.action == action and call.effect.target.name == name
        if refuses and call.kind == "apply":
            assert outcome is not None
            play.answer(outcome)
        else:
            play.play(limit=1)


@pytest.mark.parametrize(
    ("refusal", "ends"),
    [(REFUSED, RunOutcome.FAILED), (PERSON, RunOutcome.CANCELLED), (None, RunOutcome.CANCELLED)],
)
def test_the_neighbours_of_a_job_that_refuses_its_stop_are_resumed_and_verified(
    refusal: Outcome | None, ends: RunOutcome
) -> None:
    view = both_on_the_node() if refusal is not None else opted_out(both_on_the_node())
    play = Play(incident(jobs=(JOB, OTHER_JOB)), actions=TICKETLESS, view=view)
    played(play, refusal)
    moved = states(play, "eval")
    assert set(moved.values()) == {StepState.DONE}, moved
    assert {"suspend_job", "resume_job", "verify_job"} <= moved.keys()
    left = states(play, "llm")
    assert left.pop("suspend_job") in (StepState.FAILED, StepState.CANCELLED)
    assert set(left.values()) == {StepState.CANCELLED}, left
    assert states(play, "node-03")["drain_node"] is StepState.CANCELLED, "the job still runs there"
    assert play.run.outcome is ends
    assert "PyTorchJob research/llm is left to its owner" in play.run.reason
    assert any(note.startswith("step.left PyTorchJob research/llm") for note in play.notes)
    assert play.made.count("resume_job") == play.made.count("suspend_job") == 1
    assert "undo suspend_job" not in play.made


def test_a_node_is_drained_where_the_job_that_refuses_has_nothing_on_it() -> None:
    play = Play(incident(jobs=(JOB, OTHER_JOB)), actions=TICKETLESS)
    played(play, Refused("no permission"), name="eval")
    assert states(play, "node-03")["drain_node"] is StepState.DONE
    assert states(play, "llm")["verify_job"] is StepState.DONE
    assert play.run.outcome is RunOutcome.FAILED


def test_a_run_whose_every_job_refuses_ends() -> None:
    play = Play(incident(jobs=(JOB, OTHER_JOB)), actions=TICKETLESS)
    play.play(until="suspend_job")
    play.answer(REFUSED, "suspend_job")
    assert not play.run.state.is_over
    play.answer(Refused("no permission"), "suspend_job")
    assert play.run.outcome is RunOutcome.FAILED
    assert "resume_job" not in play.made


def test_a_job_that_a_person_took_back_after_its_stop_ends_nothing_for_its_neighbours() -> None:
    play = Play(incident(jobs=(JOB, OTHER_JOB)), actions=TICKETLESS, view=both_on_the_node())
    played(play, Blocked.person("it was resumed manually"), action="resume_job")
    assert states(play, "eval")["verify_job"] is StepState.DONE
    assert play.run.outcome is RunOutcome.CANCELLED
    assert play.run.overruled


def test_a_successor_goes_on_with_the_neighbours() -> None:
    play = Play(incident(jobs=(JOB, OTHER_JOB)), actions=TICKETLESS, view=both_on_the_node())
    play.play(until="suspend_job")
    other = next(call for call in play.air if call.effect.target.name == "eval")
    play.air.remove(other)
    play.answer(REFUSED, "suspend_job")
    play.take(recover(play.run, play.now))
    play.tick(120)
    played(play)
    assert states(play, "eval")["verify_job"] is StepState.DONE


def test_shadow_mode_says_the_same() -> None:
    view = opted_out(both_on_the_node())
    play = Play(
        incident(jobs=(JOB, OTHER_JOB)), actions=TICKETLESS, view=view, settings=policy(mode=Mode.SHADOW)
    )
    play.tick()
    verdicts = {
        r.id.replace(":PyTorchJob/research/", " ").replace(":Job/research/", " "): r.verdict
        for r in play.run.steps
    }
    assert verdicts["suspend llm"] == verdicts["resume llm"] == verdicts["drain"] == "refused"
    assert verdicts["suspend eval"] == verdicts["resume eval"] == verdicts["verify eval"] == "would"


def test_a_node_on_which_such_a_job_still_runs_is_not_reset() -> None:
    steps = (
        "  - {id: cordon, action: cordon_node, target: root_node}\n"
        "  - {id: suspend, action: suspend_job, target: jobs, needs: [cordon]}\n"
        "  - {id: drain, action: drain_node, target: root_node, needs: [suspend], on_failure: continue}\n"
        "  - {id: resume, action: resume_job, target: jobs, needs: [suspend, drain]}\n"
        "  - {id: reset, action: reset_gpu, target: root_node, needs: [drain]}\n"
    )
    book = load_text(
        f"id: reset\nrevision: 1\nowner: x\nmode: auto\nmatch: 'true'\npriority: 900\n"
        f"description: a reset behind a job\nsteps:\n{steps}",
        "reset.yaml",
    )
    about = incident(jobs=(JOB, OTHER_JOB))
    play = Play(about, actions=TICKETLESS | {"reset_gpu"}, view=both_on_the_node(), library=(book,))
    played(play, REFUSED)
    assert states(play, "node-03")["reset_gpu"] is StepState.CANCELLED
    assert "reset_gpu" not in play.made
    assert states(play, "eval")["resume_job"] is StepState.DONE
