"""What each rule means, in one line, for whoever reads a decision (`rules.yaml`)."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

from streams.config.yaml_tables import load_table

_rules = cache(partial(load_table, Path(__file__).with_name("rules.yaml"), dict[str, str]))


def meaning(rule: str) -> str:
    """The line of a rule (`uplink: RULE` is that of RULE), or "" when the table has none."""
    return _rules().get(rule.removeprefix("uplink: "), "")
