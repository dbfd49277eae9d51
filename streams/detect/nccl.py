"""NCCL and PyTorch's watchdog: which rank waited in which collective, for how long, and how far it had come.

The wordings are rows of `catalog/nccl.yaml`; here is the prefix of c10d, which every version writes differently:
`[rank2]:[E1109 16:13:20.222288244 ProcessGroupNCCL.cpp:616] [PG ID 2 PG GUID 3(name) Rank 3] `. The rank in the brackets of
a process group counts within the group; `[rank2]:` is global.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import re2

from streams.detect.finding import Finding, Stream
from streams.detect.quoting import reported
from streams.detect.wording import Hit, Wordings
from streams.envelopes import times
from streams.model.record import LogLine
from streams.model.signal import Attribute

_WORLD_RANK = re2.compile(r"(?i)\brank[ _-]?(\d{1,7})\]? ?:")
_GROUP = re2.compile(
    r"\[(?:PG(?: ID)? (?P<id>\d{1,10})(?: PG GUID (?P<guid>[^\s(\]]{1,64})(?:\((?P<name>[^)]{0,64})\))?)? )?"
    r"[Rr]ank (?P<rank>\d{1,7})\]"
)
_CLOCK = re2.compile(r"\b[EWIF](?P<month>\d{1,2})(?P<day>\d{2}) (?P<clock>\d\d:\d\d:\d\d(?:\.\d{1,9})?) ")
_DEFAULT_GROUP = ("0", "default_pg")


class Nccl:
    """Reads lines of ranks."""

    def __init__(self) -> None:
        self._wordings = Wordings.load("nccl")
        self.hints = self._wordings.hints

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The messages of one line, in order."""
        after: int | None = None
        since = 0
        echoed = "terminated with exception" in line.text or "what():" in line.text
        for hit in self._wordings.find(line.text, line.start):
            if not reported(line, hit.start, listed=hit.row.listed, after=after):
                continue
            # A line that was glued on brings its own prefix, and it stands in the tail of this message.
            yield self._finding(line, hit, stream, since, echoed=echoed)
            after, since = hit.end, hit.start

    def _finding(self, line: LogLine, hit: Hit, stream: Stream, since: int, *, echoed: bool) -> Finding:
        prefix = line.text[since : hit.start]
        attributes: dict[str, Attribute] = {**_origin(prefix), **hit.row.sets, **hit.fields}
        if echoed and "subtype" not in attributes:
            attributes["subtype"] = "echo"
        rank = attributes.get("rank")
        return Finding(
            hit.row.kind,
            hit.row.severity,
            attributes,
            hit.row.state,
            rank=rank if isinstance(rank, int) else None,
            at=_when(prefix, stream.received_at) if line.at is None else None,
            text=line.text[since : hit.end],
        )


def _origin(prefix: str) -> dict[str, Attribute]:
    """Rank and process group; the first mention counts, because a message may quote another's."""
    found: dict[str, Attribute] = {}
    if (world := _WORLD_RANK.search(prefix)) is not None:
        found["rank"] = int(world.group(1))
    group = _GROUP.search(prefix)
    if group is None:
        return found
    name, number = group.group("name"), group.group("guid") or group.group("id")
    if number is not None:
        found["pg"] = number
        found["pg_rank"] = int(group.group("rank"))
    if name:
        found["pg_name"] = name
    if "rank" not in found and (number is None or number in _DEFAULT_GROUP or name in _DEFAULT_GROUP):
        found["rank"] = int(group.group("rank"))
    return found


def _when(prefix: str, reference: datetime) -> datetime | None:
    """glog's time: month without padding, no year, no zone."""
    match = _CLOCK.search(prefix)
    if match is None:
        return None
    return times.yearless(match.group("month"), match.group("day"), match.group("clock"), reference)
