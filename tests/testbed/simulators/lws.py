"""The controller of LeaderWorkerSets, in small. Source: LeaderWorkerSet, "Concepts" and "Failure Handling".

- a StatefulSet of leaders is named like the set and makes one leader pod per replica (group)
- each leader pod owns a StatefulSet of its workers, named like it, whose ordinals start at 1
- every pod bears the name of the set, the index of its group and its index in it as labels
- when a worker goes, the leader is deleted in the foreground and the group made anew; with the policy `None` only the pod is;
  with `RecreateGroupAfterStart` the group is, unless one of its pods is still pending

The StatefulSets and the garbage collector are the real ones.
"""

from __future__ import annotations

from copy import deepcopy

from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.errors import AlreadyExists, NotFound
from connectors.kubernetes.objects import controller
from streams.job_kinds.leader_worker_set import (
    AFTER_START,
    GROUP,
    LEADER_WORKER_SET,
    NAME,
    WORKER,
    group_size,
    recreates_groups,
    restart_policy,
)
from tests.testbed.simulators.reconciler import Reconciler, reference_to


class LeaderWorkerSets(Reconciler):
    """Reconciles all sets of one namespace, again and again; what it has seen of pods is all that it remembers."""

    api_version = LEADER_WORKER_SET.api_versions[0]
    plural = LEADER_WORKER_SET.plural

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        super().__init__(cluster, namespace)
        self._workers: dict[str, set[str]] = {}
        """The uids of the workers that each leader (by its uid) has had."""

    async def reconcile(self, owner: Object) -> None:
        """One step towards what the set says."""
        template = owner["spec"]["leaderWorkerTemplate"]
        leader = template.get("leaderTemplate") or template["workerTemplate"]
        await self._stateful_set(
            owner["metadata"]["name"], owner, owner, leader, owner["spec"].get("replicas", 1), {WORKER: "0"}
        )
        pods = await self._pods(owner)
        # Before they are labelled: whoever sees both labels may delete a pod at once, and it has to be known by then.
        await self._restart(owner, pods)
        for pod in pods:
            await self._label(pod)
        for pod in pods:
            labels = pod["metadata"].get("labels") or {}
            is_leader = labels.get(WORKER) == "0" and GROUP in labels
            if is_leader and not pod["metadata"].get("deletionTimestamp") and group_size(owner) > 1:
                await self._stateful_set(
                    pod["metadata"]["name"],
                    owner,
                    pod,
                    template["workerTemplate"],
                    group_size(owner) - 1,
                    {GROUP: labels[GROUP]},
                    first=1,
                )

    async def _restart(self, owner: Object, pods: list[Object]) -> None:
        """Make the groups anew that have lost a worker, as far as the policy says.

        A worker belongs to the leader whose StatefulSet made it. One that was lost stays lost until that leader is gone: a round
        that fails halfway, or comes when the next worker is not there yet, forgets nothing.
        """
        made_by = {
            sets["metadata"]["uid"]: (controller(sets) or {}).get("uid") for sets in await self._sets()
        }
        for leader in [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(WORKER) == "0"]:
            about = leader["metadata"]
            mine = [pod for pod in pods if made_by.get((controller(pod) or {}).get("uid")) == about["uid"]]
            staying = {pod["metadata"]["uid"] for pod in mine if not pod["metadata"].get("deletionTimestamp")}
            known = self._workers.setdefault(about["uid"], set())
            lost = len(staying) < len(mine) or not known <= staying
            known |= staying
            if about.get("deletionTimestamp") or not lost or not recreates_groups(owner):
                continue
            if restart_policy(owner) == AFTER_START and any(
                pod["status"].get("phase") == "Pending" for pod in (leader, *mine)
            ):
                self._workers[about["uid"]] = staying  # such a loss does not count, then or later
                continue
            path = path_of("v1", "pods", namespace=self.namespace, name=about["name"])
            await self.cluster.delete(path, uid=about["uid"], propagation="Foreground")

    async def _sets(self) -> list[Object]:
        return await self.cluster.list_all(path_of("apps/v1", "statefulsets", namespace=self.namespace))

    async def _pods(self, owner: Object) -> list[Object]:
        query = {"labelSelector": f"{NAME}={owner['metadata']['name']}"}
        return await self.cluster.list_all(path_of("v1", "pods", namespace=self.namespace), query=query)

    async def _label(self, pod: Object) -> None:
        """What the real one's webhook writes when a pod is made: the indices in its name."""
        about = pod["metadata"]
        labels = about.get("labels") or {}
        ordinal = str(about["name"]).rpartition("-")[2]
        missing = {GROUP: ordinal} if labels.get(WORKER) == "0" else {WORKER: ordinal}
        if not missing.keys() <= labels.keys():
            path = path_of("v1", "pods", namespace=self.namespace, name=about["name"])
            # Another pod may have the name by now: with the version that is a conflict, by the uid alone an invalid request.
            read = {"uid": about["uid"], "resourceVersion": about["resourceVersion"]}
            await self.cluster.patch(path, {"metadata": {**read, "labels": missing}})
            about["labels"] = labels | missing

    async def _stateful_set(
        self,
        name: str,
        owner: Object,
        above: Object,
        template: Object,
        replicas: int,
        labels: dict[str, str],
        *,
        first: int = 0,
    ) -> None:
        """Create a StatefulSet of `replicas` pods that `above` controls, unless it is there."""
        marks = {NAME: str(owner["metadata"]["name"]), **labels}
        reference = reference_to({"apiVersion": "v1", "kind": "Pod", **above})
        pod = deepcopy(template)
        pod.setdefault("metadata", {})["labels"] = {**(pod["metadata"].get("labels") or {}), **marks}
        made = {
            "metadata": {"name": name, "labels": marks, "ownerReferences": [reference]},
            "spec": {
                "replicas": replicas,
                "ordinals": {"start": first},
                "serviceName": owner["metadata"]["name"],
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": marks},
                "template": pod,
            },
        }
        path = path_of("apps/v1", "statefulsets", namespace=self.namespace)
        try:
            await self.cluster.get(f"{path}/{name}")
        except NotFound:
            try:
                await self.cluster.create(path, made)
            except AlreadyExists:
                return


def is_known(pod: Object) -> bool:
    """Whether the controller has seen a pod. One that bears not all labels yet may be deleted unnoticed: no webhook is here."""
    return {GROUP, WORKER} <= (pod["metadata"].get("labels") or {}).keys()


def leader_worker_set(
    name: str,
    namespace: str,
    *,
    pool: str,
    groups: int = 2,
    size: int = 2,
    gpus: int = 8,
    policy: str | None = None,
    grace_s: int = 30,
) -> Object:
    """A set of `groups` groups of `size` pods of `gpus` GPUs each, on the nodes of a pool, for training."""
    pod = {
        "metadata": {"labels": {}},
        "spec": {
            "nodeSelector": {"testbed.faultline.dev/pool": pool},
            "terminationGracePeriodSeconds": grace_s,
            "containers": [
                {
                    "name": "train",
                    "image": "training:1",
                    "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
                }
            ],
        },
    }
    template: Object = {"size": size, "workerTemplate": pod}
    if policy is not None:
        template["restartPolicy"] = policy
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"faultline.dev/workload": "training"},
        },
        "spec": {"replicas": groups, "leaderWorkerTemplate": template},
    }
