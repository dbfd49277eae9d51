"""Memory, descriptors and threads of processes from outside (`/proc`), and how surely they grow."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

WARM_S = 60.0
"""A process that is younger than this is still filling its caches."""
BLOCK_S = 20.0
"""Samples that follow each other say the same: those of so long are one."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at one process: when (s since the soak began), its label and id, its age in s and what it uses."""

    at_s: float
    label: str
    pid: int
    age_s: float
    rss_mb: float
    descriptors: int
    threads: int


@dataclass(frozen=True, slots=True)
class Slope:
    """Growth in MB/h with the bounds of its 95 % confidence interval; `blocks` is how many independent looks it rests on."""

    mb_per_h: float
    low: float
    high: float
    blocks: int


def look(at_s: float, pids: Mapping[str, int], born_s: Mapping[int, float]) -> list[Sample]:
    """Look at each of them once; one that ends meanwhile is left out."""
    found = []
    for label, pid in pids.items():
        try:
            status = dict(
                line.split(":", 1)
                for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                if ":" in line
            )
            descriptors = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
            rss_mb, threads = int(status["VmRSS"].split()[0]) / 1024, int(status["Threads"])
        except (OSError, KeyError):
            continue  # it is gone, or a zombie, which has no memory any more
        found.append(Sample(at_s, label, pid, at_s - born_s.get(pid, at_s), rss_mb, descriptors, threads))
    return found


def slope(samples: Iterable[Sample]) -> Slope | None:
    """The common slope of all lives of a process, each with a level of its own; None where too little was seen."""
    blocks: dict[tuple[int, int], list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.age_s >= WARM_S:
            blocks[sample.pid, int(sample.at_s // BLOCK_S)].append(sample)
    lives: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for (pid, _), rows in blocks.items():
        lives[pid].append((sum(s.at_s for s in rows) / len(rows), sum(s.rss_mb for s in rows) / len(rows)))
    points = [(x - _mean(life, 0), y - _mean(life, 1)) for life in lives.values() for x, y in life]
    spread = sum(x * x for x, _ in points)
    freedom = len(points) - len(lives) - 1
    if freedom < 3 or not spread:
        return None
    b = sum(x * y for x, y in points) / spread
    error = math.sqrt(sum((y - b * x) ** 2 for x, y in points) / freedom / spread)
    wide = _t975(freedom) * error
    return Slope(b * 3600, (b - wide) * 3600, (b + wide) * 3600, len(points))


def growth(samples: Sequence[Sample], field: str) -> int:
    """How much more of `descriptors` or `threads` a process of the last quarter has than one of the quarter before the last two.

    The most of each quarter counts; young processes do not.
    """
    if not samples:
        return 0
    begin, end = samples[0].at_s, samples[-1].at_s
    quarter = (end - begin) / 4
    second = [getattr(s, field) for s in samples if quarter <= s.at_s - begin < 2 * quarter and s.age_s > 20]
    last = [getattr(s, field) for s in samples if s.at_s - begin >= 3 * quarter and s.age_s > 20]
    return max(last) - max(second) if second and last else 0


def _mean(points: Sequence[tuple[float, float]], index: int) -> float:
    return sum(p[index] for p in points) / len(points)


def _t975(freedom: int) -> float:
    """Student's t for 95 %, by the series of Cornish and Fisher: off by less than 2 % from three degrees of freedom on."""
    z = 1.959964
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + g1 / freedom + g2 / freedom**2 + g3 / freedom**3
