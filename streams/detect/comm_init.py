"""Which rank runs on which GPU, as NCCL logs it when a communicator is created.

`gpu-07:201:377 [5] NCCL INFO ncclCommInitRank comm 0x55d0 rank 13 nranks 64 cudaDev 5 nvmlDev 5 busId 5d000 … - Init COMPLETE`
(NCCL init.cc, 2.4 to 2.30, with NCCL_DEBUG=INFO). The rank is the global one only in the communicator of all ranks, so a
process's communicator is reported when it is larger than those before.
"""

from __future__ import annotations

from collections.abc import Iterator

from streams.detect.finding import Attributes, Finding, Stream
from streams.detect.matching import re2_patterns
from streams.detect.matching.quotation_filter import reported
from streams.model.clock import to_millis
from streams.model.entity import canonical_pci
from streams.model.kinds import SignalKind
from streams.model.record import LogLine
from streams.model.signal import Severity

_INIT = re2_patterns.compile(
    r"NCCL INFO (?:ncclCommInit\w{0,24} )?comm 0x[0-9a-fA-F]{1,16} rank (?P<rank>\d{1,7}) nranks (?P<nranks>\d{1,7}) "
    r"cudaDev (?P<dev>\d{1,3})(?: nvmlDev \d{1,3})? busId (?P<bus>[0-9a-fA-F]{4,12})\b[^\n]{0,200}Init COMPLETE"
)
_PROCESS = re2_patterns.compile(r"(?P<host>[\w.-]{1,253}):(?P<pid>\d{1,10}):\d{1,10} \[")
_MAX_PROCESSES = 50_000
_AGAIN_MS = 600_000
"""A process that creates one of the same size after this time has restarted."""


class CommInit:
    """Reads lines of pods; a line without a pod does not tell where a rank runs."""

    hints = (rb"nranks \d{1,7} cudaDev \d{1,3} (?:nvmlDev \d{1,3} )?busId ",)

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """At most one finding a line."""
        if line.pod is None or (hit := _INIT.search(line.text, line.start)) is None:
            return
        rank, size = int(hit.group("rank") or 0), int(hit.group("nranks") or 0)
        if size < 2 or rank >= size or not reported(line, hit.start()):
            return
        process = _PROCESS.search(line.text[: hit.start()])
        process_id = process.group("pid") if process is not None else hit.group("dev")
        key = (stream.cluster, line.pod.key, line.container, process_id)
        table = stream.rule_state.table("comms.made", _MAX_PROCESSES)
        at, before = to_millis(line.at or stream.received_at), table.get(key)
        if before is not None:
            known, reported_at = int(before[0] or 0), int(before[1] or 0)
            if size < known or (size == known and abs(at - reported_at) < _AGAIN_MS):
                return
        table[key] = (size, at)
        attributes: Attributes = {"rank": rank, "nranks": size, "index": int(hit.group("dev") or 0)}
        if (pci := _pci(hit.group("bus") or "")) is not None:
            attributes["pci"] = pci
        if process is not None and process.group("host"):
            attributes["host"] = str(process.group("host"))
        yield Finding(SignalKind.JOB_RANK, Severity.INFO, attributes, rank=rank, text=line.text)


def _pci(bus: str) -> str | None:
    """`5d000` is `0000:5d:00.0` without its punctuation and leading zeros (NCCL utils.cc, int64ToBusId)."""
    digits = bus.zfill(9)
    return canonical_pci(f"{digits[:-5].zfill(4)}:{digits[-5:-3]}:{digits[-3:-1]}")
