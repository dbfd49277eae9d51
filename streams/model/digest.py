"""Deterministic ids: a hash over parts that cannot be confused with one another."""

from __future__ import annotations

import hashlib


def digest(*parts: str | int | None, size: int = 16) -> str:
    """A hex id of `size` bytes over length-prefixed parts, so ("ab", "c") and ("a", "bc") differ.

    `None` and the empty string differ too.
    """
    pieces = bytearray()
    for part in parts:
        if part is None:
            pieces += _NOTHING
        else:
            raw = str(part).encode()
            pieces += b"%d:%b" % (len(raw), raw)
    return hashlib.blake2b(pieces, digest_size=size).hexdigest()


_NOTHING = b"-:\xff"
