"""Every shipped runbook from its incident to its end: as it should go, and with each of its steps failing."""

from __future__ import annotations

import pytest

from runbooks.language.schema import (
    DESTRUCTIVE,
    IF_OFFERED,
    INTERNAL,
    NODE_WORK,
    ON_REQUEST,
    SPARES,
    TICKETS,
    Runbook,
)
from streams.correlate.policy.families import families
from streams.model.conversation import Verb
from streams.model.run import Run, RunState, StepState
from tests.runbooks.engine.walking import UNLIMITED, Walk, only, refuses, steps_of
from tests.runbooks.language.library_cases import NODE, SAMPLES, Sample
from tests.runbooks.scenes import LIBRARY

BOOKS = {book.id: book for book in LIBRARY}
MOVE = ["cordon_node", "suspend_job", "drain_node", "resume_job", "verify_job"]
RESET = ["reset_gpu", "validate_node", "uncordon_node"]
REBOOT = ["reboot_node", "validate_node", "uncordon_node"]

WAYS = {
    "gpu-off-bus": [*MOVE, *REBOOT],
    "gpu-memory": [*MOVE, *RESET],
    "row-remap-pending": ["cordon_node", *RESET],
    "row-remap-failed": MOVE,
    "gpu-nvlink": [*MOVE, *RESET],
    "nvswitch": [*MOVE, *REBOOT],
    "gpu-gsp": [*MOVE, *RESET],
    "gpu-driver": [*MOVE, *REBOOT],
    "gpu-fault": [*MOVE, *RESET],
    "gpu-thermal": MOVE,
    "gpu-quarantine": MOVE,
    "repeat-offender": MOVE,
    "gpu-reset": [*MOVE, *RESET],
    "node-reboot": [*MOVE, *REBOOT],
    "node-power-cycle": [*MOVE, "power_cycle_node", "validate_node", "uncordon_node"],
    "node-replace": [*MOVE, "replace_node"],
    "silent-node": [*MOVE, *REBOOT],
    "node-down": MOVE,
    "host-memory": MOVE,
    "host-kernel": [*MOVE, *REBOOT],
    "host-storage": MOVE,
    "maintenance-notice": MOVE,
    "leaving-node": MOVE,
    "planned-work": [*MOVE, "validate_node", "uncordon_node"],
    "planned-work-asked": [*MOVE, "validate_node", "uncordon_node"],
    "nic-down": MOVE,
    "pfc-storm-host": MOVE,
    "job-diagnosis": ["suspend_job", "diagnose_nodes", "cordon_node", "resume_job", "verify_job"],
}
"""What each runbook does, in order, when all goes well. Those that are not here touch nothing."""

BECOMES = {"cordon_slow_nodes": "cordon_node"}
"""Actions that turn into others once a step before has told on what."""

every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.runbook)
acting = pytest.mark.parametrize("sample", [s for s in SAMPLES if s.runbook in WAYS], ids=lambda s: s.runbook)
repairing = pytest.mark.parametrize(
    "sample",
    [s for s in SAMPLES if len(way := WAYS.get(s.runbook, ())) > len(RESET) and {RESET[0], REBOOT[0]} & {*way}],
    ids=lambda s: s.runbook,
)  # fmt: skip


def library(sample: Sample) -> tuple[Runbook, ...]:
    return only(BOOKS[sample.runbook]) if sample.escalated else LIBRARY


def outside_steps(book: Runbook) -> list[str]:
    """Steps that a connector carries out and whose failing matters; there is no spare in that cluster,
    and no job declares how it is asked for a checkpoint."""
    return [
        step.id
        for step in book.steps
        if step.action not in INTERNAL | TICKETS | SPARES | ON_REQUEST | IF_OFFERED
    ]


FAILING = [
    pytest.param(sample, step, id=f"{sample.runbook}-{step}")
    for sample in SAMPLES
    for step in outside_steps(BOOKS[sample.runbook])
]


@every_sample
def test_all_goes_well(sample: Sample) -> None:
    walk = Walk(sample.incident, library=library(sample))
    (run,) = walk.runs
    assert run.plan.runbook == sample.runbook
    assert walk.made == WAYS.get(sample.runbook, [])
    told = sample.runbook == "straggler"
    assert run.outcome == ("succeeded" if told or sample.runbook in WAYS else "handed_over"), run.reason
    assert not run.has_work
    assert {state for _, state in steps_of(walk, run)} == {StepState.DONE}
    assert walk.world.made.count("open_ticket") == sum(
        s.action == "open_ticket" for s in BOOKS[sample.runbook].steps
    )
    assert walk.world.closed == (set() if "uncordon_node" in walk.made else {NODE} if walk.made else set())


def planned_at_first(run: Run) -> int:
    """How many steps the plan had: those for slow nodes are known only after a diagnosis."""
    return sum(not step.id.startswith("close:Node/") for step in run.plan.steps)


@every_sample
def test_the_timeline_tells_every_step_in_the_order_of_the_way(sample: Sample) -> None:
    walk = Walk(sample.incident, library=library(sample))
    (run,) = walk.runs
    assert walk.told[0].startswith(
        f"run.planned runbook {sample.runbook} with {planned_at_first(run)} steps, in mode "
    )
    done = [
        line.split()[1]
        for line in walk.told
        if line.startswith("step.done ") and line.split()[1] in WAYS_ACTIONS
    ]
    assert done == WAYS.get(sample.runbook, [])
    for planned in run.plan.steps:
        assert (
            sum(line.startswith(f"step.done {planned.action} {planned.target}: done") for line in walk.told)
            == 1
        )
    # A run that only tells is over before its ticket is open.
    assert any(line.startswith(f"run.finished run {run.outcome}") for line in walk.told[-2:])


