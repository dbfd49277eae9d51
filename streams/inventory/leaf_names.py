"""Which racks hang on a switch, by the numbers in their names: `lf-03` and `leaf-r3` are taken for the leaf of the rack `r3`.

Where no cabling is known that is all there is. It is a guess: nothing is decided by it but what other evidence says as well.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from streams.inventory.parts import part_table

_WORD = re.compile(r"[a-z]+|\d+")
_NUMBER = re.compile(r"\d+")


class LeafName(NamedTuple):
    """What a switch's name tells: the number of its rack, and which numbered words stand before it (`su2` of `su2-leaf3`)."""

    rack: int
    within: frozenset[tuple[str, int]]


@lru_cache(4096)
def leaf_name(switch: str) -> LeafName | None:
    """The rack that a switch's name tells; None where it has no word for a leaf or a rack with a number behind it."""
    table, words = part_table(), _words(switch)
    if any(word in table.not_leafs for word, _ in words):
        return None
    for names in (table.kinds["rack"].in_names, table.leafs):
        for i, (word, number) in enumerate(words):
            # Behind a leaf's number another one alone may count leafs within a rack, or within something larger.
            alone = i + 1 == len(words) or words[i + 1][0] != ""
            if word in names and number is not None and (alone or names is not table.leafs):
                return LeafName(number, _numbered(words[:i]))
    return None


def may_hang_on(switch: str, node: str, rack: str) -> bool:
    """Whether a node in that rack may hang on the switch: the same number of a rack, within what else both names count."""
    found, numbers = leaf_name(switch), _NUMBER.findall(rack)
    if found is None or len(numbers) != 1 or int(numbers[0]) != found.rack:
        return False
    return found.within <= _numbered(_words(node))


def _words(name: str) -> list[tuple[str, int | None]]:
    """The words of a host's short name, each with the number behind it: `moor-lf-03` is (moor, None), (lf, 3)."""
    found: list[tuple[str, int | None]] = []
    for token in _WORD.findall(name.lower().partition(".")[0]):
        if not token.isdigit():
            found.append((token, None))
        elif found and found[-1][1] is None:
            found[-1] = (found[-1][0], int(token))
        else:
            found.append(("", int(token)))
    return found


def _numbered(words: list[tuple[str, int | None]]) -> frozenset[tuple[str, int]]:
    return frozenset((word, number) for word, number in words if number is not None)
