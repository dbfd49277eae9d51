"""Which of a job's nodes is slow? Bandwidth between pairs of nodes, and a vote. Pure.

A slow pair does not tell which of its nodes is slow. So every node is measured with several partners: a node is slow only if it
was slow with every one of them. Rounds are those of a round-robin (the circle method): in a round each node is in one pair at
most, so that pairs do not disturb each other's GPUs; a fabric that is shared is loaded as a job loads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

PARTNERS = 5
"""With how many partners each node is measured, where there are so many."""
MAX_NODES = 256
SLOW_BELOW = 0.8
"""A pair is slow below this share of the median pair, where no limit in GB/s is set."""

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Vote:
    """What the measured pairs say. `slow` are nodes that were slow with every partner; `unclear` those in slow pairs that nobody
    explains: slow with some partners and not with others, a link or a leaf rather than a node."""

    slow: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()
    unmeasured: tuple[str, ...] = ()
    """Nodes with fewer than two measured partners, though there were more to measure with."""
    limit: float = 0.0

    def __str__(self) -> str:
        parts = (
            [f"slow with every partner: {', '.join(self.slow)}"]
            if self.slow
            else ["no node is slow with every partner"]
        )
        if self.unclear:
            parts.append(f"slow with some partners only: {', '.join(self.unclear)}")
        if self.unmeasured:
            parts.append(f"not measured well enough: {', '.join(self.unmeasured)}")
        return "; ".join(parts)


def rounds(nodes: Sequence[str], partners: int = PARTNERS) -> tuple[tuple[Pair, ...], ...]:
    """The rounds of pairs: each node at most once in a round, and with at least min(N-1, `partners`) different partners.

    The same nodes give the same rounds, in whatever order they are named.

    Raises:
        ValueError: fewer than two nodes, or more than `MAX_NODES`.
    """
    circle: list[str | None] = [*sorted(set(nodes))]
    count = len(circle)
    if not 2 <= count <= MAX_NODES:
        raise ValueError(f"{count} nodes: 2 to {MAX_NODES} can be measured in pairs")
    wanted = min(count - 1, partners)
    if count % 2:
        circle.append(None)  # who meets None sits the round out, at most once
        wanted += 1
    planned: list[tuple[Pair, ...]] = []
    for _ in range(min(wanted, len(circle) - 1)):
        half = len(circle) // 2
        pairs = zip(circle[:half], reversed(circle[half:]), strict=True)
        planned.append(tuple((min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None))
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return tuple(planned)


def vote(
    measured: Mapping[Pair, float | None], at_least: float | None = None, below: float = SLOW_BELOW
) -> Vote:
    """Who is slow.

    Args:
        measured: Bandwidth of each pair in GB/s; None where the pair could not be measured, which counts for neither side.
        at_least: What a pair has to reach; without it, `below` times the median of all pairs.
    """
    values = [value for value in measured.values() if value is not None]
    if not values:
        return Vote(unmeasured=tuple(sorted({node for pair in measured for node in pair})))
    limit = at_least if at_least is not None else below * median(values)
    partners: dict[str, dict[str, float]] = {}
    asked: dict[str, int] = {}
    for (one, other), value in measured.items():
        for node, partner in ((one, other), (other, one)):
            asked[node] = asked.get(node, 0) + 1
            if value is not None:
                partners.setdefault(node, {})[partner] = value
    slow = {
        node
        for node, seen in partners.items()
        if len(seen) >= min(2, asked[node]) and all(value < limit for value in seen.values())
    }
    # In a pair of two slow nodes each explains it; a node whose only slow partners are slow themselves is not suspected for it.
    unclear = {
        node
        for node, seen in partners.items()
        if node not in slow and any(value < limit and partner not in slow for partner, value in seen.items())
    }
    few = {node for node in asked if len(partners.get(node, {})) < min(2, asked[node])}
    if len(asked) == 2 and slow:  # two nodes cannot vote
        return Vote(unclear=tuple(sorted(slow)), limit=limit)
    return Vote(tuple(sorted(slow - few)), tuple(sorted(unclear)), tuple(sorted(few)), limit)
