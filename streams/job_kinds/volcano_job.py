"""The Job of batch.volcano.sh, called VolcanoJob here."""

from __future__ import annotations

from collections.abc import Iterable

from streams.job_kinds.kind import End, JobKind, Role, by_name, count_of
from streams.model.kube_objects import KubeObject, items, part


def _roles(job: KubeObject) -> Iterable[Role]:
    for task in items(job, "spec", "tasks"):
        yield Role(
            str(task.get("name") or "").lower(), part(task, "template", "spec"), count_of(task, "replicas")
        )


_ENDS = {"Completed": False, "Failed": True, "Terminated": True}


def _phase(job: KubeObject) -> str:
    return str(part(job, "status", "state").get("phase") or "")


def _end(job: KubeObject) -> End | None:
    phase = _phase(job)
    return End(phase, _ENDS[phase]) if phase in _ENDS else None


VOLCANO_JOB = JobKind(
    name="VolcanoJob",
    kind="Job",
    api_versions=("batch.volcano.sh/v1alpha1",),
    plural="jobs",
    pod_labels=by_name("volcano.sh/job-name"),
    roles=_roles,
    phase_suspended=lambda job: _phase(job) in ("Aborting", "Aborted"),
    end=_end,
    no_lever="Faultline sends Volcano no commands: suspend and resume it with vcctl, which costs it one of its retries",
)
