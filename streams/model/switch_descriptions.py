"""Node descriptions of InfiniBand switches: `MF0;NAME:MODEL/U1` as subnet managers, ibdiagnet, iblinkinfo and UFM print them.

A managed switch (MLNX-OS) describes each of its chips by its host name, its model and where the chip sits in it. A switch of one
chip is `/U1`; a larger one has more, and a director has them on cards: `/L07/U1` is a leaf card, `/S02/U1` a spine card. A port's
number is one of its chip, so only with the card or the chip before it is it a port of the switch (UFM's `L07/6`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_DESCRIBED = re.compile(
    r"\s*M\w\d?;(?P<name>[\w.-]{1,64}):(?P<model>[\w -]{0,40})(?:/(?P<card>[LS]\d{1,3}))?(?:/U(?P<chip>\d{1,2}))?\s*"
)


@dataclass(frozen=True, slots=True)
class SwitchDescription:
    """The switch's name, and what its chip's ports are counted under: empty where it has one chip, else such as `L07` or `U2`."""

    name: str
    chip: str = ""

    def port(self, number: str) -> str:
        """A port of this chip, as the switch calls it."""
        return f"{self.chip}/{number}" if self.chip else number


def read_description(text: str) -> SwitchDescription:
    """The switch that a node description means. Text that is no such description is a name itself, of a switch of one chip."""
    match = _DESCRIBED.fullmatch(text)
    if match is None:
        return SwitchDescription(text.strip())
    chip = match["chip"]
    parts = (match["card"], f"U{chip}" if chip is not None and int(chip) != 1 else None)
    return SwitchDescription(match["name"], "/".join(filter(None, parts)))
