"""What the ranks of a job said about their collectives, put together by hang."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from streams.correlate.sightings import Sighting
from streams.correlate.state.placement import Placement
from streams.model.hostnames import folded
from streams.model.kinds import SignalKind

Rank = int | str
"""A global rank, or `pod#local` where only the pod is known."""


@dataclass(frozen=True, slots=True)
class RankReport:
    """One sighting with who told it and where that stood."""

    sighting: Sighting
    rank: Rank
    pod: str | None
    node: str | None
    begun: datetime | None = None
    """Since when the pod that told it stands where it does; None if unknown."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One hang: every report whose waiting overlaps. `start` is back-dated; `reported_at` is the first line's time."""

    start: datetime
    reported_at: datetime
    end: datetime
    seen_at: datetime
    reports: tuple[RankReport, ...]

    @property
    def lines(self) -> list[Sighting]:
        """The sightings of its reports, in order."""
        return [report.sighting for report in self.reports]

    @property
    def reporters(self) -> dict[Rank, str | None]:
        """Who said anything, and on which node."""
        return {t.rank: t.node for t in self.reports}


def rank_report(s: Sighting, placement: Placement | None) -> RankReport:
    """Who told a line: its global rank, else a name made of pod and rank inside its group.

    Before PyTorch 2.2 the only rank in a line is that inside its group: one that its pod does not hold is no global rank.
    """
    rank = s.entity.rank if s.entity.rank is not None else s.number("rank")
    pod = s.entity.pod.key if s.entity.pod else None
    if s.text("ip"):
        # A driver relays what a worker elsewhere said: where that stands is for the inventory to tell.
        return RankReport(
            s, rank if rank is not None else f"{s.text('ip')}#{s.number('pg_rank') or '?'}", None, None
        )
    if rank is not None and (placement is None or not placement.ranks or rank in placement.ranks):
        who: Rank = rank
    elif rank is None and placement is not None and len(placement.ranks) == 1:
        who = placement.ranks[0]
    else:
        place = s.number("pg_rank") if rank is None else rank
        who = f"{pod or s.entity.node}#{place if place is not None else '?'}"
    return RankReport(
        s, who, pod, placement.node if placement else s.entity.node, placement.start if placement else None
    )


def located(
    reports: Iterable[RankReport], placements: Sequence[Placement], nodes: Mapping[str, str]
) -> tuple[RankReport, ...]:
    """Reports where the ranks stand that they speak of: launchers (mpirun, srun, Ray) print lines of other hosts.

    A rank that the printing pod does not hold stands where it is placed; an address or a host in the line is its pod's or its
    node's.
    `nodes` has the node of each.
    """
    held = {p.pod for p in placements if p.ranks}
    holders: dict[Rank, Placement] = {rank: p for p in placements for rank in p.ranks}
    return tuple(_located(report, held, holders, placements, nodes) for report in reports)


def _located(
    report: RankReport,
    held: Collection[str],
    holders: Mapping[Rank, Placement],
    placements: Sequence[Placement],
    nodes: Mapping[str, str],
) -> RankReport:
    if (holder := holders.get(report.rank)) is not None:
        if report.pod == holder.pod or report.pod in held:
            return report
        return replace(report, pod=holder.pod, node=holder.node)
    name = report.sighting.text("ip") or report.sighting.text("host")
    node = nodes.get(folded(name)) if name else None
    if node is None:
        return report
    there = [p.pod for p in placements if p.node == node]
    return replace(report, node=node, pod=there[0] if len(there) == 1 else report.pod)


def names_others(reports: Iterable[RankReport]) -> bool:
    """Whether any of them names the other end of a connection, or whose line it relays, which the inventory must know."""
    return any(t.sighting.kind == SignalKind.NCCL_ERROR or t.sighting.text("ip") for t in reports)


def doubted(reports: Sequence[RankReport]) -> Sequence[RankReport]:
    """Once one line's rank turns out to be that inside its group, no rank of a line like it is taken for a global one."""
    if not any(isinstance(t.rank, str) and t.sighting.number("rank") is not None for t in reports):
        return reports
    return [
        replace(t, rank=f"{t.pod or t.node}#{t.rank}")
        if isinstance(t.rank, int) and not t.sighting.text("pg") and t.sighting.number("pg_rank") is None
        else t
        for t in reports
    ]


def episodes(reports: Iterable[RankReport], gap: timedelta) -> list[Episode]:
    """Cut reports into hangs: reports belong together when their waiting overlaps, give or take the gap.

    What a pod tells that came when others had reported already is no part of that: the job has been started again since.
    """
    found: list[list[RankReport]] = []
    until: datetime | None = None
    for one in sorted(reports, key=lambda t: (t.sighting.fault_at, t.sighting.at, t.sighting.id)):
        if until is None or one.sighting.fault_at > until + gap:
            found.append([])
            until = one.sighting.at
        found[-1].append(one)
        until = max(until, one.sighting.at)
    return [episode for group in found for episode in _restarts(group)]


def _restarts(group: list[RankReport]) -> Iterator[Episode]:
    """One episode for each time that the job was started within a group of reports."""
    while group:
        reported_at = min(t.sighting.at for t in group)
        later = [t for t in group if _came_after(t, reported_at)]
        yield _episode([t for t in group if not _came_after(t, reported_at)] if later else group)
        group = later


def _came_after(report: RankReport, at: datetime) -> bool:
    """Whether the pod came after that time. One that spoke before it is known to have come did not."""
    return report.begun is not None and at < report.begun <= report.sighting.at


def joined(one: Episode, other: Episode) -> Episode:
    """Two stretches of reports as one hang."""
    return _episode([*one.reports, *other.reports])


def _episode(group: list[RankReport]) -> Episode:
    lines = [t.sighting for t in group]
    return Episode(
        start=min(s.fault_at for s in lines),
        reported_at=min(s.at for s in lines),
        end=max(s.at for s in lines),
        seen_at=max(s.seen_at for s in lines),
        reports=tuple(sorted(group, key=lambda t: (t.sighting.at, t.sighting.id))),
    )
