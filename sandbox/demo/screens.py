"""How the demo is shown: live panels on a terminal, a line per moment elsewhere, records for programs.

Log text is untrusted: it reaches the terminal as plain text with control characters escaped, never as markup.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import Protocol

import click
from rich.console import Console, Group
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from faultline.cli.output import record
from faultline.why.tree import printable
from sandbox.demo.spectator import Channel, DemoMoment
from sandbox.demo.verdict import DemoVerdict, StoryResult
from streams.model.clock import rfc3339

_COLOURS: dict[Channel, str] = {
    "story": "bold magenta",
    "signal": "yellow",
    "incident": "bold red",
    "step": "cyan",
    "thread": "green",
    "person": "bold blue",
    "job": "bold green",
}
_WIDEST = 400


class Screen(Protocol):
    """Where moments go as they happen, and the verdict at the end."""

    def note(self, text: str) -> None:
        """A note about the demo itself, e.g. what it waits for."""

    def link(self, address: str) -> None:
        """Where the console is."""

    def show(self, moment: DemoMoment) -> None:
        """One thing that happened."""

    def close(self) -> None:
        """Nothing more happens."""

    def conclude(self, verdict: DemoVerdict) -> None:
        """The results of the checks."""


class RecordScreen:
    """One JSON object a line on stdout, or a YAML document each, told apart by `record`.

    They are `note`, `console`, `moment`, `story`, `check` and last `summary`.
    """

    def __init__(self, output: str) -> None:
        self._output = output

    def note(self, text: str) -> None:
        """A `note`."""
        record(self._output, {"record": "note", "text": text})

    def link(self, address: str) -> None:
        """A `console`."""
        record(self._output, {"record": "console", "url": address})

    def show(self, moment: DemoMoment) -> None:
        """A `moment`."""
        line = {"record": "moment", "at": rfc3339(moment.at), "channel": moment.channel, "text": moment.text}
        record(self._output, line | ({"incident": moment.incident} if moment.incident else {}))

    def close(self) -> None:
        """Nothing to do."""

    def conclude(self, verdict: DemoVerdict) -> None:
        """Stories, checks and the summary."""
        for result in verdict.results:
            incident = result.incident
            record(
                self._output,
                {
                    "record": "story",
                    "story": result.report.scene.name,
                    "title": result.report.scene.title,
                    "incident": incident.id if incident else None,
                    "node": result.report.scene.node,
                    "job": result.report.scene.job,
                    "tickets": [issue.key for issue in result.tickets],
                    "threads": [root.ts for root in result.threads],
                    "recovered_s": result.recovered_s,
                    "presses": [
                        {"who": press.who, "answer": press.answer} for press in result.report.presses
                    ],
                },
            )
        for check in verdict.checks:
            record(
                self._output,
                {"record": "check", "good": check.good, "story": check.story, "text": check.text},
            )
        record(
            self._output,
            {
                "record": "summary",
                "good": verdict.good,
                "seconds": round(verdict.seconds, 1),
                "cordoned": verdict.cordoned,
                "jobs": {job: list(nodes) for job, nodes in verdict.placements.items()},
            },
        )


class LineScreen:
    """A line per moment, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began: datetime | None = None

    def note(self, text: str) -> None:
        """The text alone."""
        self._console.print(Text(text), soft_wrap=True)

    def link(self, address: str) -> None:
        """A line to click."""
        self._console.print(console_line(address), soft_wrap=True)

    def show(self, moment: DemoMoment) -> None:
        """Seconds since the first moment, what it is about, and the text."""
        self._began = self._began or moment.at
        if moment.channel == "story":
            self._console.print()
        self._console.print(line_of(moment, self._began), soft_wrap=True)

    def close(self) -> None:
        """Nothing to do."""

    def conclude(self, verdict: DemoVerdict) -> None:
        """Tables and checks."""
        self._console.print(conclusion(verdict), soft_wrap=True)


