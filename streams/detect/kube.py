"""Kubernetes Events about nodes. Rows of `catalog/kube.yaml` say which reasons count.

An event exporter sends only the first of repeated events, so each is taken at its word. Where no exporter runs, the same events
stand in the controller manager's log or in what `kubectl get events` printed: rows of `catalog/kube_lines.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict

from streams.detect.catalog import load_catalog
from streams.detect.finding import Finding, Stream
from streams.detect.quoting import reported
from streams.detect.wording import Wordings
from streams.model.record import KubeEvent, LogLine
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


class KubeLines:
    """Reads events that were printed as lines."""

    def __init__(self) -> None:
        self._wordings = Wordings.load("kube_lines")
        self.hints = self._wordings.hints

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The events of one line, each about the node it names."""
        for hit in self._wordings.find(line.text, line.start):
            node = hit.fields.get("node")
            if isinstance(node, str) and reported(line, hit.start):
                attributes = {**hit.row.sets}
                yield Finding(
                    hit.row.kind, hit.row.severity, attributes, hit.row.state, node=node, text=line.text
                )
