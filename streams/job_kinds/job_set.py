"""JobSet, of jobset.x-k8s.io."""

from __future__ import annotations

from collections.abc import Iterable

from streams.job_kinds.healing import by_failure_policy
from streams.job_kinds.kind import JobKind, Role, by_name, count_of, pods_of_job_spec
from streams.model.kube_objects import KubeObject, items, part


def _roles(job: KubeObject) -> Iterable[Role]:
    for replicated in items(job, "spec", "replicatedJobs"):
        job_spec = part(replicated, "template", "spec")
        pod_spec = part(job_spec, "template", "spec")
        yield Role(
            str(replicated.get("name") or "").lower(),
            pod_spec,
            pods_of_job_spec(job_spec),
            jobs=count_of(replicated, "replicas"),
        )


JOB_SET = JobKind(
    name="JobSet",
    api_versions=("jobset.x-k8s.io/v1alpha2",),
    plural="jobsets",
    pod_labels=by_name("jobset.sigs.k8s.io/jobset-name"),
    children=frozenset({"Job"}),
    roles=_roles,
    no_lever="Faultline does not set spec.suspend of JobSets: set it, and reset it once its pods are gone",
    heals_within_s=by_failure_policy,
)
