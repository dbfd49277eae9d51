"""Raw lines that name the subject and a fault, and made no signal: somebody quotes them, or no catalog row has their words."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta

from faultline.why.observed import Observed
from faultline.why.raw_lines import MAX_LINE
from faultline.why.subject import Subject
from faultline.why.tree import Branch, branch, printable
from streams.model.clock import moment
from streams.model.record import RawRecord

_WORDS = re.compile(
    rb"\bXid\b|\bSXid\b|NVRM:|NCCL WARN|watchdog|Machine Check|\bEDAC\b|AER:|uncorrect", re.IGNORECASE
)
_TOPICS = ("raw.node-logs", "raw.job-logs")
_REASON = (
    "it made no signal: somebody quotes it, it repeats one that was read, or no row of the catalog has it"
)
_MOST = 10
_BACK = timedelta(hours=1)


def unread_lines(
    records: Mapping[str, Collection[RawRecord]], subject: Subject, seen: Observed
) -> Iterator[Branch]:
    """The first of them in the hour before the time asked about, oldest first."""
    read = {evidence.coordinates for signal in seen.signals for evidence in signal.evidence}
    names = sorted(subject.names) if subject.kind == "node" else sorted(subject.pods)
    hay = re.compile(
        b"|".join(re.escape(name.rpartition("/")[2].encode()) for name in names) or rb"(?!)", re.IGNORECASE
    )
    found = 0
    for topic in _TOPICS:
        for record in records.get(topic, ()):
            if not seen.at - _BACK <= record.timestamp <= seen.at or record.value is None:
                continue
            text = record.value
            if (
                record.coordinates in read
                or not _WORDS.search(text)
                or not hay.search((record.key or b"") + text)
            ):
                continue
            found += 1
            if found > _MOST:
                return
            line = printable(text[:MAX_LINE].decode(errors="replace"), 200)
            yield branch(
                "line",
                f"{moment(record.timestamp)}  {record.coordinates}  {line}",
                (
                    branch(
                        "reason",
                        "it made no signal: somebody quotes it, it repeats one that was read, or no row of the catalog has it",
                    ),
                ),
                coordinates=record.coordinates,
            )
