"""Which ranks a pod holds where the inventory does not say: from what its processes tell.

Sources in the order in which they count: environment and labels (the inventory's), NCCL's line about the communicator of all
ranks, the `[rankN]:` tags of the pod's lines, and the one place that is left. Launchers give a pod consecutive ranks (torchrun,
mpirun by slot), so one rank tells its whole block. Where two pods tell the same block, neither is believed; where a source of
higher order is contradicted, it counts and nothing is certain by it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from streams.correlate.job_rules.rank_reports import RankReport, rank_report
from streams.correlate.policy.config import Config
from streams.correlate.sightings import Sighting, order, split_at_gaps
from streams.correlate.state.placement import Placement
from streams.model.entity import Gpu, canonical_pci

_PER_NODE = range(1, 17)
"""How many ranks a node of a job may hold: one for each of its GPUs."""
_USUAL = (1, 2, 4, 8, 16)
"""Numbers of GPUs in a host. A last node that is silent as a whole leaves another one, and then nothing is concluded."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """The placements with their ranks, and where sources contradict each other: node and what is told.

    `is_guess` where nothing tells yet how many ranks a node holds.
    """

    placements: list[Placement]
    conflicts: tuple[tuple[str, str], ...] = ()
    is_guess: bool = False


def numbered(placements: Sequence[Placement], reports: Iterable[RankReport]) -> Numbered:
    """Give ranks to the placements of one job that stood at the same time."""
    reports = tuple(reports)
    placements, is_guess = _by_node_list(placements, reports)
    world = sum(p.expected for p in placements)
    conflicts = [(p.node, text) for p in placements if p.ranks and (text := _conflict(p, world)) is not None]
    lacking = [p for p in placements if not p.ranks]
    if not lacking or len({p.expected for p in placements}) != 1:
        return Numbered(list(placements), tuple(conflicts), is_guess)
    size = lacking[0].expected
    tags: dict[str | None, set[int]] = defaultdict(set)
    for one in reports:
        if isinstance(one.rank, int):
            tags[one.pod].add(one.rank)
    blocks: dict[str, int] = {}
    for placement in lacking:
        init = {t.rank for t in placement.observed if t.nranks == world}
        block = _block(init or tags[placement.pod], size, world)
        if block is not None:
            blocks[placement.pod] = block
    taken = Counter([*blocks.values(), *(p.ranks[0] // size for p in placements if p.ranks)])
    blocks = {pod: block for pod, block in blocks.items() if taken[block] == 1}
    free = sorted(set(range(len(placements))) - taken.keys())
    left = [p.pod for p in lacking if p.pod not in blocks]
    if len(left) == 1 and len(free) == 1 and not any(count > 1 for count in taken.values()):
        blocks[left[0]] = free[0]
    return Numbered(
        [
            replace(p, ranks=range(blocks[p.pod] * size, (blocks[p.pod] + 1) * size))
            if p.pod in blocks and not p.ranks
            else p
            for p in placements
        ],
        tuple(conflicts),
        is_guess,
    )


def without_group_ranks(
    placements: Sequence[Placement], reports: Sequence[RankReport]
) -> tuple[RankReport, ...]:
    """Reports without the ranks that cannot be global, where the inventory has none.

    A rank stands on one node. What lines of two nodes call by one number, without a process group, is its place in some group.
    """
    if not placements or any(p.ranks for p in placements):
        return tuple(reports)
    tellers: dict[object, set[str]] = defaultdict(set)
    for one in reports:
        if _is_bare(one):
            tellers[one.rank].add(_teller(one))
    if all(len(names) == 1 for names in tellers.values()):
        return tuple(reports)
    return tuple(replace(one, rank=f"{_teller(one)}#{one.rank}") if _is_bare(one) else one for one in reports)


def _teller(report: RankReport) -> str:
    """Whose line it is: a driver prints those of all its workers, each with the worker's address."""
    return report.sighting.text("ip") or report.pod or report.node or ""


def _is_bare(report: RankReport) -> bool:
    """Whether it names its rank and no process group."""
    seen = report.sighting
    return isinstance(report.rank, int) and not seen.text("pg") and seen.number("pg_rank") is None


def where_ranks_stand(
    placements: Sequence[Placement], reports: Sequence[RankReport]
) -> tuple[RankReport, ...]:
    """Reports at the node of their rank, where a node list tells it: which host ships a job's output says nothing of that."""
    holders = {rank: p for p in placements if p.position is not None for rank in p.ranks}
    if not holders:
        return tuple(reports)
    return tuple(
        replace(report, pod=holder.pod, node=holder.node)
        if isinstance(report.rank, int) and (holder := holders.get(report.rank)) is not None
        else report
        for report in reports
    )


