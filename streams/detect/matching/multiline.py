"""Reports of several lines, each of which alone says too little: a port in `ibstat`, the root cause of torchelastic.

    CA 'mlx5_3'                          Root Cause (first observed failure):
            Port 1:                      [0]:
                    State: Down            host      : gpu-a07
                    Physical state: …      rank      : 10 (local_rank: 2)
                                           exitcode  : -6 (pid: 2571)

What the earlier lines hold is remembered until the last one comes. Sources: infiniband-diags, ibstat and ibstatus; pytorch
torch/distributed/elastic/multiprocessing/errors.
"""

from __future__ import annotations

from collections.abc import Iterator

from streams.detect.finding import Attributes, Finding, Stream
from streams.detect.matching import re2_patterns
from streams.detect.matching.quotation_filter import written_by_people
from streams.detect.rule_state import Row
from streams.model.kinds import SignalKind
from streams.model.record import LogLine
from streams.model.signal import Severity

_MAX_SOURCES = 20_000

_ADAPTER = re2_patterns.compile(
    r"^[ \t]{0,16}(?:CA '([\w.-]{1,64})'|Infiniband device '([\w.-]{1,64})' port (\d{1,2}) status)"
)
_PORT = re2_patterns.compile(r"^[ \t]{0,16}Port (\d{1,2}):[ \t]{0,4}$")
_STATE = re2_patterns.compile(
    r"^[ \t]{0,24}[Ss]tate:[ \t]{1,24}(?:\d: )?(DOWN|Down|INIT|Initializing|ARMED|Armed|ACTIVE|Active)\b"
)
_PHYSICAL = re2_patterns.compile(r"^[ \t]{0,24}(?:Physical|phys) state:[ \t]{1,24}(?:\d: )?([A-Za-z]{4,24})")
_NOT_UP = frozenset(
    {"polling", "disabled", "linkerrorrecovery", "sleep", "phytest", "training", "portconfigurationtraining"}
)

_ROOT = re2_patterns.compile(r"Root Cause \(first observed failure\):")
_HOST = re2_patterns.compile(r"\bhost\s{2,8}: ([\w.-]{1,253})")
_RANK = re2_patterns.compile(r"\brank\s{2,8}: (\d{1,7}) \(local_rank: ?(\d{1,7})\)")
_EXIT = re2_patterns.compile(r"\bexitcode\s{1,8}: (-?\d{1,5}) \(pid: ?(\d{1,10})\)")


class Ibstat:
    """Reads `ibstat` and `ibstatus`. Remembers adapter, port and state from earlier lines."""

    hints = (
        rb"CA '(?:mlx|hfi|qib|bnxt|irdma|ro|ib)",
        rb"Infiniband device '",
        rb"Port \d{1,2}:(?:$|\\)",
        rb"[Ss]tate:[ \t\\]{1,8}t?(?:\d: )?(?:DOWN|Down|INIT|ARMED|Armed|ACTIVE|Active)",
        rb"[Pp]hys(?:ical)? state:",
    )

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """A port that is down, at the line with its physical state."""
        if written_by_people(line.source):
            return
        seen = stream.rule_state.table("ibstat.seen", _MAX_SOURCES)
        key = stream.source(line)
        if (adapter := _ADAPTER.search(line.text)) is not None:
            seen[key] = (adapter.group(1) or adapter.group(2), int(adapter.group(3) or 1), None)
            return
        row = seen.get(key)
        if row is None:
            return
        if (port := _PORT.search(line.text)) is not None:
            seen[key] = (row[0], int(port.group(1) or 0), None)
        elif (physical := _PHYSICAL.search(line.text)) is not None:
            if (physical.group(1) or "").lower() in _NOT_UP:
                yield _port(row, (physical.group(1) or ""), line.text)
        elif (state := _STATE.search(line.text)) is not None:
            seen[key] = (row[0], row[1], (state.group(1) or "").capitalize())


def _port(row: Row, physical: str, text: str) -> Finding:
    device, port, state = row
    attributes: Attributes = {
        "device": str(device),
        "ib_port": int(port or 1),
        "subtype": "link_down",
        "status": "down",
        "standing": True,
        "reason": physical,
    }
    if state is not None:
        attributes["state"] = str(state)
    # Disabled is a port an operator shut down, Polling one that looks for its peer in vain.
    severity = Severity.WARNING if physical.lower() == "disabled" else Severity.ERROR
    return Finding(SignalKind.FABRIC_LINK, severity, attributes, nic=str(device), text=text)


class RootCause:
    """Reads the summary of torchelastic: the first failure, not those that followed."""

    hints = (
        rb"first observed failure",
        rb"host {6}: \w",
        rb"rank {6}: \d",
        rb"exitcode {1,4}: -?\d",
    )

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The root cause, at the line with its exit code."""
        if written_by_people(line.source):
            return
        seen = stream.rule_state.table("root_cause.seen", _MAX_SOURCES)
        key = stream.source(line)
        if _ROOT.search(line.text) is not None:
            seen[key] = (None, None, None)
            return
        row = seen.get(key)
        if row is None:
            return
        if (host := _HOST.search(line.text)) is not None:
            seen[key] = ((host.group(1) or ""), *row[1:])
        elif (rank := _RANK.search(line.text)) is not None:
            seen[key] = (row[0], int(rank.group(1) or 0), int(rank.group(2) or 0))
        elif (end := _EXIT.search(line.text)) is not None:
            del seen[key]
            named = {"host": row[0], "rank": row[1], "local_rank": row[2]}
            attributes: Attributes = {
                "subtype": "root_cause",
                "exitcode": int(end.group(1) or 0),
                "pid": int(end.group(2) or 0),
                **{name: value for name, value in named.items() if value is not None},
            }
            of_rank = int(row[1]) if row[1] is not None else None
            yield Finding(SignalKind.JOB_FAILED, Severity.ERROR, attributes, rank=of_rank, text=line.text)
