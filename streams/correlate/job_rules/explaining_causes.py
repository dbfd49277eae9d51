"""Which known root explains what a job suffers: by its certainty, its place, its time and what the job outlived."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from streams.correlate.hypothesis import (
    BY_JOBS,
    BY_RAIL,
    DROPS,
    ERROR_COUNTERS,
    FAR_END_UNKNOWN,
    FELT_ONLY,
    LEAF_GUESSED,
    LINK_FLAPS,
    UNCABLED,
    Hypothesis,
)
from streams.correlate.job_rules.connection_votes import (
    Vote,
    may_be_cut,
    only_deaths,
    says,
    speaks_of_network,
)
from streams.correlate.job_rules.culprit import HangFinding
from streams.correlate.job_rules.job_evidence import JobEvidence, placed_at
from streams.correlate.job_rules.rank_reports import Episode, RankReport
from streams.correlate.policy.config import Config
from streams.correlate.policy.link_parts import first_break, parts
from streams.correlate.sightings import order
from streams.correlate.state.evictions import EVICTS
from streams.model.clock import span, to_the_second
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind

_NETWORK = frozenset({"link", "fabric", "pfc"})
_PAIRS_OF_RAIL = 2
"""On so many nodes, and to so many others, connections of one rail fail at once where nobody knows what hangs on which switch."""
_PAIRS_OF_FLAPS = 3
"""So many pairs of nodes fail at once, on any rails, as a cable goes down that shows nothing but flaps."""


def explaining(
    evidence: JobEvidence,
    start: datetime,
    reported_at: datetime,
    end: datetime,
    config: Config,
    spoke: Collection[str | None] = (),
    late: timedelta | None = None,
    domain: str | None = None,
    *,
    by_network: bool = True,
) -> Hypothesis | None:
    """The strongest root on a member node that was there when the symptoms began, or told soon after.

    A node that is NotReady but whose ranks still speak (`spoke`) is not what the others wait for. Not `by_network`: whatever
    a link or a storm does, it gives a program no wrong address and takes no memory from it.
    """
    fitting = [
        cause
        for cause, placements in evidence.local
        if any(s.overlaps(start - config.slack, end) for s in placements)
        and (
            cause.family != IncidentFamily.NODE_DOWN
            or (cause.ready_at <= reported_at and cause.root.node not in spoke)
        )
        and in_time(cause, start, reported_at, evidence, config)
        and (late is None or cause.fault_at <= reported_at + late)
        and domain in (None, cause.domain)
        and (by_network or cause.domain not in _NETWORK)
    ]
    return max(fitting, key=lambda c: (*c.strength, -c.fault_at.timestamp(), c.id), default=None)


def evicting_node(evidence: JobEvidence, start: datetime, end: datetime, config: Config) -> Hypothesis | None:
    """The node whose kubelet took a pod of the job away for what the node lacks, shortly before that moment: its peers follow."""
    told = {
        s.id: c
        for c in evidence.causes
        for s in c.causes
        if s.text("subtype") == EVICTS and s.kind.startswith("node.")
    }
    if not told or len(placed_at(evidence.placements, start, config)) <= 1:
        return None  # a job of one pod is made again elsewhere
    mine = [
        s for s in evidence.failed if s.id in told and start - config.removal <= s.at <= end + config.skew
    ]
    return told[min(mine, key=order).id] if mine else None


def storm_for(
    evidence: JobEvidence, episode: Episode, finding: HangFinding, config: Config
) -> Hypothesis | None:
    """A storm elsewhere: it takes a job whose own ranks suspect nobody, or one that it surely reaches."""
    storms = [
        c
        for c in evidence.causes
        if c.family == IncidentFamily.PFC_STORM
        and (c.id in evidence.near_storms or finding.node is None)
        and in_time(c, episode.start, episode.reported_at, evidence, config)
    ]
    return max(
        storms,
        key=lambda c: (c.id in evidence.near_storms, *c.strength, -c.fault_at.timestamp(), c.id),
        default=None,
    )


def fabric_for(
    evidence: JobEvidence, episode: Episode, finding: HangFinding, config: Config
) -> Hypothesis | None:
    """A switch or uplink that failed near the job: it takes network errors, and waiting whose ranks suspect nobody."""
    if finding.node is not None and all(t.sighting.kind != SignalKind.NCCL_ERROR for t in episode.reports):
        return None
    near = [
        c
        for c in evidence.causes
        if c.domain == "fabric"
        and c.rule not in (BY_JOBS, FELT_ONLY)
        and (
            c.id in evidence.near_storms
            or _may_reach(c, evidence, episode, config)
            or _fails_at_once(c, evidence, episode, finding, config)
        )
        and in_time(c, episode.start, episode.reported_at, evidence, config)
        and (not _is_doubtful(c, episode) or _crosses(c, evidence, episode, finding, config))
        and (c.rule != DROPS or _fails_by_drops(c, episode, finding))
    ]
    return max(near, key=lambda c: (*c.strength, -c.fault_at.timestamp(), c.id), default=None)


def lossy_leaf_for(
    evidence: JobEvidence, episode: Episode, finding: HangFinding, config: Config, *, by_rail: bool = False
) -> Hypothesis | None:
    """A switch that loses packets by what its hosts show, under a job that hangs there and whose ranks blame nobody elsewhere.

    It is not taken for the reason where ranks prove that they wait for one node, or that the program is why. `by_rail` asks for
    one of which only the rail is known.
    """
    if finding.certainty is Certainty.DECISIVE or finding.mismatch or only_deaths(episode.reports):
        return None
    there = {p.node for p in placed_at(evidence.placements, episode.start, config)}
    accused = {finding.node} if finding.node is not None else set(finding.suspects)
    # Connections that are lost tell over which NICs (`fabric_for`).
    loses_connections = any(_is_lost_connection(one) for one in episode.reports)
    found = [
        c
        for c in evidence.causes
        if (c.rule == FELT_ONLY or (c.rule == DROPS and not loses_connections))
        and (BY_RAIL in c.facts) is by_rail
        and not there.isdisjoint(hosts := set(c.fact_texts("hosts")))
        and (not accused or not accused.isdisjoint(hosts))
        and in_time(c, episode.start, episode.reported_at, evidence, config)
    ]
    return max(found, key=lambda c: (*c.strength, -c.fault_at.timestamp(), c.id), default=None)


def between_jobs(evidence: JobEvidence, episode: Episode, config: Config) -> Hypothesis | None:
    """The network between several jobs' nodes, of which this one tells with them; where nothing else explains it."""
    found = [
        c
        for c in evidence.causes
        if c.rule == BY_JOBS
        and c.id in evidence.near_storms
        and in_time(c, episode.start, episode.reported_at, evidence, config)
    ]
    return max(found, key=lambda c: (c.fault_at, c.id), default=None)


