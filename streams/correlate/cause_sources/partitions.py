"""Ports that were taken out of a partition of their subnet, by what the subnet's manager says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from streams.correlate.cause_sources.source import ByJobs, Causes, CauseSource, Round, began_by
from streams.correlate.fabric_rules.partitions import partition_faults
from streams.correlate.hypothesis import Hypothesis
from streams.correlate.sightings import Sighting, order
from streams.correlate.state.place import PlaceKind, of_partition, partition_at
from streams.correlate.state.rows import DocumentRow, Groups, PortRow


class PartitionCauses(CauseSource):
    """Each partition is evaluated by itself, under a name beside those of ports."""

    kind, distance = PlaceKind.PORT, 5

    def __init__(self, causes: Causes) -> None:
        super().__init__(causes)
        self._faults: dict[str, list[Hypothesis]] = {}
        self._known: set[str] = set()
        """Names under which anything is kept of a partition."""

    def evaluate(self, round_: Round) -> None:
        """Evaluate all partitions where anything is said of one: a port may have left it for another, and none tells which one's
        key it refused.
        """
        touched = round_.touched
        mine = {name for name in touched.ports if partition_at(name) is not None}
        if not mine:
            return
        self._known = {name for name in (*self._known, *mine) if name in self._state.ports}
        rows: dict[str, Groups] = defaultdict(dict)
        for name in sorted(self._known):
            rows[of_partition(partition_at(name) or "")] |= self._state.ports[name].seen
        touched.ports |= self._known | rows.keys() | self._faults.keys()
        refused, joined = self._refused(), self._joined()
        for name in sorted(rows.keys() | self._faults.keys()):
            before = self._faults.pop(name, [])
            after = partition_faults(
                self._cluster,
                name,
                partition_at(name) or "",
                rows[name],
                refused,
                joined,
                self._incarnations,
                self._config,
            )
            if after:
                self._faults[name] = after
                self._causes.note(after)
            if before != after:
                touched.jobs |= self._causes.troubled(*before, *after)

    def _joined(self) -> dict[str, list[datetime]]:
        found: dict[str, list[datetime]] = defaultdict(list)
        for name in self._known:
            for s in (s for group in self._state.ports[name].seen.values() for s in group):
                if not s.firing and (guid := s.text("member")):
                    found[guid.lower()].append(s.at)
        return found

    def _refused(self) -> list[Sighting]:
        row = self._state.ports.get(of_partition(""), PortRow())
        return sorted((s for group in row.seen.values() for s in group if s.firing), key=order)

    def at(self, name: str) -> list[Hypothesis]:
        """What became of a partition."""
        return self._faults.get(name, [])

    def all(self) -> Iterable[Hypothesis]:
        """What became of all of them."""
        return (h for faults in self._faults.values() for h in faults)

    def offered_to(self, nodes: set[str], last: datetime | None) -> Iterable[Hypothesis]:
        """Those of any partition: which one a job uses is unknown."""
        return (h for h in self.all() if began_by(h, last))

    def successor_of(self, row: DocumentRow, by_jobs: ByJobs) -> Hypothesis | None:
        """What its jobs suffer from now."""
        return by_jobs() if partition_at(row.place.name) else None
