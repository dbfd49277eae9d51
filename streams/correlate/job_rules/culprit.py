"""Which ranks block a collective, and the node they run on.

The rules follow PyTorch's flight recorder analysis and domain practice: a rank that never enqueued what the others wait in is
the culprit; a rank that is behind in one group because it waits in another is a victim; connections that fail meet at the
culprit's end; a silent rank is suspected after those. If all ranks are equal and none is silent, none is suspected.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from streams.correlate.job_rules.connection_votes import NO_ADDRESSES, Addresses, Vote, vote
from streams.correlate.job_rules.process_groups import Group, Waiter, learn, mismatch
from streams.correlate.job_rules.rank_reports import Episode, Rank, doubted, located
from streams.correlate.job_rules.relayed_lines import prints_all
from streams.correlate.job_rules.wait_for_graph import Collective, Ends, ends
from streams.correlate.state.placement import Placement
from streams.model.entity import Gpu
from streams.model.incident import Certainty
from streams.model.kinds import SignalKind

_MAX_CLEARED = 6


MISMATCH = "mismatched collective"
ERRORS_ONLY = "errors only"
WANDERS = "another node's rank each time"
"""The rule of a job in which ranks of different nodes hang, try after try."""


@dataclass(frozen=True, slots=True)
class HangFinding:
    """The result for one hang. `node` is None when no single node can be named."""

    node: str | None
    certainty: Certainty
    rule: str
    why: str
    ranks: tuple[Rank, ...] = ()
    suspects: tuple[str, ...] = ()
    """Every node a suspected rank runs on."""
    silent: bool = False
    others_keep_up: bool = False
    """Other ranks of the node are where they should be: it may be the program's as well as the node's."""
    mismatch: bool = False
    """Ranks called different operations in the same place: the program's fault."""
    vote: Vote | None = None
    """Where failing connections meet, if any failed."""
    cleared: tuple[tuple[str, str], ...] = ()
    """Nodes that looked like it and are victims: each with its reason."""
    gpu: Gpu | None = None
    """The GPU of the one suspected rank, where its process logged it."""
    gpus: tuple[str, ...] = ()
    """PCI addresses of the suspected ranks' GPUs, where their processes logged them."""
    doubts: tuple[tuple[str, str], ...] = ()
    """Nodes about whose ranks two sources disagree."""
    complete: bool = False
    """Whether every rank of the job has reported how far it came, so that nothing more need be waited for."""

    @property
    def is_of_program(self) -> bool:
        """Whether nobody but the job's owner can do anything: its process speaks, and others of the node keep up.

        A rank that says nothing at all may hang with its GPU or its host.
        """
        return self.others_keep_up and (self.rule == WANDERS or not self.silent)


@dataclass(frozen=True, slots=True)
class _Suspicion:
    ranks: frozenset[Rank]
    rule: str
    why: str
    firm: bool = True
    """False for what healthy ranks show too, such as a lag: hosts run ahead of their GPUs by different amounts."""


@dataclass(slots=True)
class _Case:
    """One hang with everything that the rules look at."""

    episode: Episode
    placements: Sequence[Placement]
    groups: dict[str, Group]
    ends: Ends
    spoke: dict[Rank, str | None]
    """Ranks that reported, or that the store's report mentions, and their nodes."""
    nodes_of: dict[Rank, str]
    silent: frozenset[Rank]
    quiet_pods: list[Placement]
    """Silent pods whose ranks have no numbers."""
    by_pod: dict[str | None, int]
    """How many ranks of each pod reported."""
    counted: frozenset[Rank]
    """Ranks whose watchdog reported. One that reported only an error died of it and does not show which ranks came."""
    relayed: bool = False
    """A driver printed lines of its workers: who is silent is likely at most."""
    prints_all: bool = True
    """Whether it is known to print each of them."""

    @property
    def total(self) -> int:
        return sum(p.expected for p in self.placements)

    @property
    def reporting(self) -> int:
        """How many ranks reported, or may have."""
        return self.total - len(self.silent) - sum(p.expected for p in self.quiet_pods)