def still_between_jobs(
    evidence: JobEvidence, episode: Episode, finding: HangFinding, config: Config
) -> Hypothesis | None:
    """The network between several jobs' nodes, where a later try of one of them fails on the network, too, and names nobody.

    What connects anew fails in other words than what was connected, and often without the name of a peer. A job that tells
    of no progress is taken for one that made none for an hour.
    """
    if finding.node is not None or finding.mismatch or not speaks_of_network(episode.reports):
        return None
    start, closed = episode.start, evidence.closed
    found = [
        c
        for c in evidence.causes
        if c.rule == BY_JOBS
        and any(job.key == evidence.job.key for job in c.jobs)
        and c.fault_at <= episode.reported_at
        and start <= c.last_at + config.link_again
        and (c.id not in closed or start <= closed[c.id] + config.linger)
        and not was_outlived(c, start, evidence, config)
    ]
    return max(found, key=lambda c: (c.fault_at, c.id), default=None)


def _fails_at_once(
    cable: Hypothesis, evidence: JobEvidence, episode: Episode, finding: HangFinding, config: Config
) -> bool:
    """Whether a job whose nodes' switches nobody knows lost its connections as a cable between switches went down.

    They must be of several nodes, to several others, and end within the time in which a lost connection is given up. All must be
    by the NIC of one name, which is one rail; or they meet at no node, and no other cable than this one, which goes down again
    and again or makes errors, went down then. What proves that a node or the program is why is not this.
    """
    if finding.certainty is Certainty.DECISIVE or finding.mismatch or not _is_between_switches(cable):
        return False
    there = {p.node for p in placed_at(evidence.placements, episode.start, config)}
    # Where leafs are guessed from the names of racks, a node stands there with no switch as well: it is not under any of them,
    # and nobody knows which its own is.
    if 2 * sum(1 for node in there if evidence.attached.get(node)) > len(there):
        return False
    lost = [
        one
        for one in (t.sighting for t in episode.reports)
        if one.kind == SignalKind.NCCL_ERROR and says(one) == "edge" and one.text("peer")
    ]
    # A pod stands on one node; a job's whole output comes with the node of each line.
    speakers, peers = {s.entity.node or s.entity.pod for s in lost}, {s.text("peer") for s in lost}
    if min(len(speakers), len(peers)) < _PAIRS_OF_RAIL:
        return False
    first = min(s.at for s in lost)
    if not _went_down_before(cable, first, config):
        return False
    rails = {s.text("device").partition(":")[0] for s in lost}
    if len(rails) == 1 and "" not in rails:
        return True
    least, vote = _pairs_needed(cable, first), finding.vote or Vote()
    # Of a job whose processes stand nowhere that is known, lines alone name their node.
    pairs = vote.ends | vote.strangers or {(s.entity.node or s.entity.pod, s.text("peer")) for s in lost}
    if finding.node is not None or least is None or len(pairs) < least:
        return False
    others = (c for c in evidence.causes if c.id != cable.id and _is_between_switches(c))
    return may_be_cut(pairs) and not any(_went_down_before(c, first, config) for c in others)


