"""The correlator without Kafka: signals, facts and time in, incidents out. No I/O, no clock of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from streams.correlate.cluster import Cluster
from streams.correlate.config import Config
from streams.correlate.publishing import Changes
from streams.correlate.rows import Rows
from streams.model.inventory import Fact
from streams.model.signal import Signal


class Core:
    """Correlation of any number of clusters, each by itself.

    `rows` keeps the state: only changed rows are written, once per call. A new core on the same rows goes on where the old
    one stopped. The same signals and facts in any order, split and repeated at will, end in the same incidents.
    """

    def __init__(self, rows: Rows, config: Config | None = None) -> None:
        self._rows = rows
        self._config = config or Config()
        self._clusters: dict[str, Cluster] = {}
        for name in sorted({key.partition("|")[0] for key, _ in rows.items()}):
            self._cluster(name)

    def on_signals(self, signals: Iterable[Signal], now: datetime) -> Changes:
        """Take in signals of any clusters. `now` is when they were read, in Kafka's time."""
        by_cluster: dict[str, list[Signal]] = defaultdict(list)
        for signal in signals:
            by_cluster[signal.entity.cluster].append(signal)
        changes = Changes()
        for name in sorted(by_cluster):
            changes += self._cluster(name).on_signals(by_cluster[name], now)
        return changes

    def on_fact(self, key: str, fact: Fact | None, at: datetime) -> Changes:
        """Take in one inventory record: its key, its fact (None for a tombstone) and its time."""
        return self._cluster(key.partition("/")[0]).on_fact(key, fact, at)

    def on_tick(self, now: datetime) -> Changes:
        """Let time pass for every cluster."""
        changes = Changes()
        for name in sorted(self._clusters):
            changes += self._clusters[name].on_tick(now)
        return changes

    def _cluster(self, name: str) -> Cluster:
        if name not in self._clusters:
            self._clusters[name] = Cluster(self._rows, self._config, name)
        return self._clusters[name]
