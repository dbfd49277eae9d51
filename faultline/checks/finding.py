"""One finding of a check: what is wrong, where, how bad it is, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Level = Literal["fault", "warning", "unreachable"]
"""`fault`: something will not work. `warning`: it works, but hardly as meant. `unreachable`: nobody answered."""

_ORDER: dict[Level, int] = {"fault": 0, "unreachable": 1, "warning": 2}


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """One finding. `where` is a setting, a file, or what was asked; `remedy` is what to do, in one line."""

    level: Level
    where: str
    what: str
    remedy: str

    def document(self) -> dict[str, str]:
        """Plain values."""
        return {"record": self.level, "where": self.where, "what": self.what, "do": self.remedy}


def worst_first(findings: Iterable[CheckFinding]) -> list[CheckFinding]:
    """Each finding once, the worst first, in the order in which they were found within a level."""
    return sorted(dict.fromkeys(findings), key=lambda finding: _ORDER[finding.level])
