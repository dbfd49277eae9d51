"""AppWrapper, of workload.codeflare.dev: whatever is in its components, deleted as a whole and created anew.

Sources: AppWrapper, "API", "Framework controller" (states), "Fault tolerance" (grace periods, retries and their annotations).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from streams.job_kinds.kind import End, JobKind, Proof, Retries, Role, by_name, count_of
from streams.model.kube_objects import KubeObject, annotations_of, holds, items, part, text, whole

NAME = "workload.codeflare.dev/appwrapper"
"""Label of its components and of all their pods."""

_MARK = "workload.codeflare.dev.appwrapper"
RETRY_LIMIT = 3
GRACES_S = {"failureGracePeriodDuration": 60.0, "retryPausePeriodDuration": 90.0}
"""How long it gives the controllers of its components, and how long it pauses before it makes them anew: its defaults."""
ANEW_S = 210.0
"""Its components are deleted, and their pods made and started; an image may have to be pulled."""
LONGEST_GRACE_S = 86400.0

DATA = frozenset({"PersistentVolumeClaim", "PersistentVolume"})
"""Kinds that must not be deleted and made anew: what is on them is gone then."""

_ENDS = {"Succeeded": False, "Failed": True}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)", re.ASCII)
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def app_wrapper(kinds: Mapping[str, JobKind]) -> JobKind:
    """The kind, given those of the jobs that may be wrapped, by their names used here."""
    by_api = {(kind.group, kind.kind or kind.name): kind for kind in kinds.values() if kind.api_versions}
    below = {kind.kind or kind.name for kind in kinds.values()}.union(
        *(kind.children for kind in kinds.values())
    )

    def kind_of(template: KubeObject) -> JobKind | None:
        group = str(template.get("apiVersion") or "").rpartition("/")[0]
        return by_api.get((group, str(template.get("kind") or "")))

    def wrapped(job: KubeObject) -> KubeObject | None:
        """The only job among its components; with two of them nobody knows which pods are whose."""
        found = [one for one in _templates(job) if kind_of(one) is not None]
        if len(found) != 1:
            return None
        about = {"name": "wrapped"} | dict(part(found[0], "metadata"))
        return {**found[0], "metadata": about | {"namespace": part(job, "metadata").get("namespace")}}

    def roles(job: KubeObject) -> Iterable[Role]:
        inner = wrapped(job)
        kind = kind_of(inner) if inner is not None else None
        return kind.roles(inner) if kind is not None and inner is not None else ()

    return JobKind(
        name="AppWrapper",
        api_versions=("workload.codeflare.dev/v1beta2",),
        plural="appwrappers",
        pod_labels=by_name(NAME),
        children=frozenset(below | {"StatefulSet", "ReplicaSet"}),
        roles=roles,
        wraps=wrapped,
        all_pods=lambda job: _expected(job, kind_of),
        keeps_finished=True,
        suspend_at=("spec", "suspend"),
        immovable=_immovable,
        cost=lambda job: "its components are deleted and created anew",
        is_suspension_seen=lambda job: _phase(job) in ("Suspending", "Suspended"),
        is_whole=lambda job: _phase(job) == "Running" and holds(job, "PodsReady"),
        end=_end,
        retries=_retries,
        heals_within_s=_heals,
        incarnation=lambda job: str(whole(part(job, "status").get("retries")) or 0),
        proof=Proof.SIMULATED,
        notes=(
            "It is what it wraps: suspending deletes its components, resuming creates them anew. It counts as no retry.",
            "One that has a PersistentVolumeClaim among its components is not moved: what is on it would be deleted too.",
            "One that has retries left is given its own grace periods and three and a half minutes to reset itself.",
        ),
    )


def _templates(job: KubeObject) -> list[KubeObject]:
    return [part(component, "template") for component in items(job, "spec", "components")]


def _expected(job: KubeObject, kind_of: Callable[[KubeObject], JobKind | None]) -> int:
    """How many pods its components should have: as its status, its spec, or what is wrapped says it."""
    known = list(items(job, "status", "componentStatus"))
    total = 0
    for index, component in enumerate(items(job, "spec", "components")):
        told = known[index] if index < len(known) else {}
        sets = list(items(told, "podSets")) or list(items(component, "podSets"))
        template = part(component, "template")
        kind = kind_of(template)
        if sets:
            total += sum(count_of(one, "replicas") for one in sets)
        elif kind is not None:
            total += kind.pods(template)
    return total


def _phase(job: KubeObject) -> str:
    return text(part(job, "status"), "phase") or ""


def _end(job: KubeObject) -> End | None:
    phase = _phase(job)
    return End(phase, _ENDS[phase]) if phase in _ENDS else None


def _immovable(job: KubeObject) -> str:
    held = [one for one in _templates(job) if one.get("kind") in DATA]
    if not held:
        return ""
    named = ", ".join(f"{one.get('kind')} {part(one, 'metadata').get('name') or ''}".strip() for one in held)
    return (
        f"suspending it would delete {named}, which is one of its components, and what is on it: take that out of the "
        "AppWrapper, or delete the pods that are left on the closed node"
    )


def _retries(job: KubeObject) -> Retries:
    limit = whole(annotations_of(job).get(f"{_MARK}/retryLimit"))
    return Retries(whole(part(job, "status").get("retries")) or 0, RETRY_LIMIT if limit is None else limit)


def _heals(job: KubeObject) -> float | None:
    """It resets what it wraps when pods have failed for its grace period, while a retry is left."""
    if _retries(job).left == 0:
        return None
    marks = annotations_of(job)
    graces = (_seconds(text(marks, f"{_MARK}/{name}"), default) for name, default in GRACES_S.items())
    return ANEW_S + sum(graces)


def _seconds(duration: str | None, default: float) -> float:
    """A duration as Go writes it (`1m30s`), up to a day; the default for anything else."""
    if duration is None or not re.fullmatch(rf"(?:{_DURATION.pattern})+", duration, re.ASCII):
        return default
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _DURATION.findall(duration))
    return min(seconds, LONGEST_GRACE_S)