def find_culprit(
    episode: Episode, placements: Sequence[Placement], addresses: Addresses = NO_ADDRESSES
) -> HangFinding:
    """Find the culprit of one hang of a job with these placements."""
    # A launcher speaks for pods that say nothing themselves.
    placed = {p.pod for p in placements}
    launched = any(t.pod is not None and t.pod not in placed for t in episode.reports)
    addresses = addresses.with_those_of(episode.reports)
    episode = replace(episode, reports=located(episode.reports, placements, addresses.nodes))
    case = _case(episode, placements, launched=launched)
    ballot = vote(episode, addresses)
    finding = _judged(case, ballot)
    return replace(finding, vote=ballot, cleared=_cleared(case, finding), complete=_complete(case))


def _case(episode: Episode, placements: Sequence[Placement], *, launched: bool) -> _Case:
    episode = replace(episode, reports=tuple(doubted(episode.reports)))
    world: set[Rank] = {rank for p in placements for rank in p.ranks}
    groups = learn(episode, world)
    spoke = episode.reporters
    nodes_of: dict[Rank, str] = {rank: p.node for p in placements for rank in p.ranks}
    nodes_of |= {rank: node for rank, node in spoke.items() if node is not None}
    for group in groups.values():
        for rank, waiter in group.waiters.items():
            if waiter.by_proxy and waiter.seq is not None:
                spoke.setdefault(rank, nodes_of.get(rank))
    pods = {t.pod for t in episode.reports}
    by_pod: dict[str | None, set[Rank]] = {}
    for report in episode.reports:
        by_pod.setdefault(report.pod, set()).add(report.rank)
    # A pod whose lines carry no global rank has spoken, but who in it did is not known.
    unnumbered = {pod for pod, ranks in by_pod.items() if all(isinstance(r, str) for r in ranks)}
    vague = {rank for p in placements if p.pod in unnumbered for rank in p.ranks}
    # Ray folds lines that differ only in numbers into one, so a driver's relayed lines do not show which ranks are silent. Nor do
    # those of workers beside the driver, which bear no address. What workers print in pods of their own does, and a driver that
    # does not fold.
    drivers = {t.sighting.entity.pod for t in episode.reports if t.sighting.text("ip")}
    told_themselves = {t.rank for t in episode.reports if t.sighting.entity.pod not in drivers}
    relayed = bool(drivers)
    unfolded = not relayed or prints_all(episode.reports)
    shown = unfolded or bool(told_themselves & world)
    silent = frozenset(world - spoke.keys() - vague) if shown else frozenset()
    quiet = [p for p in placements if not p.ranks and p.pod not in pods]
    return _Case(
        episode,
        placements,
        groups,
        ends(groups),
        spoke,
        nodes_of,
        silent=silent,
        quiet_pods=[] if relayed or launched else quiet,
        by_pod={pod: len(ranks) for pod, ranks in by_pod.items()},
        counted=frozenset(t.rank for t in episode.reports if t.sighting.kind == SignalKind.NCCL_TIMEOUT),
        relayed=relayed,
        prints_all=unfolded,
    )


def _judged(case: _Case, ballot: Vote) -> HangFinding:
    """The rules, strongest first."""
    if (why := mismatch(case.groups.values())) is not None:
        return HangFinding(None, Certainty.LIKELY, MISMATCH, why, mismatch=True)
    if (why := _program_says(case)) is not None:
        return HangFinding(None, Certainty.LIKELY, MISMATCH, why, mismatch=True)
    behind = _behind(case)
    if behind is not None:
        near = {case.nodes_of.get(rank) for rank in behind.ranks}
        beside = {rank for rank in case.silent if case.nodes_of.get(rank) in near}
        return _verdict(case, behind, behind.ranks | beside)
    if (voted := _voted(case, ballot)) is not None:
        return voted
    absent = frozenset(m.rank for m in case.ends.missing if m.rank in case.counted)
    if case.groups and (case.silent or case.quiet_pods):
        return _silence(case, absent)
    if absent:
        return _verdict(case, _absence(case, absent), absent)
    if unheard := _unheard(case):
        return _verdict(case, unheard, unheard.ranks)
    if not case.groups:
        why = f"{len(case.spoke)} ranks report NCCL errors and none timed out waiting"
        if ballot.suspects:
            why = f"{why}; {ballot.why}"
        return HangFinding(None, Certainty.WEAK, ERRORS_ONLY, why, suspects=ballot.suspects)
    return _nobody_missing(case, ballot)


