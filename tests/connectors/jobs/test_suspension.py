"""Who holds a job suspended, decided from the job alone, for every kind that has a field."""

from __future__ import annotations

from dataclasses import replace

import pytest

from connectors.base import Absent, AlreadyDone, Blocked, Refused
from connectors.jobs.suspend_fields import SUSPEND_FIELDS, SuspendField
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
from streams.model.run import Target
from tests.connectors.objects import effect, made, merged

TARGET = Target("Job", "train", "team-a")
SUSPEND, SUSPEND_AGAIN = effect("suspend_job", TARGET, 1), effect("suspend_job", TARGET, 2)
RESUME = replace(effect("resume_job", TARGET, 1), key="resume-1")

every_kind = pytest.mark.parametrize("field", SUSPEND_FIELDS.values(), ids=SUSPEND_FIELDS)


def job(**metadata: object) -> Object:
    return {"metadata": {"name": "train", "namespace": "team-a", "uid": "uid-train"} | metadata, "spec": {}}


def held(field: SuspendField) -> Object:
    return made(job(), suspend(job(), field, SUSPEND))


@every_kind
def test_a_job_is_suspended_and_resumed_once_and_remembers_both(field: SuspendField) -> None:
    suspended = held(field)
    assert field.is_suspended(suspended)
    assert isinstance(suspend(suspended, field, SUSPEND), AlreadyDone)
    resumed = made(suspended, resume(suspended, field, RESUME))
    assert not field.is_suspended(resumed)
    assert isinstance(resume(resumed, field, RESUME), AlreadyDone)
    assert isinstance(find(resumed, RESUME), AlreadyDone)
    assert isinstance(suspend(resumed, field, SUSPEND), AlreadyDone), (
        "a late second call must not suspend it again"
    )


@every_kind
def test_a_second_incident_suspends_it_again(field: SuspendField) -> None:
    suspended = held(field)
    assert isinstance(suspend(suspended, field, SUSPEND_AGAIN), Blocked)
    resumed = made(suspended, resume(suspended, field, RESUME))
    again = made(resumed, suspend(resumed, field, SUSPEND_AGAIN))
    assert field.is_suspended(again)
    assert suspend_annotations_of(again).held
    late = resume(again, field, replace(RESUME, key="resume-late"))
    assert isinstance(late, Blocked)
    assert late.by == "incident inc-2"


@every_kind
def test_a_new_incident_suspends_a_job_that_a_person_had_resumed(field: SuspendField) -> None:
    by_hand: Object = merged(held(field), field.suspend(False))
    again = made(by_hand, suspend(by_hand, field, SUSPEND_AGAIN))
    assert suspend_annotations_of(again).incident == "inc-2"


@every_kind
def test_taking_a_suspend_back_leaves_no_trace(field: SuspendField) -> None:
    suspended = held(field)
    after = made(suspended, take_back(suspended, field, SUSPEND))
    assert not field.is_suspended(after)
    assert after["metadata"]["annotations"] == {}
    assert isinstance(find(after, SUSPEND), Absent)
    assert isinstance(take_back(after, field, SUSPEND), AlreadyDone)


@every_kind
def test_what_a_person_switched_is_left_to_them(field: SuspendField) -> None:
    on, off = field.suspend(False), field.suspend(True)
    suspended = held(field)
    resumed = made(suspended, resume(suspended, field, RESUME))
    by_hand = {
        "resumed after our suspend": [
            suspend(merged(suspended, on), field, SUSPEND),
            suspend(merged(suspended, on), field, replace(SUSPEND, key="key-of-another-step")),
            resume(merged(suspended, on), field, RESUME),
            take_back(merged(suspended, on), field, SUSPEND),
        ],
        "suspended after our resume": [
            resume(merged(resumed, off), field, RESUME),
            suspend(merged(resumed, off), field, SUSPEND_AGAIN),
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
        ({"labels": {"kueue.x-k8s.io/queue-name": "team-a"}}, "Kueue"),
        (
            {"ownerReferences": [{"kind": "JobSet", "name": "big", "controller": True}]},
            "is managed by JobSet big",
        ),
        ({"uid": "of-a-later-job"}, "was replaced"),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "being deleted"),
    ],
)
def test_a_job_out_of_reach_is_refused_with_the_reason(
    field: SuspendField, metadata: Object, says: str
) -> None:
    aimed = replace(SUSPEND, target=replace(TARGET, uid="uid-train"))
    decided = suspend(job(**metadata), field, aimed)
    assert isinstance(decided, Refused)
    assert says in decided.reason


@pytest.mark.parametrize(
    ("kind", "end"),
    [("Job", "Complete"), ("Job", "Failed"), ("PyTorchJob", "Succeeded"), ("PyTorchJob", "Failed")],
)
def test_a_job_that_has_ended_is_neither_suspended_nor_resumed(kind: str, end: str) -> None:
    field = SUSPEND_FIELDS[kind]
    over: Object = {"status": {"conditions": [{"type": end, "status": "True"}]}}
    for decided in (
        suspend(merged(job(), over), field, SUSPEND),
        resume(merged(held(field), over), field, RESUME),
    ):
        assert isinstance(decided, Refused)
        assert end in decided.reason
    assert isinstance(take_back(merged(held(field), over), field, SUSPEND), AlreadyDone)


@every_kind
def test_a_job_that_was_suspended_before_us_is_in_the_way_but_overrules_nobody(field: SuspendField) -> None:
    found: Object = merged(job(), field.suspend(True))
    for decided in (suspend(found, field, SUSPEND), resume(found, field, RESUME)):
        assert isinstance(decided, Blocked)
        assert decided.by == SOMEBODY_ELSE


@every_kind
def test_a_job_that_runs_and_was_never_ours_has_nothing_to_resume(field: SuspendField) -> None:
    assert isinstance(resume(job(), field, RESUME), Refused)


def test_every_mark_names_its_incident_and_its_effect() -> None:
    suspended = held(SUSPEND_FIELDS["Job"])
    assert suspended["metadata"]["annotations"] == {INCIDENT: "inc-1", SUSPENDED: "key-1"}
    resumed = made(suspended, resume(suspended, SUSPEND_FIELDS["Job"], RESUME))
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
    assert SUSPEND_FIELDS[kind].pods(job_) == pods
