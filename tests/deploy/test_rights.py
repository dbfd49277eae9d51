"""The manifests on a real API server: they are accepted as they are, and the rights they give are exactly those needed."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import tests.testbed
from connectors.base import AlreadyDone, Done, Effect, NoLease, Refused
from connectors.jobs.training import TrainingJobs
from connectors.kubernetes.client import Cluster, path_of
from connectors.kubernetes.nodes import NodeConnector
from connectors.kubernetes.watch import KindWatches, WatchPace
from streams.config.connector_settings import KubernetesSettings
from streams.model.run import Target
from streams.model.watch import KindListed, WatchEvent
from tests.deploy.manifests import COMPONENT_DIR, objects, overlay
from tests.testbed.control_plane import ControlPlane, KubectlFailed
from tests.testbed.waiting import eventually, until

pytestmark = pytest.mark.cluster

INVENTORY = "system:serviceaccount:faultline:inventory"
RESPONDER = "system:serviceaccount:faultline:responder"
WITHOUT_RIGHTS = "system:serviceaccount:faultline:detector"


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """What the manifests install and no component of a kind of job, whatever other tests have applied.

    The deployments go again, for their pods would be placed on other tests' nodes.
    """
    given = [f"--filename={COMPONENT_DIR / component / 'rbac.yaml'}" for component in COMPONENTS]
    control_plane.kubectl("delete", "--ignore-not-found", *given)
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
        (RESPONDER, "get", "persistentvolumeclaims"),
        (RESPONDER, "get", "persistentvolumes"),
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
        (RESPONDER, "delete", "persistentvolumeclaims"),
        (RESPONDER, "delete", "jobs.batch"),
        (RESPONDER, "create", "jobs.batch"),
        (RESPONDER, "get", "secrets"),
        (RESPONDER, "create", "pods/exec"),
        (WITHOUT_RIGHTS, "list", "pods"),
        (WITHOUT_RIGHTS, "get", "nodes"),
    ],
)
def test_what_a_process_does_not_do_it_may_not(
    installed: ControlPlane, user: str, verb: str, resource: str
) -> None:
    assert not may(installed, user, verb, resource)


def test_with_work_on_nodes_the_responder_may_create_jobs_there_and_nowhere_else(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    folder = overlay(tmp_path, "node-work")
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(folder))
    soon_may(control_plane, RESPONDER, "create", "jobs.batch", "faultline-node-work")
    assert not may(control_plane, RESPONDER, "create", "jobs.batch", "faultline")
    assert not may(control_plane, RESPONDER, "create", "jobs.batch")
    assert not may(control_plane, RESPONDER, "delete", "jobs.batch", "faultline-node-work")
    assert not may(control_plane, RESPONDER, "create", "pods", "faultline-node-work")
    for process in (INVENTORY, WITHOUT_RIGHTS):
        assert not may(control_plane, process, "create", "jobs.batch", "faultline-node-work")
    (config,) = (
        item
        for item in control_plane.get("configmaps", "--namespace", "faultline")
        if item["metadata"]["name"].startswith("faultline-node-work")
    )
    assert set(config["data"]) == {"reset-gpu.yaml", "reboot-node.yaml", "validate-node.yaml"}


def test_a_command_in_a_pod_needs_its_own_component(installed: ControlPlane) -> None:
    installed.kubectl("apply", "--server-side", "-k", str(COMPONENT_DIR / "pod-exec"))
    for verb in ("create", "get"):
        soon_may(installed, RESPONDER, verb, "pods/exec", "research")
        assert not may(installed, INVENTORY, verb, "pods/exec", "research")
    assert not may(installed, RESPONDER, "create", "pods/attach", "research")
    installed.kubectl("delete", "-k", str(COMPONENT_DIR / "pod-exec"))


COMPONENTS = sorted(path.name for path in COMPONENT_DIR.glob("jobs-*"))
GIVEN = {
    "jobs-kubeflow": ("tfjobs.kubeflow.org", True),
    "jobs-mpi": ("mpijobs.kubeflow.org", True),
    "jobs-jobset": ("jobsets.jobset.x-k8s.io", True),
    "jobs-trainer": ("trainjobs.trainer.kubeflow.org", True),
    "jobs-ray": ("rayjobs.ray.io", True),
    "jobs-lws": ("leaderworkersets.leaderworkerset.x-k8s.io", True),
    "jobs-volcano": ("jobs.batch.volcano.sh", True),
    "jobs-appwrapper": ("appwrappers.workload.codeflare.dev", True),
    "jobs-dlrover": ("elasticjobs.elastic.iml.github.io", True),
    "jobs-hyperpod": ("hyperpodpytorchjobs.sagemaker.amazonaws.com", True),
    "jobs-kueue": ("workloads.kueue.x-k8s.io", False),
}
"""A resource of each component, and whether the inventory watches it."""
MOVED = {
    "jobs-kubeflow",
    "jobs-mpi",
    "jobs-lws",
    "jobs-kueue",
    "jobs-volcano",
    "jobs-ray",
    "jobs-jobset",
    "jobs-trainer",
    "jobs-appwrapper",
}
"""Components of kinds that the responder stops and starts; of the others it may read the objects."""


Question = tuple[str, str, str]
"""A user, a verb and a resource."""


def allowed(cluster: ControlPlane, *asked: Question) -> set[Question]:
    """What of it the authorizer allows; asked by name, so that no CRD has to be installed.

    All in one command: one for each question would be two hundred processes, minutes on a busy machine.
    """
    reviews = []
    for user, verb, resource in asked:
        plural, _, group = resource.partition(".")
        attributes = {"verb": verb, "group": group, "resource": plural, "namespace": "research"}
        spec = {
            "user": user,
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": attributes,
        }
        reviews.append({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
    items = {"apiVersion": "v1", "kind": "List", "items": reviews}
    answers = cluster.kubectl(
        "create", "-f", "-", "-o", "jsonpath={.status.allowed}{'\\n'}", stdin=json.dumps(items)
    )
    return {
        question for question, answer in zip(asked, answers.splitlines(), strict=True) if answer == "true"
    }


def test_each_kind_of_job_is_out_of_reach_until_its_component_is_applied(installed: ControlPlane) -> None:
    assert sorted(GIVEN) == COMPONENTS
    for component, (resource, watched) in GIVEN.items():
        given = {(RESPONDER, "get", resource)}
        if component in MOVED:
            given.add((RESPONDER, "patch", resource))
        if watched:
            given |= {(INVENTORY, verb, resource) for verb in ("list", "watch")}
        all_rights = [
            *((INVENTORY, verb, resource) for verb in ("list", "watch", "patch")),
            *(
                (RESPONDER, verb, resource)
                for verb in ("get", "patch", "delete", "deletecollection", "update")
            ),
            *((WITHOUT_RIGHTS, verb, resource) for verb in ("get", "list", "patch")),
        ]
        assert allowed(installed, *all_rights) == set(), component
        installed.kubectl("apply", "--server-side", "-k", str(COMPONENT_DIR / component))
        until(
            # Each role is known to the server in its own time.
            lambda given=given: allowed(installed, *given) == given,  # type: ignore[misc]
            f"the rights of {component} are in force",
        )
        assert allowed(installed, *all_rights) == given, component
        installed.kubectl("delete", "-k", str(COMPONENT_DIR / component))


def test_who_holds_a_device_is_out_of_reach_until_its_component_is_applied(installed: ControlPlane) -> None:
    claims, slices = "resourceclaims.resource.k8s.io", "resourceslices.resource.k8s.io"
    taints = "devicetaintrules.resource.k8s.io"
    read = {(RESPONDER, "get", claims), (RESPONDER, "list", slices)}
    own = {(RESPONDER, verb, taints) for verb in ("get", "list", "create", "patch", "delete")}
    assert allowed(installed, *read, *own) == set()
    installed.kubectl("apply", "--server-side", "-k", str(COMPONENT_DIR / "gpu-drain"))
    until(lambda: allowed(installed, *read, *own) == read | own, "the rights of gpu-drain are in force")
    refused = [
        (RESPONDER, "deletecollection", taints),
        *((INVENTORY, verb, resource) for _, verb, resource in (*read, *own)),
        *(
            (RESPONDER, verb, resource)
            for resource in (claims, slices)
            for verb in ("create", "patch", "update", "delete")
        ),
    ]
    assert allowed(installed, *read, *own, *refused) == read | own
    installed.kubectl("delete", "-k", str(COMPONENT_DIR / "gpu-drain"))


LWS = "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet"
CRD = Path(tests.testbed.__file__).parent / "crds" / "leaderworkerset.yaml"


async def connected(cluster: ControlPlane, user: str) -> Cluster:
    return await Cluster.connect(KubernetesSettings(kubeconfig=cluster.kubeconfig(user)))


async def test_the_inventory_goes_on_without_a_kind_it_may_not_list_and_finds_it_once_it_may(
    installed: ControlPlane,
) -> None:
    installed.define(CRD)
    told: asyncio.Queue[WatchEvent] = asyncio.Queue()
    kinds = ["v1/Node", LWS, "example.com/v1/Training"]
    async with await connected(installed, INVENTORY) as cluster:
        watches = KindWatches(cluster, kinds, pace=WatchPace(missing_s=0.2))
        task = asyncio.create_task(watches.run(told.put))
        try:
            listed: dict[str, KindListed] = {}
            while listed.keys() < set(kinds):
                event = await asyncio.wait_for(told.get(), 60)
                if isinstance(event, KindListed):
                    listed[event.kind] = event
            assert (listed["v1/Node"].served, listed["v1/Node"].permitted) == (True, True)
            assert (listed[LWS].names, listed[LWS].permitted) == (None, False)
            assert not listed["example.com/v1/Training"].served
            installed.kubectl("apply", "--server-side", "-k", str(COMPONENT_DIR / "jobs-lws"))
            while not listed[LWS].permitted:
                event = await asyncio.wait_for(told.get(), 60)
                if isinstance(event, KindListed):
                    listed[event.kind] = event
            assert listed[LWS].names is not None
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            installed.kubectl("delete", "-k", str(COMPONENT_DIR / "jobs-lws"))


async def test_the_responder_is_told_what_to_apply_and_acts_once_it_may(installed: ControlPlane) -> None:
    installed.define(CRD)
    (node,) = installed.add_nodes("rights", 1)
    made = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "moe", "namespace": "default"},
        "spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 1, "restartPolicy": "None"}},
    }
    installed.create(made)
    uid = installed.get("leaderworkersets", "moe")["metadata"]["uid"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "moe-0",
            "namespace": "default",
            "labels": {"leaderworkerset.sigs.k8s.io/name": "moe"},
            "ownerReferences": [
                {
                    "apiVersion": made["apiVersion"],
                    "kind": made["kind"],
                    "name": "moe",
                    "uid": uid,
                    "controller": True,
                }
            ],
        },
        "spec": {"nodeName": node, "containers": [{"name": "train", "image": "training:1"}]},
    }
    installed.create(pod)
    target = Target("LeaderWorkerSet", "moe", "default", uid)
    async with await connected(installed, RESPONDER) as cluster:
        jobs, nodes = TrainingJobs(cluster), NodeConnector(cluster)

        def effect(action: str, on: Target) -> Effect:
            return Effect(f"{action}-1", action, on, "c1", "inc-1", "run-1", action)

        assert isinstance(await nodes.apply(effect("cordon_node", Target("Node", node)), NoLease()), Done)
        refused = await jobs.apply(effect("suspend_job", target), NoLease())
        assert isinstance(refused, Refused)
        assert "apply k8s/components/jobs-lws" in refused.reason
        installed.kubectl("apply", "--server-side", "-k", str(COMPONENT_DIR / "jobs-lws"))
        soon_may(installed, RESPONDER, "patch", "leaderworkersets.leaderworkerset.x-k8s.io")

        async def evicted() -> bool:
            return isinstance(await jobs.apply(effect("suspend_job", target), NoLease()), Done | AlreadyDone)

        await eventually(evicted, "the pod of the set is evicted by the responder's own rights")
        pods = await cluster.list_all(path_of("v1", "pods", namespace="default"))
        assert "moe-0" not in [one["metadata"]["name"] for one in pods]
    installed.kubectl("delete", "-k", str(COMPONENT_DIR / "jobs-lws"))
    installed.kubectl("delete", "leaderworkerset", "moe", "--namespace", "default")
    installed.remove_pool("rights")
