"""LeaderWorkerSet, of leaderworkerset.x-k8s.io: each of its groups is a world of its own."""

from __future__ import annotations

from collections.abc import Iterable

from streams.job_kinds.kind import JobKind, Role, by_name, count_of
from streams.model.kube_objects import KubeObject, part


def _roles(job: KubeObject) -> Iterable[Role]:
    template = part(job, "spec", "leaderWorkerTemplate")
    yield Role("", part(template, "workerTemplate", "spec"), count_of(template, "size"))


LEADER_WORKER_SET = JobKind(
    name="LeaderWorkerSet",
    api_versions=("leaderworkerset.x-k8s.io/v1",),
    plural="leaderworkersets",
    pod_labels=by_name("leaderworkerset.sigs.k8s.io/name"),
    children=frozenset({"StatefulSet"}),
    roles=_roles,
)
