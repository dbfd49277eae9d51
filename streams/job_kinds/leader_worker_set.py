"""LeaderWorkerSet, of leaderworkerset.x-k8s.io: each of its groups is a world of its own.

It has no suspend field. Its groups are moved by eviction: where one pod of a group goes, its controller makes the whole group
anew, unless its restart policy says otherwise. Source: LeaderWorkerSet, "Failure Handling", "API reference" (RestartPolicyType).
"""

from __future__ import annotations

from collections.abc import Iterable

from streams.job_kinds.kind import JobKind, Lever, Proof, Role, by_name, count_of
from streams.model.kube_objects import KubeObject, part, text

NAME = "leaderworkerset.sigs.k8s.io/name"
GROUP = "leaderworkerset.sigs.k8s.io/group-index"
WORKER = "leaderworkerset.sigs.k8s.io/worker-index"
"""Labels of its pods: whose they are, in which group, and which of it; the leader is 0."""

POD_ALONE = "None"
"""The restart policy under which a lost pod is replaced and its group left as it is."""
AFTER_START = "RecreateGroupAfterStart"
"""The one under which the group is made anew only while none of its pods is pending."""


def restart_policy(job: KubeObject) -> str:
    """What becomes of a group when one of its pods is lost."""
    return text(part(job, "spec", "leaderWorkerTemplate"), "restartPolicy") or "RecreateGroupOnPodRestart"


def recreates_groups(job: KubeObject) -> bool:
    """Whether one lost pod makes the whole group anew. `Default` is the old name of `None`."""
    return restart_policy(job) not in (POD_ALONE, "Default")


def group_size(job: KubeObject) -> int:
    """Pods of one group, its leader included."""
    return count_of(part(job, "spec", "leaderWorkerTemplate"), "size")


def _roles(job: KubeObject) -> Iterable[Role]:
    template = part(job, "spec", "leaderWorkerTemplate")
    yield Role("", part(template, "workerTemplate", "spec"), group_size(job))


def _cost(job: KubeObject) -> str:
    whole = "every pod of a group that has one on the closed node is made anew"
    return (
        whole
        if recreates_groups(job)
        else "its pods on the closed node are made anew, and the others wait for them"
    )


LEADER_WORKER_SET = JobKind(
    name="LeaderWorkerSet",
    api_versions=("leaderworkerset.x-k8s.io/v1",),
    plural="leaderworkersets",
    pod_labels=by_name(NAME),
    children=frozenset({"StatefulSet"}),
    roles=_roles,
    all_pods=lambda job: group_size(job) * count_of(part(job, "spec"), "replicas"),
    lever=Lever.EVICT,
    cost=_cost,
    proof=Proof.SIMULATED,
    notes=(
        "It has no suspend field. One pod of each group on the closed node is evicted, and its controller makes the group anew; "
        "with the restart policy None every pod on the node is evicted. Budgets of disruption are respected.",
        "One that serves is no training job: the drain of the node moves its groups. Label it `faultline.dev/workload: training` "
        "where it trains.",
    ),
)
