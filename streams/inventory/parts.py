"""What a node shares with others (power feed, coolant loop, chassis, zone …), by its labels and its name.

The table is `parts.yaml`. Labels may say anything, so only what the table speaks of is taken, and only a few.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from pathlib import Path

from streams.config.yaml_tables import Strict, load_table
from streams.model.entity import NAMED

MAX_PARTS = 12
"""Of one node. The shipped table has fewer kinds; a site may add its own."""

_WORD = re.compile(r"[a-z]+\d*|\d+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NUMBERED = re.compile(r"([a-z]+)0*(\d+)")
_WITHIN = re.compile(r"([a-z]+\d{1,4})[a-z]{1,5}\d{1,3}")
"""`r03n1` of `hal-r03n1`: the node stands in `r03`."""
_BEFORE_NUMBER = re.compile(r"(?P<prefix>.*\d.*?)(?:(?<=[-_.])|(?<=\d)(?=[a-z]))[a-z]*[-_]?\d+")
"""`r12-` of `r12-gpu03`, `c4` of `c4n07`: what stands before the last number, if it holds a number itself."""
_ADDRESS = re.compile(r"(?:^|[-.])(?:\d{1,3}[-.]){3}\d{1,3}(?:[-.]|$)")


class _Kind(Strict):
    labels: tuple[str, ...] = ()
    words: frozenset[str] = frozenset()
    in_names: frozenset[str] = frozenset()


class PartTable(Strict):
    """The whole file."""

    kinds: Mapping[str, _Kind]
    leafs: frozenset[str]
    not_leafs: frozenset[str]
    not_guessed: tuple[str, ...]
    nothing: frozenset[str]

    def is_owned(self, key: str) -> bool:
        """Whether the owner of a label's domain says what it means."""
        prefix = key.rpartition("/")[0]
        return any(prefix == domain or prefix.endswith(f".{domain}") for domain in self.not_guessed)

    def guessed(self, key: str) -> str | None:
        """The kind that a key word of a label names."""
        prefix, _, name = key.rpartition("/")
        for text in (name, prefix.partition(".")[0]):
            words = set(_WORD.findall(_CAMEL.sub("-", text).lower()))
            words |= {word.rstrip("0123456789") for word in words}
            kind = next((kind for kind, row in self.kinds.items() if row.words & words), None)
            if kind is not None:
                return kind
        return None


part_table = cache(partial(load_table, Path(__file__).with_name("parts.yaml"), PartTable))
"""The table that ships."""


@dataclass(frozen=True, slots=True)
class NodeParts:
    """What a node shares, by kind, and which kinds are guesses."""

    parts: Mapping[str, str] = field(default_factory=dict)
    guessed: tuple[str, ...] = ()


def shared_parts(node: str, labels: Mapping[str, object], own: Iterable[str] = ()) -> NodeParts:
    """The parts of a node: by a site's `own` labels (`kind=key`), by the table's, by key words, by its name."""
    table, found, guesses = part_table(), dict[str, str](), dict[str, str]()
    named = [label.partition("=")[::2] for label in own]
    named += [(kind, key) for kind, row in table.kinds.items() for key in row.labels]
    for kind, key in named:
        if value := _value(labels.get(key), table):
            found.setdefault(kind, value)
    for key in sorted(labels.keys() - {key for _, key in named}):
        guess = _guessed(key)
        if guess is not None and (value := _value(labels[key], table)):
            guesses.setdefault(guess, value)
    for kind, value in _by_name(node, table):
        guesses.setdefault(kind, value)
    every = [*found.items(), *((kind, value) for kind, value in guesses.items() if kind not in found)]
    kept = dict(sorted(every[:MAX_PARTS]))
    return NodeParts(kept, tuple(kind for kind in kept if kind not in found))


@lru_cache(4096)
def device_kind(name: str) -> str | None:
    """The kind of part that a device's name speaks of: `cdu-r4` of a coolant loop, `pdu-12-b` of a power feed."""
    return part_table().guessed(name.lower().partition(".")[0])


@lru_cache(4096)
def _guessed(label: str) -> str | None:
    """The kind that a label's name speaks of, unless its owner says what it means; all nodes bear the same few dozen labels."""
    table = part_table()
    return None if table.is_owned(label) else table.guessed(label)


def _value(value: object, table: PartTable) -> str:
    text = value if isinstance(value, str) else ""
    return "" if len(text) > 63 or text.lower() in table.nothing else text


def _by_name(node: str, table: PartTable) -> Iterable[tuple[str, str]]:
    """What a node's name tells: `rack r12` of `gpu-r12-03` and of `gpu-r12n3`, and those that share its beginning."""
    short = node.lower().partition(".")[0]
    if _ADDRESS.search(node):
        return
    *before, last = re.split(r"[-_]", short)
    within = _WITHIN.fullmatch(last)
    for word in (*before, within[1]) if within else before:
        match = _NUMBERED.fullmatch(word)
        kind = next((k for k, row in table.kinds.items() if match and match[1] in row.in_names), None)
        if kind is not None:
            yield kind, word
    if (match := _BEFORE_NUMBER.fullmatch(short)) is not None:
        yield NAMED, match["prefix"]
