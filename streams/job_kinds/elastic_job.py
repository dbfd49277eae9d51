"""ElasticJob of DLRover, of elastic.iml.github.io. Observed only.

Its `spec.suspend` keeps a new job from starting; nothing of a running one is stopped by it: only the status changes. Its master
makes lost pods anew, up to a count for each, also those that somebody deletes. Sources: DLRover, "Fault tolerance", and the
types of its operator (ElasticJobSpec, ReplicaSpec).
"""

from __future__ import annotations

from collections.abc import Iterable

from streams.job_kinds.healing import by_master
from streams.job_kinds.kind import End, JobKind, Role, by_name, count_of
from streams.model.kube_objects import KubeObject, part, text

NAME = "elasticjob.dlrover/name"
ROLE = "elasticjob.dlrover/replica-type"
"""Labels of its pods: whose they are, and of which role."""

_ENDS = {"Succeeded": False, "Failed": True}


def _roles(job: KubeObject) -> Iterable[Role]:
    replicas = part(job, "spec", "replicaSpecs")
    for name in replicas:
        about = part(replicas, name)
        yield Role(str(name).lower(), part(about, "template", "spec"), count_of(about, "replicas"))


def _end(job: KubeObject) -> End | None:
    phase = text(part(job, "status"), "phase") or ""
    return End(phase, _ENDS[phase]) if phase in _ENDS else None


ELASTIC_JOB = JobKind(
    name="ElasticJob",
    api_versions=("elastic.iml.github.io/v1alpha1",),
    plural="elasticjobs",
    pod_labels=by_name(NAME),
    roles=_roles,
    end=_end,
    no_lever=(
        "its spec.suspend stops no pod of a running job, and its master makes lost pods anew: where that does not happen, delete "
        "the pods that are left on the closed node"
    ),
    heals_within_s=by_master,
    notes=(
        "It is watched only: its master relaunches lost pods elsewhere, each as often as the job allows.",
    ),
)
