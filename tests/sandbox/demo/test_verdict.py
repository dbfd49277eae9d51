from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from connectors.kubernetes.annotations import INCIDENT
from sandbox.demo import cluster_layout, stories
from sandbox.demo.director import StoryReport
from sandbox.demo.people import Press
from sandbox.demo.shippers import RunningPod
from sandbox.demo.spectator import Seen
from sandbox.demo.stack import CHANNEL
from sandbox.demo.verdict import DemoVerdict, judge
from sandbox.demo.world import JOBS, World
from sandbox.fake_services.jira import StandinIssue
from sandbox.fake_services.slack import Posting
from streams.config.settings import KafkaSettings
from streams.model.entity import Entity, Gpu, JobRef
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.run import EffectRecord, EffectState, Mode, Plan, Run, RunState, StepRecord, Target
from streams.model.signal import Severity
from tests.sandbox.demo.test_stories import cast as pods_of_all_jobs

BEGIN = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
END = BEGIN + timedelta(seconds=9)


@dataclass
class Tickets:
    issues: list[StandinIssue] = field(default_factory=list)


@dataclass
class Threads:
    postings: list[Posting] = field(default_factory=list)

    replies: list[Posting] = field(default_factory=list)

    def roots(self, channel: str) -> list[Posting]:
        return [posting for posting in self.postings if posting.channel == channel]

    def thread(self, ts: str) -> list[Posting]:
        return [reply for reply in self.replies if reply.thread_ts == ts]


@dataclass
class Standins:
    jira: Tickets = field(default_factory=Tickets)
    slack: Threads = field(default_factory=Threads)


def incident(node: str, number: int = 1) -> Incident:
    root = Entity(cluster_layout.CLUSTER, node=node, gpu=Gpu(pci="0000:9d:00"))
    about: dict[str, Any] = {"title": "GPU fell off the bus", "reason": "", "fault_at": BEGIN}
    times: dict[str, Any] = {"opened_at": BEGIN, "updated_at": END}
    state, certainty = IncidentState.RESOLVED, Certainty.DECISIVE
    return Incident(
        f"inc-{number}",
        cluster_layout.CLUSTER,
        "gpu_off_bus",
        root,
        1,
        3,
        state,
        Severity.CRITICAL,
        certainty,
        **about,
        **times,
    )


def run_of(one: Incident) -> Run:
    effect = EffectRecord(
        f"key-{one.id}", "open_ticket", Target("Incident", one.id), EffectState.CONFIRMED, BEGIN, END
    )
    plan = Plan("gpu-off-bus", 1, Mode.AUTO, (), "digest")
    steps = (StepRecord("ticket", effect=effect),)
    return Run(
        f"run-{one.id}", one.id, 1, cluster_layout.CLUSTER, plan, RunState.SUCCEEDED, steps, BEGIN, END
    )


def recovered(job: str, node: str) -> list[RunningPod]:
    """All pods, those of `job` moved off `node` and with new uids."""
    pods = []
    for pod in pods_of_all_jobs():
        if pod.job == job:
            where = "gpu-13" if pod.node == node else pod.node
            pod = RunningPod(pod.namespace, pod.name, f"new-{pod.uid}", where, pod.ip, pod.job, pod.rank)
        pods.append(pod)
    return pods


class Stage:
    """One story that went well; tests spoil one thing each."""

    def __init__(self) -> None:
        before = pods_of_all_jobs()
        scene = stories.gpu_off_the_bus(before, JOBS[0], BEGIN)
        uids = {job: frozenset(p.uid for p in before if p.job == job) for job in JOBS}
        self.told = StoryReport(scene, BEGIN, uids, uids, END)
        self.world = World(cast(Any, None), KafkaSettings())
        self.world.nodes = {name: cluster_layout.node(name) for name in cluster_layout.node_names()}
        self.world.pods = tuple(recovered(JOBS[0], "gpu-03"))
        for training in self.world.workload.trainings.values():
            training.moving_since = END
        self.close("gpu-03", "inc-1")
        one = incident("gpu-03")
        self.seen = Seen({one.id: one}, {f"run-{one.id}": run_of(one)}, dead_letters=1)
        label = f"faultline-key-{one.id}"
        self.standins = Standins()
        self.standins.jira.issues.append(StandinIssue("1", "GPU-1", {"summary": "x", "labels": [label]}))
        metadata = {"event_type": "faultline_thread", "event_payload": {"incident": one.id, "key": "k"}}
        self.standins.slack.postings.append(Posting("1.1", CHANNEL, "x", metadata=metadata))

    def close(self, node: str, owner: str) -> None:
        thing = self.world.nodes[node]
        thing["spec"]["unschedulable"] = True
        thing["metadata"]["annotations"] = {INCIDENT: owner}

    def verdict(self) -> DemoVerdict:
        return judge(cast(Any, self.standins), self.world, self.seen, [self.told], END)


