"""Whether a NotReady node is dead or only unreachable.

A kubelet that the API server cannot reach is one observer's report. A second, independent sign makes it decisive; a single sign
of life takes that back, because a running job must never be moved off a live node. Policy is in
`node_death.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

from streams.config.yaml_tables import Strict, load_table
from streams.correlate.hypothesis import Hypothesis
from streams.correlate.node_rules.node_readiness import is_death
from streams.correlate.policy.config import Config
from streams.correlate.policy.families import at_most
from streams.correlate.policy.link_parts import parts
from streams.correlate.sightings import Sighting, order
from streams.correlate.state.job_progress import ProgressReport
from streams.correlate.state.rows import NodeRow, PortRow, of_kind
from streams.model.hostnames import is_controller
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.signal import CONTROLLER

FAMILY = IncidentFamily.NODE_DOWN
_SPOKE_BEFORE = timedelta(hours=1)
"""How far back a job's progress is known by the minute."""


class Sign(Strict):
    """A sign that makes a NotReady decisive once it lasted `after_s`."""

    after_s: int
    says: str

    @property
    def after(self) -> timedelta:
        """How long the NotReady must have lasted."""
        return timedelta(seconds=self.after_s)


class _Signs(Strict):
    stopped: Sign
    alert: Sign
    ports: Sign
    silence: Sign
    absence: Sign


class _Rhythm(Strict):
    moves: int
    of: int
    patience: float
    longest_s: int


class _Taints(Strict):
    unreachable: frozenset[str]
    not_ready: frozenset[str]
    stopped: frozenset[str]


class DeathPolicy(Strict):
    """The whole file."""

    signs: _Signs
    life_after_s: int
    spoken_by_itself: tuple[str, ...]
    rhythm: _Rhythm
    taints: _Taints
    silent_reasons: tuple[str, ...]

    def is_by_node(self, s: Sighting) -> bool:
        """Whether the node itself reported it: not the API server, an alert, its management controller, or its last lines."""
        by_others = "alert" in s.attributes or CONTROLLER in s.attributes
        if not s.kind.startswith(self.spoken_by_itself) or is_death(s) or by_others:
            return False
        return s.said is None or not is_controller(s.said)


death_policy = cache(partial(load_table, Path(__file__).with_name("node_death.yaml"), DeathPolicy))
"""The policy that ships."""


@dataclass(frozen=True, slots=True)
class LivenessWindow:
    """When a node was NotReady without proof that it is alive."""

    since: datetime
    until: datetime | None

    def covers(self, at: datetime) -> bool:
        """Whether progress at that time matters: it proves the node alive, or shows how often its job reports."""
        return at > self.since - _SPOKE_BEFORE and (self.until is None or at < self.until)


def liveness_window(h: Hypothesis) -> LivenessWindow | None:
    """When progress of jobs may still change a `node_down`; None once the node is known to be alive."""
    return None if h.facts.get("lives") is True else LivenessWindow(h.fault_at, h.cleared_at)


def weighed(
    h: Hypothesis,
    row: NodeRow,
    ports: Mapping[str, PortRow],
    reports: Sequence[ProgressReport],
    config: Config,
) -> Hypothesis:
    """A `node_down` with what else is known about the node; other hypotheses unchanged."""
    if h.family != FAMILY or not (gone := _last_time(h, row)):
        return h
    since, back = gone[0].at, _returned_at(gone, row)
    # Its own words first: while they stand, what its jobs tell is not waited for (`liveness_window`).
    if (life := _own_words(h, since, back, row) or _progress(since, back, reports)) is not None:
        return replace(
            h,
            certainty=at_most(h.certainty, Certainty.LIKELY),
            why=f"{h.why}; but {life}: it may be only the kubelet",
            stops="never",
            facts={**h.facts, "lives": True},
        )
    if h.facts.get("maintenance") is True or _is_somebodys(row) or not reports:
        return h
    signs = death_policy().signs
    if _taints(row) & death_policy().taints.stopped:
        return replace(h, certainty=Certainty.DECISIVE, why=f"{h.why}; and {signs.stopped.says}")
    if not _is_unreachable(row, gone):
        return h
    found = [signs.absence]
    found += [signs.alert] * any(s.kind == SignalKind.NODE_CONDITION for s in h.causes)
    found += [signs.ports] * _has_no_link(ports.values(), since - config.before)
    due = [at for report in reports if (at := _due(report, since)) is not None]
    found += [signs.silence] * bool(due)
    first = min(found, key=lambda sign: sign.after_s)
    sure_at = max(min(s.seen_at for s in gone) + first.after, *due, since)
    if back is not None and sure_at >= back:
        return h
    return replace(h, sure_at=sure_at, sure=first.says, was_brief=False)


