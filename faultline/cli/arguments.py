"""Types of arguments that click lacks."""

from __future__ import annotations

import math
from typing import Any

import click


class Finite(click.FloatRange):
    """A number within bounds. `nan` is within all of click's, as it compares with none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or a usage error."""
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value} is no number", param, ctx)
        return found
