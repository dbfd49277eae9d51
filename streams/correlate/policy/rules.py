"""What the rules mean, in a line each, for people who read a decision."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from streams.config.yaml_tables import load_table

_FILE = Path(__file__).with_name("rules.yaml")


def meaning(rule: str) -> str:
    """What a rule means, also where it speaks of a cable between switches (`uplink: …`); empty for one that is not known."""
    return _rules().get(rule.removeprefix("uplink: "), "")


@cache
def _rules() -> Mapping[str, str]:
    return load_table(_FILE, dict[str, str])
