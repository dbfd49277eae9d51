"""Hosts on which job after job fails first, though nothing is wrong with them as far as any log tells.

A program's own fault follows the program; a host's follows the host. The third job, or the third set of nodes, that dies first on
one host within a month accuses it, unless jobs die first on its other hosts just as often. Rank 0 proves nothing: programs fail
there first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from streams.correlate.job_rules.applications import Burst
from streams.correlate.job_rules.culprit import HangFinding
from streams.correlate.job_rules.rank_reports import Episode, rank_report
from streams.correlate.policy.policy import policy
from streams.correlate.state.placement import Placement
from streams.correlate.state.rows import PastFault
from streams.model.digest import digest
from streams.model.entity import JobRef
from streams.model.incident import Certainty

RULE = "fails first again"

_LEAD = timedelta(seconds=2)
"""By how much the first host precedes the next: closer than clocks agree, or kubelets tell (whole seconds), none is first."""


def first_host(burst: Burst, placements: Sequence[Placement]) -> str | None:
    """The host on which a job ended first, where nothing says why and it is not that of rank 0.

    What its programs and launchers say counts, and when its pods failed by the inventory: what is killed leaves no word.
    """
    if burst.is_shared or burst.code or burst.speaks_for_itself:
        return None
    ends = [(s.at, s.entity.node) for s in burst.failures if s.entity.node is not None]
    ends += [(p.end, p.node) for p in placements if p.end is not None and p.succeeded is False]
    firsts: dict[str, datetime] = {}
    for at, node in sorted(ends):
        firsts.setdefault(node, at)
    by_time = sorted((at, node) for node, at in firsts.items())
    if not by_time or (len(by_time) > 1 and by_time[1][0] - by_time[0][0] < _LEAD):
        return None
    return _telling(by_time[0][1], placements)


def suspected_host(finding: HangFinding, placements: Sequence[Placement]) -> str | None:
    """The one host that peers name as gone before them, where that is all that is known."""
    if finding.node is not None or finding.mismatch or len(finding.suspects) != 1:
        return None
    return _telling(finding.suspects[0], placements)


def _telling(node: str, placements: Sequence[Placement]) -> str | None:
    alone = {p.node for p in placements} <= {node}
    leads = any(p.node == node and 0 in p.ranks for p in placements)
    return None if alone or leads else node


def set_of_nodes(placements: Iterable[Placement]) -> str:
    """A short name of where a job ran."""
    return digest("nodes", *sorted({p.node for p in placements}), size=8)


def earlier_firsts(
    node: str,
    job: JobRef,
    placements: Sequence[Placement],
    history: Mapping[str, Sequence[PastFault]],
    at: datetime,
    own: Mapping[str, Sequence[PastFault]] | None = None,
) -> list[PastFault]:
    """Earlier deaths that began on this host, one of each job and set of nodes, if they are enough to accuse it.

    `own` are the job's earlier ones that are still known by themselves, by host: in the history all of one signature are one.
    """
    here, own = set_of_nodes(placements), own or {}
    known = (*_before(history.get(node, ()), at), *_before(own.get(node, ()), at))
    mine = {(f.job, f.nodes): f for f in known if (f.job, f.nodes) != (job.key, here)}
    elsewhere = (found for firsts in (history, own) for name, found in firsts.items() if name != node)
    others = sum(len(list(_before(found, at))) for found in elsewhere)
    enough = len(mine) + 1 >= policy().repeats.first_on_host and others <= len(mine)
    return sorted(mine.values(), key=lambda f: (f.fault_at, f.incident)) if enough else []


def _before(found: Iterable[PastFault], at: datetime) -> Iterable[PastFault]:
    since = at - policy().repeats.window
    return (f for f in found if since <= f.fault_at < at)


def accusation(node: str, earlier: Sequence[PastFault]) -> HangFinding:
    """What the history says, as far as a history goes: somebody is asked."""
    jobs = list(dict.fromkeys((f.job or "").partition("/")[2] for f in earlier))
    days = sorted({f.fault_at.date().isoformat() for f in earlier})
    why = (
        f"it failed first on {node}, whose log tells of nothing; so did {', '.join(jobs[:4])} "
        f"({', '.join(days[:4])}), on other nodes or of other programs"
    )
    return HangFinding(node, Certainty.LIKELY, RULE, why, suspects=(node,))


def as_episode(burst: Burst) -> Episode:
    """A job's end as what its ranks told."""
    reports = tuple(rank_report(s, None) for s in burst.failures)
    return Episode(burst.start, burst.start, burst.end, burst.seen_at, reports)
