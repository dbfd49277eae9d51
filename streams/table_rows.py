"""One cluster's rows inside the Faust table that all clusters share.

Faust sends a row to the changelog when it likes, and nobody can wait for it. Here the table is only Faust's memory: rows are
put into it past Faust, and whoever stores them sends them to the changelog and waits until the broker has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

Changelog = list[tuple[bytes, bytes | None]]
"""Records for the table's changelog, in the order in which they have to be there; None where a row is gone."""


class TableRows(MutableMapping[str, bytes]):
    """The rows of one cluster inside the table all clusters share. Writes wait for `store`."""

    def __init__(self, table: Any, cluster: str) -> None:
        self._table = table
        self._prefix = cluster.encode() + b"\0"
        self._waiting: dict[str, bytes | None] = {}

    def waiting(self) -> list[tuple[str, bytes | None]]:
        """What the next `store` changes; None where a row goes."""
        return [
            (key, value)
            for key, value in self._waiting.items()
            if value is not None or self._name(key) in self._table.data
        ]

    def store(self) -> Changelog:
        """Put what was written into the table's memory; returns what has to be in the changelog before it counts."""
        changed = [(self._name(key), value) for key, value in self.waiting()]
        for name, value in changed:
            if value is not None:
                self._table.data[name] = value
            else:
                del self._table.data[name]
        self._waiting.clear()
        return changed

    def _name(self, key: str) -> bytes:
        return self._prefix + key.encode()

    def __getitem__(self, key: str) -> bytes:
        waiting = self._waiting.get(key)
        value: bytes | None = waiting if key in self._waiting else self._table.get(self._name(key))
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: bytes) -> None:
        self._waiting[key] = value

    def put_first(self, rows: Mapping[str, bytes]) -> None:
        """Write rows that have to be in the changelog before all others that wait."""
        others = {key: value for key, value in self._waiting.items() if key not in rows}
        self._waiting = {**rows, **others}

    def __delitem__(self, key: str) -> None:
        self._waiting[key] = None

    def __iter__(self) -> Iterator[str]:
        stored = {
            bytes(key)[len(self._prefix) :].decode()
            for key in list(self._table)
            if bytes(key).startswith(self._prefix)
        }
        return iter(
            sorted((stored | self._waiting.keys()) - {k for k, v in self._waiting.items() if v is None})
        )

    def __len__(self) -> int:
        return sum(1 for _ in self)
