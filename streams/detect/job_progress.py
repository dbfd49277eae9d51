"""The training step a job logs, which proves after a resume that it runs again, and how fast it goes; and its checkpoints: what
it did since the last one is lost when it stops. Patterns: `catalog/lines/progress.yaml`, `catalog/lines/checkpoints.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterator

from streams.detect.finding import Finding, Stream
from streams.detect.job_pace import pace
from streams.detect.matching.log_patterns import PatternTable
from streams.detect.matching.quotation_filter import quoted
from streams.model.kinds import SignalKind
from streams.model.record import LogLine

_OF_CHECKPOINTS = ("sav", "Sav", "heckpoint")
"""What every line about a checkpoint holds: nearly all lines that come here are steps, thousands a second."""


class JobProgress:
    """Reads lines of pods."""

    def __init__(self) -> None:
        self._patterns = PatternTable.load("progress")
        self._checkpoints = PatternTable.load("checkpoints")
        self.hints = (
            *self._checkpoints.hints,
            rb"(?i:iter(?:ation)?|step|batch)s?\s{0,4}[:=#\[]?\s{0,8}\[?\d",
            rb"(?i:epoch)\s{0,4}[:=]?\s{0,4}\[?\d",
            rb"(?i:steps?)\\{0,3}['\"]\s{0,2}:\s{0,2}\d",
            rb"\d%\|[^\n]*/\d+ \[",
            rb"(?i:(?:episode|sample|clip|video|image|prompt|question|document)s?)[ :=]{1,3}\d{1,9}(?:/| of )\d",
        )

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The step of a line, and what that says of the job's pace, or its checkpoint; none without a pod."""
        if line.pod is None:
            return
        saves = any(word in line.text for word in _OF_CHECKPOINTS)
        own = False
        for hit in self._checkpoints.find(line.text, 0) if saves else ():
            # What follows one of its own is another line that was glued to it.
            own = own or not quoted(line.text[: hit.start])
            if own:
                yield Finding(hit.row.kind, hit.row.severity, {**hit.row.sets, **hit.fields}, text=line.text)
        if own:
            # The step in it is no progress: a save in the background ends also where its job has hung meanwhile.
            return
        # From column 0, not from the message: `step:` after a time looks like the name of a program.
        for hit in self._patterns.find(line.text, 0):
            own = line.text.lstrip().startswith("{") or not quoted(line.text[: hit.start])
            if "step" in hit.fields and own:
                yield Finding(hit.row.kind, hit.row.severity, hit.fields, text=line.text)
                step = hit.fields["step"]
                count = step if hit.row.kind == SignalKind.JOB_PROGRESS and isinstance(step, int) else None
                if count is not None and (news := pace(line.pod, count, line, stream)) is not None:
                    yield news
                return
