"""How far a training job says it is: what counts as "it runs again" after a resume. Wordings: `catalog/progress.yaml`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from streams.detect.finding import Finding, Stream
from streams.detect.quoting import quoted
from streams.detect.wording import Wordings
from streams.model.clock import to_millis
from streams.model.record import LogLine
from streams.model.signal import Signal

EVERY_MS = 5000
"""A pod's progress is told once in this much of its own time; in between, only the newest."""


class Progress:
    """Reads lines of pods."""

    def __init__(self) -> None:
        self._wordings = Wordings.load("progress")
        self.hints = (
            rb"(?i:iter(?:ation)?|step|batch)s?\s{0,4}[:=#\[]?\s{0,8}\[?\d",
            rb"(?i:epoch)\s{0,4}[:=]?\s{0,4}\[?\d",
            rb"(?i:steps?)\\{0,3}['\"]\s{0,2}:\s{0,2}\d",
            rb"\d%\|.{0,400}/\d{1,12} \[",
        )

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """At most one finding a line, and none for lines of no pod."""
        if line.pod is None:
            return
        # From the very beginning: `step:` after a time looks like the name of a program.
        for hit in self._wordings.find(line.text, 0):
            told = line.text.lstrip().startswith("{") or not quoted(line.text[: hit.start])
            if "step" in hit.fields and told:
                yield Finding(hit.row.kind, hit.row.severity, hit.fields, text=line.text)
                return


def thinned(signals: Iterable[Signal]) -> list[Signal]:
    """The same signals with only the newest `job.progress` of each pod in each `EVERY_MS`; the order is kept."""
    kept: list[Signal] = []
    place: dict[tuple[str, int], int] = {}
    for signal in signals:
        if signal.kind != "job.progress":
            kept.append(signal)
            continue
        slot = (signal.entity.key, to_millis(signal.occurred_at) // EVERY_MS)
        if slot not in place:
            place[slot] = len(kept)
            kept.append(signal)
        elif _how_far(signal) >= _how_far(kept[place[slot]]):
            kept[place[slot]] = signal
    return kept


def _how_far(signal: Signal) -> tuple[float, int]:
    step = signal.attributes.get("step")
    return signal.occurred_at.timestamp(), step if isinstance(step, int) else -1
