"""The control plane is a real one: it schedules, evicts, denies, and notices a node that falls silent."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes.aio import client

from tests.testbed import workloads
from tests.testbed.control_plane import ControlPlane, KubectlFailed, unique
from tests.testbed.waiting import until

pytestmark = [pytest.mark.machinery, pytest.mark.cluster]

Workload = Callable[..., dict[str, Any]]


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    name = unique("testbed")
    control_plane.kubectl("create", "namespace", name)
    yield name
    control_plane.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def pool(control_plane: ControlPlane) -> Iterator[str]:
    """Five nodes of 8 GPUs: four for a job and one to move to."""
    name = unique("pool")
    control_plane.add_nodes(name, 5)
    yield name
    control_plane.remove_pool(name)


def pods(control_plane: ControlPlane, namespace: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = control_plane.get("pods", "--namespace", namespace)
    return found


def running_on(control_plane: ControlPlane, namespace: str, count: int = 4) -> set[str]:
    """Wait until ``count`` pods run and nothing else is there; return their nodes."""

    def nodes() -> set[str]:
        found = pods(control_plane, namespace)
        phases = {pod["status"]["phase"] for pod in found}
        return (
            {pod["spec"]["nodeName"] for pod in found}
            if (len(found), phases) == (count, {"Running"})
            else set()
        )

    return until(nodes, f"{count} pods run in {namespace}")


def suspend(control_plane: ControlPlane, job: dict[str, Any], suspended: bool) -> None:
    """Suspend or resume a job where its kind keeps that."""
    spec = {"suspend": suspended} if job["kind"] == "Job" else {"runPolicy": {"suspend": suspended}}
    patch = json.dumps({"spec": spec})
    target = (job["kind"].lower(), job["metadata"]["name"], "--namespace", job["metadata"]["namespace"])
    control_plane.kubectl("patch", *target, "--type=merge", "--patch", patch)


@pytest.mark.parametrize("workload", [workloads.pytorch_job, workloads.indexed_job])
def test_a_suspended_and_resumed_job_is_placed_around_a_cordoned_node(
    control_plane: ControlPlane, namespace: str, pool: str, workload: Workload
) -> None:
    job = workload("train", namespace, pool=pool)
    control_plane.create(job)
    before = running_on(control_plane, namespace)
    assert len(before) == 4, "8 GPUs a pod and a node: one pod a node"

    bad = sorted(before)[0]
    control_plane.kubectl("cordon", bad)
    suspend(control_plane, job, True)
    until(lambda: not pods(control_plane, namespace), "the pods are gone")
    suspend(control_plane, job, False)

    after = running_on(control_plane, namespace)
    assert bad not in after
    assert len(after) == 4


def test_a_crashing_pod_fails_and_its_job_makes_another(
    control_plane: ControlPlane, namespace: str, pool: str
) -> None:
    control_plane.create(workloads.indexed_job("train", namespace, pool=pool, pods=1))
    running_on(control_plane, namespace, 1)
    (first,) = pods(control_plane, namespace)
    control_plane.annotate(
        "pod", first["metadata"]["name"], "outcome=crash", "exit-code=134", namespace=namespace
    )

    def replaced() -> bool:
        found = {pod["metadata"]["uid"]: pod["status"] for pod in pods(control_plane, namespace)}
        crashed = found.pop(first["metadata"]["uid"])
        (container,) = crashed["containerStatuses"]
        exit_code = container["state"].get("terminated", {}).get("exitCode")
        return exit_code == 134 and any(status["phase"] == "Running" for status in found.values())

    until(replaced, "a new pod runs beside the failed one")


def test_a_pod_can_hang_in_terminating_and_be_let_go(
    control_plane: ControlPlane, namespace: str, pool: str
) -> None:
    job = workloads.indexed_job("train", namespace, pool=pool, pods=2)
    control_plane.create(job)
    running_on(control_plane, namespace, 2)
    stuck, free = (pod["metadata"]["name"] for pod in pods(control_plane, namespace))
    control_plane.annotate("pod", stuck, "on-delete=hang", namespace=namespace)
    suspend(control_plane, job, True)

    def only_the_stuck_one() -> bool:
        return [pod["metadata"]["name"] for pod in pods(control_plane, namespace)] == [stuck]

    until(only_the_stuck_one, f"{free} is gone")
    assert "deletionTimestamp" in pods(control_plane, namespace)[0]["metadata"]
    control_plane.annotate("pod", stuck, "on-delete-", namespace=namespace)
    until(lambda: not pods(control_plane, namespace), "the stuck pod is gone")


async def test_an_eviction_against_the_disruption_budget_is_refused_and_recorded(
    control_plane: ControlPlane, namespace: str, pool: str
) -> None:
    control_plane.create(
        workloads.indexed_job("train", namespace, pool=pool, pods=2),
        workloads.disruption_budget(
            "keep", namespace, match_labels={"batch.kubernetes.io/job-name": "train"}, min_available=2
        ),
    )
    running_on(control_plane, namespace, 2)
    until(
        lambda: (
            control_plane.get("pdb", "keep", "--namespace", namespace)["status"].get("currentHealthy") == 2
        ),
        "the budget has counted its pods",
    )
    name, mark = pods(control_plane, namespace)[0]["metadata"]["name"], control_plane.audit.mark()

    async with control_plane.kube_client() as api:
        eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name=name, namespace=namespace))
        with pytest.raises(client.ApiException) as refused:
            await client.CoreV1Api(api).create_namespaced_pod_eviction(name, namespace, eviction)

    assert refused.value.status == 429
    (write,) = control_plane.audit.writes(since=mark, user="admin", namespace=namespace)
    assert (write.verb, write.resource, write.subresource, write.name, write.code) == (
        *("create", "pods", "eviction", name),
        429,
    )


def test_a_service_account_may_do_what_it_is_bound_to_and_nothing_else(
    control_plane: ControlPlane, namespace: str, pool: str
) -> None:
    account = f"system:serviceaccount:{namespace}:reader"
    control_plane.kubectl("create", "serviceaccount", "reader", "--namespace", namespace)
    with pytest.raises(KubectlFailed, match="forbidden"):
        control_plane.kubectl("get", "nodes", user=account)

    role = f"{namespace}-reader"
    control_plane.kubectl("create", "clusterrole", role, "--verb=get,list", "--resource=nodes")
    control_plane.kubectl(
        "create", "clusterrolebinding", role, f"--clusterrole={role}", f"--serviceaccount={namespace}:reader"
    )

    def may_read() -> bool:
        try:
            return f"{pool}-0" in control_plane.kubectl("get", "nodes", user=account)
        except KubectlFailed:
            return False  # the authorizer has not seen the new binding yet

    until(may_read, "the binding is in force")
    mark = control_plane.audit.mark()
    with pytest.raises(KubectlFailed, match="forbidden"):
        control_plane.kubectl("label", "node", f"{pool}-0", "mine=yes", user=account)
    (denied,) = control_plane.audit.writes(since=mark, user=account)
    assert (denied.verb, denied.resource, denied.code) == ("patch", "nodes", 403)


def test_a_user_that_nobody_made_is_named(control_plane: ControlPlane) -> None:
    with pytest.raises(KeyError, match="no such user: stranger"):
        control_plane.kubeconfig("stranger")


def ready(control_plane: ControlPlane, node: str) -> str:
    conditions = control_plane.get("node", node)["status"]["conditions"]
    (status,) = (str(c["status"]) for c in conditions if c["type"] == "Ready")
    return status


def test_an_annotated_node_says_it_is_not_ready_until_the_annotation_goes(
    control_plane: ControlPlane, pool: str
) -> None:
    node = f"{pool}-0"
    control_plane.annotate("node", node, "ready=false")
    until(lambda: ready(control_plane, node) == "False", f"{node} is not ready")
    control_plane.annotate("node", node, "ready-")
    until(lambda: ready(control_plane, node) == "True", f"{node} is ready")


def test_a_silent_node_turns_unknown_and_its_deleted_pod_stays_until_it_is_back(
    control_plane: ControlPlane, namespace: str, pool: str
) -> None:
    control_plane.create(workloads.indexed_job("train", namespace, pool=pool, pods=1))
    (node,) = running_on(control_plane, namespace, 1)
    control_plane.silence(node)
    until(lambda: ready(control_plane, node) == "Unknown", f"{node} is unknown")

    def is_tainted() -> bool:
        taints = control_plane.get("node", node)["spec"].get("taints") or []
        return "node.kubernetes.io/unreachable" in {taint["key"] for taint in taints}

    until(is_tainted, f"{node} is tainted")

    (pod,) = pods(control_plane, namespace)
    control_plane.kubectl("delete", "pod", pod["metadata"]["name"], "--namespace", namespace, "--wait=false")
    elsewhere = until(
        lambda: [p for p in pods(control_plane, namespace) if p["spec"].get("nodeName") not in {None, node}],
        "a new pod is placed elsewhere",
    )
    assert elsewhere
    assert pod["metadata"]["uid"] in {p["metadata"]["uid"] for p in pods(control_plane, namespace)}

    control_plane.revive(node)
    until(lambda: ready(control_plane, node) == "True", f"{node} is ready")
    until(
        lambda: pod["metadata"]["uid"] not in {p["metadata"]["uid"] for p in pods(control_plane, namespace)},
        "the old pod is gone",
    )
