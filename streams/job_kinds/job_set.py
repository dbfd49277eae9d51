"""JobSet, of jobset.x-k8s.io: groups of batch Jobs that start, stop and fail together.

Its controller suspends and resumes the Jobs beneath it. Sources: JobSet, "API reference" (JobSetSpec, JobSetStatus),
"Failure policy"; KEP-1282 (execution attempts).
"""

from __future__ import annotations

from collections.abc import Iterable

from streams.job_kinds.healing import by_failure_policy, restarts_used
from streams.job_kinds.kind import (
    JobKind,
    Proof,
    Retries,
    Role,
    by_name,
    count_of,
    ended_by_condition,
    pods_of_job_spec,
)
from streams.model.kube_objects import KubeObject, items, part, text, whole

NAME = "jobset.sigs.k8s.io/jobset-name"
ROLE = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
"""Labels of its Jobs and pods: whose they are, of which group, and of which of its Jobs."""


def _roles(job: KubeObject) -> Iterable[Role]:
    for replicated in items(job, "spec", "replicatedJobs"):
        job_spec = part(replicated, "template", "spec")
        yield Role(
            str(replicated.get("name") or "").lower(),
            part(job_spec, "template", "spec"),
            pods_of_job_spec(job_spec),
            jobs=count_of(replicated, "replicas"),
        )


def _finished(job: KubeObject) -> int:
    """Pods of Jobs that have succeeded: a suspension leaves those as they are, and only a restart makes them anew."""
    per_job = {role.name: role.per_job for role in _roles(job)}
    done = items(job, "status", "replicatedJobsStatus")
    return sum(
        (whole(one.get("succeeded")) or 0) * per_job.get((text(one, "name") or "").lower(), 0) for one in done
    )


def _retries(job: KubeObject) -> Retries:
    """Restarts of the whole set; without a failure policy the first Job that fails ends it."""
    return Retries(restarts_used(job), whole(part(job, "spec", "failurePolicy").get("maxRestarts")) or 0)


def _incarnation(job: KubeObject) -> str:
    """Execution attempts count restarts and resumes; restarts, where there are none of those, restarts alone."""
    status = part(job, "status")
    attempts = whole(status.get("executionAttempts"))
    counted = whole(status.get("restarts")) if attempts is None else attempts
    return "" if counted is None else str(counted)


JOB_SET = JobKind(
    name="JobSet",
    api_versions=("jobset.x-k8s.io/v1alpha2",),
    plural="jobsets",
    pod_labels=by_name(NAME),
    children=frozenset({"Job"}),
    roles=_roles,
    suspend_at=("spec", "suspend"),
    end=ended_by_condition({"Completed": False, "Failed": True}),
    finished_pods=_finished,
    retries=_retries,
    heals_within_s=by_failure_policy,
    incarnation=_incarnation,
    proof=Proof.SIMULATED,
    notes=(
        "Suspending suspends its Jobs and counts as no restart; Jobs that have completed stay so.",
        "One that has restarts left is given three minutes to restart itself, unless a rule of its failure policy may fail it "
        "or it restarts in place: then its pods would stay on the bad node.",
        "The affinity of its pods cannot be changed, suspended or not: it keeps off closed nodes only, not off other suspects.",
    ),
)
