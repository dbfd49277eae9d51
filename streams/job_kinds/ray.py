"""What the kinds of ray.io have in common: clusters of one head pod and groups of worker pods.

A cluster lives as long as its head, which holds what was submitted to it. Workers come and go: KubeRay makes those anew that
are gone. One that is Terminating counts as there, so a worker on a dead node is missed only once it has been force-deleted.
Source: KubeRay 1.7, API reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streams.job_kinds.kind import count_of
from streams.model.kube_objects import KubeObject, items, labels_of, part, text, whole

CLUSTER = "ray.io/cluster"
NODE_TYPE = "ray.io/node-type"
GROUP = "ray.io/group"
"""Labels of its pods: of which cluster, `head` or `worker`, and of which group."""

PROVEN_BY = "not proven: the Ray program itself, the autoscaler, GCS fault tolerance"
RESTARTED_WITH_HEAD = (
    "stopped only where its head is on the closed node: then its whole cluster is made anew; "
    "else its workers there are evicted and made anew, and it goes on"
)


def pods_of_cluster(spec: Mapping[str, Any]) -> int:
    """How many pods a cluster spec wants: the head, and each group's replicas times its hosts, suspended groups left out.

    With the autoscaler it is the least that is wanted.
    """
    scaled = spec.get("enableInTreeAutoscaling") is True
    return 1 + sum(_pods_of_group(group, scaled=scaled) for group in items(spec, "workerGroupSpecs"))


def _pods_of_group(group: Mapping[str, Any], *, scaled: bool) -> int:
    if group.get("suspend") is True:
        return 0
    least, most = whole(group.get("minReplicas")) or 0, whole(group.get("maxReplicas"))
    replicas = least if scaled else max(least, whole(group.get("replicas")) or 0)
    return min(replicas, replicas if most is None else most) * max(1, count_of(group, "numOfHosts"))


def goes_on_without(pod: KubeObject) -> bool:
    """Whether the job goes on when this pod is evicted: a worker, or what only submits to the head and follows its log."""
    refs = items(pod, "metadata", "ownerReferences")
    submits = any(one.get("controller") is True and one.get("kind") == "Job" for one in refs)
    return submits or text(labels_of(pod), NODE_TYPE) == "worker"


def head_of(cluster: KubeObject) -> str:
    """The name of the head pod, as the status of a cluster has it; empty where it has none."""
    return text(part(cluster, "status", "head"), "podName") or ""
