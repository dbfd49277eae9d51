"""Counts and times calls to other systems, by what the connectors return."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from streams.model.errors import Fenced
from streams.telemetry import metrics as shown
from streams.telemetry.registry import OTHER, Metrics

_HUMP = re.compile(r"(?<!^)(?=[A-Z])")


class Measured:
    """One call under way."""

    def __init__(self) -> None:
        self.outcome = ""

    def returned(self, outcome: object) -> None:
        """The call is over: its outcome is one of `connectors.base`, named as it is there; None for a call that was not sent."""
        withheld = outcome is None or getattr(outcome, "withheld", False)
        self.outcome = "withheld" if withheld else _HUMP.sub("_", type(outcome).__name__).lower()


class CallFigures:
    """Adds to the metrics of one process.

    Args:
        clock: Seconds that never jump.
    """

    def __init__(self, metrics: Metrics, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock

    def expect(self, system: str) -> None:
        """Show what will be counted of a system that may be called, from before its first call on."""
        self._metrics.begin(shown.CONNECTOR_CALLS, system)
        self._metrics.begin(shown.CONNECTOR_SECONDS, system)

    @contextmanager
    def measured(self, system: str) -> Iterator[Measured]:
        """Count a call and how long it takes. One whose lease is over counts as `withheld`, one that raises as
        `failed`, one that is cancelled as `unknown`."""
        began = self._clock()
        call = Measured()
        try:
            yield call
        except Fenced:
            call.outcome = "withheld"
            raise
        except Exception:
            call.outcome = "failed"
            raise
        finally:
            self._metrics.add(shown.CONNECTOR_CALLS, 1, system, call.outcome or "unknown")
            if call.outcome != "withheld":
                self._metrics.observe(shown.CONNECTOR_SECONDS, self._clock() - began, system)


def system_of(connector: object) -> str:
    """The system that a connector of ours acts on: the folder of `connectors` that it is from."""
    package, _, rest = type(connector).__module__.partition(".")
    return rest.partition(".")[0] if package == "connectors" else OTHER