def _program_says(case: _Case) -> str | None:
    """What PyTorch's own checks found before the collective ran (TORCH_DISTRIBUTED_DEBUG=DETAIL)."""
    for report in case.episode.reports:
        s = report.sighting
        if s.text("subtype") == "mismatch":
            seq = f" {s.text('seq')}" if s.text("seq") else ""
            return f"rank {report.rank} found that the ranks called different collectives as number{seq}"
    return None


# Ranks that are known not to have come.


def _behind(case: _Case) -> _Suspicion | None:
    """Ranks that are reported as absent, or that wait behind all others."""
    absent = [m for m in case.ends.missing if m.is_known_absent]
    lowest = _lowest(case)
    if absent:
        first = absent[0].collective
        names = sorted({m.collective.group for m in absent})
        what = (
            f"never enqueued collective {first.seq} of process group {case.groups[first.group].label} that the others wait in"
            if len({m.collective for m in absent}) == 1
            else f"never enqueued what the others wait in, in process groups {', '.join(names[:4])}"
        )
        ranks = frozenset(m.rank for m in absent) | (lowest.ranks if lowest else frozenset())
        return _Suspicion(ranks, "never joined", what)
    return lowest


def _lowest(case: _Case) -> _Suspicion | None:
    """Ranks in a collective that the others of their group are past: those have finished it, these have not."""
    ranks: set[Rank] = set()
    where: list[Collective] = []
    for collective in case.ends.stuck:
        group = case.groups[collective.group]
        here = _in(group, collective)
        waiting = [w for w in group.waiters.values() if w.seq is not None]
        if not group.point_to_point and len(here) < len(waiting) and 2 * len(here) <= len(waiting):
            ranks |= {w.rank for w in here}
            where.append(collective)
    if not ranks:
        return None
    first = where[0]
    label = case.groups[first.group].label
    text = f"wait in collective {first.seq} of process group {label}, behind all others"
    return _Suspicion(frozenset(ranks), "lowest collective", text)


def _absence(case: _Case, absent: frozenset[Rank]) -> _Suspicion:
    """Ranks that speak, wait nowhere, and say nothing of the group that waits for them: stuck, or torn down before their turn."""
    group = next(case.groups[m.collective.group] for m in case.ends.missing if m.rank in absent)
    what = f"wait nowhere, while the others of process group {group.label} wait for them"
    return _Suspicion(absent, "missing from its group", what, firm=False)


def _unheard(case: _Case) -> _Suspicion | None:
    """Ranks that a group lacks by its layout, of which nothing is heard, where no pod's ranks are known: of no known node."""
    missing = [m for m in case.ends.missing if m.rank not in case.spoke]
    if not missing or not case.prints_all or any(p.ranks for p in case.placements):
        return None
    label = case.groups[missing[0].collective.group].label
    why = f"said nothing, while the others of process group {label} wait for them"
    return _Suspicion(frozenset(m.rank for m in missing), "silent ranks", why, firm=False)


def _in(group: Group, collective: Collective) -> list[Waiter]:
    flat = group.point_to_point
    return [w for w in group.waiters.values() if w.seq is not None and (flat or w.seq == collective.seq)]


# Ranks that say nothing.


def _silence(case: _Case, absent: frozenset[Rank]) -> HangFinding:
    """`absent` ranks speak but are awaited as well; where there are both, both are suspected."""
    spoke = f"{case.reporting} of {case.total} ranks timed out waiting"
    awaited = [m for m in case.ends.missing if m.rank in case.silent]
    at_end = {node for m in awaited if (node := case.nodes_of.get(m.rank)) is not None}
    nodes = {p.node for p in case.quiet_pods}
    nodes |= {case.nodes_of[rank] for rank in case.silent if rank in case.nodes_of}
    suspected, rest = case.silent | absent, "the rest said nothing"
    if len(at_end) == 1 and len(nodes) > 1 and not case.quiet_pods:
        # Logs of other nodes are lost as well, but it is here that the waiting ends.
        suspected = absent | {rank for rank in case.silent if case.nodes_of.get(rank) in at_end}
        label = case.groups[awaited[0].collective.group].label
        rest = f"the waiting ends in process group {label}, at ranks that said nothing"
        nodes = at_end
    elif len(nodes) > 1 and case.reporting * 2 < case.total:
        why = f"only {spoke}; that is too few to call the others silent"
        return HangFinding(None, Certainty.WEAK, "too few reports", why, suspects=tuple(sorted(nodes)))
    firm = not absent and not case.relayed
    suspicion = _Suspicion(suspected, "silent ranks", f"{spoke}; {rest}", firm=firm)
    return _verdict(case, suspicion, suspected, silent=True, more=nodes)


