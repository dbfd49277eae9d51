"""Documents of which most are over and done with: those stay the bytes they were read as, until somebody asks for one.

A partition that is taken up holds every run of the last weeks, and nearly all of them are finished. Decoding one takes ten
times as long as skimming what tells that nobody needs it; so it is skimmed, and a take-up costs what is alive, not what was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Generic, TypeVar

D = TypeVar("D")
B = TypeVar("B")


class Shelf(MutableMapping[str, D], Generic[D, B]):
    """Documents by key, in the order in which they were put in.

    `briefs` has what was skimmed of those that have not been asked for since. `decoded` counts documents made of bytes.
    """

    def __init__(self, decode: Callable[[bytes], D]) -> None:
        self._decode = decode
        self._documents: dict[str, D | bytes] = {}
        self._briefs: dict[str, B] = {}
        self.decoded = 0

    @property
    def briefs(self) -> Mapping[str, B]:
        """What is known of each document that is still bytes."""
        return self._briefs

    def lay(self, key: str, raw: bytes, brief: B | None) -> None:
        """Put in a document as it was read; `brief` is what has been skimmed of it, None when it is to be decoded now.

        Raises:
            BadInput: when it cannot be decoded.
        """
        if brief is None:
            self[key] = self._decode(raw)
            self.decoded += 1
        else:
            self._documents[key] = raw
            self._briefs[key] = brief

    def copy(self) -> Shelf[D, B]:
        """Another shelf with the same documents."""
        other: Shelf[D, B] = Shelf(self._decode)
        other._documents = dict(self._documents)
        other._briefs = dict(self._briefs)
        other.decoded = self.decoded
        return other

    def __getitem__(self, key: str) -> D:
        """The document. Raises KeyError, and BadInput for one that was skimmed and cannot be read whole."""
        found = self._documents[key]
        if isinstance(found, bytes):
            found = self._documents[key] = self._decode(found)
            self._briefs.pop(key, None)
            self.decoded += 1
        return found

    def __setitem__(self, key: str, document: D) -> None:
        self._documents[key] = document
        self._briefs.pop(key, None)

    def __delitem__(self, key: str) -> None:
        del self._documents[key]
        self._briefs.pop(key, None)

    def discard(self, key: str) -> None:
        """Take out a document, if it is there, without reading it: `pop` would decode what is thrown away."""
        self._documents.pop(key, None)
        self._briefs.pop(key, None)

    def __contains__(self, key: object) -> bool:
        return key in self._documents

    def __iter__(self) -> Iterator[str]:
        return iter(self._documents)

    def __len__(self) -> int:
        return len(self._documents)
