"""All roots of one node, weighed against each other: the strongest names the incident, what follows from it joins it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from streams.correlate.fabric_rules.links import broke_at, by_host
from streams.correlate.hypothesis import ERROR_COUNTERS, Hypothesis, rejected
from streams.correlate.node_rules.lost_inputs import still_has_power
from streams.correlate.node_rules.notices import is_ahead
from streams.correlate.policy.config import Config
from streams.correlate.policy.families import families, level
from streams.correlate.policy.policy import policy
from streams.correlate.publish.evidence_age import newest
from streams.correlate.sightings import Sighting, distinct, is_of_clock
from streams.correlate.state.allocations import is_by_slurm
from streams.correlate.state.incarnations import Incarnations
from streams.correlate.state.nic_names import NO_NAMES, NicNames, host_names, nic_names
from streams.correlate.state.rows import NodeRow, of_kind
from streams.model.clock import span, to_the_second
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.node_notice import deadline_in


@dataclass(slots=True)
class NodeRoots:
    """Roots that stand, and which of the others became part of which (by incident id)."""

    independent: list[Hypothesis] = field(default_factory=list)
    merged: dict[str, str] = field(default_factory=dict)
    parts: list[Hypothesis] = field(default_factory=list)
    """Those that became part of another."""

    def hand_over(self, root: Hypothesis, owner: str) -> None:
        """Make a root that stands, and what became part of it, part of the incident `owner`."""
        self.independent.remove(root)
        self.parts.append(root)
        passed_on = [part for part, host in self.merged.items() if host == root.id]
        self.merged |= dict.fromkeys([root.id, *passed_on], owner)


def weighed_roots(
    roots: Sequence[Hypothesis],
    silent: Sequence[Hypothesis],
    row: NodeRow,
    closed: Mapping[str, datetime],
    config: Config,
    *,
    missed_alone: bool,
) -> NodeRoots:
    """Let each root take in what follows from it; weak ones come last, whatever their rank.

    `missed_alone` is False where many nodes are NotReady with it: that is no evidence against this one.

    What begins after a node was closed for one of them, and before that one is over, belongs to it as well: the node is being
    handled, and whoever looks at it will find the rest.
    """
    result = NodeRoots()
    late = {h.id for h in roots if _is_read_again(h, config)} if len(roots) > 1 else set()
    names = nic_names(row.nics)
    of_nic = [
        h for h in roots if h.family in _OF_NICS and h.certainty is not Certainty.WEAK and h.opens_alone
    ]
    # What a NIC itself shows comes before what its jobs' connections show of it.
    proven = {h.id for h in silent if any(_same_nic(r, h, len(of_nic), names, config) for r in of_nic)}
    roots, hanging = _with_silent(roots, [h for h in silent if h.id not in proven], closed, config)
    follows = {**_refusing(roots, config), **hanging}
    after_death = {h.id: down.id for h in roots if (down := _down_before(h, roots, config)) is not None}
    ranked = sorted(
        [*roots, *silent],
        key=lambda h: (
            h.id in after_death,
            h.id in follows,
            h.certainty is Certainty.WEAK,
            h.id in proven,
            -families()[h.family].rank,
            h.fault_at,
            h.id,
        ),
    )
    for root in ranked:
        named = follows.get(root.id)
        named = result.merged.get(named, named) if named is not None else None
        host = next((h for h in result.independent if h.id == named), None) or next(
            (
                h
                for h in result.independent
                if _takes_in(h, root, closed, config, names)
                or (root.id in proven and h in of_nic and _same_nic(h, root, len(of_nic), names, config))
            ),
            None,
        )
        why = ""
        if host is None and (dead := after_death.get(root.id)) is not None:
            dead = result.merged.get(dead, dead)
            host, why = next((h for h in result.independent if h.id == dead), None), _WAS_DOWN
        if host is None and root.id in late and root.family not in policy().handled.apart:
            host, why = next((h for h in result.independent if h.id in late), None), _READ_AGAIN
        storm = next((h for h in result.independent if _starves(root, h, names, config)), None)
        starves = host is None and storm is not None
        if starves:
            host = storm
        if host is None:
            result.independent.append(root)
            continue
        result.merged[root.id] = host.id
        result.parts.append(root)
        at = result.independent.index(host)
        if starves:
            host = replace(host, why=f"{host.why}. {root.why}")
            result.independent[at] = _with(host, root, config, "why it pauses", root.why)
        elif why:
            rule = "the node was down already" if why == _WAS_DOWN else "a log that is read again"
            result.independent[at] = _with(host, root, config, rule, why)
        else:
            result.independent[at] = _with(host, root, config)
    for since, name in row.cordons:
        _take_in_later(result, since, name, closed, config)
    not_ready = [s for s in of_kind(row.seen, SignalKind.NODE_NOT_READY) if s.firing]
    result.independent = [_with_readiness(h, not_ready, config, missed_alone) for h in result.independent]
    return result


def _down_before(h: Hypothesis, roots: Sequence[Hypothesis], config: Config) -> Hypothesis | None:
    """The time for which the node was down already when a notice of its cloud came.

    A host that dies is noticed by its cloud, too, which announces minutes later that it takes it away. Once the node is back,
    what it announced for a later time is still to come.
    """
    if h.family != IncidentFamily.PREEMPTION:
        return None
    due = deadline_in(h.facts)
    return next(
        (
            down
            for down in roots
            if down.family == IncidentFamily.NODE_DOWN
            and down.certainty is not Certainty.WEAK
            and down.fault_at < h.fault_at - config.before
            and (
                down.cleared_at is None
                or (h.fault_at <= down.cleared_at and (due is None or due <= down.cleared_at))
            )
        ),
        None,
    )


def _with_silent(
    roots: Sequence[Hypothesis],
    silent: Sequence[Hypothesis],
    closed: Mapping[str, datetime],
    config: Config,
) -> tuple[list[Hypothesis], dict[str, str]]:
    """The roots, those as sure as what bears them out; and the silent ranks, each with the disk of the node that they wait for.

    A rank that reads from a disk which does not answer hangs in the kernel and says nothing, while others of its node go on. The
    kernel gives a request half a minute before it reports it, so its lines may come after the hang began.
    """
    found, follows = list(roots), dict[str, str]()
    for hang in silent:
        for i, disk in enumerate(found):
            lines = [s for s in disk.causes if s.kind == SignalKind.NODE_STORAGE]
            over = closed.get(disk.id) or (disk.cleared_at if disk.is_repaired else None)
            if (
                disk.family != IncidentFamily.HOST_FAULT
                or not any(abs(s.at - hang.fault_at) <= config.before for s in lines)
                or (over is not None and hang.fault_at > over)
            ):
                continue
            follows[hang.id] = disk.id
            found[i] = replace(
                disk,
                certainty=max(disk.certainty, hang.certainty, key=level),
                why=f"{disk.why}. {hang.why}",
                # It is an incident for the job that waits, and no line says when the disk answers again.
                ready_at=disk.ready_at if disk.opens_alone else max(disk.ready_at, hang.ready_at),
                brief_until=disk.brief_until if disk.opens_alone else None,
                alone=True,
                was_brief=False,
                cleared_at=None,
            )
            break
    return found, follows


def _refusing(roots: Sequence[Hypothesis], config: Config) -> dict[str, str]:
    """The times that Slurm no longer reached the node for a clock that is off, each with that fault: it is not away at all."""
    clocks = [h for h in roots if all(map(is_of_clock, h.causes)) and h.opens_alone]
    away = [
        h for h in roots if h.family == IncidentFamily.NODE_DOWN and all(map(_is_by_controller, h.causes))
    ]
    return {
        down.id: clock.id
        for down in away
        for clock in clocks
        if clock.fault_at <= down.fault_at
        and clock.last_at >= down.last_at - config.outlived  # who refuses is alive
    }


def _is_by_controller(s: Sighting) -> bool:
    return is_by_slurm(s) or (s.kind == SignalKind.NODE_CONDITION and s.text("subtype") == "slurm_silent")


def _starves(root: Hypothesis, storm: Hypothesis, names: NicNames, config: Config) -> bool:
    """Whether a NIC pauses its switch for its own PCIe link, which erred or came up narrow before: it is a slow receiver.

    Errors are over at once, and the width that the link got then stays.
    """
    if storm.family != IncidentFamily.PFC_STORM or storm.certainty is Certainty.WEAK:
        return False
    if root.certainty is not Certainty.WEAK or any(s.kind != SignalKind.NODE_PCIE for s in root.causes):
        return False
    lasts = root.cleared_at is None or root.fault_at >= storm.fault_at - config.retention
    may_be = any(
        names.relation(_nics(storm), host_names(s), s.at) != "different" for s in root.causes if host_names(s)
    )
    return lasts and root.fault_at <= storm.last_at and may_be


_OF_NICS = (IncidentFamily.PFC_STORM, IncidentFamily.NIC_LINK)


def _nics(h: Hypothesis) -> tuple[str, ...]:
    """What its host calls the NICs that a root is about, as far as known."""
    return h.fact_texts("nics") or (
        (h.root.nic,) if h.family == IncidentFamily.SILENT_NODE and h.root.nic else ()
    )


def _same_nic(host: Hypothesis, silent: Hypothesis, candidates: int, names: NicNames, config: Config) -> bool:
    """Whether failing connections meet at the NIC that shows a fault itself, by whatever names.

    Where nothing joins or parts the names, the only NIC of the node that shows one at the time is it.
    """
    if not _nics(silent):
        return False
    relation = names.relation(_nics(host), _nics(silent), silent.fault_at)
    if not _nics(host) and host.root.nic:
        # Only a cable names it, maybe otherwise than its host does: that parts nothing.
        cabled = names.relation((host.root.nic,), _nics(silent), silent.fault_at)
        relation = "same" if cabled == "same" else "open"
    if host.cleared_at is not None and silent.fault_at > host.cleared_at + config.linger:
        return False
    if host.fault_at > silent.last_at + config.before:
        return False
    near = abs(host.fault_at - silent.fault_at) <= config.before
    return relation == "same" or (relation == "open" and candidates == 1 and near)


def stands_alone(
    down: Hypothesis, others: Iterable[Hypothesis], incarnations: Incarnations, config: Config
) -> bool:
    """Whether no other root of the node explains why it is down."""
    hosts = [h for h in others if h is not down]
    closed = incarnations.closed(h.id for h in hosts)
    return not any(_takes_in(h, down, closed, config) for h in hosts)


def _take_in_later(
    result: NodeRoots, since: datetime, name: str, closed: Mapping[str, datetime], config: Config
) -> None:
    host = next((h for h in result.independent if h.id == name), None)
    if host is None:
        return
    over = closed.get(name)
    later = [
        h
        for h in result.independent
        if h is not host
        and h.family not in policy().handled.apart
        and h.fault_at >= since
        and (over is None or h.fault_at <= over)
    ]
    for other in later:
        result.hand_over(other, host.id)
        at = next(i for i, h in enumerate(result.independent) if h.id == name)
        taken = _with(
            result.independent[at],
            other,
            config,
            "the node was closed already",
            f"it began while {name} was handled",
        )
        families_ = {*taken.fact_texts("later_faults"), other.family}
        result.independent[at] = replace(
            taken, facts={**taken.facts, "later_faults": tuple(sorted(families_))}
        )


def _takes_in(
    host: Hypothesis,
    other: Hypothesis,
    closed: Mapping[str, datetime],
    config: Config,
    names: NicNames = NO_NAMES,
) -> bool:
    if not _explains(host, other, config):
        return False
    # A NIC that floods its switch is no reason for which another one loses its link.
    if (
        _nics(host)
        and _nics(other)
        and names.relation(_nics(host), _nics(other), other.fault_at) == "different"
    ):
        return False
    # An old line that is read now (a log read again) is asked about: it must not hold up what is seen to happen now.
    if _came_late(host, config) and not _came_late(other, config):
        return False
    over = closed.get(host.id) or host.cleared_at
    if host.is_repaired and over is not None and other.fault_at > over:
        return False
    if over is not None and other.fault_at > over + config.linger:
        return False
    # A kernel that panics logs no more: what its GPUs say later is not what it died of.
    early = config.skew if other.facts.get("panic") is True else config.before
    if other.facts.get("link") == ERROR_COUNTERS:
        # A link works with errors for long before it costs a connection, and nothing tells that it still does.
        return other.cleared_at is None or other.cleared_at >= host.fault_at - early
    return broke_at(other) >= host.fault_at - early


_WAS_DOWN = "what the cloud announces of a host that is down already is no news of it"
_READ_AGAIN = "it was told by the same old lines, read again"


def _is_read_again(h: Hypothesis, config: Config) -> bool:
    """Whether all that it rests on was told by lines that were old when they were read."""
    latest = newest(h)
    # What a node reported before it was repaired is no part of what it reports after that.
    return latest is not None and latest.seen_at - latest.at > config.read_again and not h.is_repaired


def _came_late(h: Hypothesis, config: Config) -> bool:
    """Whether what it rests on was older, when it was read, than what is kept of everything else."""
    latest = newest(h)
    return latest is not None and latest.seen_at - latest.at > config.retention


def _explains(host: Hypothesis, other: Hypothesis, config: Config) -> bool:
    """Whether the families go together; a weak root takes in weaker ones at most."""
    row, weak = families()[host.family], other.certainty is Certainty.WEAK
    if is_ahead(host):
        return False  # a node that is to go in days does not go for that today
    if host.certainty is Certainty.WEAK and not weak:
        return False
    if other.family in row.explains or _same_hang(host, other):
        return True
    if host.certainty is Certainty.WEAK:
        return False
    if other.fault_at > host.last_at + config.before and not _lasts_on(host, other):
        return False
    if other.family == IncidentFamily.NIC_LINK and still_has_power(host) and by_host(other):
        return False  # a host that reports a link has power
    return other.family in row.explains_near or (weak and other.family in row.explains_weak)


def _lasts_on(host: Hypothesis, other: Hypothesis) -> bool:
    """Whether both are of one GPU and the first is not over: a metric reports it once, and it slows the GPU until it ends."""
    a, b = host.root.gpu, other.root.gpu
    return host.cleared_at is None and a is not None and b is not None and a.key == b.key


def _same_hang(host: Hypothesis, other: Hypothesis) -> bool:
    """NotReady on a node that its jobs' ranks suspect: the same outage, seen twice."""
    return host.family == IncidentFamily.SILENT_NODE and other.family == IncidentFamily.NODE_DOWN


