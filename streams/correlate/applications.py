"""Faults of the job's own code: the same XID on many nodes of one job within seconds, or one illegal access on its own.

Hardware does not fail on four nodes in the same second; a bad kernel or a bad batch does (SRE practice; the device plugin and
NVSentinel leave 13, 31, 43 and 45 alone for the same reason).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from streams.correlate.config import Config
from streams.correlate.families import families
from streams.correlate.gpus import is_gauge
from streams.correlate.sightings import Sighting, order


@dataclass(frozen=True, slots=True)
class Burst:
    """Application codes of one job that belong together. `nodes` is how many nodes one code hit at the same moment."""

    start: datetime
    end: datetime
    seen_at: datetime
    code: int
    nodes: tuple[str, ...]
    sightings: tuple[Sighting, ...]

    @property
    def is_shared(self) -> bool:
        """Several nodes at once."""
        return len(self.nodes) > 1

    @property
    def says_nothing(self) -> bool:
        """Alone, and of a code that every killed process leaves."""
        return not self.is_shared and all(s.code in families().quiet_alone for s in self.sightings)


def bursts(seen: Iterable[Sighting], config: Config) -> list[Burst]:
    """Cut a job's application codes into bursts at silences."""
    lines = sorted(
        (
            s
            for s in seen
            if s.kind == "gpu.xid" and s.firing and not is_gauge(s) and families().role(s) == "application"
        ),
        key=order,
    )
    groups: list[list[Sighting]] = []
    for s in lines:
        if not groups or s.at - groups[-1][-1].at > config.quiet:
            groups.append([])
        groups[-1].append(s)
    return [_burst(group, config.together) for group in groups]


def _burst(group: Sequence[Sighting], together: timedelta) -> Burst:
    by_code: dict[int, list[Sighting]] = defaultdict(list)
    for s in group:
        by_code[s.code or 0].append(s)
    widest = {code: _most_nodes(lines, together) for code, lines in by_code.items()}
    loud = [code for code in widest if code not in families().quiet_alone]
    code = max(widest, key=lambda c: (len(widest[c]), c in loud, -c))
    return Burst(group[0].at, group[-1].at, max(s.seen_at for s in group), code, widest[code], tuple(group))


def _most_nodes(lines: Sequence[Sighting], together: timedelta) -> tuple[str, ...]:
    """The nodes that one code hit within the window, at its fullest; earliest window first."""
    best: tuple[str, ...] = ()
    inside: Counter[str] = Counter()
    left = 0
    for line in lines:
        while line.at - lines[left].at > together:
            if node := lines[left].entity.node:
                inside[node] -= 1
                if not inside[node]:
                    del inside[node]
            left += 1
        if line.entity.node:
            inside[line.entity.node] += 1
        if len(inside) > len(best):
            best = tuple(sorted(inside))
    return best
