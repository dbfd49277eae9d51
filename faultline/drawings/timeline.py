"""When what happened: evidence, jobs, decision, steps and people on one axis of time, with the incident's clocks across it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from faultline.drawings.milestones import WORDS, Milestones, Wait, milestones, waits
from faultline.drawings.render import svg_of
from faultline.drawings.shapes import (
    MARGIN,
    RIGHT,
    WIDTH,
    Diamond,
    Dot,
    Drawing,
    Ink,
    Line,
    Rect,
    Shape,
    Text,
)
from faultline.drawings.time_axis import TimeAxis
from faultline.drawings.timeline_rows import (
    MAX_PEOPLE,
    MAX_RUNS,
    JobRow,
    PersonRow,
    StepRow,
    job_rows,
    person_rows,
    step_rows,
)
from faultline.drawings.words import clock, day_and_clock, fit, span, width_of
from streams.model.conversation import TimelineEntry
from streams.model.counted import many
from streams.model.incident import Incident
from streams.model.run import Run

_ROW = 27
_LEFT, _END = MARGIN + 2, RIGHT - 2
_ROLES: dict[str, tuple[str, Ink]] = {
    "cause": ("cause", "bad"),
    "symptom": ("symptoms", "active"),
    "context": ("context", "quiet"),
}
_TRACK = 4
"""Height of a bar."""
MAX_WAITS = 40
"""Waits drawn of one run: steps that are asked about together lie on each other."""


def timeline_svg(
    incident: Incident, runs: Sequence[Run], timeline: Sequence[TimelineEntry], now: datetime
) -> str:
    """The incident's timeline as an SVG element. Pure: the same documents and time give the same text.

    Args:
        incident: Its latest revision.
        runs: Its runs, in any order.
        timeline: Its entries, in any order.
        now: The end of the axis while it is open.
    """
    ordered = sorted(runs, key=lambda run: (run.created_at, run.id))
    entries = sorted(timeline, key=lambda entry: entry.at)
    return svg_of(_Layout(incident, ordered, entries, now).drawing())


class _Layout:
    """Places the rows from top to bottom. `y` is where the next one begins."""

    def __init__(
        self, incident: Incident, runs: Sequence[Run], timeline: Sequence[TimelineEntry], now: datetime
    ) -> None:
        self._incident, self._runs, self._now = incident, runs, now
        self._clocks: Milestones = milestones(incident, runs)
        self._waits: tuple[Wait, ...] = waits(runs, timeline)
        self._jobs, self._more_jobs = job_rows(incident, runs, now)
        self._steps, self._more_steps = step_rows(runs, now)
        self._people: list[PersonRow] = person_rows(timeline)
        self._axis = TimeAxis(self._moments(), _LEFT, _END)
        self._shapes: list[Shape] = []
        self._y = 0.0

    def drawing(self) -> Drawing:
        """All of it."""
        marks = list(self._clocks.known())
        self._legend(marks)
        self._time_line(marks)
        self._evidence()
        self._progress()
        self._decision()
        self._step_lane()
        self._person_lane()
        title = f"Timeline of {self._incident.id}: {self._incident.title}"
        return Drawing(
            f"timeline {self._incident.id}", title, self._told(marks), self._y + 8, tuple(self._shapes)
        )

    def _moments(self) -> Iterator[datetime]:
        """Every moment that is drawn; the axis ends with the last of them, or now while the incident is open."""
        yield from (at for _, at in self._clocks.known())
        yield from (proof.occurred_at for proof in self._incident.proofs)
        for row in self._steps:
            yield from (at for at in (row.begin, row.end) if at is not None)
        for run in self._runs[-MAX_RUNS:]:
            yield run.created_at
            yield from (at for at in (run.finished_at,) if at is not None)
        for wait in self._waits:
            yield wait.since
            yield wait.until or self._now
        yield from (person.at for person in self._people)
        for job in self._jobs:
            yield from (at for at in (job.last_seen, job.back) if at is not None and at <= self._now)
        yield self._incident.closed_at or (
            self._incident.updated_at if self._incident.state.is_over else self._now
        )

    # -- the clocks

    def _legend(self, marks: Sequence[tuple[str, datetime]]) -> None:
        """Each clock with its number, its time, and how long after the fault it was."""
        self._y += 6
        room = (RIGHT - MARGIN) / 3
        for number, (name, at) in enumerate(marks):
            x = MARGIN + number % 3 * room
            y = self._y + number // 3 * 48
            after = "UTC" if name == "fault" else f"+{span(at - self._clocks.fault)}"
            self._shapes += [
                *_badge(x + 8, y + 12, str(number + 1), _mark_ink(name)),
                Text(x + 22, y + 10, WORDS[name], 11, "muted"),
                Text(x + 22, y + 24, clock(at), 12, "ink", bold=True),
                Text(x + 22, y + 37, after, 10.5, "muted"),
            ]
        self._y += -(-len(marks) // 3) * 48 + 4

    def _time_line(self, marks: Sequence[tuple[str, datetime]]) -> None:
        """The axis: its ends, what is compressed, and the numbers of the clocks."""
        axis, y = self._axis, self._y + 12
        self._shapes.append(Line(_LEFT, y, _END, y, "quiet"))
        for pause in axis.pauses():
            middle, text = (pause.begin + pause.end) / 2, span(pause.length)
            room = width_of(text, 10) + 8
            if pause.end - pause.begin >= room + 24:
                self._shapes += [
                    Rect(middle - room / 2, y - 7, room, 14, "paper"),
                    Text(middle, y + 3.5, text, 10, "muted", "middle"),
                ]
        groups: list[tuple[float, int, int, Ink]] = []
        for number, (name, at) in enumerate(marks, 1):
            x = axis.place(at)
            if groups and x - groups[-1][0] < 24:
                place, first, _, ink = groups[-1]
                groups[-1] = (place, first, number, ink)
            else:
                groups.append((x, number, number, _mark_ink(name)))
        for x, first, last, ink in groups:
            self._shapes += _badge(x, y, str(first) if first == last else f"{first}–{last}", ink)
        begin, end = day_and_clock(axis.begin), clock(axis.end)
        if axis.begin.date() != axis.end.date():
            end = day_and_clock(axis.end)
        if not self._incident.state.is_over:
            end = f"now {end}"
        self._shapes += [
            Text(MARGIN, y + 24, begin, 10.5, "muted"),
            Text(RIGHT, y + 24, end, 10.5, "muted", "end"),
        ]
        self._y = y + 34

    # -- the lanes

    def _lane(self, name: str) -> None:
        self._shapes += [
            Line(MARGIN, self._y, RIGHT, self._y, "line"),
            Text(MARGIN, self._y + 17, name, 11, "muted", bold=True),
        ]
        self._y += 26

    def _labels(self, label: str, said: str, ink: Ink = "muted") -> float:
        """The words above a row's track; returns the middle of the track."""
        said = fit(said, 215, 11)
        room = RIGHT - MARGIN - width_of(said, 11) - 12
        self._shapes += [
            Text(MARGIN, self._y + 10, fit(label, room, 12), 12, "ink"),
            Text(RIGHT, self._y + 10, said, 11, "muted" if ink == "quiet" else ink, "end"),
        ]
        track = self._y + 18
        self._y += _ROW
        return track

    def _note(self, text: str) -> None:
        self._shapes.append(Text(MARGIN, self._y + 10, fit(text, RIGHT - MARGIN, 11), 11, "muted"))
        self._y += 18

    def _bar(self, y: float, begin: datetime, end: datetime, ink: Ink, *, dashed: bool = False) -> None:
        x = self._axis.place(begin)
        width = max(self._axis.place(end) - x, 3.0)
        x = min(x, _END - width)
        self._shapes.append(
            Rect(
                x, y - _TRACK / 2, width, _TRACK, None if dashed else ink, ink if dashed else None, 2, dashed
            )
        )

    def _rail(self, y: float) -> None:
        """The track of a row, with a tick at each clock. Lines over the whole height would run through the words."""
        self._shapes.append(Rect(_LEFT, y - 1, _END - _LEFT, 2, "surface", radius=1))
        places = dict.fromkeys(round(self._axis.place(at), 1) for _, at in self._clocks.known())
        self._shapes += [Line(x, y - 5, x, y + 5, "line") for x in places]

    def _evidence(self) -> None:
        self._lane("Evidence")
        if not self._incident.proofs:
            self._note("none is stored with this revision")
        for role, (word, ink) in _ROLES.items():
            proofs = [p for p in self._incident.proofs if p.role == role]
            if not proofs:
                continue
            y = self._labels(word, many(sum(p.count for p in proofs), "observation"))
            self._rail(y)
            places: dict[int, list[str]] = {}
            for proof in sorted(proofs, key=lambda p: (p.occurred_at, p.signal_id)):
                places.setdefault(round(self._axis.place(proof.occurred_at) / 7), []).append(
                    f"{clock(proof.occurred_at)} {proof.summary}"
                )
            for place, told in places.items():
                hint = told[0] if len(told) == 1 else f"{told[0]} (and {len(told) - 1} more)"
                radius = 3.5 if len(told) == 1 else 4.5
                x = min(max(place * 7, _LEFT), _END)
                self._shapes.append(Dot(x, y, radius, ink, None, hint))
        self._y += 4

    def _progress(self) -> None:
        if not self._jobs:
            return
        self._lane("Jobs")
        for job in self._jobs:
            self._job(job)
        if self._more_jobs:
            self._note(f"and {many(self._more_jobs, 'more job')}")
        self._y += 4

    def _job(self, job: JobRow) -> None:
        back_ink: Ink = "good" if job.stopped is None or job.back is not None else "bad"
        y = self._labels(job.label, job.said, back_ink if job.stopped or job.last_seen else "muted")
        axis = self._axis
        self._rail(y)
        if job.stopped is None:
            if job.last_seen is not None:
                # What it did between the fault and its last sign of progress is not known.
                self._bar(y, axis.begin, self._incident.fault_at, "good")
                self._bar(y, self._incident.fault_at, job.last_seen, "good", dashed=True)
                self._shapes.append(Dot(axis.place(job.last_seen), y, 3.5, "good", None, job.said))
            return
        if job.stopped > axis.begin:
            self._bar(y, axis.begin, job.stopped, "good")
        self._bar(y, job.stopped, job.back or axis.end, "bad", dashed=True)
        if job.back is not None:
            self._bar(y, job.back, axis.end, "good")
        if job.last_seen is not None and job.last_seen <= job.stopped:
            self._shapes.append(
                Dot(axis.place(job.last_seen), y, 3, "good", None, f"last progress {clock(job.last_seen)}")
            )

    def _decision(self) -> None:
        self._lane("Decision")
        earlier = len(self._runs) - MAX_RUNS
        if earlier > 0:
            self._note(f"{many(earlier, 'earlier run')} not shown")
        for run in self._runs[-MAX_RUNS:]:
            waited = [wait for wait in self._waits if wait.run == run.id]
            ended = run.outcome.value.replace("_", " ") or run.state.value.replace("_", " ")
            label = f"{run.plan.runbook} revision {run.plan.runbook_revision} · {run.plan.mode.value}"
            y = self._labels(label, ended)
            self._rail(y)
            self._bar(y, run.created_at, max(run.created_at, run.finished_at or self._now), "quiet")
            for wait in waited[:MAX_WAITS]:
                self._bar(y, wait.since, max(wait.since, wait.until or self._now), "asking")
            self._shapes.append(Diamond(self._axis.place(run.created_at), y, 5, "info", None, "plan made"))
        if not self._runs:
            self._note("no runbook was run")
        self._y += 4

    def _step_lane(self) -> None:
        if not self._steps:
            return
        self._lane("Steps")
        for row in self._steps:
            self._step(row)
        if self._more_steps:
            self._note(f"and {many(self._more_steps, 'more step')}")
        self._y += 4

    def _step(self, row: StepRow) -> None:
        y = self._labels(row.label, row.said, row.ink)
        self._rail(y)
        if row.begin is None or row.end is None:
            return
        if row.is_moment:
            self._shapes.append(Diamond(self._axis.place(row.begin), y, 4, "paper", row.ink))
            return
        self._bar(y, row.begin, row.end, row.ink, dashed=row.is_open)

    def _person_lane(self) -> None:
        self._lane("People")
        if not self._people:
            self._note("nobody acted, and nobody else was seen to")
            return
        y = self._y + 6
        self._rail(y)
        # Of what stands at the same place, the last counts: a thousand changes by others are no thousand dots.
        for place, person in {round(self._axis.place(one.at) / 5): one for one in self._people}.items():
            hint = f"{clock(person.at)} {person.said}"
            self._shapes.append(Dot(min(max(place * 5, _LEFT), _END), y, 4, person.ink, None, hint))
        self._y += 16
        for person in self._people[-MAX_PEOPLE:]:
            self._shapes.append(Text(MARGIN, self._y + 10, clock(person.at), 11, "muted"))
            self._shapes.append(
                Text(MARGIN + 56, self._y + 10, fit(person.said, RIGHT - MARGIN - 60, 11.5), 11, "ink")
            )
            self._y += 17
        if (more := len(self._people) - MAX_PEOPLE) > 0:
            self._note(f"and {more} before that")

    # -- in words

    def _told(self, marks: Iterable[tuple[str, datetime]]) -> str:
        """What the drawing shows, for whoever does not see it."""
        parts = [
            f"{WORDS[name]} {day_and_clock(at)}"
            if name == "fault"
            else f"{WORDS[name]} {span(at - self._clocks.fault)} later"
            for name, at in marks
        ]
        told = [f"{'; '.join(parts)}."]
        told += [f"Job {job.label}: {job.said}." for job in self._jobs]
        told += [f"{row.label}: {row.said}." for row in self._steps]
        told += [f"{clock(person.at)} {person.said}." for person in self._people[-MAX_PEOPLE:]]
        return " ".join(told)


def _mark_ink(name: str) -> Ink:
    if name == "fault":
        return "bad"
    return "good" if name in ("running", "first_step") else "info"


def _badge(x: float, y: float, text: str, ink: Ink) -> list[Shape]:
    """A number in a small disc, or a pill where it stands for several."""
    width = 16 if len(text) == 1 else 30
    x = min(max(x, width / 2 + 2), WIDTH - width / 2 - 2)
    return [
        Rect(x - width / 2, y - 8, width, 16, "paper", ink, 8),
        Text(x, y + 3.8, text, 10.5, ink, "middle", bold=True),
    ]
