"""All runs of one partition, indexed by incident, by target and by faulty entity, and those with work left.

Most runs are finished, and no iteration goes through them. Those that nobody has asked for since the partition was acquired stay
encoded; see `streams/kafka/lazy_documents.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from runbooks.engine.run_summaries import RunSummary, names_of, targets_of
from streams.kafka.lazy_documents import LazyDocuments
from streams.model.errors import BadInput
from streams.model.run import Run


@dataclass(frozen=True, slots=True)
class _IndexEntry:
    """What a run is found by, and its number in the order of creation."""

    number: int
    incident: str
    cluster: str
    targets: frozenset[str]
    keys: frozenset[str]
    """Its targets and the entities that it is counted for; the two never have a key in common."""


@dataclass(frozen=True, slots=True)
class UnreadableRun:
    """A finished run whose document cannot be decoded: only this is known of it."""

    id: str
    incident: str
    cluster: str
    reason: str


class RunIndex(Mapping[str, Run]):
    """Runs by id, as last read or decided."""

    def __init__(
        self, known: LazyDocuments[Run, RunSummary], unreadable: Iterable[UnreadableRun] = ()
    ) -> None:
        self._documents = known
        self.unreadable: dict[str, UnreadableRun] = {run.id: run for run in unreadable}
        """Finished runs that cannot be decoded, by id. They are not among the runs."""
        self._entries: dict[str, _IndexEntry] = {}
        self._count = 0
        self._by_incident: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._by_key: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        self.live: dict[str, None] = {}
        """Ids of those that have work left."""
        for run in sorted((known.summaries.get(key) or known[key] for key in known), key=age):
            self._index(run)
            if isinstance(run, Run) and run.has_work:
                self.live[run.id] = None

    @property
    def summaries(self) -> Mapping[str, RunSummary]:
        """Summaries of the finished runs that are still encoded."""
        return self._documents.summaries

    @property
    def decoded(self) -> int:
        """How many documents have been decoded so far."""
        return self._documents.decoded

    def put(self, run: Run) -> None:
        """Add a run, or replace it by its new state."""
        known = self.get(run.id)
        self._documents[run.id] = run
        if known is None or known.plan is not run.plan or known.offenders != run.offenders:
            # A plan only grows, so old targets stay valid. The entities that a run is counted for may change by themselves.
            self._index(run)
        if run.has_work:
            self.live[run.id] = None
        else:
            self.live.pop(run.id, None)

    def forget(self, run_id: str) -> None:
        """Remove a run."""
        entry = self._entries.pop(run_id)
        del self._by_incident[entry.incident][run_id]
        for key in entry.keys:
            del self._by_key[entry.cluster, key][run_id]
        self.live.pop(run_id, None)
        del self._documents[run_id]

    def incidents(self) -> Iterable[str]:
        """Ids of the incidents that have runs."""
        return self._by_incident

    def ids_of(self, incident: str) -> Sequence[str]:
        """Ids of the runs of an incident, oldest first."""
        return tuple(self._by_incident.get(incident, ()))

    def of(self, incident: str) -> list[Run]:
        """The runs of an incident, oldest first."""
        return self.read(self.ids_of(incident))

    def unreadable_of(self, incident: str) -> list[UnreadableRun]:
        """The unreadable runs of an incident."""
        return [run for run in self.unreadable.values() if run.incident == incident]

    def ids_on(self, cluster: str, target: str) -> Sequence[str]:
        """Ids of the runs with a step on a target."""
        return tuple(self._by_key.get((cluster, target), ()))

    def on(self, cluster: str, target: str) -> list[Run]:
        """The runs with a step on a target."""
        return self.read(self.ids_on(cluster, target))

    def counted_for(self, cluster: str, entities: Iterable[str]) -> list[Run]:
        """The runs counted for any of these faulty entities."""
        return self.read({run_id: None for name in entities for run_id in self.ids_on(cluster, name)})

    def targets(self, run_id: str) -> frozenset[str]:
        """Keys of the targets of a run."""
        return self._entries[run_id].targets

    def number(self, run_id: str) -> int:
        """A number that increases with each run, in the order of creation."""
        return self._entries[run_id].number

    def peers(self, run: Run) -> RunPeers:
        """The other runs that share a target or the incident with this one."""
        return RunPeers(self, run)

    def __getitem__(self, run_id: str) -> Run:
        """The run. Raises KeyError, also for one whose document turns out unreadable: it is in `unreadable` from then on."""
        try:
            return self._documents[run_id]
        except BadInput as error:
            entry = self._entries[run_id]
            self.unreadable[run_id] = UnreadableRun(run_id, entry.incident, entry.cluster, str(error))
            self.forget(run_id)
            raise KeyError(run_id) from error

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._documents

    def __iter__(self) -> Iterator[str]:
        return iter(self._documents)

    def __len__(self) -> int:
        return len(self._documents)

    def read(self, run_ids: Iterable[str]) -> list[Run]:
        """The runs with these ids, without unreadable ones."""
        return [run for run_id in run_ids if (run := self.get(run_id)) is not None]

    def _index(self, run: Run | RunSummary) -> None:
        known = self._entries.get(run.id)
        if isinstance(run, RunSummary):
            targets, entities = run.targets, run.offenders
        else:
            targets, entities = targets_of(run.plan.steps), names_of(run.offender, run.offenders)
        keys = targets | entities
        if known is not None:
            for key in known.keys - keys:
                del self._by_key[known.cluster, key][run.id]
        self._count += known is None
        entry = self._entries[run.id] = _IndexEntry(
            known.number if known is not None else self._count,
            run.incident,
            run.cluster,
            targets,
            keys,
        )
        self._by_incident[entry.incident][run.id] = None
        for key in keys:
            self._by_key[entry.cluster, key][run.id] = None


class RunPeers(Iterable[Run]):
    """The other runs that share a target or the incident with a run, oldest first; found when first iterated over."""

    def __init__(self, runs: RunIndex, run: Run) -> None:
        self._runs = runs
        self._run = run
        self._found: list[Run] | None = None

    def __iter__(self) -> Iterator[Run]:
        if self._found is None:
            run, runs = self._run, self._runs
            found = set(runs.ids_of(run.incident))
            for key in runs.targets(run.id):
                found.update(runs.ids_on(run.cluster, key))
            self._found = runs.read(sorted(found - {run.id}, key=runs.number))
        return iter(self._found)


def age(run: Run | RunSummary) -> tuple[object, ...]:
    """The sort key for the order in which runs were started."""
    return (run.created_at, run.round, bool(run.escalated_from), run.id)