def where_failures_stand(
    failed: Sequence[Sighting], placements: Sequence[Placement], reports: Sequence[RankReport], config: Config
) -> tuple[Sighting, ...]:
    """Failures at the node of their rank: of a job that is known by its node list, and those that a launcher prints of others.

    At none where that is not known: the host that shipped them, or on which the launcher stands, has nothing to do with it.
    """
    listed = any(p.position is not None for p in placements)
    workers = list(placements) if listed else [p for p in placements if p.gpus]
    launchers = {p.pod for p in placements} - {p.pod for p in workers} if workers else set()
    if not listed and not launchers:
        return tuple(failed)
    found: list[Sighting] = []
    for group in split_at_gaps(sorted(failed, key=order), lambda s: s.at, config.quiet):
        since, until = group[0].at - config.quiet, group[-1].at + config.quiet
        there = [p for p in workers if p.overlaps(group[0].at, group[-1].at)]
        told = [t for t in reports if since <= t.sighting.at <= until]
        told += [rank_report(s, None) for s in group]
        holders = {rank: p.node for p in numbered(there, told).placements for rank in p.ranks}
        nodes = {p.node for p in there}
        for s in group:
            if not listed and (s.entity.pod is None or s.entity.pod.key not in launchers):
                found.append(s)
                continue
            rank = s.entity.rank if s.entity.rank is not None else s.number("rank")
            own = s.entity.node if listed and s.entity.node in nodes else None
            node = own or (holders.get(rank) if rank is not None else None)
            found.append(s if node == s.entity.node else replace(s, entity=replace(s.entity, node=node)))
    return tuple(found)


def gpus_of(placements: Iterable[Placement], ranks: Iterable[object]) -> dict[int, Gpu]:
    """The GPU of each of these ranks, as far as their processes told them in any communicator of all ranks.

    Only by its address: the index that a process knows counts the GPUs of its container.
    """
    wanted = {rank for rank in ranks if isinstance(rank, int)}
    found: dict[int, Gpu] = {}
    for placement in placements:
        largest = max((t.nranks for t in placement.observed), default=0)
        for t in placement.observed:
            mine = t.nranks == largest and t.rank in wanted and t.rank in placement.ranks
            if mine and t.pci and (address := canonical_pci(t.pci)):
                found[t.rank] = Gpu(pci=address)
    return found


def _by_node_list(
    placements: Sequence[Placement], reports: Sequence[RankReport]
) -> tuple[Sequence[Placement], bool]:
    """Placements known only by their place in the job's node list, with ranks, where the reports allow one number a node.

    Ranks are handed out in the list's order, as many on each node (srun, --distribution=block): the ranks that a node tells must
    all lie in its block. Where one host ships those of all nodes, it ships the whole job's output; then the GPUs of a node or
    the highest rank tell how many there are. While several numbers are possible it is a guess, of the least that is usual: the
    few ranks that report first are not all there are.
    """
    if not placements or placements[0].position is None:
        return placements, False
    at = {p.pod: p.position for p in placements if p.position is not None and not p.ranks}
    if len(at) != len(placements) or sorted(at.values()) != list(range(len(at))):
        return placements, False
    ranks = [(at.get(r.pod or "", -1), r.rank) for r in reports if isinstance(r.rank, int)]
    told = {(place, rank) for place, rank in ranks if place >= 0} or set(ranks)
    world = max((t.nranks for p in placements for t in p.observed), default=0)
    highest = max((rank for _, rank in told), default=0)
    observed = {(at[p.pod], t.rank) for p in placements for t in p.observed if t.nranks == world > highest}
    # A host that ships all of the output says of no rank where it stands; NCCL's own lines do.
    told = {one for one in told if one[0] >= 0 or not observed} | observed
    given = {p.expected for p in placements if p.gpus}
    fitting = [
        n for n in given or _PER_NODE if all(place * n <= rank < (place + 1) * n for place, rank in told)
    ]
    if not fitting and len({place for place, _ in told}) == 1:
        highest = max(rank for _, rank in told)
        fitting = [n for n in given if highest < len(at) * n] or [
            n for n in _USUAL if highest + 1 == len(at) * n
        ]
    if not told or not fitting:
        return placements, not given
    sizes = [n for n in fitting if n * len(at) == world] or fitting
    size = next((n for n in sizes if n in _USUAL), sizes[0])
    ranked = [
        replace(p, ranks=range(at[p.pod] * size, (at[p.pod] + 1) * size), expected=size) for p in placements
    ]
    return ranked, len(sizes) > 1


def _block(ranks: set[int], size: int, world: int) -> int | None:
    """The block that all of them lie in."""
    found = {rank // size for rank in ranks}
    return found.pop() if len(found) == 1 and max(ranks) < world else None


def _conflict(placement: Placement, world: int) -> str | None:
    """What NCCL's lines say against the inventory."""
    init = sorted({t.rank for t in placement.observed if t.nranks == world})
    if not init or set(init) <= set(placement.ranks):
        return None
    ours = f"ranks {placement.ranks[0]}-{placement.ranks[-1]} by its {placement.source or 'inventory'}"
    theirs = ", ".join(str(rank) for rank in init[:8])
    return f"{placement.pod} holds {ours}, but NCCL's own lines tell {theirs}: the first counts, and nothing is certain by it"