def _with(
    host: Hypothesis, other: Hypothesis, config: Config, rule: str = "follows from the root", why: str = ""
) -> Hypothesis:
    reason = why or f"{host.family} on {host.root.node} explains it"
    needs = (
        f"a begin more than {span(config.before)} before {to_the_second(host.fault_at)}, when the root began, or a family that "
        f"{host.family} does not explain; it began at {to_the_second(other.fault_at)}"
    )
    note = rejected(other.root, other.family, rule, reason, needs)
    dies = other.family == IncidentFamily.NODE_DOWN and host.family in policy().deadly
    return replace(
        host,
        sure_at=other.sure_at if dies else host.sure_at,
        sure=f"the node is not ready, and {other.sure}" if dies and other.sure else host.sure,
        context=distinct((*host.context, *other.causes, *other.context)),
        jobs=tuple(sorted({*host.jobs, *other.jobs}, key=lambda j: j.key)),
        candidates=(*host.candidates, note),
    )


def _with_readiness(
    h: Hypothesis, not_ready: Sequence[Sighting], config: Config, missed_alone: bool
) -> Hypothesis:
    if h.family == IncidentFamily.NODE_DOWN:
        return h
    near = [s for s in not_ready if h.fault_at - config.before <= s.at <= h.last_at + config.before]
    if not near:
        return h
    certainty, why = h.certainty, h.why
    if h.family == IncidentFamily.SILENT_NODE and missed_alone:
        certainty, why = Certainty.DECISIVE, f"{h.why}; and the node is NotReady"
    return replace(
        h,
        certainty=certainty,
        why=why,
        context=distinct((*near, *h.context)),
        facts={**h.facts, "node_not_ready": True},
    )