WAYS_ACTIONS = {action for way in WAYS.values() for action in way}


TIMELINE = """\
run.planned runbook gpu-memory with 10 steps, in mode auto
step.done cordon_node Node node-03: done
step.done suspend_job PyTorchJob research/llm: done
step.done drain_node Node node-03: done
step.done resume_job PyTorchJob research/llm: done
step.done verify_job PyTorchJob research/llm: done
step.done await_progress PyTorchJob research/llm: done (PyTorchJob research/llm makes progress again (step 100))
step.awaiting_approval reset_gpu Node node-03 needs approval: approval: the runbook requires it
person.approved ada approved the plan
step.done reset_gpu Node node-03: done
step.done validate_node Node node-03: done
step.done uncordon_node Node node-03: done
run.finished run succeeded
"""


def test_a_timeline_as_people_read_it() -> None:
    """Once as a whole; the other walks hold their timelines against the plan."""
    (sample,) = (s for s in SAMPLES if s.runbook == "gpu-memory")
    told = [line for line in Walk(sample.incident).told if "open_ticket" not in line]
    expected = TIMELINE.splitlines()
    assert [line[: len(wanted)] for line, wanted in zip(told, expected, strict=True)] == expected


@pytest.mark.parametrize(("sample", "step"), FAILING)
def test_a_step_that_fails_ends_as_the_runbook_says(sample: Sample, step: str) -> None:
    book = BOOKS[sample.runbook]
    failing = next(one for one in book.steps if one.id == step)
    walk = Walk(sample.incident, refuses(step, runbook=book.id), library=library(sample))
    first, *others = walk.runs
    failed = dict(steps_of(walk, first))
    assert failed[step] is StepState.FAILED
    assert all(run.state.is_over and not run.has_work for run in walk.runs)
    assert walk.world.suspended == set(), "a job that was stopped does not stay stopped"
    match failing.on_failure:
        case "continue":
            assert first.outcome == "succeeded"
            assert walk.made == [action for action in WAYS[book.id] if action != failing.action]
        case "escalate":
            assert first.outcome == "escalated"
            assert book.escalation is not None
            assert others[0].plan.runbook == book.escalation.to
            assert others[0].escalated_from == first.id
        case _:
            assert first.outcome == "failed"
            assert not others
            way, made = WAYS[book.id], BECOMES.get(failing.action, failing.action)
            assert walk.made[: way.index(made)] == way[: way.index(made)]
            assert set(walk.made[way.index(made) :]) <= {"undo suspend_job"}
    if failing.action == "cordon_node":
        assert not set(walk.made) & DESTRUCTIVE, "nothing is taken away where the node could not be closed"


@repairing
@pytest.mark.parametrize("step", ["validate", "repair"])
def test_a_node_that_cannot_be_repaired_climbs_to_its_replacement_and_is_never_given_back(
    sample: Sample, step: str
) -> None:
    fails = ("validate",) if step == "validate" else ("reset", "reboot", "cycle")
    walk = Walk(sample.incident, refuses(*fails), library=library(sample))
    ladder, at = [BOOKS[sample.runbook]], BOOKS[sample.runbook]
    while at.escalation is not None:
        at = BOOKS[at.escalation.to]
        ladder.append(at)
    assert walk.outcomes == [
        *((book.id, "escalated") for book in ladder[:-1]),
        ("node-replace", "succeeded"),
    ]
    assert "uncordon_node" not in walk.made
    assert walk.world.closed == {NODE}
    assert walk.world.suspended == set()
    assert walk.made.count("suspend_job") <= 1, "the job has been moved already"


@repairing
def test_whoever_refuses_the_repair_leaves_the_node_closed_and_the_job_running(sample: Sample) -> None:
    walk = Walk(sample.incident, library=library(sample), says=Verb.REJECT)
    (run,) = walk.runs
    assert run.outcome == "rejected"
    assert not {"reset_gpu", "reboot_node", "validate_node", "uncordon_node"} & set(walk.made)
    assert walk.world.suspended == set()


@repairing
def test_where_nothing_repairs_the_job_is_moved_and_a_person_is_told(sample: Sample) -> None:
    walk = Walk(sample.incident, library=library(sample), actions=UNLIMITED - NODE_WORK)
    (run,) = walk.runs
    assert run.state is RunState.SUCCEEDED
    assert walk.made == [action for action in WAYS[sample.runbook] if action in (*MOVE, "cordon_node")]
    assert walk.world.closed == {NODE}
    (told,) = (line for line in walk.told if line.startswith("run.left_out "))
    assert "left for manual handling: " in told
    assert "node_work." in told


def test_every_family_that_correlation_knows_walks_a_runbook_of_its_own() -> None:
    walked = {sample.family: sample.runbook for sample in SAMPLES if not sample.escalated}
    assert walked.keys() == families().families.keys()
    assert [family for family, runbook in walked.items() if runbook == "unknown"] == ["unknown"]
