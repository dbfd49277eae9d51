"""What a process says that could not replay its side."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a side could not be replayed."""

    why: str
