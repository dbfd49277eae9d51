"""The page of the kinds of jobs, written from what `streams.job_kinds` declares. Part of `faultline.reference`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from faultline.reference.markdown import Row, code, table, text
from streams.job_kinds.kind import (
    HEALS_WITHIN,
    JobKind,
    Lever,
    Proof,
    has_suspended_condition,
    never_heals,
    no_retries,
)
from streams.job_kinds.known import KNOWN
from streams.job_kinds.kueue import COMPONENT, QUEUE_NAME
from streams.job_kinds.rights import component_of
from streams.model.kube_objects import KubeObject

SAMPLE: KubeObject = {"metadata": {"name": "sample", "namespace": "sample"}, "spec": {}, "status": {}}
"""A job that says nothing of itself: what holds for it holds for its kind."""

_BY: Mapping[Lever, str] = {
    Lever.EVICT: "eviction of its pods on closed nodes",
    Lever.REQUEUE: "`scontrol requeuehold`, and `release`",
    Lever.COMMAND: "commands `AbortJob` and `ResumeJob`",
}

_STOPPED: Mapping[Lever, str] = {
    Lever.EVICT: "no pod of it is left on the closed nodes",
    Lever.REQUEUE: "it is held in the queue, and no process of it is left on its nodes",
    Lever.COMMAND: "its phase is Aborted, and its pods are gone",
}

_PROOF: Mapping[Proof, str] = {
    Proof.REAL: "against its own controller",
    Proof.SIMULATED: "against a simulator written from its documentation, on a real API server",
    Proof.DOCUMENTED: "by its documentation only",
}

INTRO = """\
A training job on a faulty node is stopped, its node is emptied, and the job is started on other nodes from its last
checkpoint. By what it is stopped depends on its kind. Where nothing can be done the plan says so, and the owner of
the job is told why and how to go on. What would be done for the jobs that run now: `faultline jobs`.
"""

LEGEND = """\
Every kind is back when as many pods as its spec wants are Running and Ready, none of them on a node that is NotReady
or that Faultline has cordoned, and it makes progress. `retries`: whether the restarts that its controller still makes
are known; a move that takes the last one is asked about (`retry budget`). `rights`: the component of `k8s/components`
that gives them besides the base ([how](operations.md#switch-on-a-kind-of-job)).
"""

QUEUES = """\
A job with the label `{label}` is started and stopped by Kueue, whatever its kind: its own suspend field is never touched,
for Kueue would revert that. `spec.active` of its Workload is set to false, Kueue stops the job and takes its quota back,
and with true it goes back to its queue. Where Kueue assigns the nodes itself, it replaces the closed one instead.
Rights: `{component}`, besides those of the kind. How it is proven: {proof}. Kinds that
Kueue has no integration for are not moved with that label. What that means for people: [queues](queues.md).
"""

HEALING = """\
The controller of some jobs replaces what a broken node took. Such a job is left alone and watched: `suspend_job`
waits until all its pods are ready and none is on the bad node, and is then skipped with `resume_job`; its pods and
progress are verified as ever. When its time is over the job is moved like any other, or its owner is told where
nothing can move it. While another job of the same incident is stopped nobody waits: the drain goes on. A job that
something else heals says so itself:
"""


def jobs_page() -> Iterator[str]:
    """Every kind of job that is known: how it is stopped, what proves that, and what its owner is told."""
    yield "# Jobs: what can be done for each kind"
    yield ""
    yield from INTRO.splitlines()
    yield ""
    yield from table(
        (
            "kind",
            "API versions",
            "stopped by",
            "it is stopped when",
            "retries",
            "heals itself",
            "how proven",
            "rights",
        ),
        [_row(kind) for kind in _kinds()],
    )
    yield from LEGEND.splitlines()
    yield ""
    yield "## Jobs in a queue"
    yield ""
    yield from QUEUES.format(
        label=QUEUE_NAME, component=COMPONENT, proof=_PROOF[Proof.SIMULATED]
    ).splitlines()
    yield ""
    yield from _healing()
    yield from _others()
    yield "## Notes on kinds"
    yield ""
    for kind in _kinds():
        if kind.no_means or kind.notes:
            told = f"Its owner is told: {text(kind.no_means)}." if kind.no_means else ""
            yield f"- **{kind.name}**: {' '.join(filter(None, (told, *kind.notes)))}"


def _kinds() -> list[JobKind]:
    return [KNOWN[name] for name in sorted(KNOWN)]


def _row(kind: JobKind) -> Row:
    lever = kind.own_lever
    component = component_of(kind.watched_as[0]) if kind.watched_as else ""
    return (
        code(kind.name),
        ", ".join(map(code, kind.api_versions)) or "none: Slurm's own",
        _by(kind, lever),
        _stopped(kind, lever),
        "not counted" if kind.retries is no_retries else "counted",
        _heals(kind),
        "; ".join(filter(None, (_PROOF[kind.proof], kind.proven_by))),
        code(component) if component else "base" if kind.watched_as else "[none](slurm.md)",
    )


def _by(kind: JobKind, lever: Lever | None) -> str:
    if lever is None:
        return "nothing"
    return code(".".join(kind.suspend_at)) if lever is Lever.SUSPEND else _BY[lever]


def _stopped(kind: JobKind, lever: Lever | None) -> str:
    if lever is None:
        return ""
    if lever is not Lever.SUSPEND:
        return _STOPPED[lever]
    shows = "reports `Suspended`" if kind.is_suspension_seen is has_suspended_condition else "shows it"
    return f"its controller {shows}, and its pods are gone"


def _heals(kind: JobKind) -> str:
    if kind.heals_within_s is never_heals:
        return "no"
    within_s = kind.heals(SAMPLE)
    return f"within {within_s:g} s" if within_s else "where it says so"


def _healing() -> Iterator[str]:
    yield "## Jobs that heal themselves"
    yield ""
    yield from HEALING.splitlines()
    yield ""
    yield "```yaml"
    yield "metadata:"
    yield "  annotations:"
    yield f'    {HEALS_WITHIN}: "600"  # seconds; "0": nobody does, whatever its kind'
    yield "```"
    yield ""


def _others() -> Iterator[str]:
    yield "## What is no job"
    yield ""
    rows = [
        (
            "Deployment, StatefulSet, ReplicaSet, services that hold GPUs",
            "never stopped: the drain evicts its pods on the closed node within their budgets, and its controller makes them "
            "anew; those of a StatefulSet keep their names, so each waits until the old one is gone",
        ),
        (
            "a pod without a controller",
            "nobody would make it anew, so it is not evicted (unless a drain says `bare: true`). Its owner is told",
        ),
        (
            "a kind that is not known here",
            "never stopped. What its pods are decides ([inventory](inventory.md), [drains](drain.md)): they are evicted from the "
            "closed node like others with a controller, and the plan and the thread name them. Where it is training, by its "
            "label or because `inventory.job_kinds` names it, its owner is told, too",
        ),
        (
            "a kind that is known, and that may not be watched here",
            "nothing: its owner is told, with the component that is missing",
        ),
    ]
    yield from table(("what", "what is done"), rows)
