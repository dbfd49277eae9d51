"""What rules remember between records: tables of plain rows, one set of tables for each source partition.

All that a rule knows of the past is a function of the records of one partition of a raw topic, so that whoever reads the
partition next can know the same. Keys and rows hold nothing but text and finite numbers (times are integer milliseconds),
because they are written down (`snapshot.py`) and taken up again by another process, maybe of another release.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

Scalar = str | int | float | bool | None
Key = tuple[Scalar, ...]
Row = tuple[Scalar, ...]


class RuleTable(OrderedDict[Key, Row]):
    """Rows by key; forgets what was written longest ago once it holds `limit` of them."""

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
    """A table that was written down by a release whose rows mean something else."""

    name: str
    version: int
    wanted: int
    rows: int


class RuleState:
    """The tables of one source partition, made when a rule first asks for them."""

    def __init__(self) -> None:
        self._tables: dict[str, RuleTable] = {}
        self._restored: dict[str, RuleTable] = {}
        self._dropped: list[Dropped] = []

    def table(self, name: str, limit: int, *, version: int = 1) -> RuleTable:
        """The table of that name.

        Args:
            name: The rule's own name for it, the same in every release: `xid.uuids`.
            limit: How many rows it holds at most.
            version: To be raised when a key or a row changes its shape or its meaning: rows of another version are forgotten.
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
        """All tables with their names, in the order of their names; also restored ones that no rule has asked for."""
        yield from sorted((self._restored | self._tables).items())

    def restore(self, name: str, version: int, rows: Iterable[tuple[Key, Row]]) -> None:
        """Put rows that were written down back into a table that no rule has asked for yet."""
        table = self._restored.get(name)
        if table is None:
            table = self._restored[name] = RuleTable(_UNBOUNDED, version)
        table.update(rows)

    def take_dropped(self) -> list[Dropped]:
        """The tables that were dropped since this was last asked."""
        dropped, self._dropped = self._dropped, []
        return dropped


_UNBOUNDED = 2**63
"""A restored table was bounded when it was written; its rule's own limit counts again as soon as the rule asks."""