class LiveScreen:
    """Panels that fill as things happen. The last screen stays, and the verdict is printed under it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        height = max(8, console.height - 6)
        self._story = Text("starting …", style="bold magenta")
        self._link: Text | None = None
        self._began: datetime | None = None
        self._panels: dict[str, deque[Text]] = {
            "signals": deque(maxlen=height // 2),
            "incidents": deque(maxlen=height // 2),
            "steps": deque(maxlen=height // 2),
            "thread": deque(maxlen=height // 2),
        }
        self._layout = Layout()
        self._layout.split_column(Layout(name="story", size=3), Layout(name="upper"), Layout(name="lower"))
        self._layout["upper"].split_row(Layout(name="signals"), Layout(name="incidents"))
        self._layout["lower"].split_row(Layout(name="steps"), Layout(name="thread"))
        self._live = Live(self._layout, console=console, refresh_per_second=8)
        self._refresh()
        self._live.start()

    def note(self, text: str) -> None:
        """In the line of the story; after the end, under everything."""
        if not self._live.is_started:
            self._console.print(Text(text), soft_wrap=True)
            return
        self._story = Text(text, style="bold magenta")
        self._refresh()

    def link(self, address: str) -> None:
        """At the edge of the line of the story, as long as the panels are there."""
        self._link = console_line(address)
        self._refresh()

    def show(self, moment: DemoMoment) -> None:
        """In the panel it belongs to."""
        self._began = self._began or moment.at
        if moment.channel == "story":
            self._story = Text(moment.text, style="bold magenta")
        else:
            panel = {"signal": "signals", "incident": "incidents", "job": "incidents", "step": "steps"}
            line = line_of(moment, self._began, named=moment.channel in ("job", "person"))
            self._panels[panel.get(moment.channel, "thread")].append(line)
        self._refresh()

    def close(self) -> None:
        """Leave the last picture and release the terminal."""
        self._live.stop()

    def conclude(self, verdict: DemoVerdict) -> None:
        """Tables and checks, under the panels."""
        self._console.print(conclusion(verdict), soft_wrap=True)

    def _refresh(self) -> None:
        self._layout["story"].update(Panel(self._story, title="faultline demo", subtitle=self._link))
        for name, lines in self._panels.items():
            shown = Text("\n").join(lines)
            shown.no_wrap, shown.overflow = True, "ellipsis"
            self._layout[name].update(Panel(shown, title=name))


def screen_for(output: str) -> Screen:
    """The screen that fits where standard output goes."""
    if output != "table":
        return RecordScreen(output)
    context = click.get_current_context(silent=True)
    colors = context.color if context is not None else None
    console = Console(force_terminal=colors or None, no_color=True if colors is False else None)
    return LiveScreen(console) if console.is_terminal else LineScreen(console)


def console_line(address: str) -> Text:
    """Where the console is, as a terminal shows a link."""
    return Text("console: ").append(address, style=f"bold link {address}")


def line_of(moment: DemoMoment, began: datetime, *, named: bool = True) -> Text:
    """A moment in a line: when, what it is about (if `named`), and the text."""
    after_s = max(0.0, (moment.at - began).total_seconds())
    line = Text(f"{after_s:6.1f}s ", style="dim")
    if named:
        line.append(f"{moment.channel:<9}", style=_COLOURS[moment.channel])
    return line.append(printable(moment.text, _WIDEST))


def conclusion(verdict: DemoVerdict) -> Group:
    """The results of the checks as text."""
    stories = Text()
    for number, result in enumerate(verdict.results, 1):
        incident, tickets = result.incident, ", ".join(issue.key for issue in result.tickets)
        stories.append(f"{number}. {result.report.scene.title}\n", style="bold")
        found = f"{incident.id} {incident.state.value}: {incident.title}" if incident else "no incident"
        stories.append(f"   {found}\n")
        stories.append(
            f"   cordoned {_cordoned(result, verdict)} · ticket {tickets or 'none'} · {_recovery(result)}\n"
        )
        for press in result.report.presses:
            stories.append(
                f"   {press.who} pressed [Approve] in the thread: {printable(press.answer, _WIDEST)}\n"
            )
    where = Table(box=None, pad_edge=False, header_style="bold")
    where.add_column("job")
    where.add_column("runs on")
    for job, nodes in verdict.placements.items():
        where.add_row(Text(job), Text(", ".join(nodes)))
    checks = Text()
    for check in verdict.checks:
        mark, style = ("✓", "green") if check.good else ("✗", "bold red")
        checks.append(f"{mark} ", style=style).append(
            f"{check.story + ': ' if check.story else ''}{check.text}\n"
        )
    title = Text(f"\nResult, {verdict.seconds:.0f} s after the first log line\n", style="bold")
    return Group(title, stories, where, Text(), checks)


def _cordoned(result: StoryResult, verdict: DemoVerdict) -> str:
    mine = [
        n
        for n, owner in verdict.cordoned.items()
        if result.incident and result.incident.id in owner.split(",")
    ]
    return ", ".join(mine) or "none"


def _recovery(result: StoryResult) -> str:
    if result.report.scene.node is None:
        return "left to its owner"
    if result.recovered_s is None:
        return "the job does not run again"
    return f"the job ran again {result.recovered_s:.1f} s after the first log line"