def _is_between_switches(cable: Hypothesis) -> bool:
    if "ends" not in cable.facts or not cable.root.port:
        return False
    return FAR_END_UNKNOWN not in cable.facts and LEAF_GUESSED not in cable.facts


def _went_down_before(cable: Hypothesis, at: datetime, config: Config) -> bool:
    """Whether a link went down so shortly before that connections over it are given up at that moment."""
    return any(
        s.at - config.skew <= at <= s.at + config.connection_loss
        for s in cable.causes
        if s.firing and first_break((s,)) is not None
    )


def _pairs_needed(cable: Hypothesis, at: datetime) -> int | None:
    """How many pairs of nodes must fail on any rails as it goes down; None where nothing shows that the cable is bad.

    Who works on one takes it down again and again; one that makes errors as well is bad.
    """
    if any(s.firing and s.at <= at and parts().of(s) == "errors" for s in cable.causes):
        return _PAIRS_OF_RAIL
    return _PAIRS_OF_FLAPS if cable.facts.get("link") == LINK_FLAPS else None


def is_judged_by_jobs(port: Hypothesis) -> bool:
    """Whether only connections that cross it tell that a port matters: it may be a host's, or it works, though with errors."""
    return port.facts.get(FAR_END_UNKNOWN) is True or port.facts.get("link") == ERROR_COUNTERS


def _is_doubtful(c: Hypothesis, episode: Episode) -> bool:
    """Whether it matters only to connections that cross it: always, or as long as it had no more than errors."""
    broke_at = first_break(c.causes) if "ends" in c.facts else None
    return is_judged_by_jobs(c) or (broke_at is not None and episode.start + c.lag < broke_at)


_LOSING_FOR = timedelta(minutes=30)
"""For so long a connection may lose packets before it is given up."""
_WITH_ERRORS = (ERROR_COUNTERS, DROPS, FELT_ONLY)
"""What `link` is of a cause that lets a job move between two failures, until it is over."""


def _is_lost_connection(report: RankReport) -> bool:
    return report.sighting.kind == SignalKind.NCCL_ERROR and says(report.sighting) == "edge"


def _may_reach(switch: Hypothesis, evidence: JobEvidence, episode: Episode, config: Config) -> bool:
    """Whether a switch that drops and whose cables are not known may be under the job: a host of it sends again; where none of
    any job does, the drops began shortly before.
    """
    if UNCABLED not in switch.facts:
        return False
    if hosts := set(switch.fact_texts("hosts")):
        return any(p.node in hosts for p in placed_at(evidence.placements, episode.start, config))
    return switch.fault_at >= episode.start - _LOSING_FOR


def _fails_by_drops(switch: Hypothesis, episode: Episode, finding: HangFinding) -> bool:
    """Whether the job lost connections over NICs by which a switch's drops are felt, and does not prove another reason.

    Where nothing tells which NICs these are, any that it lost.
    """
    nics = switch.fact_texts("nics")
    return finding.certainty is not Certainty.DECISIVE and any(
        _is_lost_connection(one)
        and (one.sighting.text("device").partition(":")[0] in nics or (UNCABLED in switch.facts and not nics))
        for one in episode.reports
    )


