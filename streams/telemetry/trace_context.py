"""W3C trace context of Kafka records, and the traces of incidents and runs.

The trace of an incident has the incident's id in it: its ids are hashes, so every process knows them without having been told.
Nothing of a trace is stored in a document, so a run that another process goes on with after a crash is still in its trace, a
replay decides on the same bytes, and switching tracing on or off changes no record's value. Who publishes an incident twice
after a crash names the same spans.

What a record brings is untrusted: it is read strictly, and only ever linked to, never continued.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from streams.model.digest import digest

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"

_PARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_STATE = re.compile(r"[ -~\t]{1,512}")


class TraceContext(NamedTuple):
    """A span as others refer to it. Ids are lower-case hex; `state` is `tracestate` as it came, or empty."""

    trace_id: str
    span_id: str
    sampled: bool
    state: str = ""

    @property
    def traceparent(self) -> str:
        """The header's value, version 00."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]:
        """The headers of a record of it."""
        parent = (TRACEPARENT, self.traceparent.encode())
        return (parent, (TRACESTATE, self.state.encode())) if self.state else (parent,)


def extract(headers: Iterable[tuple[str, bytes]] | Mapping[str, bytes] | None) -> TraceContext | None:
    """The context that a record's headers bring; None without one, or with one that is none by W3C's rules.

    Where there are several `traceparent`, nobody can say which is meant, and there is none.
    """
    pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
    parents: list[bytes] = []
    state = b""
    for name, value in pairs:
        if name == TRACEPARENT:
            parents.append(value or b"")
        elif name == TRACESTATE:
            state = value or b""
    if len(parents) != 1:
        return None
    found = _PARENT.fullmatch(parents[0])
    if found is None:
        return None
    version, trace_id, span_id, flags, more = (
        part.decode("latin-1") if part else "" for part in found.groups()
    )
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    text = state.decode("latin-1")
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & 1), text if _STATE.fullmatch(text) else "")


@lru_cache(maxsize=16_384)
def of_incident(incident: str) -> TraceContext:
    """The first span of an incident. Incidents are always sampled."""
    return TraceContext(digest("trace", incident, size=16), digest("incident", incident, size=8), True)


def of_revision(incident: str, revision: int) -> TraceContext:
    """The span of a later revision of an incident."""
    first = of_incident(incident)
    return first._replace(span_id=digest("revision", incident, revision, size=8))


@lru_cache(maxsize=16_384)
def of_run(incident: str, run: str) -> TraceContext:
    """The first span of a run, in the trace of its incident."""
    return of_incident(incident)._replace(span_id=digest("run", run, size=8))


def of_finished_run(incident: str, run: str) -> TraceContext:
    """The span from the beginning of a run to its end."""
    return of_incident(incident)._replace(span_id=digest("run finished", run, size=8))
