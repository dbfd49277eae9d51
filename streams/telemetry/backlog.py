"""What waits for sinks: how much, and for how long."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from streams.telemetry import metrics as shown
from streams.telemetry.registry import Metrics


class BacklogFigures:
    """Adds to the metrics of one process. What is late at one look after the other has waited since the first of them.

    Args:
        clock: Seconds that never jump.
    """

    def __init__(self, metrics: Metrics, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._since: dict[tuple[str, str], float] = {}

    def look(self, late: Iterable[tuple[str, Sequence[str]]]) -> None:
        """Show what waits now: for each partition and sink the names of its documents that are late."""
        now = self._clock()
        counts: Counter[tuple[str, ...]] = Counter()
        oldest: dict[tuple[str, ...], float] = {}
        since: dict[tuple[str, str], float] = {}
        for sink, names in late:
            counts[sink,] += len(names)
            for name in names:
                since[sink, name] = self._since.get((sink, name), now)
            oldest[sink,] = max(
                [oldest.get((sink,), 0.0), *(now - since[sink, name] for name in names)]
            )  # fmt: skip
        self._since = since
        self._metrics.replace(shown.SINK_BACKLOG, counts)
        self._metrics.replace(shown.SINK_OLDEST, oldest)
