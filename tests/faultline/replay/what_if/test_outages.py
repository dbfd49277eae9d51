from dataclasses import replace
from datetime import UTC, datetime, timedelta

from faultline.replay.what_if.outages import HeldHours, LostWork, outages_of
from streams.model.checkpoint import Checkpoint
from streams.model.entity import Entity, JobRef
from streams.model.facts import JobFact, PodFact
from streams.model.incident import Certainty, Impact, Incident, IncidentState
from streams.model.kinds import WorkloadClass
from streams.model.run import (
    EffectRecord,
    EffectState,
    Mode,
    Plan,
    PlannedStep,
    Run,
    RunOutcome,
    RunState,
    StepRecord,
    StepState,
    Target,
)
from streams.model.signal import Severity

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
JOB = JobRef("Job", "ml", "train")
INCIDENT = Incident(
    id="inc-1", cluster="c", family="gpu_off_bus", root=Entity("c", node="a"), incarnation=1, revision=1,
    state=IncidentState.RESOLVED, severity=Severity.CRITICAL, certainty=Certainty.DECISIVE, title="t", reason="r",
    fault_at=NOON, opened_at=NOON, updated_at=NOON + 60 * MINUTE, closed_at=NOON + 60 * MINUTE, jobs=(JOB,), nodes=("a",),
    impact=Impact(jobs=1, nodes=1, gpus=8),
    checkpoints=(Checkpoint(JOB, NOON - 30 * MINUTE, NOON - 30 * MINUTE, gpus=8),),
)  # fmt: skip
NODE, TARGET = Target("Node", "a"), Target("Job", "train", "ml")


def step(name: str, action: str, target: Target, begin: int, end: int) -> tuple[PlannedStep, StepRecord]:
    effect = EffectRecord(
        name, action, target, EffectState.CONFIRMED, NOON, NOON, confirmed_at=NOON + end * MINUTE
    )
    record = StepRecord(
        name, StepState.DONE, effect, started_at=NOON + begin * MINUTE, finished_at=NOON + end * MINUTE
    )
    return PlannedStep(name, action, target, {}, destructive=True), record


def run_of(mode: Mode) -> Run:
    steps = [
        step("cordon", "cordon_node", NODE, 1, 2),
        step("drain", "drain_node", NODE, 2, 9),
        step("resume", "resume_job", TARGET, 9, 10),
        step("verify", "verify_job", TARGET, 10, 25),
    ]
    plan = Plan("gpu", 1, mode, tuple(planned for planned, _ in steps), "digest")
    records = tuple(record for _, record in steps)
    return Run(
        "run-1", "inc-1", 1, "c", plan, RunState.SUCCEEDED, records, NOON, NOON, outcome=RunOutcome.SUCCEEDED
    )


def test_a_run_that_was_carried_out_tells_of_the_wait_the_drain_and_the_closed_node() -> None:
    until = NOON + 120 * MINUTE
    (found,) = outages_of([INCIDENT], [run_of(Mode.AUTO)], until)
    assert (found.gpus, found.without_progress_s, found.basis) == (8, 25 * 60.0, "job running")
    assert (found.queued_s, found.drained_s) == (15 * 60.0, 7 * 60.0)
    assert found.closed == ((NOON + 2 * MINUTE, until),)
    assert found.lost_work == (LostWork("ml/train", 8, 1800.0),)
    assert (found.lost, found.repeated) == (8 * 25 / 60, 4.0)


def test_a_shadow_run_tells_of_nothing_that_happened() -> None:
    (found,) = outages_of([INCIDENT], [run_of(Mode.SHADOW)], NOON + 120 * MINUTE)
    assert (found.queued_s, found.drained_s, found.closed) == (None, None, ())
    assert (found.without_progress_s, found.basis) == (3600.0, "incident closed")


def test_a_job_without_a_checkpoint_makes_the_repeated_work_unknown() -> None:
    other = JobRef("Job", "ml", "other")
    (found,) = outages_of([replace(INCIDENT, jobs=(JOB, other))], [], NOON)
    assert found.repeated is None


def test_incidents_that_stopped_no_job_or_belong_to_another_are_no_outage() -> None:
    idle = replace(INCIDENT, jobs=(), impact=Impact())
    merged = replace(INCIDENT, state=IncidentState.MERGED)
    assert outages_of([idle, merged], [], NOON) == ()


def pod(name: str, **other: object) -> tuple[str, PodFact]:
    made = PodFact(
        "c",
        "ml",
        name,
        f"uid-{name}",
        NOON,
        job=JOB,
        gpus=8,
        phase="Running",
        workload=WorkloadClass.TRAINING,
    )
    made = replace(made, **other)  # type: ignore[arg-type]
    return made.key, made


def test_a_job_holds_its_gpus_from_its_first_pod_to_its_end_also_while_a_pod_is_missing() -> None:
    hours = HeldHours(NOON)
    hours.take(NOON, *pod("a"))
    hours.take(NOON, *pod("b"))
    hours.take(NOON + 30 * MINUTE, "c/pod/ml/b", None)
    hours.take(NOON + 60 * MINUTE, *pod("b"))
    done = JobFact("c", JOB, NOON, finished=True)
    hours.take(NOON + 120 * MINUTE, done.key, done)
    assert hours.until(NOON + 240 * MINUTE).by_job == ((JOB.key, 32.0),)


def test_what_was_held_before_the_records_begin_is_not_counted() -> None:
    hours = HeldHours(NOON)
    hours.take(NOON - 60 * MINUTE, *pod("a"))
    assert hours.until(NOON + 60 * MINUTE).total == 8.0


def test_pods_that_train_nothing_are_not_held_by_training() -> None:
    hours = HeldHours(NOON)
    hours.take(NOON, *pod("a", workload=WorkloadClass.INFERENCE))
    assert hours.until(NOON + 60 * MINUTE).total == 0.0
