"""KubeRay 1.7, in small: RayClusters, RayJobs and RayServices. Source: KubeRay, API reference; Ray documentation, "RayJob".

RayCluster
- makes one head pod and for each group its replicas times its hosts; pods bear cluster, node type and group as labels
- a pod that ended is deleted and made anew, and so is one that is gone; one that is Terminating counts as there
- `spec.suspend` deletes all pods; RayClusterSuspending holds until they are gone, then RayClusterSuspended
- a suspension that has begun is carried through, whatever the field says meanwhile; reset, all pods are made anew
- `status.state` is `ready` when every pod is, and `status.head.podName` names the head

RayJob
- gets the name of a cluster of its own and a job id before anything is made; then the RayCluster, and once that is ready a
  batch Job of its own name that submits
- `spec.suspend` while Initializing or Running: cluster and submitter are deleted; once those objects are gone (their pods may
  not be) the status forgets both names and is Suspended; reset, it begins anew
- a submitter that has failed fails it; while `backoffLimit` allows it the whole cluster is deleted and made anew, and counted
- a submitter that is complete completes it
- with `clusterSelector`, and while `shutdownAfterJobFinishes` is false, `spec.suspend` ends it as ValidationFailed, and its
  cluster stays

RayService
- makes a RayCluster of its own and names it in `status.activeServiceStatus`

What is left out: the Ray program itself, the autoscaler, upgrades, fault tolerance of the head, and workers that end by
themselves because their head is gone. The Job controller, the scheduler and the garbage collector are the real ones.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from copy import deepcopy
from typing import Any

from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.errors import NotFound
from connectors.kubernetes.objects import is_ready
from streams.job_kinds.ray import CLUSTER, GROUP, NODE_TYPE, pods_of_cluster
from streams.model.kube_objects import holds, part
from tests.testbed import workloads
from tests.testbed.simulators.reconciler import Reconciler, reference_to, with_condition

V1 = "ray.io/v1"
FROM_KIND, FROM_NAME = "ray.io/originated-from-crd", "ray.io/originated-from-cr-name"


@asynccontextmanager
async def kube_ray(cluster: Cluster, namespace: str) -> AsyncIterator[None]:
    """All three controllers, for one namespace."""
    async with AsyncExitStack() as stack:
        for controller in (RayClusters, RayJobs, RayServices):
            await stack.enter_async_context(controller.running(cluster, namespace))
        yield


class RayClusters(Reconciler):
    """Keeps the pods of clusters."""

    api_version, plural = V1, "rayclusters"

    async def reconcile(self, owner: Object) -> None:
        """One step towards what the cluster says."""
        pods = await self._pods(owner)
        if await self._suspend(owner, pods):
            return
        if over := [pod for pod in pods if pod["status"].get("phase") in ("Failed", "Succeeded")]:
            await self._delete(over)
            return
        head = [pod for pod in pods if pod["metadata"]["labels"][NODE_TYPE] == "head"]
        if not head:
            await self._create(owner, "head", "headgroup", owner["spec"]["headGroupSpec"])
        for group in owner["spec"].get("workerGroupSpecs") or []:
            wanted = pods_of_cluster({"workerGroupSpecs": [group]}) - 1
            there = [pod for pod in pods if pod["metadata"]["labels"][GROUP] == group["groupName"]]
            for _ in range(wanted - len(there)):
                await self._create(owner, "worker", group["groupName"], group)
        fine = [pod for pod in pods if is_ready(pod) and not pod["metadata"].get("deletionTimestamp")]
        state = {"state": "ready"} if len(fine) == pods_of_cluster(owner["spec"]) else {}
        named = {"head": {"podName": head[0]["metadata"]["name"]}} if head else {}
        await self.set_status(owner, **state, **named)

    async def _suspend(self, owner: Object, pods: list[Object]) -> bool:
        """Whether the cluster is suspended, or about to be."""
        asked = owner["spec"].get("suspend") is True
        if holds(owner, "RayClusterSuspending"):
            await self._delete(pods)
            if not pods:
                conditions = with_condition(owner, "RayClusterSuspending", False, "Suspended")
                seen = {**owner, "status": {"conditions": conditions}}
                conditions = with_condition(seen, "RayClusterSuspended", True, "Suspended")
                await self.set_status(owner, conditions=conditions, state="suspended", head=None)
            return True
        if holds(owner, "RayClusterSuspended") and not asked:
            conditions = with_condition(owner, "RayClusterSuspended", False, "Resumed")
            await self.set_status(owner, conditions=conditions, state=None)
        elif asked and not holds(owner, "RayClusterSuspended"):
            await self.set_status(
                owner, conditions=with_condition(owner, "RayClusterSuspending", True, "Suspend")
            )
        return asked

    async def _pods(self, owner: Object) -> list[Object]:
        query = {"labelSelector": f"{CLUSTER}={owner['metadata']['name']}"}
        return await self.cluster.list_all(path_of("v1", "pods", namespace=self.namespace), query=query)

    async def _delete(self, pods: list[Object]) -> None:
        for pod in pods:
            about = pod["metadata"]
            if not about.get("deletionTimestamp"):
                path = path_of("v1", "pods", namespace=self.namespace, name=about["name"])
                await self.cluster.delete(path, uid=about["uid"])

    async def _create(self, owner: Object, node_type: str, group: str, spec: Mapping[str, Any]) -> None:
        name = owner["metadata"]["name"]
        labels = {CLUSTER: name, NODE_TYPE: node_type, GROUP: group, "ray.io/is-ray-node": "yes"}
        middle = "head" if node_type == "head" else f"{group}-worker"
        made = {
            "metadata": {
                "name": f"{name}-{middle}-{_random()}",
                "labels": labels,
                "ownerReferences": [reference_to(owner)],
            },
            "spec": deepcopy(spec["template"]["spec"]),
        }
        await self.cluster.create(path_of("v1", "pods", namespace=self.namespace), made)


class RayJobs(Reconciler):
    """Keeps a cluster and a submitter for each job."""

    api_version, plural = V1, "rayjobs"

    async def reconcile(self, owner: Object) -> None:
        """One step of the job from where its status says it is."""
        spec, status = owner["spec"], owner.get("status") or {}
        phase, suspend = status.get("jobDeploymentStatus") or "", spec.get("suspend") is True
        if phase in ("Complete", "Failed", "ValidationFailed"):
            return
        if suspend and (spec.get("clusterSelector") or spec.get("shutdownAfterJobFinishes") is not True):
            await self.set_status(owner, jobDeploymentStatus="ValidationFailed", reason="ValidationFailed")
        elif phase in ("Suspending", "Retrying"):
            await self._clear(owner, "Suspended" if phase == "Suspending" else "")
        elif phase == "Suspended":
            if not suspend:
                await self.set_status(owner, jobDeploymentStatus="", jobStatus="")
        elif phase == "":
            await self._begin(owner)
        elif suspend:
            await self.set_status(owner, jobDeploymentStatus="Suspending")
        elif phase == "Initializing":
            await self._initialize(owner)
        else:
            await self._watch(owner)

    async def _begin(self, owner: Object) -> None:
        name = owner["metadata"]["name"]
        chosen = part(owner, "spec", "clusterSelector").get(CLUSTER)
        await self.set_status(
            owner,
            jobDeploymentStatus="Initializing",
            rayClusterName=chosen or f"{name}-{_random()}",
            jobId=f"{name}-{_random()}",
        )

    async def _initialize(self, owner: Object) -> None:
        cluster = await self._cluster(owner)
        if cluster is None:
            about = {"name": owner["status"]["rayClusterName"], **_made_for(owner)}
            await self.cluster.create(
                _at("rayclusters", self.namespace),
                {
                    "apiVersion": V1,
                    "kind": "RayCluster",
                    "metadata": about,
                    "spec": owner["spec"]["rayClusterSpec"],
                },
            )
        elif part(cluster, "status").get("state") == "ready":
            if not await self._submitters(owner):
                await self._submit(owner, cluster)
            await self.set_status(owner, jobDeploymentStatus="Running", jobStatus="RUNNING")

    async def _watch(self, owner: Object) -> None:
        for submitter in await self._submitters(owner):
            if holds(submitter, "Complete"):
                await self.set_status(owner, jobDeploymentStatus="Complete", jobStatus="SUCCEEDED")
            elif holds(submitter, "Failed"):
                failed = (owner["status"].get("failed") or 0) + 1
                again = failed <= (owner["spec"].get("backoffLimit") or 0)
                phase = "Retrying" if again else "Failed"
                await self.set_status(owner, jobDeploymentStatus=phase, jobStatus="FAILED", failed=failed)

    async def _clear(self, owner: Object, then: str) -> None:
        """Delete what was made for the job; once the objects are gone, forget them."""
        cluster, left = await self._cluster(owner), await self._submitters(owner)
        for plural, thing in (("rayclusters", cluster), *(("jobs", one) for one in left)):
            if thing is not None and not thing["metadata"].get("deletionTimestamp"):
                path = _at(plural, self.namespace, thing["metadata"]["name"])
                await self.cluster.delete(path, uid=thing["metadata"]["uid"], propagation="Background")
        if cluster is None and not left:
            await self.set_status(
                owner, jobDeploymentStatus=then, jobStatus="", rayClusterName=None, jobId=None
            )

    async def _cluster(self, owner: Object) -> Object | None:
        try:
            return await self.cluster.get(
                _at("rayclusters", self.namespace, owner["status"]["rayClusterName"])
            )
        except NotFound:
            return None

    async def _submitters(self, owner: Object) -> list[Object]:
        return [
            job
            for job in await self.cluster.list_all(_at("jobs", self.namespace))
            if any(ref["uid"] == owner["metadata"]["uid"] for ref in job["metadata"]["ownerReferences"])
        ]

    async def _submit(self, owner: Object, cluster: Object) -> None:
        spec = deepcopy(cluster["spec"]["headGroupSpec"]["template"]["spec"])
        containers = [{"name": "ray-job-submitter", "image": "ray:2"}]
        pod = {"metadata": {}, "spec": spec | {"containers": containers, "restartPolicy": "Never"}}
        made = {
            "metadata": {"name": owner["metadata"]["name"], **_made_for(owner)},
            "spec": {"backoffLimit": 0, "template": pod},
        }
        await self.cluster.create(_at("jobs", self.namespace), made)


class RayServices(Reconciler):
    """Keeps a cluster for each service."""

    api_version, plural = V1, "rayservices"

    async def reconcile(self, owner: Object) -> None:
        """Make its cluster, and name it."""
        active = part(owner, "status", "activeServiceStatus").get("rayClusterName")
        if not active:
            name = f"{owner['metadata']['name']}-{_random()}"
            await self.set_status(owner, activeServiceStatus={"rayClusterName": name})
        elif not await self.made_by(owner, V1, "rayclusters"):
            about = {"name": active, **_made_for(owner)}
            made = {"apiVersion": V1, "kind": "RayCluster", "metadata": about}
            await self.cluster.create(
                _at("rayclusters", self.namespace), made | {"spec": owner["spec"]["rayClusterConfig"]}
            )


def _made_for(owner: Object) -> Object:
    labels = {FROM_KIND: owner["kind"], FROM_NAME: owner["metadata"]["name"]}
    return {"labels": labels, "ownerReferences": [reference_to(owner)]}


def _at(plural: str, namespace: str, name: str | None = None) -> str:
    return path_of("batch/v1" if plural == "jobs" else V1, plural, namespace=namespace, name=name)


def _random() -> str:
    return secrets.token_hex(3)[:5]


def ray_object(
    kind: str,
    name: str,
    namespace: str,
    *,
    pool: str,
    workers: int = 3,
    gpus: int = 8,
    head_gpus: int | None = None,
    **fields: Any,
) -> Object:
    """A RayJob, RayCluster or RayService of a head and `workers` workers with `gpus` GPUs each; `fields` are of its spec."""
    cluster: Object = {
        "headGroupSpec": {"template": _template(pool, gpus if head_gpus is None else head_gpus)},
        "workerGroupSpecs": [
            {"groupName": "gpu", "replicas": workers, "numOfHosts": 1, "template": _template(pool, gpus)}
        ],
    }
    job: Object = {
        "entrypoint": "python train.py",
        "shutdownAfterJobFinishes": True,
        "rayClusterSpec": cluster,
    }
    specs: dict[str, Object] = {
        "RayJob": job,
        "RayCluster": cluster,
        "RayService": {"rayClusterConfig": cluster},
    }
    return {
        "apiVersion": V1,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": specs[kind] | fields,
    }


def _template(pool: str, gpus: int) -> Object:
    limits = {"resources": {"limits": {workloads.GPU: str(gpus)}}} if gpus else {}
    return {
        "spec": {
            "nodeSelector": {workloads.POOL: pool},
            "containers": [{"name": "ray", "image": "ray:2", **limits}],
        }
    }
