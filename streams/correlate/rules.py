"""What the rules mean, in a line each, for people who read a decision."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import yaml
from pydantic import TypeAdapter, ValidationError

from streams.model.errors import ConfigError

_FILE = Path(__file__).with_name("rules.yaml")
_TABLE = TypeAdapter(dict[str, str])


def meaning(rule: str) -> str:
    """What a rule means, also where it speaks of a cable between switches (`uplink: …`); empty for one that is not known."""
    return _rules().get(rule.removeprefix("uplink: "), "")


@cache
def _rules() -> Mapping[str, str]:
    try:
        return _TABLE.validate_python(yaml.safe_load(_FILE.read_text()))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise ConfigError(f"{_FILE.name}: {error}") from error
