"""The controller of Volcano jobs, in small. Source: Volcano, "VolcanoJob", "Command"; pkg/controllers/job (state, actions).

- the pods of a job are named `job-task-index` and bear its name as a label; with them running its phase is Running
- a Command is deleted first and carried out then, by the phase of its target
- AbortJob from Pending or Running: Aborting, the pods are deleted, and once none is left Aborted
- ResumeJob from Aborting or Aborted: Restarting and `retryCount` + 1, then Pending with new pods; in other phases nothing
- in the phase Restarting every command is dropped
- a job that reaches `maxRetry` (3) while Restarting has Failed
- a policy RestartJob on PodEvicted or PodFailed restarts it: `retryCount` + 1

The scheduler and the kubelets are the real ones of the testbed.
"""

from __future__ import annotations

from copy import deepcopy

from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.errors import Conflict
from tests.testbed.simulators.reconciler import NamespaceReconciler

JOBS, COMMANDS = "batch.volcano.sh/v1alpha1", "bus.volcano.sh/v1alpha1"


class Volcano(NamespaceReconciler):
    """Reconciles the jobs of one namespace, again and again; it remembers nothing."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        super().__init__(cluster, namespace)
        self.loses = 0
        """How many of the next commands it takes and forgets, as one that dies in between."""

    async def reconcile(self) -> None:
        """Take the commands, then one step for every job."""
        path = path_of(COMMANDS, "commands", namespace=self._namespace)
        for one in await self._cluster.list_all(path):
            await self._cluster.delete(f"{path}/{one['metadata']['name']}", uid=one["metadata"]["uid"])
            if self.loses:
                self.loses -= 1
                continue
            await self._obey(one)
        for job in await self._cluster.list_all(self._at()):
            if not job["metadata"].get("deletionTimestamp"):
                await self._step(job)

    async def _obey(self, command: Object) -> None:
        target = command["target"]
        while True:  # what was taken is carried out, whoever else writes to the job
            job = await self._cluster.get(self._at(target["name"]))
            if job["metadata"]["uid"] != target["uid"]:
                return
            phase, retries = _phase(job), int((job.get("status") or {}).get("retryCount") or 0)
            match command["action"], phase:
                case "AbortJob", ("" | "Pending" | "Running"):
                    status: Object = {"state": {"phase": "Aborting"}}
                case "ResumeJob", ("Aborting" | "Aborted"):
                    status = {"state": {"phase": "Restarting"}, "retryCount": retries + 1}
                case _:
                    return
            try:
                await self._tell(job, status)
            except Conflict:
                continue
            return

    async def _step(self, job: Object) -> None:
        pods = await self._pods(job)
        alive = [pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed")]
        retries = int((job.get("status") or {}).get("retryCount") or 0)
        match _phase(job):
            case "":
                await self._tell(job, {"state": {"phase": "Pending"}, "retryCount": 0})
            case "Pending":
                await self._make(job, pods)
                running = [pod for pod in alive if pod["status"].get("phase") == "Running"]
                if len(running) >= job["spec"]["minAvailable"]:
                    await self._tell(job, {"state": {"phase": "Running"}})
            case "Running":
                lost = [pod for pod in pods if pod["metadata"].get("deletionTimestamp") or pod not in alive]
                if (lost or len(pods) < _wanted(job)) and _restarts(job):
                    await self._tell(job, {"state": {"phase": "Restarting"}, "retryCount": retries + 1})
            case "Restarting":
                await self._end(pods)
                if retries >= (job["spec"].get("maxRetry") or 3):
                    await self._tell(job, {"state": {"phase": "Failed"}})
                elif not pods:
                    await self._tell(job, {"state": {"phase": "Pending"}})
            case "Aborting":
                await self._end(alive)
                if not alive:
                    await self._tell(job, {"state": {"phase": "Aborted"}})
            case "Failed":
                await self._end(alive)

    async def _make(self, job: Object, pods: list[Object]) -> None:
        about, there = job["metadata"], {pod["metadata"]["name"] for pod in pods}
        owner = {
            "apiVersion": JOBS,
            "kind": "Job",
            "name": about["name"],
            "uid": about["uid"],
            "controller": True,
        }
        for task in job["spec"]["tasks"]:
            for index in range(task["replicas"]):
                name = f"{about['name']}-{task['name']}-{index}"
                if name in there:
                    continue
                pod = deepcopy(task["template"])
                labels = {"volcano.sh/job-name": about["name"], "volcano.sh/task-spec": task["name"]}
                pod["metadata"] = {"name": name, "labels": labels, "ownerReferences": [owner]}
                await self._cluster.create(path_of("v1", "pods", namespace=self._namespace), pod)

    async def _end(self, pods: list[Object]) -> None:
        for pod in pods:
            if not pod["metadata"].get("deletionTimestamp"):
                path = path_of("v1", "pods", namespace=self._namespace, name=pod["metadata"]["name"])
                await self._cluster.delete(path, uid=pod["metadata"]["uid"])

    async def _pods(self, job: Object) -> list[Object]:
        query = {"labelSelector": f"volcano.sh/job-name={job['metadata']['name']}"}
        return await self._cluster.list_all(path_of("v1", "pods", namespace=self._namespace), query=query)

    async def _tell(self, job: Object, status: Object) -> None:
        about = job["metadata"]
        read = {"uid": about["uid"], "resourceVersion": about["resourceVersion"]}
        await self._cluster.patch(f"{self._at(about['name'])}/status", {"metadata": read, "status": status})

    def _at(self, name: str | None = None) -> str:
        return path_of(JOBS, "jobs", namespace=self._namespace, name=name)


def volcano_job(
    name: str,
    namespace: str,
    *,
    pool: str,
    pods: int = 2,
    gpus: int = 4,
    max_retry: int = 3,
    policies: list[Object] | None = None,
    grace_s: int = 1,
) -> Object:
    """A job of one task of `pods` pods of `gpus` GPUs each, on the nodes of a pool."""
    container = {
        "name": "train",
        "image": "training:1",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    template = {
        "spec": {
            "nodeSelector": {"testbed.faultline.dev/pool": pool},
            "terminationGracePeriodSeconds": grace_s,
            "containers": [container],
        }
    }
    return {
        "apiVersion": JOBS,
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "minAvailable": pods,
            "maxRetry": max_retry,
            "policies": policies or [],
            "tasks": [{"name": "worker", "replicas": pods, "template": template}],
        },
    }


def _phase(job: Object) -> str:
    return str(((job.get("status") or {}).get("state") or {}).get("phase") or "")


def _wanted(job: Object) -> int:
    return sum(int(task["replicas"]) for task in job["spec"]["tasks"])


def _restarts(job: Object) -> bool:
    return any(
        one.get("action") == "RestartJob" and one.get("event") in ("PodEvicted", "PodFailed")
        for one in job["spec"].get("policies") or []
    )