# Failing connections.


def _voted(case: _Case, ballot: Vote) -> HangFinding | None:
    """Connections fail and all of them meet at one node. Certain only where that node is silent as a whole besides.

    A process that ended before the others may have done so for any reason, most likely its own: its node is not named.
    """
    node = ballot.node
    if node is None or ballot.level == "process":
        return None
    here = [p for p in case.placements if p.node == node]
    ranks = frozenset(rank for p in here for rank in p.ranks if rank in case.silent)
    reported = {t.pod for t in case.episode.reports} & {p.pod for p in here}
    whole = bool(here) and not reported and all(p.ranks and set(p.ranks) <= case.silent for p in here)
    if whole and case.groups:
        suspicion = _Suspicion(ranks, ballot.rule, f"{ballot.why}; nothing is heard of its ranks")
        return _verdict(case, suspicion, ranks, silent=True)
    return HangFinding(node, Certainty.LIKELY, ballot.rule, ballot.why, _sorted(ranks), (node,), silent=whole)


# No rank is missing.


def _nobody_missing(case: _Case, ballot: Vote) -> HangFinding:
    spoke = bool(case.placements) and all(_spoke(case, p) for p in case.placements)
    # While some have not spoken, a group of which one member is known may as well wait for those.
    stuck = [c for c in case.ends.stuck if spoke or len(case.groups[c.group].members) > 1]
    waiting = {w.rank for g in case.groups.values() for w in g.waiters.values() if w.seq is not None}
    if case.ends.circles and not stuck:
        ranks = frozenset().union(*case.ends.circles)
        why = f"ranks {ranges(_sorted(ranks))} wait for each other in different process groups: their order differs"
        return HangFinding(None, Certainty.WEAK, "circular wait", why, _sorted(ranks))
    inside = {w.rank for c in stuck for w in _in(case.groups[c.group], c)}
    nodes = {case.nodes_of.get(rank) for rank in inside}
    # Ranks that do not end do so for a reason of their own only when others wait for just them.
    if stuck and len(nodes) == 1 and inside < waiting and (spoke or case.prints_all):
        label = case.groups[stuck[0].group].label
        what = f"all joined collective {stuck[0].seq} of process group {label}, it does not end, and the others wait for them"
        return _verdict(
            case, _Suspicion(frozenset(inside), "stuck collective", what, firm=False), frozenset(inside)
        )
    if len(stuck) == 1 and (lag := _lag(case.groups[stuck[0].group], stuck[0])) is not None:
        return _verdict(case, lag, lag.ranks)
    where = "the same place" if len(stuck) <= 1 else f"{len(stuck)} process groups, each of them complete,"
    why = f"all {len(case.spoke)} ranks wait in {where} and none is silent"
    if not spoke:
        why = f"{len(case.spoke)} ranks wait, and whether others said nothing is not known"
    if ballot.suspects:
        why = f"{why}; {ballot.why}"
    return HangFinding(None, Certainty.WEAK, "all equal", why, suspects=ballot.suspects)


def _lag(group: Group, collective: Collective) -> _Suspicion | None:
    """Those with the lowest count of enqueued collectives, if they are no more than half and nearly all counts are told."""
    here = _in(group, collective)
    known = [(w.last_enqueued, w.rank) for w in here if w.last_enqueued is not None]
    if group.point_to_point or len(known) < 2 or 4 * len(known) < 3 * len(here):
        return None
    least = min(count for count, _ in known)
    lowest = frozenset(rank for count, rank in known if count == least)
    if 2 * len(lowest) > len(known):
        return None
    what = f"last enqueued {least} in process group {group.label}, behind all others, though all joined {collective.seq}"
    return _Suspicion(lowest, "lowest last enqueued", what, firm=False)


