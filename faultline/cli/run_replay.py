"""A past run, event by event: what the journal recorded of it, and what the timeline says. Nothing is called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from faultline.cli.names import picked
from faultline.cli.output import show
from faultline.cli.read_topics import read_raw
from faultline.replay.capture import read
from faultline.runtime.settings import Settings
from streams.kafka.topics import RUNS, TIMELINE
from streams.model.clock import rfc3339
from streams.model.codec import decode
from streams.model.conversation import TimelineEntry
from streams.model.counted import many
from streams.model.errors import BadInput
from streams.model.record import RawRecord
from streams.model.run import Approval, EffectRecord, EffectState, Run, StepRecord

_ANSWERS = {
    EffectState.INTENDED: "is called",
    EffectState.CONFIRMED: "is confirmed",
    EffectState.WAITING: "goes on",
    EffectState.REFUSED: "is refused",
    EffectState.UNKNOWN: "has an unknown outcome and is looked up",
    EffectState.UNDONE: "is rolled back",
}


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One thing that happened to a run: when, which kind (`planned`, `call`, `answer`, `step`, `guardrail`, `approval`, `said`,
    `state`), about which step, and in words. `waited_s` is the time since the event before it."""

    at: datetime
    kind: str
    step: str
    text: str
    attempt: int = 0
    key: str = ""
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RunStory:
    """A run with its events in the order of time. `gaps` says what is not recorded any more."""

    run: Run
    events: tuple[RunEvent, ...]
    gaps: str = ""


async def replayed(settings: Settings, given: str, capture: Path | None) -> RunStory:
    """The story of a run, from Kafka or from a capture.

    Raises:
        BadInput: there is no such run, or the id fits several.
    """
    if capture is not None:
        found = read(capture)
        rows = {
            name: [*found.state.get(name, ()), *found.records.get(name, ())]
            for name in (RUNS.name, TIMELINE.name)
        }
        runs, said = rows[RUNS.name], rows[TIMELINE.name]
        return _story(given, _values(runs), _values(said), place=str(capture))
    raw = await read_raw(settings.kafka, RUNS, TIMELINE, cluster=settings.cluster)
    runs_now = ((one.key or b"", one.value) for one in raw[RUNS.name])
    said_now = ((one.key or b"", one.value) for one in raw[TIMELINE.name])
    return _story(given, runs_now, said_now, place="Kafka")


def _values(records: Iterable[RawRecord]) -> Iterator[tuple[bytes, bytes | None]]:
    yield from ((one.key or b"", one.value) for one in records)


def _story(
    given: str,
    runs: Iterable[tuple[bytes, bytes | None]],
    said: Iterable[tuple[bytes, bytes | None]],
    *,
    place: str,
) -> RunStory:
    by_id: dict[str, list[bytes]] = {}
    for key, value in runs:
        if value is not None:
            by_id.setdefault(key.decode(errors="replace"), []).append(value)
    documents = picked(by_id, given, what="run", prefix="run-", see=f"{place} has {many(len(by_id), 'run')}")
    versions = sorted(
        {one.revision: one for one in (decode(Run, raw) for raw in documents)}.values(),
        key=lambda r: r.revision,
    )
    wanted = versions[-1].id.encode()
    entries = [
        entry
        for _, value in said
        if value is not None and wanted in value
        if (entry := decode(TimelineEntry, value)).attributes.get("run") == versions[-1].id
    ]
    return story(versions, entries)


def story(versions: Sequence[Run], entries: Iterable[TimelineEntry]) -> RunStory:
    """The events of a run from the documents that are left of it, oldest first, and its lines of the timeline."""
    run = versions[-1]
    events = [*_planned(versions[0])]
    for before, after in pairwise([None, *versions]):
        assert after is not None
        events += _between(before, after)
    known = {entry.text: entry for entry in entries}
    events += [
        RunEvent(entry.at, "said", str(entry.attributes.get("step", "")), f"{entry.actor}: {entry.text}")
        for entry in known.values()
    ]
    # What the run found done by an earlier one, and the command that started it, are older than the run.
    since = run.created_at
    ordered = sorted(
        (replace(event, at=max(event.at, since)) for event in events), key=lambda event: event.at
    )
    waits = [0.0, *((b.at - a.at).total_seconds() for a, b in pairwise(ordered))]
    timed = tuple(
        RunEvent(e.at, e.kind, e.step, e.text, e.attempt, e.key, wait)
        for e, wait in zip(ordered, waits, strict=True)
    )
    missing = run.revision - len(versions)
    gaps = f"{missing} of {run.revision} states of this run are not recorded any more" if missing else ""
    return RunStory(run, timed, gaps)


