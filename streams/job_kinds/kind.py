"""What is declared of one kind of training job: how it is recognised, stopped, started elsewhere, and proven to run again.

A kind is one file beside this one with a `JobKind`, listed in `known.py`. The inventory reads it to tell what a job is and
whether it can be moved; plans follow that; the connectors in `connectors/jobs` carry it out. Everything here is pure, over the
object as the API server shows it, in which any part may be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from streams.job_kinds import kueue
from streams.model.kube_objects import KubeObject, annotations_of, holds, part, text, whole


class Lever(StrEnum):
    """By what a job is stopped and started again on other nodes."""

    SUSPEND = "suspend"
    """A field of the object itself: `JobKind.suspend_at`."""
    EVICT = "evict"
    """Its pods on closed nodes are evicted, and its controller makes them anew elsewhere."""
    COMMAND = "command"
    """Objects that tell its controller to abort and to resume it: the job itself has no field for that."""
    QUEUE = "queue"
    """Kueue admits it: its Workload is deactivated, and activated again. Holds for a job with a queue, whatever its kind has."""
    REQUEUE = "requeue"
    """Slurm puts it back into its queue and holds it there until it is released."""


@dataclass(frozen=True, slots=True)
class Means:
    """What can be done for one job as it is: a lever, or the reason why there is none."""

    lever: Lever | None
    reason: str = ""
    """Without a lever: why, and what its owner can do instead. One sentence without a full stop."""
    cost: str = ""
    """With one: what using it costs the job, e.g. one of its retries."""
    retries: int = 0
    """With one: how many of the job's restarts using it costs."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often its own controller restarts a job before it gives up."""

    used: int
    limit: int

    @property
    def left(self) -> int:
        """Restarts that are left; 0 means that the next one ends the job."""
        return max(0, self.limit - self.used)


@dataclass(frozen=True, slots=True)
class End:
    """How a job has ended: by which condition or phase, and whether that is a failure."""

    by: str
    failed: bool


@dataclass(frozen=True, slots=True)
class Role:
    """Pods of one kind within a job, in its spec: `jobs` child Jobs of `per_job` pods each."""

    name: str
    pod_spec: Mapping[str, Any]
    per_job: int
    jobs: int = 1

    @property
    def pods(self) -> int:
        """How many there are."""
        return self.jobs * self.per_job


@dataclass(frozen=True, slots=True)
class Progress:
    """What a job last reported of its own training: when, and how much of it is done, in percent, where it says so."""

    at: datetime
    percent: int | None = None


class Proof(StrEnum):
    """How the behaviour that a kind declares has been checked."""

    REAL = "real"
    """Against the kind's own controller."""
    SIMULATED = "simulated"
    """Against a simulator written from its documentation, on a real API server."""
    DOCUMENTED = "documented"
    """Not at all: by its documentation only."""


ENDS: Mapping[str, bool] = {"Complete": False, "Completed": False, "Succeeded": False, "Failed": True}
"""Conditions that end jobs of most kinds, and whether they are failures."""


def no_roles(job: KubeObject) -> Iterable[Role]:
    """For kinds whose spec does not say what their pods are."""
    return ()


def ended_by_condition(ends: Mapping[str, bool]) -> Callable[[KubeObject], End | None]:
    """The end of a job by its conditions; a failure counts before a success."""

    def end(job: KubeObject) -> End | None:
        found = [End(name, failed) for name, failed in ends.items() if holds(job, name)]
        return max(found, key=lambda one: one.failed, default=None)

    return end


usual_end = ended_by_condition(ENDS)
"""The end of a job of most kinds."""


def no_end(job: KubeObject) -> End | None:
    """For kinds that run until somebody deletes them."""
    return None


def has_suspended_condition(job: KubeObject) -> bool:
    """Whether its controller reports the suspension: from then on it creates no pods."""
    return holds(job, "Suspended")


def no_retries(job: KubeObject) -> Retries | None:
    """For kinds that do not count restarts, or do not say."""
    return None


def never_heals(job: KubeObject) -> float | None:
    """For kinds whose controller does not replace what a broken node took."""
    return None


