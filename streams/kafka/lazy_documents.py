"""A mapping of documents that decodes finished ones only when they are asked for.

A newly acquired partition holds every run of the last weeks, nearly all of them finished. A full decode costs ten times as much
as decoding the few fields of a summary, so finished documents stay encoded and acquiring a partition costs what is live.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Generic, TypeVar

D = TypeVar("D")
B = TypeVar("B")


class LazyDocuments(MutableMapping[str, D], Generic[D, B]):
    """Documents by key, in insertion order.

    `summaries` covers those that are still encoded. `decoded` counts the documents decoded so far.
    """

    def __init__(self, decode: Callable[[bytes], D]) -> None:
        self._decode = decode
        self._documents: dict[str, D | bytes] = {}
        self._summaries: dict[str, B] = {}
        self.decoded = 0

    @property
    def summaries(self) -> Mapping[str, B]:
        """The summary of each document that is still encoded."""
        return self._summaries

    def store(self, key: str, raw: bytes, summary: B | None) -> None:
        """Add a document as it was read. With a `summary` it stays encoded; with None it is decoded now.

        Raises:
            BadInput: when it cannot be decoded.
        """
        if summary is None:
            self[key] = self._decode(raw)
            self.decoded += 1
        else:
            self._documents[key] = raw
            self._summaries[key] = summary

    def copy(self) -> LazyDocuments[D, B]:
        """A copy that can be changed by itself."""
        other: LazyDocuments[D, B] = LazyDocuments(self._decode)
        other._documents = dict(self._documents)
        other._summaries = dict(self._summaries)
        other.decoded = self.decoded
        return other

    def __getitem__(self, key: str) -> D:
        """The document. Raises KeyError, and BadInput for one whose summary was readable and the rest is not."""
        found = self._documents[key]
        if isinstance(found, bytes):
            found = self._documents[key] = self._decode(found)
            self._summaries.pop(key, None)
            self.decoded += 1
        return found

    def __setitem__(self, key: str, document: D) -> None:
        self._documents[key] = document
        self._summaries.pop(key, None)

    def __delitem__(self, key: str) -> None:
        del self._documents[key]
        self._summaries.pop(key, None)

    def discard(self, key: str) -> None:
        """Remove a document, if present, without decoding it: `pop` would decode what it throws away."""
        self._documents.pop(key, None)
        self._summaries.pop(key, None)

    def __contains__(self, key: object) -> bool:
        return key in self._documents

    def __iter__(self) -> Iterator[str]:
        return iter(self._documents)

    def __len__(self) -> int:
        return len(self._documents)
