"""Counts in words."""

from __future__ import annotations


def many(number: int, what: str) -> str:
    """`1 node`, `3 nodes`; thousands are set apart."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
