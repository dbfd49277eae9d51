"""The manifests on a real API server: they are accepted as they are, and the rights they give are exactly those needed."""

import json
from collections.abc import Iterator

import pytest

from tests.deploy.manifests import NODE_WORK, objects
from tests.testbed.control_plane import ControlPlane, KubectlFailed
from tests.testbed.waiting import until

pytestmark = pytest.mark.cluster

INVENTORY = "system:serviceaccount:faultline:inventory"
RESPONDER = "system:serviceaccount:faultline:responder"
BYSTANDER = "system:serviceaccount:faultline:bystander"


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """What the manifests install; the deployments go again, for their pods would be placed on other tests' nodes."""
    items = {"apiVersion": "v1", "kind": "List", "items": list(objects())}
    control_plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(items))
    yield control_plane
    control_plane.kubectl("delete", "deployments", "--all", "--namespace", "faultline", "--wait=false")


def may(cluster: ControlPlane, user: str, verb: str, resource: str, namespace: str | None = None) -> bool:
    kind, _, part = resource.partition("/")
    where = [f"--namespace={namespace}"] if namespace else ["--all-namespaces"]
    asked = ["auth", "can-i", verb, kind, *where, f"--as={user}"]
    try:
        return cluster.kubectl(*asked, *([f"--subresource={part}"] if part else [])).strip() == "yes"
    except KubectlFailed:  # kubectl's exit code says no as well
        return False


def soon_may(
    cluster: ControlPlane, user: str, verb: str, resource: str, namespace: str | None = None
) -> None:
    """Wait for a right that has been given: the authorizer hears of it some moments later."""
    until(lambda: may(cluster, user, verb, resource, namespace), f"{user} may {verb} {resource}")


def test_everything_is_accepted_and_a_deployment_stands_for_each_process(installed: ControlPlane) -> None:
    names = {d["metadata"]["name"] for d in installed.get("deployments", "--namespace", "faultline")}
    assert names == {"detector", "inventory", "correlator", "responder", "chat", "notifier", "gateway"}


@pytest.mark.parametrize(
    ("user", "verb", "resource"),
    [
        (INVENTORY, "list", "nodes"),
        (INVENTORY, "watch", "pods"),
        (INVENTORY, "watch", "pytorchjobs.kubeflow.org"),
        (RESPONDER, "patch", "nodes"),
        (RESPONDER, "create", "pods/eviction"),
        (RESPONDER, "patch", "jobs.batch"),
        (RESPONDER, "patch", "pytorchjobs.kubeflow.org"),
    ],
)
def test_what_a_process_does_it_may(installed: ControlPlane, user: str, verb: str, resource: str) -> None:
    soon_may(installed, user, verb, resource)


@pytest.mark.parametrize(
    ("user", "verb", "resource"),
    [
        (INVENTORY, "patch", "nodes"),
        (INVENTORY, "list", "secrets"),
        (RESPONDER, "delete", "pods"),
        (RESPONDER, "delete", "nodes"),
        (RESPONDER, "delete", "jobs.batch"),
        (RESPONDER, "create", "jobs.batch"),
        (RESPONDER, "get", "secrets"),
        (BYSTANDER, "list", "pods"),
        (BYSTANDER, "get", "nodes"),
    ],
)
def test_what_a_process_does_not_do_it_may_not(
    installed: ControlPlane, user: str, verb: str, resource: str
) -> None:
    assert not may(installed, user, verb, resource)


def test_with_work_on_nodes_the_responder_may_create_jobs_there_and_nowhere_else(
    control_plane: ControlPlane,
) -> None:
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(NODE_WORK))
    soon_may(control_plane, RESPONDER, "create", "jobs.batch", "faultline-node-work")
    assert not may(control_plane, RESPONDER, "create", "jobs.batch", "faultline")
    assert not may(control_plane, RESPONDER, "create", "jobs.batch")
    assert not may(control_plane, RESPONDER, "delete", "jobs.batch", "faultline-node-work")
    assert not may(control_plane, RESPONDER, "create", "pods", "faultline-node-work")
    for process in (INVENTORY, BYSTANDER):
        assert not may(control_plane, process, "create", "jobs.batch", "faultline-node-work")
    (config,) = (
        item
        for item in control_plane.get("configmaps", "--namespace", "faultline")
        if item["metadata"]["name"].startswith("faultline-node-work")
    )
    assert set(config["data"]) == {"reset-gpu.yaml", "reboot-node.yaml", "validate-node.yaml"}
