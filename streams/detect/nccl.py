"""NCCL and PyTorch's watchdog: which rank waited in which collective, for how long, and how far it had come.

The wordings are rows of `catalog/lines/nccl.yaml`, `nccl_errors.yaml` and `launcher.yaml`; here is the prefix of c10d, which
every version writes differently:
`[rank2]:[E1109 16:13:20.222288244 ProcessGroupNCCL.cpp:616] [PG ID 2 PG GUID 3(name) Rank 3] `. The rank in the brackets of
a process group counts within the group; `[rank2]:` is global.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from streams.detect.finding import Finding, Stream
from streams.detect.matching import re2_patterns
from streams.detect.matching.log_patterns import Hit, PatternTable
from streams.detect.matching.quotation_filter import reported
from streams.ingest import timestamps
from streams.model.clock import to_millis
from streams.model.record import LogLine
from streams.model.signal import Attribute

_WORLD_RANK = re2_patterns.compile(r"(?i)\brank[ _-]?(\d{1,7})\]? ?:")
_TAGGED_RANK = re2_patterns.compile(r"\s{0,8}\[\d{1,7},(\d{1,7})\]<std(?:out|err)>:")
"""mpirun's `--tag-output`: number of the job, rank, stream."""
_RELAYED = re2_patterns.compile(r"\(\w{1,64} pid=\d{1,10}, ip=(?P<ip>[\da-fA-F.:]{3,45})\)")
"""Ray prints what its workers on other nodes say in the driver's log, with their address."""
_GROUP = re2_patterns.compile(
    r"\[(?:PG(?: ID)? (?P<id>\d{1,10})(?: PG GUID (?P<guid>[^\s(\]]{1,64})(?:\((?P<name>[^)]{0,64})\))?)? )?"
    r"[Rr]ank (?P<rank>\d{1,7})\]"
)
_CLOCK = re2_patterns.compile(
    r"\b[EWIF](?P<month>\d{1,2})(?P<day>\d{2}) (?P<clock>\d\d:\d\d:\d\d(?:\.\d{1,9})?) "
)
_MAX_SOURCES = 20_000
_UNWINDING_MS = 600_000
"""How long after an error its process may take to end: the watchdog waits for dumps, the heartbeat monitor for the watchdog."""
_DEFAULT_GROUP = ("0", "default_pg")


class NcclRanks:
    """Reads lines of ranks by the rows of a sheet. When a source last told an error is remembered: what follows is unwinding.

    Args:
        sheet: The sheet's name.
    """

    def __init__(self, sheet: str) -> None:
        self._patterns = PatternTable.load(sheet)
        self.hints = self._patterns.hints

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The messages of one line, in order."""
        after: int | None = None
        since = 0
        first: dict[str, Attribute] = {}
        echoed = "terminated with exception" in line.text or "what():" in line.text
        for hit in self._patterns.find(line.text, line.start):
            if not reported(line, hit.start, listed=hit.row.listed, after=after):
                continue
            # A line that was glued on brings its own prefix, and it stands in the tail of this message.
            origin = _origin(line.text[since : hit.start])
            first = first or origin
            if hit.row.listed:
                origin = origin or first  # an item of a list is of whom its head is
            if not _unwinds(hit, line, stream):
                yield self._finding(line, hit, stream, since, origin, echoed=echoed)
            after, since = hit.end, hit.start

    def _finding(
        self,
        line: LogLine,
        hit: Hit,
        stream: Stream,
        since: int,
        origin: Mapping[str, Attribute],
        *,
        echoed: bool,
    ) -> Finding:
        prefix = line.text[since : hit.start]
        attributes: dict[str, Attribute] = {**origin, **hit.row.sets, **hit.fields}
        if echoed and "subtype" not in attributes:
            attributes["subtype"] = "echo"
        rank = attributes.get("rank")
        return Finding(
            hit.row.kind,
            hit.row.severity,
            attributes,
            hit.row.state,
            node=node if isinstance(node := attributes.get("node"), str) else None,
            rank=rank if isinstance(rank, int) else None,
            at=_when(prefix, stream.received_at) if line.at is None else None,
            text=line.text[since : hit.end],
        )


def _unwinds(hit: Hit, line: LogLine, stream: Stream) -> bool:
    """True for what only follows an error that the same source has told."""
    told = stream.rule_state.table("ranks.told", _MAX_SOURCES)
    pod = line.pod.key if line.pod else None
    key = (stream.cluster, line.node, pod, line.container)
    at = to_millis(line.at or stream.received_at)
    before = told.get(key)
    if hit.row.unwinding and before is not None and abs(at - int(before[0] or 0)) <= _UNWINDING_MS:
        return True
    told[key] = (at,)
    return False


def _origin(prefix: str) -> dict[str, Attribute]:
    """Rank and process group; the first mention counts, because a message may quote another's."""
    found: dict[str, Attribute] = {}
    if (world := _WORLD_RANK.search(prefix)) is not None:
        found["rank"] = int(world.group(1))
    elif (tagged := _TAGGED_RANK.match(prefix)) is not None:
        found["rank"] = int(tagged.group(1))
    if (relayed := _RELAYED.search(prefix)) is not None and relayed.group("ip"):
        found["ip"] = str(relayed.group("ip"))
    group = _GROUP.search(prefix)
    if group is None:
        return found
    name, number = group.group("name"), group.group("guid") or group.group("id")
    if number is not None or "rank" in found:
        found["pg_rank"] = int(group.group("rank"))
    if number is not None:
        found["pg"] = number
    if group.group("guid") is not None:
        found["pg_id"] = group.group("id")
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
    return timestamps.yearless(match.group("month"), match.group("day"), match.group("clock"), reference)
