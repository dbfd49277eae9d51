"""Who holds a Workload of Kueue, which Workloads of a job are stopped, and what a job that waits is told to wait for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import web

from connectors.base import Absent, AlreadyDone, Blocked, Effect, NoLease, Refused, Waiting
from connectors.jobs.kueue_hold import activate, deactivate, take_back
from connectors.jobs.kueue_lever import _Place
from connectors.jobs.kueue_wait import AHEAD, waits
from connectors.jobs.kueue_workload import JOB_UID, POD_GROUP, is_active, workloads_of
from connectors.jobs.suspension import suspend_annotations_of
from connectors.jobs.training import TrainingJobs
from connectors.kubernetes.annotations import MANAGED
from connectors.kubernetes.client import Cluster, Object
from connectors.kubernetes.cordon_ownership import cordon
from connectors.kubernetes.guarded_patch import GuardedChange
from streams.job_kinds.kueue import QUEUE_NAME
from streams.model.run import Target
from tests.connectors.objects import made, merged
from tests.connectors.objects import node as node_of

TARGET = Target("Job", "train", "team-a", "uid-train")
STOP = Effect("key-1", "suspend_job", TARGET, "c1", "inc-1", "run-1", "suspend")
AGAIN = replace(STOP, key="key-2", incident="inc-2")
START = replace(STOP, key="resume-1", action="resume_job")
OFF, ON = {"spec": {"active": False}}, {"spec": {"active": True}}
ADMITTED: Object = {"status": {"admission": {"clusterQueue": "gpus"}}}
JOB: Object = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "team-a", "uid": "uid-train", "labels": {QUEUE_NAME: "team"}},
    "spec": {},
}


def workload(name: str = "job-train-1a2b3", **metadata: object) -> Object:
    about = {"name": name, "namespace": "team-a", "uid": f"uid-{name}", "resourceVersion": "1"}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": about | metadata,
        "spec": {"queueName": "team"},
    }


def held() -> Object:
    return made(workload(), deactivate(workload(), STOP))


def test_it_is_deactivated_and_activated_once_and_remembers_both() -> None:
    stopped = held()
    assert not is_active(stopped)
    assert isinstance(deactivate(stopped, STOP), AlreadyDone)
    back = made(stopped, activate(stopped, START))
    assert is_active(back)
    assert isinstance(activate(back, START), AlreadyDone)
    assert isinstance(deactivate(back, STOP), AlreadyDone), "a late second call must not deactivate it again"


def test_it_is_not_activated_before_kueue_has_taken_its_quota_back() -> None:
    stopped: Object = merged(held(), ADMITTED)
    assert isinstance(activate(stopped, START), Waiting)
    assert isinstance(take_back(stopped, STOP), Waiting)


def test_another_incident_waits_and_does_not_activate_it() -> None:
    blocked = deactivate(held(), AGAIN)
    assert isinstance(blocked, Blocked)
    assert blocked.by == "incident inc-1"
    late = activate(held(), replace(START, incident="inc-2", key="resume-2"))
    assert isinstance(late, Blocked)
    assert late.by == "incident inc-1"


def test_what_a_person_switched_is_left_to_them() -> None:
    stopped = held()
    back = made(stopped, activate(stopped, START))
    decisions = {
        "activated after our deactivation": [
            deactivate(merged(stopped, ON), STOP),
            activate(merged(stopped, ON), START),
            take_back(merged(stopped, ON), STOP),
        ],
        "deactivated after our activation": [
            activate(merged(back, OFF), START),
            activate(merged(back, OFF), replace(START, key="resume-2")),
            deactivate(merged(back, OFF), AGAIN),
        ],
    }
    for what, outcomes in decisions.items():
        for outcome in outcomes:
            assert isinstance(outcome, Blocked), what
            assert outcome.by_person, what


def test_one_that_a_person_activated_and_deactivated_again_is_theirs() -> None:
    fields: Object = {"f:spec": {"f:active": {}}}
    theirs = merged(
        held(), {"metadata": {"managedFields": [{"manager": "kubectl-edit", "fieldsV1": fields}]}}
    )
    for outcome in (activate(theirs, START), take_back(theirs, STOP)):
        assert isinstance(outcome, Blocked)
        assert outcome.by_person
    ours = merged(held(), {"metadata": {"managedFields": [{"manager": "faultline", "fieldsV1": fields}]}})
    assert isinstance(activate(ours, START), GuardedChange)


def test_one_that_was_deactivated_before_is_never_activated() -> None:
    by_hand: Object = merged(workload(), OFF)
    for outcome in (deactivate(by_hand, STOP), activate(by_hand, START)):
        assert isinstance(outcome, Blocked)
        assert "not by Faultline" in outcome.reason
    assert isinstance(take_back(by_hand, STOP), AlreadyDone)


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Deactivated", "The workload is deactivated due to exceeding the maximum execution time"),
        ("DeactivatedDueToRequeuingLimitExceeded", "The workload has exceeded 3 requeues"),
    ],
)
def test_what_kueue_itself_deactivated_is_told_with_its_reason(reason: str, message: str) -> None:
    evicted = {"type": "Evicted", "status": "True", "reason": reason, "message": message}
    outcome = deactivate(merged(workload(), OFF | {"status": {"conditions": [evicted]}}), STOP)
    assert isinstance(outcome, Blocked)
    assert outcome.by == "Kueue"
    assert message in outcome.reason


def test_taking_it_back_leaves_no_trace() -> None:
    after = made(held(), take_back(held(), STOP))
    assert is_active(after)
    assert after["metadata"]["annotations"] == {}
    assert isinstance(take_back(after, STOP), AlreadyDone)


def test_one_that_opted_out_is_refused() -> None:
    assert isinstance(deactivate(workload(labels={MANAGED: "false"}), STOP), Refused)
    assert not isinstance(
        activate(merged(held(), {"metadata": {"labels": {MANAGED: "false"}}}), START), GuardedChange
    )


def pod(name: str, node: str, group: str | None) -> Object:
    labels = {POD_GROUP: group} if group else {}
    return {"metadata": {"name": name, "uid": name, "labels": labels}, "spec": {"nodeName": node}}


@pytest.mark.parametrize(
    ("pods", "chosen"),
    [
        ([pod("a-0", "bad", "a"), pod("b-0", "good", "b")], ["a"]),
        ([pod("a-0", "bad", None), pod("b-0", "good", "b")], ["a", "b"]),
        ([pod("a-0", "good", "a"), pod("b-0", "good", "b")], []),
    ],
    ids=["the group on the closed node", "a pod that does not tell its group", "no pod there"],
)
def test_of_several_workloads_only_those_on_the_closed_node_are_stopped(
    pods: list[Object], chosen: list[str]
) -> None:
    place = _Place(JOB, pods, [workload("a"), workload("b")], {"bad": {}})
    found = place.chosen(STOP)
    assert [one["metadata"]["name"] for one in found] == chosen
    if chosen == ["a"]:
        assert [one["metadata"]["name"] for one in place.pods_of(found)] == ["a-0"]


def test_one_that_was_marked_stays_chosen_when_its_pods_are_gone() -> None:
    marked = workload("a", annotations=held()["metadata"]["annotations"])
    place = _Place(JOB, [pod("b-0", "bad", "b")], [marked, workload("b")], {"bad": {}})
    assert [one["metadata"]["name"] for one in place.chosen(STOP)] == ["a", "b"]
    assert suspend_annotations_of(marked).held


Answers = dict[str, Object | int]


@asynccontextmanager
async def serving(answers: Answers) -> AsyncIterator[Cluster]:
    """An API server that knows these paths (with their query, where one is given) and nothing else."""

    async def answer(request: web.Request) -> web.Response:
        known = answers.get(
            f"{request.path}?{request.query.get('labelSelector')}", answers.get(request.path, 404)
        )
        if isinstance(known, int):
            return web.json_response({"kind": "Status", "message": "no"}, status=known)
        return web.json_response(known)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with await Cluster.at(f"http://127.0.0.1:{runner.addresses[0][1]}") as cluster:
            yield cluster
    finally:
        await runner.cleanup()


V1 = "/apis/kueue.x-k8s.io/v1beta1"
V2 = "/apis/kueue.x-k8s.io/v1beta2"
PENDING = "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/team-a/localqueues/team/pendingworkloads"
JOB_PATH = "/apis/batch/v1/namespaces/team-a/jobs/train"


def served(*workloads: Object, version: str = V2) -> Answers:
    listed = f"{version}/namespaces/team-a/workloads"
    labelled = [one for one in workloads if (one["metadata"].get("labels") or {}).get(JOB_UID) == "uid-train"]
    kind = {"name": "workloads", "kind": "Workload", "namespaced": True}
    about: Object = {"kind": "WorkloadList", "apiVersion": version.removeprefix("/apis/")}
    return {
        version: {"resources": [kind]},
        listed: about | {"items": list(workloads)},
        f"{listed}?{JOB_UID}=uid-train": about | {"items": labelled},
        "/api/v1/namespaces/team-a/pods": {"kind": "PodList", "apiVersion": "v1", "items": []},
        "/api/v1/nodes": {"kind": "NodeList", "apiVersion": "v1", "items": []},
        JOB_PATH: JOB,
    }


async def test_workloads_are_found_by_label_else_by_their_owner_whatever_version_is_served() -> None:
    labelled = workload("a", labels={JOB_UID: "uid-train"})
    owned = workload("b", ownerReferences=[{"uid": "uid-train"}])
    of_pods = workload("c", ownerReferences=[{"uid": "uid-pod"}])
    over = merged(
        workload("d", ownerReferences=[{"uid": "uid-train"}]),
        {"status": {"conditions": [{"type": "Finished", "status": "True"}]}},
    )
    somebody_elses = workload("e", ownerReferences=[{"uid": "uid-other"}])
    async with serving(served(labelled, owned, somebody_elses)) as cluster:
        assert [one["metadata"]["name"] for one in await workloads_of(cluster, JOB, [])] == ["a"]
    async with serving(served(owned, of_pods, over, somebody_elses, version=V1)) as cluster:
        found = await workloads_of(cluster, JOB, [{"metadata": {"uid": "uid-pod"}}])
        assert [one["metadata"]["name"] for one in found] == ["b", "c"]


def positions(position: int) -> Object:
    return {"items": [{"metadata": {"name": "job-train-1a2b3"}, "positionInClusterQueue": position}]}


async def test_the_position_in_the_queue_is_told_where_it_is_known_and_not_with_every_step_ahead() -> None:
    queue: Object = {"spec": {"clusterQueue": "gpus"}}
    answers: Answers = {f"{V2}/namespaces/team-a/localqueues/team": queue, PENDING: positions(12)}
    async with serving(answers) as cluster:
        first = await waits(cluster, JOB, [workload()], STOP)
        assert isinstance(first, Waiting)
        assert first.queued
        assert (
            first.detail
            == "team-a/train waits for quota in ClusterQueue gpus (queue team), with 12 before it"
        )
        told = replace(STOP, prior=first.result)
        for position, said in ((9, 12), (6, 6), (30, 30)):
            answers[PENDING] = positions(position)
            now = await waits(cluster, JOB, [workload()], told)
            assert isinstance(now, Waiting)
            assert now.result[AHEAD] == said
        answers[PENDING] = positions(0)
        last = await waits(cluster, JOB, [workload()], told)
        assert isinstance(last, Waiting)
        assert last.detail.endswith("(queue team), as the first")


@pytest.mark.parametrize("status", [403, 404, 503])
async def test_what_only_adds_to_the_answer_may_be_out_of_reach(status: int) -> None:
    async with serving({PENDING: status, f"{V2}/namespaces/team-a/localqueues/team": 403}) as cluster:
        waiting = await waits(cluster, JOB, [workload()], STOP)
    assert isinstance(waiting, Waiting)
    assert waiting.detail == "team-a/train waits for quota in the queue team"


async def test_without_the_right_to_read_workloads_nothing_is_done_and_the_component_is_named() -> None:
    denied = {**served(), f"{V2}/namespaces/team-a/workloads?{JOB_UID}=uid-train": 403}
    async with serving(denied) as cluster:
        jobs = TrainingJobs(cluster)
        for action in ("suspend_job", "resume_job"):
            refused = await jobs.apply(replace(STOP, action=action), NoLease())
            assert isinstance(refused, Refused)
            assert "apply k8s/components/jobs-kueue" in refused.reason
        waiting = await jobs.apply(replace(STOP, action="verify_job"), NoLease())
        assert isinstance(waiting, Waiting), "it may come back all the same"
        assert "its queue cannot be read: not permitted: apply k8s/components/jobs-kueue" in waiting.detail


async def test_a_queue_without_kueue_is_told_to_the_owner() -> None:
    nobody = {JOB_PATH: JOB, **{path: one for path, one in served().items() if path.startswith("/api/")}}
    async with serving(nobody) as cluster:
        refused = await TrainingJobs(cluster).apply(STOP, NoLease())
    assert isinstance(refused, Refused)
    assert "this cluster has no Workloads of Kueue" in refused.reason
    assert QUEUE_NAME in refused.reason


async def test_a_job_that_kueue_has_not_taken_in_yet_is_waited_for() -> None:
    async with serving(served()) as cluster:
        jobs = TrainingJobs(cluster)
        blocked = await jobs.apply(STOP, NoLease())
        assert isinstance(blocked, Blocked)
        assert "Kueue has no Workload of team-a/train" in blocked.reason
        assert isinstance(await jobs.lookup(STOP), Absent)
        assert isinstance(await jobs.undo(STOP, NoLease()), AlreadyDone)


async def test_of_two_workloads_a_crash_after_the_first_is_found() -> None:
    marks = held()["metadata"]["annotations"]
    first = merged(workload("a", labels={JOB_UID: "uid-train"}, annotations=marks), OFF)
    second = workload("b", labels={JOB_UID: "uid-train"})
    answers = served(first, second)
    node = made(
        node_of("bad"),
        cordon(node_of("bad"), replace(STOP, action="cordon_node", target=Target("Node", "bad"))),
    )
    answers["/api/v1/nodes"] = {"kind": "NodeList", "apiVersion": "v1", "items": [node]}
    there = pod("b-0", "bad", "b")
    there["metadata"]["ownerReferences"] = [{"uid": "uid-train", "controller": True}]
    answers["/api/v1/namespaces/team-a/pods?batch.kubernetes.io/job-name=train"] = {"items": [there]}
    async with serving(answers) as cluster:
        found = await TrainingJobs(cluster).lookup(STOP)
    assert isinstance(found, Waiting), found
    assert "1 of 2" in found.detail