def _crosses(
    port: Hypothesis, evidence: JobEvidence, episode: Episode, finding: HangFinding, config: Config
) -> bool:
    """Whether an uplink, or what may be one, is what fails: just connections from beneath its switch to elsewhere."""
    if finding.certainty is Certainty.DECISIVE or only_deaths(episode.reports):
        return False
    there = placed_at(evidence.placements, episode.start, config)
    attached = evidence.attached
    guessed, vote = port.facts.get(LEAF_GUESSED) is True, finding.vote or Vote()
    if port.facts.get(FAR_END_UNKNOWN) is not True and not vote.ends:
        return False  # who waits does not say for whom
    if guessed and finding.node is not None:
        return False  # a host's own port makes errors, too
    for switch in {port.root.switch, *(end.partition("/")[0] for end in port.fact_texts("ends"))}:
        under = {p.node for p in there if switch in attached.get(p.node, ())}
        elsewhere = {p.node for p in there if p.node in attached} - under
        if under and elsewhere and vote.crosses(under) and (not guessed or vote.parts(under)):
            return True
    return False


def gone_node(evidence: JobEvidence, node: str, episode: Episode, config: Config) -> Hypothesis | None:
    """The suspected node itself went away as the hang began: connections fail within seconds, a kubelet is missed later."""
    found = [
        cause
        for cause in evidence.causes
        if cause.family == IncidentFamily.NODE_DOWN
        and cause.certainty is not Certainty.WEAK
        and cause.root.node == node
        and episode.start - config.before <= cause.fault_at <= episode.start + cause.lag
    ]
    if node in episode.reporters.values():
        return None
    return max(found, key=lambda c: (c.fault_at, c.id), default=None)


def gone_meanwhile(
    evidence: JobEvidence, start: datetime, nodes: Collection[str], config: Config
) -> Hypothesis | None:
    """The first of the job's nodes to go away as its processes on others (`nodes`) ended: those end for it, and sooner than it
    is missed.
    """
    found = [
        cause
        for cause, _ in evidence.local
        if cause.family == IncidentFamily.NODE_DOWN
        and cause.facts.get("lives") is not True
        and cause.root.node not in nodes
        and start - config.before <= cause.fault_at <= start + cause.lag
    ]
    return min(found, key=lambda c: (c.fault_at, c.id), default=None)


def unheard_node(
    evidence: JobEvidence, episode: Episode, finding: HangFinding, config: Config
) -> Hypothesis | None:
    """The first of the job's nodes to go away as its ranks began to complain, if no rank of it has said anything since.

    Connections to a dead node fail within seconds, its kubelet is missed after most of a minute: what complains names nobody.
    """
    if finding.node is not None or finding.mismatch:
        return None
    heard = set(episode.reporters.values())
    found = [
        cause
        for cause, placements in evidence.local
        if cause.family == IncidentFamily.NODE_DOWN
        and cause.certainty is not Certainty.WEAK
        and cause.facts.get("lives") is not True
        and cause.root.node not in heard
        and episode.start - config.before <= cause.fault_at <= episode.start + cause.lag
        and any(s.overlaps(episode.start - config.slack, episode.end) for s in placements)
    ]
    return min(found, key=lambda c: (c.fault_at, c.id), default=None)


def weak_cause(
    evidence: JobEvidence, episode: Episode, finding: HangFinding, config: Config
) -> Hypothesis | None:
    """Weak evidence on just one of several suspects, from the moment the hang began: one incident, and still a weak one."""
    found = [
        cause
        for cause in evidence.causes
        if cause.certainty is Certainty.WEAK
        and cause.root.node in finding.suspects
        and cause.stops != "never"
        and abs(cause.fault_at - episode.start) <= config.episode_gap
    ]
    if finding.mismatch or len({cause.root.node for cause in found}) != 1:
        return None
    return max(found, key=lambda c: (*c.strength, c.fault_at, c.id))


def ill_where_pods_ended(evidence: JobEvidence, episode: Episode, config: Config) -> Hypothesis | None:
    """What is wrong on the one node where a pod of the job had failed before the others spoke: they waited for it.

    However weak that is, and though it stops no job that runs: this one never came to run.
    """
    ended = {
        p.node
        for p in evidence.placements
        if p.succeeded is False
        and p.end is not None
        and p.start - config.slack <= episode.start
        and p.end < episode.reported_at - config.slack
        and not any(o.pod == p.pod and p.end < o.start <= episode.reported_at for o in evidence.placements)
    }
    found = [
        cause
        for cause in evidence.causes
        if cause.root.node in ended
        and not cause.only_drops
        and cause.fault_at <= episode.reported_at
        and (cause.cleared_at is None or cause.cleared_at >= episode.start)
    ]
    if len(ended) != 1:
        return None
    return max(found, key=lambda c: (*c.strength, c.fault_at, c.id), default=None)


