"""Who holds a job suspended, decided from the job alone, for every kind that has a kind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from connectors.base import Absent, AlreadyDone, Blocked, Refused
from connectors.jobs.suspension import (
    RESUMED,
    SOMEBODY_ELSE,
    SUSPENDED,
    find,
    resume,
    suspend,
    suspend_annotations_of,
    take_back,
)
from connectors.kubernetes.annotations import INCIDENT, MANAGED
from connectors.kubernetes.client import Object
from streams.job_kinds.batch_job import JOB
from streams.job_kinds.kind import JobKind
from streams.job_kinds.known import KNOWN
from streams.model.run import Target
from tests.connectors.objects import effect, made, merged

TARGET = Target("Job", "train", "team-a")
SUSPEND, SUSPEND_AGAIN = effect("suspend_job", TARGET, 1), effect("suspend_job", TARGET, 2)
RESUME = replace(effect("resume_job", TARGET, 1), key="resume-1")

SUSPENDABLE = [kind for kind in KNOWN.values() if kind.suspend_at]
every_kind = pytest.mark.parametrize("kind", SUSPENDABLE, ids=[kind.name for kind in SUSPENDABLE])


def job(**metadata: object) -> Object:
    about = {"name": "train", "namespace": "team-a", "uid": "uid-train"} | metadata
    return {
        "metadata": about,
        "spec": {"shutdownAfterJobFinishes": True},
    }  # without it no RayJob can be suspended


def held(kind: JobKind) -> Object:
    return made(job(), suspend(job(), kind, SUSPEND))


@every_kind
def test_a_job_is_suspended_and_resumed_once_and_remembers_both(kind: JobKind) -> None:
    suspended = held(kind)
    assert kind.is_suspended(suspended)
    assert isinstance(suspend(suspended, kind, SUSPEND), AlreadyDone)
    resumed = made(suspended, resume(suspended, kind, RESUME))
    assert not kind.is_suspended(resumed)
    assert isinstance(resume(resumed, kind, RESUME), AlreadyDone)
    assert isinstance(find(resumed, RESUME), AlreadyDone)
    assert isinstance(suspend(resumed, kind, SUSPEND), AlreadyDone), (
        "a late second call must not suspend it again"
    )


@every_kind
def test_a_job_whose_marks_a_person_took_off_is_not_suspended_again_by_the_same_effect(kind: JobKind) -> None:
    taken_off = made(job(), suspend(job(), kind, SUSPEND)) | {"metadata": job()["metadata"]}
    resumed = merged(taken_off, kind.suspend(False))
    for found in (taken_off, resumed):
        again = suspend(found, kind, replace(SUSPEND, prior={"suspended": True}))
        assert isinstance(again, Blocked)
        assert again.by_person


@every_kind
def test_a_job_that_a_person_resumed_and_suspended_again_stays_suspended(kind: JobKind) -> None:
    fields: Object = {}
    for step in reversed(kind.suspend_at):
        fields = {f"f:{step}": fields}
    noted = {"managedFields": [{"manager": "kubectl-patch", "operation": "Update", "fieldsV1": fields}]}
    theirs = merged(held(kind), {"metadata": noted})
    for decided in (resume(theirs, kind, RESUME), take_back(theirs, kind, SUSPEND)):
        assert isinstance(decided, Blocked)
        assert decided.by_person
        assert "kubectl-patch" in decided.reason


@every_kind
def test_a_second_incident_suspends_it_again(kind: JobKind) -> None:
    suspended = held(kind)
    assert isinstance(suspend(suspended, kind, SUSPEND_AGAIN), Blocked)
    resumed = made(suspended, resume(suspended, kind, RESUME))
    again = made(resumed, suspend(resumed, kind, SUSPEND_AGAIN))
    assert kind.is_suspended(again)
    assert suspend_annotations_of(again).held
    late = resume(again, kind, replace(RESUME, key="resume-late"))
    assert isinstance(late, Blocked)
    assert late.by == "incident inc-2"


@every_kind
def test_a_new_incident_suspends_a_job_that_a_person_had_resumed(kind: JobKind) -> None:
    by_hand: Object = merged(held(kind), kind.suspend(False))
    again = made(by_hand, suspend(by_hand, kind, SUSPEND_AGAIN))
    assert suspend_annotations_of(again).incident == "inc-2"


@every_kind
def test_taking_a_suspend_back_leaves_no_trace(kind: JobKind) -> None:
    suspended = held(kind)
    after = made(suspended, take_back(suspended, kind, SUSPEND))
    assert not kind.is_suspended(after)
    assert after["metadata"]["annotations"] == {}
    assert isinstance(find(after, SUSPEND), Absent)
    assert isinstance(take_back(after, kind, SUSPEND), AlreadyDone)


@every_kind
def test_what_a_person_switched_is_left_to_them(kind: JobKind) -> None:
    on, off = kind.suspend(False), kind.suspend(True)
    suspended = held(kind)
    resumed = made(suspended, resume(suspended, kind, RESUME))
    by_hand = {
        "resumed after our suspend": [
            suspend(merged(suspended, on), kind, SUSPEND),
            suspend(merged(suspended, on), kind, replace(SUSPEND, key="key-of-another-step")),
            resume(merged(suspended, on), kind, RESUME),
            take_back(merged(suspended, on), kind, SUSPEND),
        ],
        "suspended after our resume": [
            resume(merged(resumed, off), kind, RESUME),
            suspend(merged(resumed, off), kind, SUSPEND_AGAIN),
        ],
    }
    for what, decisions in by_hand.items():
        for decided in decisions:
            assert isinstance(decided, Blocked), what
            assert decided.by_person, what


@every_kind
@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"labels": {MANAGED: "false"}}, "is opted out"),
        ({"annotations": {MANAGED: "false"}}, "is opted out"),
        ({"labels": {"kueue.x-k8s.io/queue-name": "team-a"}}, "it is moved by queue"),
        (
            {"ownerReferences": [{"kind": "JobSet", "name": "big", "controller": True}]},
            "is managed by JobSet big",
        ),
        ({"uid": "of-a-later-job"}, "was replaced"),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "being deleted"),
    ],
)
def test_a_job_out_of_reach_is_refused_with_the_reason(kind: JobKind, metadata: Object, says: str) -> None:
    aimed = replace(SUSPEND, target=replace(TARGET, uid="uid-train"))
    decided = suspend(job(**metadata), kind, aimed)
    assert isinstance(decided, Refused)
    assert says in decided.reason


@pytest.mark.parametrize(
    ("kind", "end"),
    [("Job", "Complete"), ("Job", "Failed"), ("PyTorchJob", "Succeeded"), ("PyTorchJob", "Failed")],
)
def test_a_job_that_has_ended_is_neither_suspended_nor_resumed(kind: str, end: str) -> None:
    declared = KNOWN[kind]
    over: Object = {"status": {"conditions": [{"type": end, "status": "True"}]}}
    for decided in (
        suspend(merged(job(), over), declared, SUSPEND),
        resume(merged(held(declared), over), declared, RESUME),
    ):
        assert isinstance(decided, Refused)
        assert end in decided.reason
    assert isinstance(take_back(merged(held(declared), over), declared, SUSPEND), AlreadyDone)


@every_kind
def test_a_job_that_was_suspended_before_us_is_in_the_way_but_overrules_nobody(kind: JobKind) -> None:
    found: Object = merged(job(), kind.suspend(True))
    for decided in (suspend(found, kind, SUSPEND), resume(found, kind, RESUME)):
        assert isinstance(decided, Blocked)
        assert decided.by == SOMEBODY_ELSE


@every_kind
def test_a_job_that_runs_and_was_never_ours_has_nothing_to_resume(kind: JobKind) -> None:
    assert isinstance(resume(job(), kind, RESUME), Refused)


def test_every_mark_names_its_incident_and_its_effect() -> None:
    suspended = held(JOB)
    assert suspended["metadata"]["annotations"] == {INCIDENT: "inc-1", SUSPENDED: "key-1"}
    resumed = made(suspended, resume(suspended, JOB, RESUME))
    assert resumed["metadata"]["annotations"] == {INCIDENT: "inc-1", SUSPENDED: "key-1", RESUMED: "resume-1"}


@pytest.mark.parametrize(
    ("kind", "job_", "pods"),
    [
        ("Job", {"spec": {}}, 1),
        ("Job", {"spec": {"parallelism": 4}}, 4),
        ("Job", {"spec": {"parallelism": 4, "completions": 4}, "status": {"succeeded": 1}}, 3),
        ("PyTorchJob", {"spec": {"pytorchReplicaSpecs": {"Master": {}, "Worker": {"replicas": 3}}}}, 4),
        (
            "PyTorchJob",
            {
                "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}},
                "status": {"replicaStatuses": {"Worker": {"active": 2, "succeeded": 1}}},
            },
            2,
        ),
    ],
)
def test_how_many_pods_a_job_should_have(kind: str, job_: Object, pods: int) -> None:
    assert KNOWN[kind].pods(job_) == pods
