"""One cluster's rows among those of the partition.

What is stored is in memory only: whoever stores rows sends them to the changelog, and waits until the broker has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping

Records = list[tuple[bytes, bytes | None]]
"""Records for the changelog, in the order in which they have to be there; None where a row is gone."""


class TableRows(MutableMapping[str, bytes]):
    """The rows of one cluster among those of its partition. Writes wait for `store`."""

    def __init__(self, stored: MutableMapping[bytes, bytes], cluster: str) -> None:
        self._stored = stored
        self._prefix = cluster.encode() + b"\0"
        self._waiting: dict[str, bytes | None] = {}

    def waiting(self) -> list[tuple[str, bytes | None]]:
        """What the next `store` changes; None where a row goes."""
        return [
            (key, value)
            for key, value in self._waiting.items()
            if value is not None or self._name(key) in self._stored
        ]

    def store(self) -> Records:
        """Keep what was written; returns what has to be in the changelog before it counts."""
        changed = [(self._name(key), value) for key, value in self.waiting()]
        for name, value in changed:
            if value is not None:
                self._stored[name] = value
            else:
                del self._stored[name]
        self._waiting.clear()
        return changed

    def _name(self, key: str) -> bytes:
        return self._prefix + key.encode()

    def __getitem__(self, key: str) -> bytes:
        waiting = self._waiting.get(key)
        value: bytes | None = waiting if key in self._waiting else self._stored.get(self._name(key))
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
            key[len(self._prefix) :].decode() for key in list(self._stored) if key.startswith(self._prefix)
        }
        return iter(
            sorted((stored | self._waiting.keys()) - {k for k, v in self._waiting.items() if v is None})
        )

    def __len__(self) -> int:
        return sum(1 for _ in self)
