"""What runs, and what could be done for it: one line each, as a plan would have it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runbooks.engine.job_list import ListedJob, listed_jobs
from streams.model.entity import JobRef
from streams.model.facts import JobFact, NodeWork, PodFact
from streams.model.kinds import WorkloadClass
from tests.runbooks.scenes import CLUSTER, JOB, NOW, OTHER_JOB, at, cluster


def listed(**changes: object) -> dict[str, ListedJob]:
    view = cluster()
    for pod in list(view.pods_of(JOB.key)):
        view.put(replace(pod, gpus=8, ready=True))
    view.put(replace(view.jobs[JOB.key], pods=4, **changes))  # type: ignore[arg-type]
    return {f"{job.namespace}/{job.name}": job for job in listed_jobs(view, {JOB.key: at(60)})}


def test_a_job_with_a_lever_is_listed_with_it_its_cost_and_all_that_is_known() -> None:
    job = listed(lever="suspend", cost="one of its restarts", retries_left=2, owner="ann@example.com")[
        "research/llm"
    ]
    assert (job.kind, job.state, job.gpus, job.owner) == ("PyTorchJob", "running", 32, "ann@example.com")
    assert job.nodes == ("node-02", "node-03", "node-04", "node-05")
    assert (job.lever, job.can) == ("suspend", "suspended, and resumed elsewhere; one of its restarts")
    assert (job.retries_left, job.last_progress) == (2, at(60))


def test_what_cannot_be_done_is_listed_with_the_reason_and_never_as_a_lever() -> None:
    job = listed(immovable="its spec.managedBy is elsewhere")["research/llm"]
    assert (job.lever, job.can) == (None, "nothing: its spec.managedBy is elsewhere")
    assert listed(lever="suspend", managed=False)["research/llm"].can.startswith("nothing: it is opted out")
    serves = listed(lever="suspend", workload=WorkloadClass.INFERENCE)["research/llm"]
    assert (serves.lever, serves.can) == (
        None,
        "never stopped: the drain evicts its pods on the closed node within their budgets, "
        "and its controller makes them anew elsewhere",
    )


@pytest.mark.parametrize(
    ("kind", "workload", "says"),
    [
        ("Deployment", WorkloadClass.INFERENCE, "makes them anew elsewhere"),
        ("StatefulSet", WorkloadClass.INFERENCE, "each waits until the old one is gone"),
        ("Notebook", WorkloadClass.NOTEBOOK, "save it before"),
        ("SparkApplication", WorkloadClass.BATCH, "is done again"),
    ],
)
def test_what_is_no_training_job_is_never_stopped_and_its_owner_knows_what_a_drain_does(
    kind: str, workload: WorkloadClass, says: str
) -> None:
    view, owner = cluster(), JobRef(kind, "serving", "chat", "uid-chat")
    pod = PodFact(
        CLUSTER, "serving", "chat-0", "u-1", NOW, node="node-09", job=owner, gpus=8, phase="Running"
    )
    view.put(replace(pod, workload=workload))
    (chat,) = [job for job in listed_jobs(view) if job.name == "chat"]
    assert (chat.kind, chat.workload, chat.lever) == (kind, workload.value, None)
    assert chat.can.startswith("never stopped")
    assert says in chat.can


def test_who_else_works_on_the_nodes_of_a_job_is_listed_with_it() -> None:
    view = cluster()
    for name in ("node-02", "node-03"):
        work = NodeWork("NVSentinel", "dgxc.nvidia.com/nvsentinel-state", "back")
        view.put(replace(view.nodes[name], work=work))
    view.put(PodFact(CLUSTER, "lab", "probe", "u-9", NOW, node="node-03", gpus=1, phase="Running"))
    found = {job.name: job.can for job in listed_jobs(view)}
    assert found["llm"].endswith("; NVSentinel works on node-02, NVSentinel works on node-03")
    assert found["probe"].endswith("; NVSentinel works on node-03")
    assert "works on" not in found["eval"]


def test_a_job_that_only_its_head_keeps_from_moving_is_listed_with_both() -> None:
    view = cluster()
    view.put(replace(view.jobs[JOB.key], immovable="shutdownAfterJobFinishes is false"))
    for pod in list(view.pods_of(JOB.key)):
        view.put(replace(pod, gpus=8, replaceable=None if pod.node == "node-02" else True))
    (llm,) = [job for job in listed_jobs(view) if job.name == "llm"]
    assert llm.can.startswith(
        "its workers evicted from the closed node, and made anew; with its head there nothing:"
    )


def test_one_that_heals_is_listed_with_its_time_and_what_comes_then() -> None:
    heals = listed(lever="suspend", heals_within_s=180.0)["research/llm"]
    assert heals.can == "left to its own controller for 180 s; then suspended, and resumed elsewhere"
    assert (heals.lever, heals.heals_within_s) == ("suspend", 180.0)
    alone = listed(immovable="its operator restarts it", heals_within_s=1800.0)["research/llm"]
    assert (
        alone.can == "left to its own controller for 1800 s; then its owner is told: its operator restarts it"
    )


def test_the_largest_come_first_what_is_over_only_on_request_and_bare_pods_with_the_truth() -> None:
    view = cluster()
    for pod in list(view.pods_of(JOB.key)):
        view.put(replace(pod, gpus=8))
    view.put(replace(view.jobs[OTHER_JOB.key], suspended=True))
    view.put(PodFact(CLUSTER, "lab", "probe", "u-9", NOW, node="node-03", gpus=1, phase="Running"))
    old = JobRef("Job", "research", "old", "uid-old")
    view.put(JobFact(CLUSTER, old, NOW, finished=True, failed=True))
    names = [(job.name, job.state) for job in listed_jobs(view)]
    assert names == [("llm", "0 of 4 pods ready"), ("probe", "running"), ("eval", "suspended, 2 pods left")]
    assert "never evicted" in listed_jobs(view)[1].can
    assert ("old", "failed") in [(job.name, job.state) for job in listed_jobs(view, ended=True)]
