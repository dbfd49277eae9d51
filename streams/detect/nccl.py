"""NCCL and PyTorch's watchdog: which rank waited in which collective, for how long, and how far it got.

The messages are rows of `catalog/lines/nccl.yaml`, `nccl_errors.yaml` and `launcher.yaml`; here is the prefix of c10d, which
every version writes differently:
`[rank2]:[E1109 16:13:20.222288244 ProcessGroupNCCL.cpp:616] [PG ID 2 PG GUID 3(name) Rank 3] `. The rank in the brackets of
a process group counts within the group; `[rank2]:` is global.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from streams.detect.finding import Attributes, Finding, Stream
from streams.detect.matching import re2_patterns
from streams.detect.matching.log_patterns import Hit, PatternTable
from streams.detect.matching.quotation_filter import reported
from streams.ingest import timestamps
from streams.model.clock import to_millis
from streams.model.entity import is_output_of_slurm
from streams.model.record import LogLine

_WORLD_RANK = re2_patterns.compile(r"(?i)\brank[ _-]?(\d{1,7})\]? ?:")
_TAGGED_RANK = re2_patterns.compile(r"\s{0,8}\[\d{1,7},(\d{1,7})\]<std(?:out|err)>:")
"""mpirun's `--tag-output`: job number, rank, stream."""
_RELAYED = re2_patterns.compile(
    r"\((?:[\w.]{1,64}(?:\([^()\n]{0,64}\))? )?pid=\d{1,10}, ip=(?P<ip>[\da-fA-F.:]{3,45})\)"
)
"""Ray copies lines of workers on other nodes into the driver's log, with their address."""
_WRITER = re2_patterns.compile(
    r"(?:^|[\s\]:|])(?P<host>[A-Za-z][\w.-]{1,253}):\d{1,10}:\d{1,10} \[\d{1,3}\] (?:\S|$)"
)
"""NCCL's own header, `host:pid:tid [device] `: which host it ran on, whoever shipped or printed the line."""
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
    """Reads lines of ranks by the rows of a file. Remembers a source's last error: what follows it is unwinding.

    Args:
        sheet: The file's name in `catalog/lines`.
        ends: Whether its messages are errors that a process may end for, and not retries.
    """

    def __init__(self, sheet: str, *, ends: bool = True) -> None:
        self._patterns = PatternTable.load(sheet)
        self._sheet, self._ends = sheet, ends
        self.hints = self._patterns.hints

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The messages of one line, in order."""
        after: int | None = None
        since = 0
        first: Attributes = {}
        carried = self._sheet in ("launcher", "names") or (
            "NCCL" in line.text and self._sheet == "nccl_errors"
        )
        echoed = "terminated with exception" in line.text or "what():" in line.text
        for hit in self._patterns.find(line.text, line.start):
            if not reported(line, hit.start, listed=hit.row.listed, carried=carried, after=after):
                continue
            # A line glued to this one has its own prefix, which is at the end of this message.
            origin = _origin(line.text[since : hit.start])
            first = first or origin
            if hit.row.listed:
                origin = origin or first  # an item of a list belongs to the rank of its head
            origin |= _writer(line, line.text[since : hit.start])
            if not (self._ends and _unwinds(hit, line, stream)):
                attributes: Attributes = {**origin, **hit.row.sets, **hit.fields}
                if echoed:
                    attributes.setdefault("subtype", "echo")
                at = _glog_time(line.text[since : hit.start], stream.received_at) if line.at is None else None
                yield _finding(hit, attributes, at, line.text[since : hit.end])
            after, since = hit.end, hit.start


def _finding(hit: Hit, attributes: Attributes, at: datetime | None, text: str) -> Finding:
    rank, node = attributes.get("rank"), attributes.get("node")
    return Finding(
        hit.row.kind,
        hit.row.severity,
        attributes,
        hit.row.state,
        node=node if isinstance(node, str) else None,
        rank=rank if isinstance(rank, int) else None,
        at=at,
        text=text,
    )


def _unwinds(hit: Hit, line: LogLine, stream: Stream) -> bool:
    """True for a message that only follows an error of the same source."""
    last_error = stream.rule_state.table("ranks.told", _MAX_SOURCES)
    key = (stream.cluster, line.node, line.pod.key if line.pod else None, line.container)
    at = to_millis(line.at or stream.received_at)
    before = last_error.get(key)
    if hit.row.unwinding and before is not None and abs(at - int(before[0] or 0)) <= _UNWINDING_MS:
        return True
    last_error[key] = (at,)
    return False


def _is_launchers(tag: int, prefix: str) -> bool:
    """Whether the tag is that of a launcher, of which mpirun started one on each host: no place in a group is above the rank."""
    group = _GROUP.search(prefix)
    return group is not None and int(group.group("rank")) > tag


def _origin(prefix: str) -> Attributes:
    """Rank and process group; the first mention counts, because a message may quote another rank's."""
    found: Attributes = {}
    if (world := _WORLD_RANK.search(prefix)) is not None:
        found["rank"] = int(world.group(1))
    elif (tag := _TAGGED_RANK.match(prefix)) is not None and not _is_launchers(int(tag.group(1)), prefix):
        found["rank"] = int(tag.group(1))
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


def _writer(line: LogLine, prefix: str) -> Attributes:
    """The host that NCCL's header names: a node in the output of a Slurm job, else the name of the host inside a pod."""
    if (written := _WRITER.search(prefix)) is None:
        return {}
    host = str(written.group("host"))
    if line.pod is not None and is_output_of_slurm(line.pod.key):
        return {"node": host}
    return {"host": host} if host != line.node and (line.pod is None or host != line.pod.name) else {}


def _glog_time(prefix: str, reference: datetime) -> datetime | None:
    """The time of glog: month without padding, no year, no zone."""
    match = _CLOCK.search(prefix)
    if match is None:
        return None
    return timestamps.yearless(match.group("month"), match.group("day"), match.group("clock"), reference)
