"""Signals and inventory in, incidents out: one root cause each, its victims, and why. Pure and in event time."""

from streams.correlate.changes import Changes
from streams.correlate.engine import Engine
from streams.correlate.policy.config import Config
from streams.correlate.state.store import Rows

__all__ = ["Changes", "Config", "Engine", "Rows"]
