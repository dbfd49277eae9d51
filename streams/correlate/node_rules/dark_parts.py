"""Parts whose nodes went dark: whether each did for itself, or all of them for something wider.

Nobody has heard of any of these nodes, so all that speaks for a part is that its nodes went and others did not. Policy is in
`shared_parts.yaml`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Set

from streams.correlate.node_rules.part_policy import part_policy
from streams.model.entity import Part


def dark_for_more(
    dark: Mapping[Part, Set[str]], gone: Set[str], size: Callable[[Part], int], known: int
) -> Set[Part]:
    """The parts that did not go dark for themselves.

    Several of one kind did not; nor did those beside which hardly anything is left, or beside which others went alike.

    Args:
        dark: The nodes that went in each part.
        gone: All nodes that went meanwhile and that nothing else explains.
        size: How many nodes share a part.
        known: How many nodes there are, without those that something else explains.
    """
    policy, kinds = part_policy(), Counter(part.kind for part in dark)
    several = {part for part in dark if kinds[part.kind] >= policy.several}
    others = dark.keys() - several
    inside = frozenset[str]().union(*(dark[part] for part in others))
    held = sum(map(size, others))
    is_all = held >= policy.all * known
    alike = len(gone - inside) * held > policy.elsewhere * len(inside) * (known - held)
    return several | others if is_all or alike else several