def broken_before(evidence: JobEvidence, at: datetime, config: Config) -> Hypothesis | None:
    """GPU software that was broken on a node before the job came there: no program starts on it, whatever it says of that.

    Two of these must hold: the job came to the node after it broke, it says itself what is broken there, and that is enough for
    an incident without a job. What may be over in a minute does not explain a job that ends without a word.
    """
    there, told = placed_at(evidence.placements, at, config), {s.id for s in evidence.failed}
    found = []
    for cause in evidence.causes:
        if cause.family != IncidentFamily.PLATFORM_FAULT or not (
            lines := [s for s in cause.causes if s.kind == SignalKind.GPU_DRIVER]
        ):
            continue
        stood = [p for p in there if p.node == cause.root.node]
        came_later = any(p.start >= cause.fault_at for p in stood)
        says_it = bool(stood) and any(s.id in told for s in lines)
        is_over = cause.cleared_at is not None and cause.cleared_at < at
        if not is_over and sum((came_later, says_it, cause.opens_alone)) > 1:
            found.append(cause)
    return max(found, key=lambda c: (*c.strength, -c.fault_at.timestamp(), c.id), default=None)


def missed_nodes(evidence: JobEvidence, episode: Episode, config: Config) -> frozenset[str]:
    """Nodes that were NotReady around the hang."""
    return frozenset(
        cause.root.node
        for cause in evidence.causes
        if cause.family == IncidentFamily.NODE_DOWN
        and cause.root.node is not None
        and episode.start - config.before <= cause.fault_at <= episode.end + config.before
    )


def in_time(
    cause: Hypothesis, start: datetime, reported_at: datetime, evidence: JobEvidence, config: Config
) -> bool:
    """Whether symptoms from `start` on, told from `reported_at` on, may follow from it: neither over before, nor begun after."""
    if cause.fault_at > reported_at + cause.lag or was_outlived(cause, start, evidence, config):
        return False
    if cause.rule in (FELT_ONLY, DROPS):
        # Counters tell once that it began, and then that it is over: a collective may lose its packets at any time in between.
        lasts = cause.cleared_at is None or cause.cleared_at + config.linger >= start
        return cause.fault_at <= start + cause.lag and lasts
    if cause.domain in ("link", "fabric") and start < reported_at:
        # What has waited since a known moment lost its connection then, or not by this.
        return cause.last_at >= start - config.connection_loss and cause.fault_at <= start + cause.lag
    if cause.facts.get("link") in _WITH_ERRORS:
        # Errors go on until they are over, and cost a connection at any time.
        return cause.cleared_at is None or cause.cleared_at + config.linger >= start
    if cause.stops == "near":
        # A port nobody uses may be down for weeks: only what fails when the link does fails of it, and not long after it is back.
        back = cause.cleared_at is not None and cause.cleared_at + config.linger < start
        return cause.last_at >= start - config.before and not back
    over = evidence.closed.get(cause.id) or cause.cleared_at
    return cause.last_at >= start - config.before or over is None or over + config.linger >= start


def time_needed(cause: Hypothesis, start: datetime, reported_at: datetime, config: Config) -> str:
    """When a cause that was not `in_time` would have had to be there, and when it was."""
    by_link = cause.domain in ("link", "fabric") and start < reported_at
    latest = (start if by_link else reported_at) + cause.lag
    if cause.fault_at > latest:
        began, first = to_the_second(cause.fault_at), "symptom" if by_link else "report"
        return f"a begin by {to_the_second(latest)}, {span(cause.lag)} after the first {first}; it began at {began}"
    back = config.connection_loss if by_link else config.before
    over = f", and was over at {to_the_second(cause.cleared_at)}" if cause.cleared_at is not None else ""
    return (
        f"a sign of it after {to_the_second(start - back)}, {span(back)} before the symptoms began; its last was at "
        f"{to_the_second(cause.last_at)}{over}"
    )


def was_outlived(cause: Hypothesis, start: datetime, evidence: JobEvidence, config: Config) -> bool:
    """Whether the job went on well after the last sign of a fault, and before it stood still.

    An incident may be open for days, because a person has to look or a part is on its way; what its jobs suffer later is new.
    A link that works with errors lets a job move between two failures, until it is over.
    """
    if cause.facts.get("link") in _WITH_ERRORS and (cause.cleared_at is None or start <= cause.cleared_at):
        return False
    return any(cause.last_at + config.outlived < at < start - config.slack for at in evidence.moved)
