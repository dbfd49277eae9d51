"""Types of arguments that click lacks."""

from __future__ import annotations

import math
import re
from typing import Any

import click


class Finite(click.FloatRange):
    """A number within bounds. Unlike `click.FloatRange` it rejects `nan`, which passes every comparison of bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or a usage error."""
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value} is not a number", param, ctx)
        return found


_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Duration(click.ParamType):
    """A length of time in seconds, written `300`, `90s`, `20m`, `6h` or `2d`; more than nothing."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The seconds, or a usage error."""
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d{1,7}(?:\.\d{1,3})?)([smhd]?)", value)
        if found is None or not float(found[1]):
            self.fail(f"{value} is no length of time: 300, 90s, 20m, 6h or 2d", param, ctx)
        return float(found[1]) * _SECONDS[found[2]]
