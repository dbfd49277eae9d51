"""One finding of a check: what is wrong, where, how bad it is, what to do about it, and the command to run next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Level = Literal["fault", "unreachable", "warning", "note"]
"""`fault`: something does not work. `unreachable`: nobody answered. `warning`: it works, but hardly as meant. `note`: it is meant
so, and whoever wonders why nothing happens should know it."""

LEVELS: tuple[Level, ...] = ("fault", "unreachable", "warning", "note")
"""The worst first."""


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """One finding. `where` is a setting, a file, or what was asked; `what` holds the numbers that show it; `remedy` is what to
    do, in one line; `command` is what to run next: it mends, or shows more. Empty where there is only something to edit."""

    level: Level
    where: str
    what: str
    remedy: str
    command: str = ""

    def document(self) -> dict[str, str]:
        """Plain values."""
        return {
            "record": self.level,
            "where": self.where,
            "what": self.what,
            "do": self.remedy,
            "run": self.command,
        }


def worst_first(findings: Iterable[CheckFinding]) -> list[CheckFinding]:
    """Each finding once, the worst first, in the order in which they were found within a level."""
    return sorted(dict.fromkeys(findings), key=lambda finding: LEVELS.index(finding.level))
