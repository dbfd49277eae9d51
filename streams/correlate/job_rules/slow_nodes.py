"""Nodes all of whose busy GPUs run far below the clock that is usual for them, and whether that is the node's own fault.

The detector reports such a node by what it sees in one partition, and series of one job's nodes may lie in different partitions.
So the nodes are compared here, where reports of the whole cluster come together. A node that is low while its job's other nodes
are not is slow. Where several began to be low at one time, somebody capped them, or set the clocks of a job: no node is at fault.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from streams.correlate.policy.policy import policy
from streams.correlate.sightings import LOW_CLOCKS, Sighting, order
from streams.correlate.state.incarnations import firing_intervals
from streams.correlate.state.placement import Placement, Placements
from streams.correlate.state.rows import of_kind
from streams.correlate.state.store import State
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.signal import Attribute

BELOW_ITS_JOB, BELOW_ITS_PAST, LOW_ALONE = "below_its_job", "below_its_past", "low_alone"
"""Subtypes of what is made of it: against its job's other nodes, against itself, and only with a job that became slower."""


@dataclass(frozen=True, slots=True)
class Low:
    """One stretch in which a node is low. `end` is None while it lasts."""

    start: datetime
    end: datetime | None
    first: Sighting
    reports: tuple[Sighting, ...]
    """All of the node's reports of that time, its end included."""

    @property
    def until(self) -> datetime:
        """When it ended, or how long it is believed."""
        return self.end or self.reports[-1].at + policy().slow_nodes.lasting


class SlowNodes:
    """By node: what is made of its low clocks, as signals of the node."""

    def __init__(self, state: State, placements: Placements) -> None:
        self._state, self._placements = state, placements
        self._low: dict[str, tuple[Low, ...]] = {}
        self._starts: list[tuple[datetime, str]] = []
        """When any node began to be low, sorted."""

    def learn(self, nodes: Iterable[str], placed: Iterable[str]) -> set[str]:
        """Read again what was seen on these nodes. Returns those that may be judged otherwise now, also for jobs that moved."""
        changed: set[str] = set()
        for node in nodes:
            row = self._state.nodes.get(node)
            after = tuple(_stretches(of_kind(row.seen, SignalKind.GPU_SLOW))) if row is not None else ()
            before = self._low.get(node, ())
            if before != after:
                changed |= {node, *self._near(before), *self._near(after)}
                if after:
                    self._low[node] = after
                else:
                    del self._low[node]
        if not self._low:
            self._starts = []
            return changed
        if changed:
            self._starts = sorted((low.start, node) for node, lows in self._low.items() for low in lows)
            changed |= {node for n in changed for node in self._near(self._low.get(n, ()))}
            jobs = {job for node in changed for job in self._placements.jobs_near(node)}
            changed |= {node for job in jobs for node in self._low_of(job)}
        changed |= {node for job in placed for node in self._low_of(job)}
        return changed

    def on(self, node: str, now: datetime) -> list[Sighting]:
        """What is made of the node's low clocks."""
        fresh = policy().slow_nodes.fresh
        return [
            s
            for low in self._low.get(node, ())
            # Once some of those that were low together are forgotten, the others must not look alone.
            if now - low.first.seen_at <= fresh or self._is_told(node)
            for s in self._judged(node, low)
        ]

    def _judged(self, node: str, low: Low) -> Iterator[Sighting]:
        near = self._near((low,))
        if len(near) > policy().slow_nodes.most:
            return
        there = sorted(self._placements.on_node(node, low.start, low.until), key=lambda p: (p.start, p.uid))
        compared = [(p, n) for p in there if (n := self._others(node, low, p)) is not None]
        if compared:
            found = next(((p, n) for p, n in compared if n), None)
            if found is not None:
                mine, others = found
                beside = f"; none of the {others} other nodes of {mine.job.key} does"
                yield from _as(low, BELOW_ITS_JOB, beside, mine.start)
        elif there:
            yield from _as(low, LOW_ALONE, "")
        elif near <= {node} and _went_on(low) and not self._holds_others(node, low):
            yield from _as(low, BELOW_ITS_PAST, "; its work went on as that fell, and no other node's did")

    def _others(self, node: str, low: Low, mine: Placement) -> int | None:
        """With how many other nodes of a job this one was compared; 0 where too many of them are low as well.

        None where the job has no other node.
        """
        at, rule = max(low.start, mine.start), policy().slow_nodes
        nodes = {p.node for p in self._placements.of_job(mine.job.key, at, at)} | {node}
        if len(nodes) < 2:
            return None
        also = {n for n in nodes if any(abs(o.start - low.start) <= rule.same for o in self._low.get(n, ()))}
        alone = len(also) <= max(1, int(rule.most_share * len(nodes)))
        return len(nodes - also) if alone else 0

    def _holds_others(self, node: str, low: Low) -> bool:
        """Whether it is known that something else than training had its GPUs, whose clocks vary as they like."""
        return self._placements.stood_beside(node, low.start, low.start)

    def _is_told(self, node: str) -> bool:
        documents = (row.incident for row in self._state.documents.values())
        return any(
            i.family == IncidentFamily.STRAGGLER and i.root.node == node and not i.state.is_over
            for i in documents
        )

    def _near(self, lows: Iterable[Low]) -> set[str]:
        """The nodes that began to be low at about the same time as one of these."""
        within = policy().slow_nodes.within
        found: set[str] = set()
        for low in lows:
            first = bisect_left(self._starts, (low.start - within, ""))
            last = bisect_right(self._starts, (low.start + within, "\U0010ffff"))
            found.update(name for _, name in self._starts[first:last])
        return found

    def _low_of(self, job: str) -> set[str]:
        return {p.node for p in self._placements.placements_of(job) if p.node in self._low}


def _stretches(seen: Iterable[Sighting]) -> Iterator[Low]:
    """The stretches in which a node was low."""
    mine = sorted((s for s in seen if s.text("subtype") == LOW_CLOCKS and s.entity.gpu is None), key=order)
    if not mine:
        return
    for interval in firing_intervals(mine):
        end = interval.end
        own = tuple(s for s in mine if interval.start <= s.at and (end is None or s.at <= end))
        first = interval.sightings[0]
        yield Low(first.fault_at, end, first, own)


def _went_on(low: Low) -> bool:
    """Whether every partition that reports it saw the node's GPUs work without a rest while their clocks fell."""
    return all(s.attributes.get("unbroken") is True for s in low.reports if s.firing)


def _as(low: Low, subtype: str, beside: str, since: datetime | None = None) -> Iterator[Sighting]:
    """The reports of a stretch as signals of what is made of it. They all say the same, or each would be news.

    The detector reports it after minutes: it began when the clocks fell, or when the job that suffers from it came (`since`).
    """
    said: dict[str, Attribute] = {"subtype": subtype, "what": _what(low.first) + beside}
    for s in low.reports:
        kept = {name: value for name, value in s.attributes.items() if name != "subtype"}
        began = s.fault_at if since is None else max(s.fault_at, since)
        yield replace(s, at=began if s.firing else s.at, attributes={**kept, **said})


def _what(s: Sighting) -> str:
    what = f"all of its GPUs at work run at {s.text('clock_mhz')} MHz, {s.text('percent')} % of what is usual"
    if before := s.text("before"):
        what += f" and {before} MHz before"
    if power := s.text("power_w"):
        what += f", at {power} W each"
    if hottest := s.text("temperature_c"):
        what += f"; the hottest is at {hottest} °C"
    if reason := s.text("reason"):
        what += f" ({reason})"
    return what