def _complete(case: _Case) -> bool:
    if not case.placements or len(case.spoke) < case.total:
        return False
    return all(w.last_enqueued is not None for g in case.groups.values() for w in g.waiters.values())


# From ranks to a node.


def _verdict(
    case: _Case,
    suspicion: _Suspicion,
    suspected: frozenset[Rank],
    *,
    silent: bool = False,
    more: Collection[str] = (),
) -> HangFinding:
    """Certain only when the whole node is suspected and every rank elsewhere has spoken."""
    placements = case.placements
    nodes = sorted({case.nodes_of[r] for r in suspected if r in case.nodes_of} | set(more))
    ranks = _sorted(suspected)
    named = f"ranks {ranges(ranks)}" if ranks else f"the ranks on {', '.join(nodes)}"
    why = suspicion.why if silent else f"{named} {suspicion.why}"
    if len(nodes) != 1:
        spread = (
            f"they stand on {len(nodes)} nodes: {', '.join(nodes[:8])}"
            if nodes
            else "where they stand is not known"
        )
        return HangFinding(
            None, Certainty.LIKELY, suspicion.rule, f"{why}; {spread}", ranks, tuple(nodes), silent
        )
    node = nodes[0]
    here = [p for p in placements if p.node == node]
    whole = (
        all(set(p.ranks) <= suspected for p in here)
        if all(s.ranks for s in here)
        else set(more) == {node} or silent
    )
    if {p.node for p in placements} == {node}:
        text = f"{why}; the job has no other node to compare with"
        return HangFinding(
            None, Certainty.WEAK, suspicion.rule, text, ranks, (node,), silent, others_keep_up=not whole
        )
    where = f"all of them on {node}" if silent else f"they stand on {node}"
    spoke = all(_spoke(case, p) for p in placements if p.node != node)
    certain = whole and spoke and bool(placements) and suspicion.firm
    text = f"{why}: {named}, {where}" if silent and ranks else f"{why}; {where}"
    if not spoke:
        text += "; but not every other rank has spoken"
    elif not whole:
        text += "; but other ranks of that node keep up"
    elif not suspicion.firm:
        text += "; that alone may be chance"
    certainty = Certainty.DECISIVE if certain else Certainty.LIKELY
    keeps_up = spoke and not whole
    return HangFinding(node, certainty, suspicion.rule, text, ranks, (node,), silent, keeps_up)


def _spoke(case: _Case, placement: Placement) -> bool:
    if placement.ranks:
        return all(rank in case.spoke for rank in placement.ranks)
    return case.by_pod.get(placement.pod, 0) >= placement.expected


def _cleared(case: _Case, finding: HangFinding) -> tuple[tuple[str, str], ...]:
    """Nodes whose ranks are behind somewhere because they wait elsewhere."""
    found: dict[str, str] = {}
    for rank, (behind, waits) in case.ends.victims.items():
        node = case.nodes_of.get(rank)
        if node is not None and node != finding.node and node not in found:
            one, other = (case.groups[name].label for name in (behind, waits))
            found[node] = f"rank {rank} is missing in process group {one} because it waits in {other}"
    return tuple(sorted(found.items())[:_MAX_CLEARED])


def _sorted(ranks: Collection[Rank]) -> tuple[Rank, ...]:
    return tuple(sorted(ranks, key=lambda r: (isinstance(r, str), r if isinstance(r, int) else 0, str(r))))


def ranges(ranks: Sequence[Rank]) -> str:
    """Ranks as people write them: `8-15, 24`; a long list is cut."""
    numbers = sorted(r for r in ranks if isinstance(r, int))
    parts: list[str] = []
    start = 0
    for i, n in enumerate(numbers):
        if i + 1 == len(numbers) or numbers[i + 1] != n + 1:
            parts.append(f"{numbers[start]}" if start == i else f"{numbers[start]}-{n}")
            start = i + 1
    parts += sorted(str(r) for r in ranks if not isinstance(r, int))
    return ", ".join(parts[:12]) + (f" and {len(parts) - 12} more" if len(parts) > 12 else "")
