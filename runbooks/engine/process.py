"""The responder process: incidents, commands and inventory in; runs, timeline, `run.*` signals and outward calls out.

It is a member of a consumer group and runs one `PartitionWorker` for each partition it owns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NoReturn

import structlog
from aiokafka import ConsumerRecord

from connectors.base import Connector
from runbooks.engine.call_slots import CallLimits
from runbooks.engine.commit_batch import PROCESS
from runbooks.engine.figures import ResponderFigures
from runbooks.engine.partition_state import PER_ITERATION, PartitionState
from runbooks.engine.partition_worker import DecidingBy, PartitionWorker, WorkerContext
from runbooks.engine.run_index import UnreadableRun
from runbooks.engine.run_summaries import (
    IncidentSummary,
    finished_header,
    read_finished_header,
    summary_if_finished,
)
from runbooks.language.schema import Runbook
from streams.config.settings import KafkaSettings, ResponderSettings
from streams.kafka.clients import coordinates
from streams.kafka.fenced_store import DocumentType, Outgoing
from streams.kafka.partition_owner import PARTITION_LOST, OwnedPartition, OwnedRecord, PartitionOwner
from streams.kafka.topics import COMMANDS, CONTROLS, INCIDENTS, INVENTORY, RUNS
from streams.model.clock import Clock, MonotonicClock, boot_seconds, from_millis, utc_now
from streams.model.codec import decode
from streams.model.control import Control
from streams.model.conversation import Command
from streams.model.crash_points import TAKEN_UP, CrashHook, ignore
from streams.model.errors import BadInput
from streams.model.facts import FactRecord
from streams.model.incident import Incident
from streams.model.pulse import Pulse
from streams.model.run import Run
from streams.telemetry import metrics as shown
from streams.telemetry.call_figures import CallFigures, system_of
from streams.telemetry.registry import Metrics
from streams.telemetry.tracing import run_headers

log = structlog.get_logger(__name__)


class Responder:
    """The process. `run` it until it is cancelled.

    Args:
        kafka_settings: The broker.
        settings: Mode, limits and lease.
        connectors: Those that are configured. A step whose action none of them knows is skipped or fails.
        runbooks: All runbooks, shipped and own.
        cluster: The cluster that the connectors act on; incidents of other clusters are ignored. None accepts all.
        clock: The wall clock.
        boot: A clock in seconds that goes on while the process is frozen.
        pulse: Beaten on every poll; ready once every owned partition has been read.
        metrics: Where to count; nowhere that is shown when not given.
        at: Called with the name of each crash point; `streams.model.crash_points` lists them.
        config: The version of `runbooks` and `settings`, which runs carry.
    """

    def __init__(
        self,
        kafka_settings: KafkaSettings,
        settings: ResponderSettings,
        connectors: Sequence[Connector],
        runbooks: Sequence[Runbook],
        *,
        cluster: str | None = None,
        clock: Clock = utc_now,
        boot: MonotonicClock = boot_seconds,
        pulse: Pulse | None = None,
        metrics: Metrics | None = None,
        at: CrashHook = ignore,
        config: str | None = None,
    ) -> None:
        self._cluster = cluster
        self._runbooks, self._policy, self._config = runbooks, settings, config
        by_action = {action: connector for connector in connectors for action in connector.actions}
        self._pulse = pulse or Pulse()
        self._metrics = metrics = metrics or Metrics(PROCESS)
        self._figures = ResponderFigures(metrics, settings, by_action)
        calls = CallFigures(metrics)
        for connector in connectors:
            calls.expect(system_of(connector))
        self._around = WorkerContext(settings, by_action, clock, boot, self._pulse, at, self._figures, calls)
        self._workers: dict[OwnedPartition[Run], PartitionWorker] = {}
        self._owner: PartitionOwner[Run] = PartitionOwner(
            kafka_settings,
            DocumentType(
                process=PROCESS,
                topic=RUNS,
                kind=Run,
                key=lambda run: run.id,
                summarize=summary_if_finished,
                headers=lambda run: (*finished_header(run), *run_headers(run.incident, run.id)),
                may_skip=read_finished_header,
            ),
            replayed=(INVENTORY, INCIDENTS, CONTROLS),
            followed=(COMMANDS,),
            on_revoked=self._release,
            unfinished=self._first_waiting,
            pulse=self._pulse,
            metrics=metrics,
        )
        metrics.watch(self._look)

    def adopt(self, new: DecidingBy) -> None:
        """Decide by these from the next iteration of each partition on. What of the settings is fixed at the start, the lease and
        the numbers of calls, stays as it was."""
        self._runbooks, self._policy, self._config = new.runbooks, new.policy, new.config
        self._figures.adopt(new.policy)
        for worker in self._workers.values():
            worker.adopting = new
            worker.news.set()

    async def run(self) -> NoReturn:
        """Own partitions and act on their incidents, until cancelled.

        Raises:
            Unreachable: when no broker answers.
            BadInput: when a run with work left cannot be read back.
        """
        self._pulse.lag = self._owner.lag
        try:
            while True:
                for arrival in await self._owner.poll():
                    self._pulse.count("records")
                    self._take(arrival)
                for owned in list(self._owner.owned.values()):
                    await self._begin(owned)
                self._check_workers()
                self._pulse.ready(all(owned.caught_up for owned in self._owner.owned.values()))
        finally:
            await self._owner.stop()
            self._raise_failure()  # also one of letting go just now

    async def _look(self) -> None:
        self._figures.look([worker.state for worker in self._workers.values() if worker.task is not None])

    def _first_waiting(self, partition: int) -> int | None:
        owned = self._owner.owned.get(partition)
        worker = self._workers.get(owned) if owned is not None else None
        return worker.first_waiting if worker is not None else None

    def _worker(self, owned: OwnedPartition[Run]) -> PartitionWorker:
        if owned not in self._workers:
            store, around = owned.store, self._around
            unreadable = [
                UnreadableRun(run.key, run.header.incident, run.header.cluster, f"{run.place}: {run.reason}")
                for run in store.unreadable.values()
            ]
            state = PartitionState(
                self._runbooks, self._policy, frozenset(around.connectors), store.documents, unreadable,
                limits=CallLimits.of(around.settings), budget=PER_ITERATION, acquired=True, config=self._config,
            )  # fmt: skip
            self._workers[owned] = PartitionWorker(owned, state, around)
        return self._workers[owned]

    def _take(self, arrival: OwnedRecord[Run]) -> None:
        worker, record = self._worker(arrival.owned), arrival.record
        try:
            self._read(worker, arrival.topic, record)
        except BadInput as error:
            if arrival.topic == CONTROLS.name:
                self._keep_unreadable(worker, record, error)
            log.error("unreadable record", topic=record.topic, offset=record.offset, reason=str(error))
            # Incidents and inventory stay in their compacted topics and are read again at every start.
            if arrival.topic == COMMANDS.name:
                letter = Outgoing.dead_letter(record, topic=arrival.topic, stage=PROCESS, reason=str(error))
                self._owner.count_dead_letter(COMMANDS)
                worker.dead_letters.append(letter)
        if arrival.topic == COMMANDS.name:
            worker.took_command(self._owner.place(COMMANDS, record.partition), record.offset)
        worker.news.set()

    def _keep_unreadable(
        self, worker: PartitionWorker, record: ConsumerRecord[bytes, bytes], error: BadInput
    ) -> None:
        """Remember an unreadable control record: it engages its cluster's kill switch, unless a later record replaces it.

        Raises:
            BadInput: by its key the record does not belong to the cluster acted on, so that nobody knows what it stops.
        """
        cluster = (record.key or b"").decode(errors="backslashreplace")
        if not cluster or cluster != (self._cluster or cluster):
            place = coordinates(record)
            raise BadInput(f"{place} with the key {cluster[:80]!r} cannot be read: {error}") from error
        worker.unreadable_controls[cluster] = (record, str(error))

    def _read(self, worker: PartitionWorker, topic: str, record: ConsumerRecord[bytes, bytes]) -> None:
        key = (record.key or b"").decode(errors="replace")
        if topic == INVENTORY.name:
            fact = decode(FactRecord, record.value).fact if record.value is not None else None
            if fact is None and key.count("/") < 2:
                raise BadInput(f"a tombstone for {key!r}, which is no cluster/kind/name")
            place = self._owner.place(INVENTORY, record.partition)
            is_news = record.offset >= worker.owned.known.get(place, 0)
            worker.state.take_fact(key, fact, from_millis(record.timestamp) if is_news else None)
            worker.inventory = (place, record.offset + 1)
        elif record.value is None:
            if topic == CONTROLS.name:
                worker.unreadable_controls.pop(key, None)
        elif topic == INCIDENTS.name:
            summary = decode(IncidentSummary, record.value)
            if self._cluster not in (None, summary.cluster):
                # Another cluster may have a node of the same name: acting here would cordon a healthy one.
                log.error(
                    "ignoring an incident of another cluster; use one kafka.topic_prefix per cluster",
                    incident=summary.id,
                    cluster=summary.cluster,
                    acts_on=self._cluster,
                )
            elif worker.owned.caught_up or not worker.state.take_finished_incident(summary, record.value):
                worker.state.take_incident(decode(Incident, record.value))
        elif topic == CONTROLS.name:
            control = decode(Control, record.value)
            if control.cluster != key:
                raise BadInput(f"it is the control of {control.cluster[:80]!r}")
            worker.unreadable_controls.pop(control.cluster, None)
            worker.state.take_control(control)
        else:
            command = decode(Command, record.value)
            if self._cluster in (None, command.cluster):
                self._metrics.add(shown.COMMANDS, 1, command.verb, "taken")
                worker.state.take_command(command)
            else:
                self._metrics.add(shown.COMMANDS, 1, command.verb, "refused")
                # An operator who engages the kill switch of another cluster must not be told that it is engaged.
                why = f"the responder here acts on {self._cluster}, not on {command.cluster}"
                worker.state.refuse(command, why)

    async def _begin(self, owned: OwnedPartition[Run]) -> None:
        """Start the worker of a partition once everything that was there has been read."""
        if not owned.caught_up or self._owner.owned.get(owned.partition) is not owned:
            return
        worker = self._worker(owned)
        if worker.task is not None or worker.leaving:
            return
        for _ in worker.state.recovering(self._around.clock()):
            self._pulse.beat()
            await asyncio.sleep(0)
            if worker.leaving or self._owner.owned.get(owned.partition) is not owned:
                return
        log.info(
            "partition ready",
            partition=owned.partition,
            runs=len(worker.state.runs),
            decoded=worker.state.runs.decoded,
            live=len(worker.state.runs.live),
        )
        self._around.at(TAKEN_UP)
        worker.task = asyncio.create_task(worker.run(), name=f"runs of partition {owned.partition}")

    def _check_workers(self) -> None:
        """Drop partitions whose commit failed; any other end of a worker ends the process."""
        self._raise_failure()
        for owned, worker in list(self._workers.items()):
            if worker.task is None or not worker.task.done() or worker.leaving:
                continue
            error = worker.task.exception()
            if not isinstance(error, PARTITION_LOST):
                raise error or RuntimeError("a worker ended by itself")
            worker.revoke(str(error))
            self._owner.drop_partition(owned, error)

    def _raise_failure(self) -> None:
        if self._around.failures:
            raise self._around.failures[-1]

    async def _release(self, partitions: Sequence[int]) -> None:
        """Start nothing more, and give calls in flight a moment to finish and be committed."""
        going = [worker for owned, worker in self._workers.items() if owned.partition in partitions]
        for worker in going:
            worker.revoke(f"partition {worker.owned.partition} went to another owner")
        outcomes = await asyncio.gather(*(worker.finish_calls() for worker in going), return_exceptions=True)
        # Whoever calls this for the group logs what is raised in here, and goes on.
        self._around.failures.extend(one for one in outcomes if isinstance(one, Exception))
        for worker in going:
            del self._workers[worker.owned]