def _planned(run: Run) -> Iterator[RunEvent]:
    by = f"; started by {run.started_by}" if run.started_by else ""
    goes_on = f"; takes up {run.continues}" if run.continues else ""
    plan = run.plan
    text = f"{plan.runbook} revision {plan.runbook_revision} in mode {plan.mode}, digest {plan.digest}{by}{goes_on}"
    yield RunEvent(run.created_at, "planned", "", f"{text}: {run.title}; {plan.why or run.reason}")


def _between(before: Run | None, run: Run) -> Iterator[RunEvent]:
    old: Mapping[str, StepRecord] = {step.id: step for step in before.steps} if before is not None else {}
    for given in run.approvals[len(before.approvals) if before is not None else 0 :]:
        yield _approval(given)
    for step in run.steps:
        earlier = old.get(step.id, StepRecord(step.id))
        for name in ("effect", "undo"):
            row: EffectRecord | None = getattr(step, name)
            if row is not None and row != getattr(earlier, name):
                yield _row(run, step, row, name)
        if step.state is not earlier.state:
            why = f": {step.reason}" if step.reason else ""
            at = step.finished_at or (step.started_at if before is None else None) or run.updated_at
            yield RunEvent(at, "guardrail" if step.verdict else "step", step.id, f"{step.state}{why}")
    if before is None or before.state is not run.state:
        ended = f" ({run.outcome}: {run.reason})" if run.state.is_over else ""
        yield RunEvent(run.finished_at or run.updated_at, "state", "", f"run {run.state}{ended}")


def _approval(given: Approval) -> RunEvent:
    verb = "approved" if given.approved else "rejected"
    about = f" ({given.rule})" if given.rule else ""
    why = f": {given.reason}" if given.reason else ""
    via = f" by {given.via}" if given.via else ""
    return RunEvent(
        given.at, "approval", given.step, f"{given.actor} {verb} plan {given.digest[:8]}{about}{via}{why}"
    )


def _row(run: Run, step: StepRecord, row: EffectRecord, name: str) -> RunEvent:
    at = run.updated_at
    if row.state is EffectState.INTENDED:
        at = row.intended_at
    elif row.confirmed_at is not None:
        at = row.confirmed_at
    undo = "undo of " if name == "undo" else ""
    why = f": {row.reason}" if row.reason else ""
    told = f" {dict(row.result)}" if row.result and row.state is EffectState.CONFIRMED else ""
    kind = "call" if row.state is EffectState.INTENDED else "answer"
    text = f"{undo}{row.action} {row.target} {_ANSWERS[row.state]}{why}{told}"
    return RunEvent(at, kind, step.id, text, row.attempts, row.key)


def shown(found: RunStory, output: str, *, walk: bool) -> None:
    """Print a story. With `walk`, the next event comes when a key is pressed; `q` ends it."""
    if walk and output == "table":
        _walk(found)
        return
    show(output, _records(found), lambda: _table(found))


def _records(found: RunStory) -> Iterator[dict[str, Any]]:
    run = found.run
    yield {
        "record": "run", "run": run.id, "incident": run.incident, "runbook": run.plan.runbook, "state": str(run.state),
        "outcome": str(run.outcome), "started_by": run.started_by, "continues": run.continues, "gaps": found.gaps,
    }  # fmt: skip
    for e in found.events:
        yield {
            "record": "event", "at": rfc3339(e.at), "kind": e.kind, "step": e.step, "text": e.text, "attempt": e.attempt,
            "key": e.key, "waited_s": round(e.waited_s, 3),
        }  # fmt: skip


def _line(event: RunEvent) -> str:
    wait = f"+{event.waited_s:.0f} s" if event.waited_s >= 1 else ""
    attempt = f" (attempt {event.attempt})" if event.kind == "call" and event.attempt > 1 else ""
    return f"{rfc3339(event.at)}  {wait:>8}  {event.kind:9}  {event.step:20}  {event.text}{attempt}"


def _table(found: RunStory) -> None:
    for event in found.events:
        click.echo(_line(event))
    if found.gaps:
        click.echo(f"\n{found.gaps}", err=True)


def _walk(found: RunStory) -> None:
    if not click.get_text_stream("stdin").isatty():
        raise BadInput("--step: there is no terminal; leave it out, or use --output json")
    for number, event in enumerate(found.events, 1):
        click.echo(_line(event))
        if number < len(found.events):
            click.echo(f"[{number} of {len(found.events)}] any key: next, q: end", err=True)
            if click.getchar() in ("q", "\x03"):
                return
