"""What rules remember between records: tables of plain rows, one set of tables for each source partition.

What a rule remembers is a function of the records of one raw partition, so the partition's next owner can have the same. Keys
and rows hold only text and finite numbers (times are integer milliseconds), because they are saved (`snapshot.py`) and restored
by another process, maybe of another release.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

Scalar = str | int | float | bool | None
Key = tuple[Scalar, ...]
Row = tuple[Scalar, ...]


class RuleTable(OrderedDict[Key, Row]):
    """Rows by key, at most `limit`: the one written longest ago goes first."""

    def __init__(self, limit: int, version: int = 1) -> None:
        super().__init__()
        self.limit = limit
        self.version = version

    def __setitem__(self, key: Key, row: Row) -> None:
        super().__setitem__(key, row)
        self.move_to_end(key)
        if len(self) > self.limit:
            self.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A saved table that was discarded: the release that wrote it has other rows (`version`, not `wanted`)."""

    name: str
    version: int
    wanted: int
    rows: int


class RuleState:
    """The tables of one source partition, created when a rule first asks for them."""

    def __init__(self) -> None:
        self._tables: dict[str, RuleTable] = {}
        self._restored: dict[str, RuleTable] = {}
        self._dropped: list[Dropped] = []

    def table(self, name: str, limit: int, *, version: int = 1) -> RuleTable:
        """The table of that name.

        Args:
            name: The rule's own name for it, the same in every release: `xid.uuids`.
            limit: Rows at most.
            version: To be raised when a key or row changes its shape or meaning: rows of another version are discarded.
        """
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = RuleTable(limit, version)
            restored = self._restored.pop(name, None)
            if restored is not None and restored.version == version:
                for key, row in restored.items():
                    table[key] = row
            elif restored is not None:
                self._dropped.append(Dropped(name, restored.version, version, len(restored)))
        return table

    def tables(self) -> Iterator[tuple[str, RuleTable]]:
        """All tables by name, in order; also restored ones that no rule has asked for."""
        yield from sorted((self._restored | self._tables).items())

    def restore(self, name: str, version: int, rows: Iterable[tuple[Key, Row]]) -> None:
        """Add saved rows to a table that no rule has asked for yet."""
        table = self._restored.get(name)
        if table is None:
            table = self._restored[name] = RuleTable(_UNBOUNDED, version)
        table.update(rows)

    def take_dropped(self) -> list[Dropped]:
        """The tables discarded since the last call."""
        dropped, self._dropped = self._dropped, []
        return dropped


_UNBOUNDED = 2**63
"""A saved table was bounded when it was written; its rule's limit applies again once the rule asks for it."""
