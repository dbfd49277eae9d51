"""The Job of batch.volcano.sh, called VolcanoJob here. Source: Volcano, "VolcanoJob" (policies, maxRetry), `vcctl job suspend`.

It has no suspend field: commands abort and resume it. Each resume and each restart adds one to `status.retryCount`, and at
`spec.maxRetry` the job has failed (volcano#3067), so the last of them cannot be used for a move.
"""

from __future__ import annotations

from collections.abc import Iterable

from streams.job_kinds.kind import End, JobKind, Lever, Proof, Retries, Role, by_name, count_of
from streams.model.kube_objects import KubeObject, items, part, whole

MAX_RETRY = 3
"""Where `spec.maxRetry` is not set."""
HEALS_S = 180.0
"""A restart waits until the old pods are gone and the gang is scheduled anew."""

LOST = frozenset({"PodEvicted", "PodFailed", "AnyEvent", "*"})
"""Events of policies that the loss of a pod leads to."""
RESTARTS = frozenset({"RestartJob", "RestartTask", "RestartPod"})
ABORTED = frozenset({"Aborting", "Aborted"})
TURNING = frozenset({"Restarting", "Completing", "Terminating"})
"""Phases in which a command is dropped: the controller is on its way to the next."""


def phase(job: KubeObject) -> str:
    """`status.state.phase`; empty before the controller has seen the job."""
    return str(part(job, "status", "state").get("phase") or "")


def retry_count(job: KubeObject) -> int:
    """`status.retryCount`: rises with every resume and every restart of the job, and with nothing else."""
    return whole(part(job, "status").get("retryCount")) or 0


def _roles(job: KubeObject) -> Iterable[Role]:
    for task in items(job, "spec", "tasks"):
        yield Role(
            str(task.get("name") or "").lower(), part(task, "template", "spec"), count_of(task, "replicas")
        )


_ENDS = {"Completed": False, "Failed": True, "Terminated": True}


def _end(job: KubeObject) -> End | None:
    now = phase(job)
    return End(now, _ENDS[now]) if now in _ENDS else None


def _retries(job: KubeObject) -> Retries:
    """Restarts that it survives: the one that reaches `maxRetry` ends it."""
    limit = whole(part(job, "spec").get("maxRetry")) or MAX_RETRY
    return Retries(retry_count(job), limit - 1)


def _immovable(job: KubeObject) -> str:
    if _retries(job).left > 0 or phase(job) in ABORTED:
        return ""
    return "a resume takes one of its retries and it has none left, so Volcano would end it: submit it anew with more maxRetry"


def _heals(job: KubeObject) -> float | None:
    """With a policy that restarts it when a pod is lost, as long as it survives the restart."""
    of_tasks = (one for task in items(job, "spec", "tasks") for one in items(task, "policies"))
    policies = [*items(job, "spec", "policies"), *of_tasks]
    restarts = any(
        policy.get("action") in RESTARTS and LOST & {policy.get("event"), *_events(policy)}
        for policy in policies
    )
    return HEALS_S if restarts and _retries(job).left > 0 else None


def _events(policy: KubeObject) -> list[str]:
    events = policy.get("events")
    return [one for one in events if isinstance(one, str)] if isinstance(events, list) else []


def _cost(job: KubeObject) -> str:
    retries = _retries(job)
    return f"it takes one of its restarts (status.retryCount {retries.used} of spec.maxRetry {retries.limit + 1})"


VOLCANO_JOB = JobKind(
    name="VolcanoJob",
    kind="Job",
    api_versions=("batch.volcano.sh/v1alpha1",),
    plural="jobs",
    pod_labels=by_name("volcano.sh/job-name"),
    roles=_roles,
    phase_suspended=lambda job: phase(job) in ABORTED,
    is_suspension_seen=lambda job: phase(job) in ABORTED,
    end=_end,
    lever=Lever.COMMAND,
    immovable=_immovable,
    cost=_cost,
    costs_retries=lambda job: 1,
    retries=_retries,
    heals_within_s=_heals,
    proof=Proof.SIMULATED,
    notes=(
        "A command AbortJob stops it and ResumeJob starts it again, each sent once. The resume takes one of its retries; the "
        "last one is not taken, for that would end the job.",
        "One with a policy that restarts it when a pod fails or is evicted is given three minutes to do so.",
    ),
)
