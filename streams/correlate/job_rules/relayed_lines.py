"""Lines that a launcher or a driver prints for its workers: of whom they are, and whether it prints all of them.

mpirun and srun print every line. Ray's driver folds lines that differ only in their numbers, unless it is told not to
(RAY_DEDUP_LOGS; ray_logging, LogDeduplicator): the first is printed, and those of other processes within five seconds become one
line with a count. So a rank of which it prints nothing may have said the same as others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from streams.correlate.job_rules.rank_reports import Rank, RankReport
from streams.correlate.state.placement import Placement
from streams.model.hostnames import folded

_FOLDED_WITHIN = timedelta(seconds=4)
"""Ray gathers lines for five seconds (RAY_DEDUP_LOGS_AGG_WINDOW_S); the driver's lines are dated to within one."""
_NEVER_FOLDED = 4
"""So many alike within that time prove that nothing is folded: folding leaves the first, and at most one more without a count."""


def prints_all(reports: Iterable[RankReport]) -> bool:
    """Whether a driver prints lines of several workers that are alike one by one."""
    alike: dict[tuple[object, ...], list[tuple[datetime, Rank]]] = defaultdict(list)
    for report in reports:
        s = report.sighting
        if s.text("ip"):
            key = (s.entity.pod, s.kind, s.text("subtype"), s.text("op"), s.text("reason"))
            alike[key].append((s.at, report.rank))
    return any(_at_once(sorted(lines, key=lambda line: line[0])) for lines in alike.values())


def _at_once(lines: Sequence[tuple[datetime, Rank]]) -> bool:
    for i, (begin, _) in enumerate(lines):
        near: set[Rank] = set()
        for at, rank in lines[i:]:
            if at - begin > _FOLDED_WITHIN:
                break
            near.add(rank)
            if len(near) >= _NEVER_FOLDED:
                return True
    return False


def at_their_address(
    reports: Sequence[RankReport], placements: Sequence[Placement], nodes: Mapping[str, str]
) -> tuple[RankReport, ...]:
    """Reports at the pod of the address in their line, where one pod of the job stands there. `nodes` has the node of each."""
    pods: dict[str, list[str]] = defaultdict(list)
    for placement in placements:
        pods[placement.node].append(placement.pod)
    return tuple(_at_address(report, pods, nodes) for report in reports)


def _at_address(
    report: RankReport, pods: Mapping[str, Sequence[str]], nodes: Mapping[str, str]
) -> RankReport:
    address = report.sighting.text("ip")
    node = nodes.get(folded(address)) if address and report.pod is None else None
    if node is None or len(pods.get(node, ())) != 1:
        return report
    return replace(report, pod=pods[node][0], node=node)


def elsewhere(reports: Sequence[RankReport], launchers: Collection[str]) -> tuple[RankReport, ...]:
    """Reports without the node of the launcher that printed them: where it stands says nothing of its workers."""
    if not launchers:
        return tuple(reports)
    return tuple(
        replace(report, node=None) if report.pod in launchers and report.node is not None else report
        for report in reports
    )
