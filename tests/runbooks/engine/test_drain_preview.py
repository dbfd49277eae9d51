"""What a plan says its drains would evict, by the inventory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faultline.chat.run_messages import would_evict
from runbooks.engine.run.drain_preview import LINES
from runbooks.engine.run.drain_preview import would_evict as preview
from runbooks.engine.run.human_decisions import revised
from runbooks.engine.run.plan import plan
from runbooks.language.select import select
from streams.inventory.cluster_view import ClusterView
from streams.model.entity import JobRef
from streams.model.facts import PodFact
from streams.model.kinds import WorkloadClass
from streams.model.message import Paragraph
from streams.model.run import Mode, Plan
from tests.runbooks.scenes import ACTIONS, CLUSTER, JOB, LIBRARY, NOW, Play, at, cluster, incident


def put(view: ClusterView, name: str, job: JobRef | None, gpus: int = 1, **more: object) -> None:
    fact = PodFact(CLUSTER, "research", name, f"uid-{name}", NOW, node="node-03", job=job, gpus=gpus)
    view.put(replace(fact, **more))  # type: ignore[arg-type]


def planned(view: ClusterView, family: str = "gpu_off_bus") -> Plan:
    about = incident(family)
    book = select(about, LIBRARY).runbook
    assert book is not None
    return plan(about, book, view, Mode.AUTO, ACTIONS)


def test_each_owner_on_the_node_is_told_with_what_becomes_of_its_pods() -> None:
    view = cluster()
    put(view, "llm-1", JOB)
    put(view, "chat-a", JobRef("Deployment", "research", "chat"), workload=WorkloadClass.INFERENCE)
    put(view, "chat-b", JobRef("Deployment", "research", "chat"), workload=WorkloadClass.INFERENCE)
    put(view, "shell", None)
    put(view, "dcgm", JobRef("DaemonSet", "gpu-operator", "dcgm"), workload=WorkloadClass.SYSTEM)
    assert planned(view).would_evict == (
        "node-03: 2 pods of Deployment research/chat, within their disruption budgets: chat-a, chat-b",
        "node-03: 1 pod without a controller, left for their owners: shell",
        "node-03: 1 pod of PyTorchJob research/llm, stopped with their job before: llm-1",
    )


def test_a_job_that_goes_on_without_its_pods_there_is_not_told_to_be_stopped() -> None:
    view = cluster()
    for pod in list(view.pods_of(JOB.key)):
        view.put(replace(pod, gpus=8, replaceable=True))
    assert planned(view).would_evict == (
        "node-03: 1 pod of PyTorchJob research/llm, made anew by its controller while the job goes on: llm-1",
    )


def test_what_becomes_of_such_pods_is_told_where_the_plan_has_no_stop_for_their_job_either() -> None:
    view = cluster()
    for pod in list(view.pods_of(JOB.key)):
        view.put(replace(pod, gpus=8, replaceable=True))
    drains = [step for step in planned(view).steps if step.action == "drain_node"]
    assert preview(drains, view) == (
        "node-03: 1 pod of PyTorchJob research/llm, made anew by its controller while the job goes on: llm-1",
    )


@pytest.mark.parametrize(
    ("job", "fate"),
    [
        (
            {"managed": False},
            "left: their job is opted out, and the node is not drained while they run there",
        ),
        ({"heals_within_s": 60.0}, "left to their job's own controller first"),
        ({"suspended": True}, "of a job that is suspended already"),
    ],
)
def test_pods_whose_job_is_not_stopped_are_not_told_to_be_stopped_with_it(
    job: dict[str, object], fate: str
) -> None:
    view = cluster()
    put(view, "llm-1", JOB)
    view.put(replace(view.jobs[JOB.key], **job))  # type: ignore[arg-type]
    assert planned(view).would_evict == (f"node-03: 1 pod of PyTorchJob research/llm, {fate}: llm-1",)


def test_the_owner_of_a_kind_that_is_not_known_sees_that_its_pods_go() -> None:
    view = cluster()
    put(view, "sim-0", JobRef("ExampleRun", "research", "sim"), workload=WorkloadClass.UNKNOWN)
    put(view, "etl-0", JobRef("SparkApplication", "research", "etl"), workload=WorkloadClass.BATCH)
    assert planned(view).would_evict == (
        "node-03: 1 pod of ExampleRun research/sim, of a kind that Faultline does not know, "
        "within their disruption budgets: sim-0",
        "node-03: 1 pod of SparkApplication research/etl, within their disruption budgets: etl-0",
    )


def test_two_thousand_pods_fit_a_message_and_the_rest_is_counted() -> None:
    view = cluster()
    for number in range(2000):
        put(view, f"p-{number:04}", JobRef("Deployment", "research", f"chat-{number // 10}"))
    told = planned(view).would_evict
    assert len(told) == LINES + 1
    assert told[-1] == "180 more jobs and services"
    assert all(len(line) < 200 for line in told)


def test_pods_that_come_and_go_change_what_is_shown_but_not_what_is_approved() -> None:
    view = cluster()
    before = planned(view)
    put(view, "chat-a", JobRef("Deployment", "research", "chat"), workload=WorkloadClass.INFERENCE)
    after = planned(view)
    assert before.would_evict != after.would_evict
    assert before.digest == after.digest
    play = Play(incident())
    run = replace(play.run, plan=replace(play.run.plan, would_evict=()))
    newer = revised(run, replace(play.about, revision=2), replace(run.plan, would_evict=("now",)), at(1)).run
    assert newer.plan.would_evict == ("now",)
    assert newer.plan.digest == run.plan.digest


def test_the_thread_shows_it_until_the_drain_begins() -> None:
    view = cluster()
    put(view, "llm-1", JOB)
    play = Play(incident(), view=view)
    assert would_evict(play.run) == [
        Paragraph(
            "Would evict, by the inventory: node-03: 1 pod of PyTorchJob research/llm, stopped with their job before: llm-1"
        )
    ]
    play.play(until="drain_node")
    assert would_evict(play.run) == []
