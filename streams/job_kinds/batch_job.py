"""batch/v1 Job. Source: Kubernetes, "Suspending a Job", "Mutable scheduling directives"."""

from __future__ import annotations

from collections.abc import Iterable

from streams.job_kinds.kind import (
    JobKind,
    Proof,
    Retries,
    Role,
    by_name,
    ended_by_condition,
    pods_of_job_spec,
)
from streams.model.kube_objects import KubeObject, items, part, text, whole

HEALS_S = 180.0
"""A lost pod is made anew with a back-off of ten seconds at first; an image may have to be pulled."""


def _roles(job: KubeObject) -> Iterable[Role]:
    yield Role("", part(job, "spec", "template", "spec"), pods_of_job_spec(part(job, "spec")))


def _finished(job: KubeObject) -> int:
    """Pods of completions that are done, as far as they leave fewer to run than may run at once."""
    spec, done = part(job, "spec"), whole(part(job, "status").get("succeeded")) or 0
    completions = whole(spec.get("completions"))
    if completions is None:
        return 0
    at_once = pods_of_job_spec(spec)
    return at_once - min(at_once, max(0, completions - done))


def _retries(job: KubeObject) -> Retries | None:
    """Failed pods against `backoffLimit`; with one for each index nothing is known of the job as a whole."""
    spec = part(job, "spec")
    limit = whole(spec.get("backoffLimit"))
    if spec.get("backoffLimitPerIndex") is not None or limit is None:
        return None
    return Retries(whole(part(job, "status").get("failed")) or 0, limit)


def _heals(job: KubeObject) -> float | None:
    """With a policy that does not count disruptions as failures, lost pods are made anew as long as a retry is left."""
    rules = items(job, "spec", "podFailurePolicy", "rules")
    forgiving = any(
        rule.get("action") == "Ignore"
        and any(one.get("type") == "DisruptionTarget" for one in items(rule, "onPodConditions"))
        for rule in rules
    )
    retries = _retries(job)
    return HEALS_S if forgiving and (retries is None or retries.left > 0) else None


JOB = JobKind(
    name="Job",
    api_versions=("batch/v1",),
    plural="jobs",
    pod_labels=by_name("batch.kubernetes.io/job-name"),
    roles=_roles,
    suspend_at=("spec", "suspend"),
    end=ended_by_condition(
        {"Complete": False, "SuccessCriteriaMet": False, "Failed": True, "FailureTarget": True}
    ),
    finished_pods=_finished,
    retries=_retries,
    heals_within_s=_heals,
    incarnation=lambda job: text(part(job, "status"), "startTime") or "",
    templates=lambda job: (("spec", "template"),),
    proof=Proof.REAL,
    notes=(
        "Suspending deletes its pods and does not count against `backoffLimit`.",
        "One whose `podFailurePolicy` ignores disruptions is given three minutes to replace its pods itself.",
        "`activeDeadlineSeconds` starts anew when it is resumed.",
    ),
)
