"""When a resumed job counts as whole, judged from what the API server shows."""

from __future__ import annotations

import pytest

from connectors.base import AlreadyDone, Blocked, Done, Outcome, Refused, Waiting
from connectors.jobs.job_objects import owned
from connectors.jobs.resume_check import judge, places
from connectors.kubernetes.client import Object
from connectors.kubernetes.cordon_ownership import cordon
from streams.job_kinds.batch_job import JOB as BATCH_JOB
from streams.job_kinds.known import KNOWN
from streams.model.run import Target
from tests.connectors.objects import effect, made, merged, node, pod

JOB: Object = {
    "metadata": {"name": "train", "namespace": "team-a", "uid": "uid-train"},
    "spec": {"parallelism": 2, "completions": 2},
}
CLOSED = made(node("gpu-03"), cordon(node("gpu-03"), effect("cordon_node", Target("Node", "gpu-03"))))
NODES = {
    "gpu-01": node("gpu-01"),
    "gpu-02": node("gpu-02"),
    "gpu-03": CLOSED,
    "gpu-04": node("gpu-04", ready=False),
}


def judged(*pods: Object, **job: object) -> Outcome:
    found = merged(JOB, job)
    return judge(found, BATCH_JOB, BATCH_JOB.pods(found), pods, NODES)


def test_a_job_with_all_pods_ready_on_good_nodes_is_whole_and_says_where() -> None:
    outcome = judged(pod("a", "gpu-01"), pod("b", "gpu-02"))
    assert isinstance(outcome, Done)
    assert outcome.result == {"placements": ("a=gpu-01", "b=gpu-02"), "pods": 2, "nodes": 2}


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (pod("b", "gpu-02", ready=False), "1 of 2"),
        (pod("b", None, phase="Pending"), "1 of 2"),
        (pod("b", "gpu-02", deletionTimestamp="2026-01-01T00:00:00Z"), "1 of 2"),
        (pod("b", "gpu-03"), "gpu-03 (cordoned by Faultline)"),
        (pod("b", "gpu-04"), "gpu-04 (NotReady)"),
        (pod("b", "gpu-99"), "gpu-99 (gone)"),
    ],
)
def test_a_job_that_is_not_whole_is_waited_for_with_the_reason(other: Object, says: str) -> None:
    outcome = judged(pod("a", "gpu-01"), other)
    assert isinstance(outcome, Waiting)
    assert says in outcome.detail


def test_nodes_are_asked_for_once_all_pods_run_and_only_theirs() -> None:
    whole = [pod("a", "gpu-01"), pod("b", "gpu-03")]
    assert places(JOB, BATCH_JOB, 2, whole) == {"gpu-01", "gpu-03"}
    assert places(JOB, BATCH_JOB, 2, whole[:1]) == frozenset()
    assert places(merged(JOB, {"spec": {"suspend": True}}), BATCH_JOB, 2, whole) == frozenset()


def test_a_pod_without_a_place_brings_the_schedulers_words() -> None:
    waiting = pod("b", None, phase="Pending")
    message = "0/64 nodes are available: 64 Insufficient nvidia.com/gpu"
    waiting["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": message}]
    outcome = judged(pod("a", "gpu-01"), waiting)
    assert isinstance(outcome, Waiting)
    assert message in outcome.detail


def test_pods_of_another_job_of_that_name_do_not_count() -> None:
    old = pod("a")
    old["metadata"]["ownerReferences"][0]["uid"] = "uid-of-an-earlier-train"
    assert owned([old, pod("b")], BATCH_JOB, JOB) == [pod("b")]


@pytest.mark.parametrize(
    ("job", "outcome"),
    [
        ({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, AlreadyDone),
        ({"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, Refused),
        ({"spec": {"suspend": True}}, Blocked),
    ],
)
def test_a_job_that_cannot_become_whole_is_not_waited_for(job: Object, outcome: type[Outcome]) -> None:
    assert isinstance(judged(**job), outcome)


def test_a_large_job_reports_its_size_and_only_some_placements() -> None:
    pods = [pod(f"p{n:04}", "gpu-01") for n in range(1000)]
    outcome = judged(*pods, spec={"parallelism": 1000, "completions": 1000})
    assert isinstance(outcome, Done)
    assert outcome.result["pods"] == 1000
    assert len(str(outcome.result)) < 2000


WRAPPER = KNOWN["AppWrapper"]
READY = {"phase": "Running", "conditions": [{"type": "PodsReady", "status": "True"}]}


@pytest.mark.parametrize(
    ("status", "second", "outcome"),
    [
        (READY, pod("b", "gpu-02"), Done),
        (READY, pod("b", "gpu-02", phase="Succeeded"), Done),
        (READY, pod("b", "gpu-02", phase="Succeeded", deletionTimestamp="2026-01-01T00:00:00Z"), Waiting),
        (READY | {"phase": "Resuming"}, pod("b", "gpu-02"), Waiting),
        ({"phase": "Running"}, pod("b", "gpu-02"), Waiting),
    ],
)
def test_a_wrapper_is_back_when_it_says_so_and_what_it_wraps_runs_or_is_done(
    status: Object, second: Object, outcome: type[Outcome]
) -> None:
    wrapper = merged(JOB, {"status": status})
    assert isinstance(judge(wrapper, WRAPPER, 2, [pod("a", "gpu-01"), second], NODES), outcome)