class AskingStage(Stage):
    """The same, by a runbook that asked: one was refused, one has approved."""

    def __init__(self) -> None:
        super().__init__()
        answers = ("refused: not among the approvers", "accepted: approved the plan")
        presses = tuple(
            Press(who, answer) for who, answer in zip(("Ben (U2)", "Ada (U1)"), answers, strict=True)
        )
        scene = replace(self.told.scene, asks=True)
        self.told = replace(self.told, scene=scene, presses=presses, question="1.2", on_console=True)
        self.question = Posting("1.2", CHANNEL, "approved by Ada (U1)", thread_ts="1.1")
        self.standins.slack.replies.append(self.question)


def bad(verdict: DemoVerdict) -> str:
    assert not verdict.good
    return "; ".join(check.text for check in verdict.checks if not check.good)


def test_a_story_that_went_well_is_found_good() -> None:
    verdict = Stage().verdict()
    assert verdict.good, bad(verdict)
    assert verdict.results[0].recovered_s == 9


def test_a_story_in_which_a_person_approved_is_found_good() -> None:
    verdict = AskingStage().verdict()
    assert verdict.good, bad(verdict)


@pytest.mark.parametrize(
    ("spoilt", "found"),
    [
        ({"presses": ()}, "nobody was asked in the thread"),
        (
            {"presses": (Press("Ben (U2)", "accepted: ok"), Press("Ada (U1)", "accepted: ok"))},
            "Ben (U2) is refused, but",
        ),
        (
            {"presses": (Press("Ben (U2)", "refused: no"), Press("Ada (U1)"))},
            "Ada (U1) is accepted, but was told: ",
        ),
        ({"cordoned_early": True}, "was not cordoned before the approval"),
        ({"question": "1.9"}, "it is not in the incident's thread"),
        ({"on_console": False}, "the console does not name who approved"),
    ],
)
def test_an_approval_that_went_otherwise_is_found(spoilt: dict[str, Any], found: str) -> None:
    stage = AskingStage()
    stage.told = replace(stage.told, **spoilt)
    assert found in bad(stage.verdict())


def test_a_question_that_keeps_its_buttons_is_found() -> None:
    stage = AskingStage()
    button = {"type": "button", "action_id": "faultline.approve", "value": '{"i":"inc-1"}'}
    stage.question.blocks = [{"type": "actions", "elements": [button]}]
    assert "the question has changed" in bad(stage.verdict())


def test_a_healthy_node_that_is_cordoned_is_found() -> None:
    stage = Stage()
    stage.close("gpu-09", "inc-1")
    assert "cordoned are gpu-03, gpu-09" in bad(stage.verdict())


def test_a_culprit_that_a_person_cordoned_does_not_count() -> None:
    stage = Stage()
    stage.world.nodes["gpu-03"]["metadata"]["annotations"] = {}
    assert "gpu-03 is cordoned for nobody" in bad(stage.verdict())


@pytest.mark.parametrize("what", ["ticket", "thread"])
def test_a_second_ticket_or_thread_is_found(what: str) -> None:
    stage = Stage()
    if what == "ticket":
        stage.standins.jira.issues.append(stage.standins.jira.issues[0])
    else:
        stage.standins.slack.postings.append(stage.standins.slack.postings[0])
    assert f"2 {what}" in bad(stage.verdict())


def test_a_job_that_stands_still_is_found() -> None:
    stage = Stage()
    stage.world.workload.trainings[JOBS[0]].moving_since = None
    assert f"{JOBS[0]} is stalled" in bad(stage.verdict())


def test_an_incident_too_many_is_found() -> None:
    stage = Stage()
    more = incident("gpu-07", 2)
    stage.seen.incidents[more.id] = more
    assert "1 faults are 2 incidents" in bad(stage.verdict())


def test_a_job_that_was_restarted_for_a_fault_of_its_own_is_found() -> None:
    stage = Stage()
    scene = stories.application_fault(pods_of_all_jobs(), JOBS[0], BEGIN)
    moved = stage.world.pod_uids()
    stage.told = StoryReport(scene, BEGIN, stage.told.pods_before, moved, END)
    root = Entity(cluster_layout.CLUSTER, job=JobRef("PyTorchJob", *JOBS[0].split("/")))
    stage.seen.incidents["inc-1"] = replace(incident("gpu-03"), family="application", root=root)
    assert "was left to its owner" in bad(stage.verdict())
    assert "no node was cordoned for it, but gpu-03 is" in bad(stage.verdict())
    assert "1 threads for the 0 incidents of those on call" in bad(stage.verdict())