def _last_time(h: Hypothesis, row: NodeRow) -> list[Sighting]:
    """The reports of its latest NotReady, in order: the node may have come back and gone again meanwhile."""
    gone = sorted((s for s in h.causes if s.kind == SignalKind.NODE_NOT_READY), key=order)
    if not gone:
        return []
    readiness = of_kind(row.seen, SignalKind.NODE_NOT_READY)
    back = max((s.at for s in readiness if not s.firing and s.at < gone[-1].at), default=None)
    return [s for s in gone if back is None or s.at > back]


def _returned_at(gone: Sequence[Sighting], row: NodeRow) -> datetime | None:
    """When the node was back after these reports; None while it is away."""
    readiness = of_kind(row.seen, SignalKind.NODE_NOT_READY)
    return min((s.at for s in readiness if not s.firing and s.at >= gone[-1].at), default=None)


def _progress(since: datetime, back: datetime | None, reports: Iterable[ProgressReport]) -> str | None:
    job = next((p.job for p in reports if any(_is_meanwhile(at, since, back) for at in p.moves)), None)
    return f"{job} still makes progress" if job is not None else None


def _own_words(h: Hypothesis, since: datetime, back: datetime | None, row: NodeRow) -> str | None:
    """A sign of life from the node itself. After a panic it may be booting, so its lines prove nothing then."""
    if h.certainty is Certainty.DECISIVE:
        return None
    by_node = death_policy().is_by_node
    tells = any(_is_meanwhile(s.at, since, back) and by_node(s) for group in row.seen.values() for s in group)
    return "the node itself still tells of other things" if tells else None


def _is_meanwhile(at: datetime, since: datetime, back: datetime | None) -> bool:
    """Whether that was while the node was NotReady."""
    begun = at > since + timedelta(seconds=death_policy().life_after_s)
    return begun and (back is None or at < back)


def _is_somebodys(row: NodeRow) -> bool:
    """Whether somebody else cordoned the node: then it is theirs."""
    return row.fact is not None and row.fact.unschedulable and row.fact.owner_incident is None


def _taints(row: NodeRow) -> frozenset[str]:
    if row.fact is None or row.fact.ready:
        return frozenset()
    return frozenset(taint.partition("=")[0] for taint in row.fact.taints)


def _is_unreachable(row: NodeRow, gone: Iterable[Sighting]) -> bool:
    """Whether the kubelet is unreachable, by the node's taints, else by the reports."""
    table, taints = death_policy(), _taints(row)
    if kubelet := taints & (table.taints.unreachable | table.taints.not_ready):
        return bool(kubelet & table.taints.unreachable)
    return any(
        word in s.text(name) for s in gone for name in ("reason", "status") for word in table.silent_reasons
    )


def _has_no_link(ports: Iterable[PortRow], since: datetime) -> bool:
    """Whether the switches say that every cable of the node is dead."""
    known = [row for row in ports if row.link is not None and row.link.node is not None]
    return bool(known) and all(_is_down(row, since) for row in known)


def _is_down(row: PortRow, since: datetime) -> bool:
    links = of_kind(row.seen, SignalKind.FABRIC_LINK)
    downs = sorted((s for s in links if parts().of(s) == "down" and not parts().is_intended(s)), key=order)
    return bool(downs) and downs[-1].firing and downs[-1].at >= since


def _due(report: ProgressReport, since: datetime) -> datetime | None:
    """When a job that reported progress regularly is overdue; None for one that is irregular or has ended."""
    rhythm = death_policy().rhythm
    minutes: dict[datetime, datetime] = {}
    for at in report.moves:
        minutes.setdefault(at.replace(second=0, microsecond=0), at)
    recent = list(minutes.values())[-rhythm.of :]
    if len(recent) < rhythm.moves or report.is_over:
        return None
    wait = max(after - before for before, after in pairwise(recent)) * rhythm.patience
    if since - report.moves[-1] > wait:
        return None  # It had fallen silent long before.
    return report.moves[-1] + min(wait, timedelta(seconds=rhythm.longest_s))
