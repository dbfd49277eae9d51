"""Signals and inventory in, incidents out: one root cause each, its victims, and why. Pure and in event time."""

from streams.correlate.config import Config
from streams.correlate.core import Core
from streams.correlate.publishing import Changes
from streams.correlate.rows import Rows

__all__ = ["Changes", "Config", "Core", "Rows"]
