"""PFC storms as switches report them.

A port that reports a storm is *receiving* pauses: the device attached to it is to blame, so the direction is
`received_by_switch`, and the place is the switch and its port. Wordings are rows of `catalog/pfc.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterator

from streams.detect.finding import Finding, Stream
from streams.detect.quoting import reported
from streams.detect.wording import Wordings
from streams.model.record import LogLine


class PfcWatchdog:
    """Reads syslog of switches."""

    def __init__(self) -> None:
        self._wordings = Wordings.load("pfc")
        self.hints = self._wordings.hints

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The storms of one line, in order."""
        after: int | None = None
        for hit in self._wordings.find(line.text, line.start):
            if not reported(line, hit.start, after=after):
                continue
            after = hit.end
            attributes = {**hit.row.sets, **hit.fields}
            port = attributes.get("port", attributes.get("port_id"))
            yield Finding(
                hit.row.kind,
                hit.row.severity,
                attributes,
                hit.row.state,
                port=str(port).rstrip(".:-") if port is not None else None,
                on_switch=True,
                text=line.text,
            )
