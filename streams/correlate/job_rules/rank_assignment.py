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

from streams.correlate.job_rules.rank_reports import RankReport
from streams.correlate.state.placement import Stay


@dataclass(frozen=True, slots=True)
class Numbered:
    """The stays with their ranks, and where sources contradict each other: node and what is told."""

    stays: list[Stay]
    learned: tuple[str, ...] = ()
    """Pods whose ranks were learned here."""
    conflicts: tuple[tuple[str, str], ...] = ()


def numbered(stays: Sequence[Stay], told: Iterable[RankReport]) -> Numbered:
    """Give ranks to the stays of one job that stood at the same time."""
    world = sum(stay.expected for stay in stays)
    conflicts = [
        (stay.node, text) for stay in stays if stay.ranks and (text := _conflict(stay, world)) is not None
    ]
    lacking = [stay for stay in stays if not stay.ranks]
    if not lacking or len({stay.expected for stay in stays}) != 1:
        return Numbered(list(stays), (), tuple(conflicts))
    size = lacking[0].expected
    tags: dict[str | None, set[int]] = defaultdict(set)
    for one in told:
        if isinstance(one.rank, int):
            tags[one.pod].add(one.rank)
    blocks: dict[str, int] = {}
    for stay in lacking:
        init = {t.rank for t in stay.told if t.nranks == world}
        block = _block(init or tags[stay.pod], size, world)
        if block is not None:
            blocks[stay.pod] = block
    taken = Counter([*blocks.values(), *(stay.ranks[0] // size for stay in stays if stay.ranks)])
    blocks = {pod: block for pod, block in blocks.items() if taken[block] == 1}
    free = sorted(set(range(len(stays))) - taken.keys())
    left = [stay.pod for stay in lacking if stay.pod not in blocks]
    if len(left) == 1 and len(free) == 1 and not any(count > 1 for count in taken.values()):
        blocks[left[0]] = free[0]
    return Numbered(
        [
            replace(stay, ranks=range(blocks[stay.pod] * size, (blocks[stay.pod] + 1) * size))
            if stay.pod in blocks and not stay.ranks
            else stay
            for stay in stays
        ],
        tuple(sorted(blocks)),
        tuple(conflicts),
    )


def gpus_of(stays: Iterable[Stay], ranks: Iterable[object]) -> tuple[str, ...]:
    """PCI addresses of these ranks, as far as their processes told them in any communicator of all ranks."""
    wanted = {rank for rank in ranks if isinstance(rank, int)}
    found = set()
    for stay in stays:
        largest = max((t.nranks for t in stay.told), default=0)
        found |= {
            t.pci
            for t in stay.told
            if t.pci and t.nranks == largest and t.rank in wanted and t.rank in stay.ranks
        }
    return tuple(sorted(found))


def _block(ranks: set[int], size: int, world: int) -> int | None:
    """The block that all of them lie in."""
    found = {rank // size for rank in ranks}
    return found.pop() if len(found) == 1 and max(ranks) < world else None


def _conflict(stay: Stay, world: int) -> str | None:
    """What NCCL's lines say against the inventory."""
    init = sorted({t.rank for t in stay.told if t.nranks == world})
    if not init or set(init) <= set(stay.ranks):
        return None
    ours = f"ranks {stay.ranks[0]}-{stay.ranks[-1]} by its {stay.source or 'inventory'}"
    theirs = ", ".join(str(rank) for rank in init[:8])
    return f"{stay.pod} holds {ours}, but NCCL's own lines tell {theirs}: the first counts, and nothing is certain by it"