def by_name(label: str) -> Callable[[KubeObject], Mapping[str, str]]:
    """Pods that bear the job's name in one label."""

    def labels(job: KubeObject) -> Mapping[str, str]:
        return {label: str(part(job, "metadata").get("name") or "")}

    return labels


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """One kind of training job.

    `api_versions` are `group/version`, the newest first; `kind` is its name in the API where the one used here differs
    (`VolcanoJob`). `pod_labels` narrow a list of pods to those of one job, and whose a pod is its controllers tell: the job
    itself, or one of `children` between the two.
    """

    name: str
    api_versions: tuple[str, ...]
    plural: str
    pod_labels: Callable[[KubeObject], Mapping[str, str]]
    kind: str = ""
    children: frozenset[str] = frozenset()
    """Kinds of objects between the job and its pods, e.g. the Jobs of a JobSet."""
    roles: Callable[[KubeObject], Iterable[Role]] = no_roles
    suspend_at: tuple[str, ...] = ()
    """The path of its suspend field, for `Lever.SUSPEND`."""
    immovable: Callable[[KubeObject], str] = lambda job: ""
    """Why this very job cannot be stopped and started again, though its kind can; empty where it can."""
    no_lever: str = ""
    """For a kind without any lever: why, and what its owner can do instead."""
    lever: Lever | None = None
    """For a kind that is not moved by its own suspend field."""
    cost: Callable[[KubeObject], str] = lambda job: ""
    """What stopping and starting costs the job; empty where it costs nothing."""
    costs_retries: Callable[[KubeObject], int] = lambda job: 0
    """How many of its restarts stopping and starting costs."""
    is_suspension_seen: Callable[[KubeObject], bool] = has_suspended_condition
    phase_suspended: Callable[[KubeObject], bool] = lambda job: False
    """Suspended in another way than by `suspend_at`, e.g. by a phase."""
    end: Callable[[KubeObject], End | None] = usual_end
    finished_pods: Callable[[KubeObject], int] = lambda job: 0
    """Pods that have done their part: they are not made anew when the job goes on."""
    retries: Callable[[KubeObject], Retries | None] = no_retries
    made_of: Callable[[KubeObject], Sequence[tuple[str, str]]] = lambda job: ()
    """Jobs (kind as known here, and name) that it makes in its namespace and that say what its pods are, where it does not."""
    wraps: Callable[[KubeObject], KubeObject | None] = lambda job: None
    """The one job inside its own spec that says what its pods are; None where it is itself."""
    is_whole: Callable[[KubeObject], bool] = lambda job: True
    """What its own status must show besides its pods before it counts as running again."""
    keeps_finished: bool = False
    """Pods that have succeeded are there as long as it runs, and count among those that should run."""
    progress: Callable[[KubeObject], Progress | None] = lambda job: None
    """What the job itself last reported of its training; None where it reports nothing."""
    heals_within_s: Callable[[KubeObject], float | None] = never_heals
    """Seconds within which its own controller replaces what a broken node took; then nobody else must."""
    all_pods: Callable[[KubeObject], int] | None = None
    """How many pods it runs in all, where `roles` are those of one of several worlds."""
    incarnation: Callable[[KubeObject], str] = lambda job: ""
    """What changes with every restart of the job as a whole, besides its uid; empty where the object does not tell."""
    templates: Callable[[KubeObject], Sequence[tuple[str, ...]]] = lambda job: ()
    """Paths of the pod templates whose scheduling fields may be changed while the job is suspended."""
    goes_on_without: Callable[[KubeObject], bool] = lambda pod: False
    """Whether its controller replaces this pod of it alone once it is evicted, while the job goes on."""
    remembers: Mapping[str, Callable[[KubeObject], str]] = field(default_factory=dict)
    """Annotations that are written on the job when it is suspended: what its object forgets by then, and is needed after."""
    proof: Proof = Proof.DOCUMENTED
    proven_by: str = ""
    """By which controller in which version, or what of it is not proven; for `docs/jobs.md`."""
    notes: tuple[str, ...] = ()
    """What operators should know; sentences, for `docs/jobs.md`."""

    @property
    def group(self) -> str:
        """The API group; empty for what no API server knows."""
        return self.api_versions[0].rpartition("/")[0] if self.api_versions else ""

    @property
    def watched_as(self) -> tuple[str, ...]:
        """`group/version/Kind` of every version, as in `inventory.job_kinds`."""
        return tuple(f"{version}/{self.kind or self.name}" for version in self.api_versions)

    @property
    def own_lever(self) -> Lever | None:
        """By what jobs of this kind are moved that no queue admits; None where by nothing."""
        return self.lever or (Lever.SUSPEND if self.suspend_at else None)

    @property
    def no_means(self) -> str:
        """Why no job of this kind can be moved; empty where some can."""
        if self.own_lever is not None:
            return ""
        return self.no_lever or f"the kind {self.name} has nothing by which it could be suspended"

    def is_suspended(self, job: KubeObject) -> bool:
        """Whether it is asked to be suspended; False where the field is not set."""
        if self.phase_suspended(job):
            return True
        return bool(self.suspend_at) and part(job, *self.suspend_at[:-1]).get(self.suspend_at[-1]) is True

    def suspend(self, value: bool) -> dict[str, Any]:
        """The part of a merge patch that sets the suspend field."""
        patch: Any = value
        for step in reversed(self.suspend_at):
            patch = {step: patch}
        found: dict[str, Any] = patch
        return found

    def pods(self, job: KubeObject) -> int:
        """How many pods should be running now."""
        if self.all_pods is not None:
            return self.all_pods(job)
        return max(0, sum(role.pods for role in self.roles(job)) - self.finished_pods(job))

    def heals(self, job: KubeObject) -> float | None:
        """Within how many seconds somebody replaces what a broken node took: as its owner declares, else by its kind."""
        declared = healing_declared(job)
        return self.heals_within_s(job) if declared is None else declared or None

    def means(self, job: KubeObject) -> Means:
        """By what this job can be moved, as it is now."""
        if (manager := managed_elsewhere(job)) is not None:
            return Means(None, f"its spec.managedBy is {manager}: it is moved where that runs, not here")
        if reason := self.immovable(job):
            return Means(None, reason)
        if (queue := kueue.queue_of(job)) is not None:
            no = kueue.out_of_reach(self.name, job)
            return Means(None, no) if no else Means(Lever.QUEUE, cost=kueue.cost(queue))
        if self.own_lever is None:
            return Means(None, self.no_means)
        return Means(self.own_lever, cost=self.cost(job), retries=self.costs_retries(job))


