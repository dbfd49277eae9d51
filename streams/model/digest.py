"""Deterministic ids: a hash over parts that cannot be confused with one another."""

from __future__ import annotations

import hashlib


def digest(*parts: str | int | None, size: int = 16) -> str:
    """A hex id of `size` bytes over length-prefixed parts, so ("ab", "c") and ("a", "bc") differ.

    `None` and the empty string differ too.
    """
    h = hashlib.blake2b(digest_size=size)
    for part in parts:
        raw = b"\xff" if part is None else str(part).encode()
        h.update(b"%d:" % len(raw) if part is not None else b"-:")
        h.update(raw)
    return h.hexdigest()
