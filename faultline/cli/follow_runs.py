"""Follows runs in the `runs` topic: each step as it changes, until they have ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click
from aiokafka import TopicPartition

from faultline.cli.main import EXIT_NO
from faultline.cli.output import record
from faultline.cli.read_topics import readable
from streams.config.settings import KafkaSettings
from streams.kafka.clients import consumer, partitions_of, started, topic_name
from streams.kafka.topics import RUNS, partition_of
from streams.model.clock import rfc3339
from streams.model.run import Run, RunState, StepRecord

WELL = (RunState.SUCCEEDED, RunState.SHADOWED)


async def followed(
    settings: KafkaSettings, cluster: str, *, run: str = "", incident: str = "", output: str = "table"
) -> int:
    """Print what changes in a run, or in all runs of an incident, until none of them has work left.

    Returns the exit code: 0 when the last one ended well, 1 otherwise.
    """
    name = topic_name(settings, RUNS)
    known: dict[str, Run] = {}
    reader = consumer(settings, group=None, fetch_max_wait_ms=100)
    try:
        await started(reader, settings)
        place = TopicPartition(name, partition_of(cluster, len(await partitions_of(reader, name))))
        reader.assign([place])
        await reader.seek_to_beginning(place)
        end = (await reader.end_offsets([place]))[place]
        wanted = (incident or run).encode()
        while True:
            caught_up = await reader.position(place) >= end
            for records in (await reader.getmany(place, timeout_ms=200)).values():
                for one in records:
                    if one.value is None or wanted not in one.value or (found := readable(Run, one)) is None:
                        continue
                    if found.id == run or (incident and found.incident == incident):
                        _tell(known.get(found.id), found, output)
                        known[found.id] = found
            if caught_up and known and not any(one.has_work for one in known.values()):
                last = max(known.values(), key=lambda one: (one.created_at, one.id))
                return 0 if last.state in WELL else EXIT_NO
    finally:
        await reader.stop()


def changes(before: Run | None, run: Run) -> Iterator[dict[str, Any]]:
    """What a later document of a run says that the earlier one did not: the run's own state, then its steps'."""
    old: Mapping[str, StepRecord] = (
        {record.id: record for record in before.steps} if before is not None else {}
    )
    at = rfc3339(run.updated_at)
    if before is None:
        by = {"started_by": run.started_by} if run.started_by else {}
        more = {"continues": run.continues} if run.continues else {}
        yield {
            "record": "run", "at": rfc3339(run.created_at), "run": run.id, "incident": run.incident,
            "runbook": run.plan.runbook, "mode": str(run.plan.mode), **by, **more,
        }  # fmt: skip
    for step in run.steps:
        earlier = old.get(step.id, StepRecord(step.id))
        if _state(earlier) == _state(step):
            continue
        planned = run.planned(step.id)
        undo = {"undo": str(step.undo.state)} if step.undo is not None else {}
        effect = {"effect": str(step.effect.state)} if step.effect is not None else {}
        yield {
            "record": "step", "at": at, "run": run.id, "step": step.id, "action": planned.action,
            "target": str(planned.target or ""), "state": str(step.state), "reason": step.reason, **effect, **undo,
        }  # fmt: skip
    if run.state.is_over if before is None else before.state is not run.state:
        ended = {"outcome": str(run.outcome), "reason": run.reason} if run.state.is_over else {}
        yield {"record": "run", "at": at, "run": run.id, "state": str(run.state), **ended}


def line(change: Mapping[str, Any]) -> str:
    """One change for people."""
    at = change["at"]
    if change["record"] == "step":
        why = f": {change['reason']}" if change["reason"] else ""
        undo = f", undo {change['undo']}" if "undo" in change else ""
        return f"{at}  {change['step']}  {change['action']} {change['target']}: {change['state']}{undo}{why}"
    if "state" in change:
        outcome = f" ({change['outcome']}: {change['reason']})" if change.get("outcome") else ""
        return f"{at}  {change['run']} is {change['state']}{outcome}"
    by = f", started by {change['started_by']}" if "started_by" in change else ""
    goes_on = f", takes up {change['continues']}" if "continues" in change else ""
    return f"{at}  {change['run']}: {change['runbook']} for {change['incident']} in mode {change['mode']}{by}{goes_on}"


def _tell(before: Run | None, run: Run, output: str) -> None:
    for change in changes(before, run):
        if output == "table":
            click.echo(line(change))
        else:
            record(output, change)


def _state(step: StepRecord) -> tuple[object, ...]:
    """What of a step is worth a line: a call in flight and its lookup are."""
    return (
        step.state,
        step.effect.state if step.effect is not None else None,
        step.undo.state if step.undo is not None else None,
        step.reason,
    )