HEALS_WITHIN = "faultline.dev/heals-within-s"
"""Annotation of a job: somebody else replaces what a broken node took, within so many seconds; 0 says that nobody does."""
LONGEST_HEALING_S = 86400.0

OWN_CONTROLLERS = frozenset(
    {
        "kubernetes.io/job-controller",
        "kubeflow.org/training-operator",
        "kubeflow.org/mpi-operator",
        "jobset.sigs.k8s.io/jobset-controller",
        "trainer.kubeflow.org/trainjob-controller",
        "workload.codeflare.dev/appwrapper-controller",
        "ray.io/kuberay-operator",
    }
)
"""Values of `managedBy` that name the kind's own controller in this cluster."""


def healing_declared(job: KubeObject) -> float | None:
    """Seconds by the annotation, 0 for "never"; None where it is missing or no such number."""
    said = text(annotations_of(job), HEALS_WITHIN)
    try:
        seconds = float(said) if said is not None else -1.0
    except ValueError:
        return None
    return seconds if 0 <= seconds <= LONGEST_HEALING_S else None


def managed_elsewhere(job: KubeObject) -> str | None:
    """The controller that `managedBy` names, where it is not the kind's own: e.g. that of another cluster."""
    spec = part(job, "spec")
    named = text(spec, "managedBy") or text(part(spec, "runPolicy"), "managedBy")
    return named if named not in OWN_CONTROLLERS else None


def count_of(obj: Mapping[str, Any], key: str) -> int:
    """A number of replicas, which every one of these APIs defaults to 1."""
    count = whole(obj.get(key))
    return 1 if count is None else count


def pods_of_job_spec(job_spec: Mapping[str, Any]) -> int:
    """How many pods the spec of a batch Job runs at once."""
    parallelism, completions = count_of(job_spec, "parallelism"), whole(job_spec.get("completions"))
    return parallelism if completions is None else min(parallelism, completions)
