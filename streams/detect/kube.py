"""Kubernetes Events about nodes. Rows of `catalog/kube.yaml` say which reasons count.

An event exporter sends only the first of repeated events, so each is taken at its word.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict

from streams.detect.catalog import load_catalog
from streams.detect.finding import Finding, Stream
from streams.model.record import KubeEvent
from streams.model.signal import Severity, SignalState


class EventRow(BaseModel):
    """One reason that is a signal."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: str
    object: str
    kind: str
    severity: Severity
    state: SignalState = SignalState.FIRING
    sample: str


class EventSheet(BaseModel):
    """`catalog/kube.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: tuple[EventRow, ...]


class KubeEvents:
    """Reads Kubernetes Events."""

    def __init__(self) -> None:
        rows = load_catalog("kube", EventSheet).rows
        self._rows = {(row.object, row.reason): row for row in rows}
        self.hints = tuple(b'"' + row.reason.encode() + b'"' for row in rows)

    def read(self, event: KubeEvent, stream: Stream) -> Iterator[Finding]:
        """The signal that the event is, if it is one."""
        row = self._rows.get((event.kind, event.reason))
        if row is not None:
            yield Finding(
                row.kind,
                row.severity,
                {"reason": event.reason},
                row.state,
                text=f"{event.reason}: {event.message}",
            )
