"""Verdicts of agents in their own lines (`catalog/lines/agents.yaml`), of the kind that the code in them says."""

from __future__ import annotations

from streams.detect import dcgm_codes
from streams.detect.finding import Finding, Stream
from streams.detect.matching.log_patterns import Hit
from streams.detect.matching.pattern_family import PatternFamily, gpu_in
from streams.model.record import LogLine
from streams.model.signal import Severity

_MAX_MESSAGE = 1024


class Agents(PatternFamily):
    """Reads what health agents, DCGM and device plugins log."""

    def __init__(self) -> None:
        super().__init__("agents")

    def finding(self, hit: Hit, line: LogLine, stream: Stream) -> Finding | None:
        """As the row says; a code of DCGM says of which kind it is, and whether anybody has to act on it."""
        found = super().finding(hit, line, stream)
        if found is None:
            return None
        codes = dcgm_codes.named_in(line.text[hit.start : min(hit.end, hit.start + _MAX_MESSAGE)])
        severity = dcgm_codes.worst(codes, line.text)
        if severity is None:
            return found
        kind = next((one.row.kind for one in codes if dcgm_codes.is_listed(one)), found.kind)
        return found._replace(
            kind=kind,
            severity=min(found.severity, severity, key=_rank),
            gpu=gpu_in(found.attributes) if kind.startswith("gpu.") else None,
        )


def _rank(severity: Severity) -> int:
    return severity.rank
