"""A segment of the log as bytes: sightings as rows of values under the names of their columns.

A sighting has forty fields with those of its place, and most of them are empty. Written as nested objects it costs five times
as much as it does to keep it. The names stand in every segment, so a newer or older program finds the columns it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple

import orjson

from streams.correlate.sightings import Sighting
from streams.model.entity import Entity, Gpu, JobRef, PodRef
from streams.model.errors import BadInput
from streams.model.signal import Evidence, Severity


class Entry(NamedTuple):
    """One sighting and where it is kept: the row, and the group in it."""

    row: str
    group: str
    sighting: Sighting


@dataclass(frozen=True, slots=True)
class Stored:
    """A segment: entries, and the names that it deletes from the segments before it."""

    seen: Sequence[Entry]
    gone: Sequence[tuple[str, str]]


_PARTS: dict[str, type[Any]] = {"gpu": Gpu, "job": JobRef, "pod": PodRef}
_SIGHTING = [f.name for f in fields(Sighting) if f.init and f.name not in ("entity", "evidence")]
_ENTITY = [f.name for f in fields(Entity) if f.name not in _PARTS]
_COLUMNS: dict[str, list[str]] = {
    "sighting": _SIGHTING,
    "entity": _ENTITY,
    "evidence": [f.name for f in fields(Evidence)],
    **{name: [f.name for f in fields(part)] for name, part in _PARTS.items()},
}
_values: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    name: attrgetter(*columns) for name, columns in _COLUMNS.items()
}
_of_sighting, _of_entity, _of_evidence = _values["sighting"], _values["entity"], _values["evidence"]
_of_gpu, _of_job, _of_pod = _values["gpu"], _values["job"], _values["pod"]


def pack(entries: Iterable[Entry], gone: Iterable[tuple[str, str]]) -> bytes:
    """A segment as JSON."""
    return orjson.dumps({"columns": _COLUMNS, "seen": [_packed(e) for e in entries], "gone": tuple(gone)})


def unpack(raw: bytes) -> Stored:
    """Bytes back into a segment.

    Raises:
        BadInput: when the bytes are no segment.
    """
    try:
        segment = orjson.loads(raw)
        columns = segment["columns"]
        seen = [_unpacked(columns, *values) for values in segment["seen"]]
        return Stored(seen, [(row, sid) for row, sid in segment["gone"]])
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"not a segment of the log: {error!r}") from error


def _packed(entry: Entry) -> tuple[Any, ...]:
    s = entry.sighting
    e = s.entity
    return (
        entry.row,
        entry.group,
        _of_sighting(s),
        _of_entity(e),
        _of_gpu(e.gpu) if e.gpu else None,
        _of_job(e.job) if e.job else None,
        _of_pod(e.pod) if e.pod else None,
        [_of_evidence(one) for one in s.evidence],
    )


def _unpacked(
    columns: dict[str, list[str]],
    row: str,
    group: str,
    sighting: list[Any],
    entity: list[Any],
    gpu: list[Any] | None,
    job: list[Any] | None,
    pod: list[Any] | None,
    evidence: list[list[Any]],
) -> Entry:
    fields_ = _known("sighting", columns, sighting)
    for name in ("at", "fault_at", "seen_at"):
        fields_[name] = datetime.fromisoformat(fields_[name])
    fields_["severity"] = Severity(fields_["severity"])
    fields_["attributes"] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in fields_["attributes"].items()
    }
    parts = {
        name: _PARTS[name](**_known(name, columns, values))
        for name, values in (("gpu", gpu), ("job", job), ("pod", pod))
        if values is not None
    }
    place = Entity(**_known("entity", columns, entity), **parts)
    proof = tuple(Evidence(**_known("evidence", columns, one)) for one in evidence)
    return Entry(row, group, Sighting(**fields_, entity=place, evidence=proof))


def _known(what: str, columns: dict[str, list[str]], values: list[Any]) -> dict[str, Any]:
    """Values by the names they were written under, without names that are no longer known."""
    mine = _COLUMNS[what]
    return {name: value for name, value in zip(columns[what], values, strict=True) if name in mine}
