"""Where a job that is started again should not come back to: nodes under suspicion that are not closed.

A closed node keeps every pod away by itself. Other suspects of an incident stay open, because closing healthy nodes on a
suspicion costs more; the job is only asked to prefer others, as long as there are any: a preferred node affinity in its pod
templates, which may be changed while it is suspended. What was written is taken out again the next time that Faultline starts it.

    annotation  faultline.dev/avoids  the names of the nodes, separated by commas
"""

from __future__ import annotations

from collections.abc import Sequence

from connectors.kubernetes.annotations import DOMAIN, annotations_of
from connectors.kubernetes.client import Object
from streams.job_kinds.kind import JobKind
from streams.model.kube_objects import items, part

AVOIDS = f"{DOMAIN}/avoids"

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def avoiding(job: Object, kind: JobKind, nodes: Sequence[str]) -> Object:
    """The part of a merge patch that makes a suspended job's pods prefer other nodes than these; empty where nothing changes.

    Without nodes it takes out what an earlier call has written.
    """
    former = _named(annotations_of(job).get(AVOIDS, ""))
    templates = kind.templates(job)
    if not templates or tuple(nodes) == former:
        return {}
    patch: Object = {}
    for path in templates:
        terms = [
            term
            for term in items(job, *path, "spec", "affinity", "nodeAffinity", _PREFERRED)
            if not former or term != _term(former)
        ]
        wanted = [*terms, _term(nodes)] if nodes else terms
        _set(patch, (*path, "spec", "affinity", "nodeAffinity", _PREFERRED), wanted or None)
    marks = {AVOIDS: ",".join(nodes) if nodes else None}
    return patch | {"metadata": {"annotations": marks}}


def can_avoid(job: Object, kind: JobKind) -> bool:
    """Whether this kind lets its pod templates be changed while it is suspended."""
    return any(part(job, *path) for path in kind.templates(job))


def _named(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _term(nodes: Sequence[str]) -> Object:
    # A field selector takes one value each; several in one term must all hold.
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    return {"weight": 100, "preference": {"matchFields": fields}}


def _set(patch: Object, path: Sequence[str], value: object) -> None:
    here = patch
    for step in path[:-1]:
        here = here.setdefault(step, {})
    here[path[-1]] = value
