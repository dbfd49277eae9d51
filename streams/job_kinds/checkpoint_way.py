"""How a job declares that it can be asked for a checkpoint while it runs: annotations of its object, or of its pod template.

    faultline.dev/checkpoint-request    annotation | http:PORT/PATH | signal:USR1 | signal:USR1:CONTAINER
    faultline.dev/checkpoint-within-s   how long a save takes at most; 120 where it is not said

Where nothing is declared, the job has what every pod has: SIGTERM and its own grace, when it is stopped. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from streams.model.kube_objects import KubeObject, annotations_of, part, text, time

REQUEST = "faultline.dev/checkpoint-request"
WITHIN = "faultline.dev/checkpoint-within-s"
LAST = "faultline.dev/last-checkpoint-at"
"""Annotation of a job that says when it saved its last checkpoint, as RFC 3339 or in seconds since 1970."""
USUAL_S = 120.0
LONGEST_S = 3600.0

_DEEPEST = 8
_SINCE_1970 = re.compile(r"1\d{9}(?:\.\d{1,9})?", re.ASCII)
_HTTP = re.compile(r"http:(\d{1,5})(/[\w./~%-]{0,200})?", re.ASCII)
_SIGNAL = re.compile(r"signal:(?:SIG)?(USR1|USR2|HUP|TERM)(?::([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?))?")


class Way(StrEnum):
    """By what a job is asked."""

    ANNOTATION = "annotation"
    HTTP = "http"
    SIGNAL = "signal"


@dataclass(frozen=True, slots=True)
class CheckpointWay:
    """One declaration."""

    way: Way
    port: int = 0
    path: str = "/"
    signal: str = ""
    container: str | None = None


def way_of(said: str | None) -> CheckpointWay | None:
    """What a declaration means; None where it says nothing, or nothing that can be done."""
    if said is None:
        return None
    if said == Way.ANNOTATION:
        return CheckpointWay(Way.ANNOTATION)
    if (match := _HTTP.fullmatch(said)) is not None:
        port = int(match[1])
        return CheckpointWay(Way.HTTP, port, match[2] or "/") if 0 < port < 65536 else None
    if (match := _SIGNAL.fullmatch(said)) is not None:
        return CheckpointWay(Way.SIGNAL, signal=match[1], container=match[2])
    return None


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a job declares. `by` is how it is asked, as it is written; `unreadable` what it says in place of seconds, where the
    usual ones count because of that."""

    by: str | None = None
    within_s: float = USUAL_S
    unreadable: str | None = None


def declared(job: KubeObject) -> Declaration:
    """What a job's object or the first of its pod templates that says anything declares."""
    for found in _annotations(job):
        if (by := text(found, REQUEST)) is not None:
            within = found.get(WITHIN)
            seconds = _seconds(within) if within is not None else USUAL_S
            if seconds is None:
                return Declaration(by[:300], unreadable=str(within)[:60])
            return Declaration(by[:300], seconds)
    return Declaration()


def checkpoint_at(job: KubeObject) -> datetime | None:
    """When a job says that it saved last; None where it does not, or that cannot be read: then the time is not known."""
    said = annotations_of(job).get(LAST)
    if isinstance(said, str) and _SINCE_1970.fullmatch(said):
        return datetime.fromtimestamp(float(said), UTC)
    return time(annotations_of(job), LAST)


def _annotations(job: KubeObject) -> Iterator[Mapping[str, Any]]:
    yield annotations_of(job)
    yield from _of_templates(part(job, "spec"), _DEEPEST)


def _of_templates(spec: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    if isinstance(spec, Mapping):
        if isinstance(spec.get("metadata"), Mapping) and isinstance(spec.get("spec"), Mapping):
            yield annotations_of(spec)
        for value in spec.values() if depth else ():
            yield from _of_templates(value, depth - 1)
    elif isinstance(spec, list) and depth:
        for value in spec:
            yield from _of_templates(value, depth - 1)


def _seconds(said: object) -> float | None:
    """The seconds in a value; None where it holds none that may be waited for."""
    try:
        seconds = float(said) if isinstance(said, str) else math.nan
    except ValueError:
        return None
    return seconds if 1 <= seconds <= LONGEST_S else None
