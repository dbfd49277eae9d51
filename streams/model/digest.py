"""Deterministic ids: a hash over parts that cannot be confused with one another."""

from __future__ import annotations

import hashlib


def digest(*parts: str | int | None, size: int = 16) -> str:
    """A hex id of `size` bytes over length-prefixed parts, so ("ab", "c") and ("a", "bc") differ.

    `None` and the empty string differ too.
    """
    pieces = [_NOTHING if part is None else _prefixed(str(part).encode()) for part in parts]
    return hashlib.blake2b(b"".join(pieces), digest_size=size).hexdigest()


_NOTHING = b"-:\xff"


def _prefixed(raw: bytes) -> bytes:
    return b"%d:%b" % (len(raw), raw)
