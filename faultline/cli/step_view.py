"""`faultline replay --step`: walks through a replay on a terminal, or by commands on standard input."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import click

from faultline.cli.names import picked
from faultline.cli.output import MAX_CELL
from faultline.replay.pipeline import Happened
from faultline.replay.recorded_inputs import CommandNews, ControlNews, FactNews, News
from faultline.replay.steps import IncidentChange, State, Steps, came_from
from faultline.why.explanation import explain
from streams.correlate.hypothesis import Hypothesis
from streams.model.clock import moment
from streams.model.conversation import TimelineEntry
from streams.model.errors import BadInput
from streams.model.message import plain
from streams.model.signal import Signal

SHOWN = 6
"""Signals or facts of one step that are shown; a thousand ranks may time out at once."""

HELP = (
    "n or Enter next, p previous, NUMBER go there, u [ID] on to the next change of an incident, l incidents, s ID explain one, "
    "h help, q quit"
)


def walk(steps: Steps, commands: Iterable[str], echo: Callable[[str], None]) -> None:
    """Show steps as the commands ask for them, until `q` or the end of the commands."""
    if not len(steps):
        echo("nothing happens in this capture")
        return
    number = 1
    _show(steps, number, echo)
    for line in commands:
        word, _, argument = line.strip().partition(" ")
        if word == "q":
            return
        try:
            there = _there(steps, number, word, argument.strip(), echo)
        except BadInput as error:
            echo(str(error))
            continue
        if there is not None:
            number = there
            _show(steps, number, echo)


def _there(steps: Steps, number: int, word: str, argument: str, echo: Callable[[str], None]) -> int | None:
    """The step that a command leads to; None when it is answered where one stands."""
    if word in ("", "n"):
        return _within(steps, number + 1)
    if word == "p":
        return _within(steps, number - 1)
    if word.isdecimal():
        return _within(steps, int(word))
    if word == "u":
        later = steps.next_about(argument, number)
        if later is None:
            raise BadInput(f"no later step changes {argument or 'an incident'}")
        return later
    state = steps.state_after(number)
    if word == "l":
        for text in _incident_lines(state):
            echo(text)
    elif word == "s" and argument:
        incident = picked(state.incidents, argument, what="incident", prefix="inc-")
        echo(explain(incident, [run for run in state.runs.values() if run.incident == incident.id]))
    else:
        echo(HELP)
    return None


def _within(steps: Steps, number: int) -> int:
    if not 1 <= number <= len(steps):
        raise BadInput(f"there are the steps 1 to {len(steps)}")
    return number


def _show(steps: Steps, number: int, echo: Callable[[str], None]) -> None:
    happened = steps[number]
    echo(f"[{number}/{len(steps)}] {moment(happened.at)}  {came_from(happened)}")
    lines = [
        *_came(happened),
        *map(_weighed, steps.weighed(number)),
        *map(_changed, steps.changes(number)),
        *map(_entry, happened.entries),
        _summary(steps.state_after(number)),
    ]
    for line in lines:
        echo(f"  {plain(line, MAX_CELL)}")


def happened_lines(happened: Happened) -> Iterator[str]:
    """What happened at a moment, a line each, for a replay that is watched as it goes. What led to nothing is left out."""
    for entry in happened.entries:
        yield f"{moment(entry.at)}  {entry.incident or entry.cluster}  {plain(entry.text, MAX_CELL)}"


def _came(happened: Happened) -> Iterator[str]:
    for one in islice(happened.came, SHOWN):
        yield f"came       {_named(one)}"
    if (more := len(happened.came) - SHOWN) > 0:
        yield f"           and {more} more"


def _named(one: Signal | News) -> str:
    match one:
        case FactNews(_, key, fact):
            return key if fact is not None else f"{key} is gone"
        case CommandNews(_, command):
            return f"{command.actor}: {command.verb} {command.incident or command.scope or command.cluster}"
        case ControlNews(_, control):
            return f"controls of {control.cluster}, revision {control.revision}"
        case _:
            text = f": {one.evidence[0].text}" if one.evidence else ""
            times = f" x{one.count}" if one.count > 1 else ""
            return f"{one.kind} {one.state} {one.entity}{times}{text}"


def _weighed(one: Hypothesis) -> str:
    state = (
        f"over since {moment(one.cleared_at)}" if one.cleared_at else f"may open from {moment(one.ready_at)}"
    )
    return f"weighed    {one.family} of {one.root}, {one.certainty}, {state} (rule {one.rule}){f': {one.why}' if one.why else ''}"


def _changed(change: IncidentChange) -> str:
    before, after = change.before, change.after
    if before is None:
        return f"opened     {after.id} {after.family} of {after.root}, {after.certainty}: {after.reason}"
    changes = [
        f"{name} {old} → {new}"
        for name, old, new in (
            ("state", before.state, after.state),
            ("certainty", before.certainty, after.certainty),
            ("type", before.family, after.family),
            ("root", before.root, after.root),
            ("jobs", len(before.jobs), len(after.jobs)),
            ("candidates", len(before.candidates), len(after.candidates)),
            ("evidence", len(before.proofs), len(after.proofs)),
        )
        if old != new
    ]
    return f"changed    {after.id} revision {after.revision}: {'; '.join(changes) or 'more evidence'}"


def _entry(entry: TimelineEntry) -> str:
    return f"{entry.actor:<10} {entry.event}: {entry.text}"


def _summary(state: State) -> str:
    over = sum(1 for one in state.incidents.values() if one.state.is_over)
    waiting = sum(
        1 for name, one in state.hypotheses.items() if name not in state.incidents and not one.cleared_at
    )
    return f"now        {len(state.incidents) - over} open, {over} over, {waiting} explanations that are no incident"


def _incident_lines(state: State) -> Iterator[str]:
    found = sorted(state.incidents.values(), key=lambda one: (one.fault_at, one.id))
    if not found:
        yield "no incidents yet"
    for one in found:
        yield f"{one.id}  {moment(one.fault_at)}  {one.state}  {one.family} of {one.root}: {plain(one.reason, MAX_CELL)}"


def typed() -> Iterator[str]:
    """Commands from standard input; on a terminal each is asked for."""
    while True:
        if sys.stdin.isatty():
            click.echo("> ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            return
        yield line
