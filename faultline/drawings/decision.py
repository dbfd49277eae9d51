"""A decision: the evidence in the order of time, the culprit, the victims by what joins them to it, and what was rejected.

A dozen lines of evidence and a few names of each kind of victim are drawn; of more there is a count, and small squares up to a
bound. So two thousand victims are one picture of a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from faultline.drawings.milestones import WORDS, milestones
from faultline.drawings.places import natural
from faultline.drawings.render import svg_of
from faultline.drawings.shapes import MARGIN, RIGHT, Diamond, Dot, Drawing, Ink, Line, Rect, Shape, Text
from faultline.drawings.ties import TieKind, tie_of_job, tie_of_node
from faultline.drawings.words import clock, fit, fit_middle, span
from streams.model.counted import many
from streams.model.facts import NodeFact
from streams.model.incident import Candidate, Incident, Proof
from streams.model.run import Run

MAX_PROOFS = 12
MAX_NAMED = 8
"""Victims of one kind of tie that are drawn by name; of more there are squares and a count."""
MAX_SQUARES = 96
MAX_REJECTED = 6
_RAIL = MARGIN + 64
"""Where the line of time runs; the clock stands left of it."""
_COLUMNS, _ACROSS = 4, 24
_SAID: Mapping[TieKind, str] = {
    "rank": "by a rank that waits or fails",
    "port": "by a port that is paused or lost",
    "switch": "by the switch",
    "rack": "by the rack",
    "part": "by a part that they share",
    "storage": "by storage that they do not reach",
    "job": "by a job only",
    "named": "named by the evidence",
}
_INKS: Mapping[str, tuple[Ink, str]] = {
    "cause": ("bad", "evidence"),
    "context": ("quiet", "context"),
    "symptom": ("active", "symptom"),
}


def decision_svg(incident: Incident, runs: Sequence[Run], nodes: Mapping[str, NodeFact]) -> str:
    """How an incident was decided, as an SVG element. Pure: the same documents give the same text.

    Args:
        incident: Its latest revision.
        runs: Its runs; they tell when it was decided what to do.
        nodes: The nodes of its cluster by name, as the inventory shows them.
    """
    return svg_of(_Layout(incident, runs, nodes).drawing())


class _Layout:
    """Draws from top to bottom. `y` is where the next row begins."""

    def __init__(self, incident: Incident, runs: Sequence[Run], nodes: Mapping[str, NodeFact]) -> None:
        self._incident, self._runs = incident, runs
        self._victims = _victims(incident, nodes)
        self._rejected = [one for one in incident.candidates if not one.chosen]
        self._shapes: list[Shape] = []
        self._y = 8.0

    def drawing(self) -> Drawing:
        """All of it."""
        self._evidence()
        self._root()
        self._all_victims()
        self._all_rejected()
        title = f"How {self._incident.id} was decided: {self._incident.title}"
        return Drawing(f"decision {self._incident.id}", title, self._told(), self._y + 4, tuple(self._shapes))

    # -- what was seen, in time order

    def _evidence(self) -> None:
        self._heading("Evidence, in the order of time")
        proofs = sorted(self._incident.proofs, key=lambda p: (p.occurred_at, p.signal_id))
        # The first of each role go before more of any: what the root rests on must not be cut for its symptoms.
        kept = sorted(_chosen(proofs), key=lambda p: (p.occurred_at, p.signal_id))
        moments = [
            (at, WORDS[name])
            for name, at in milestones(self._incident, self._runs).known()
            if name in ("fault", "noticed", "decided")
        ]
        rows: list[tuple[datetime, Proof | str]] = [*moments, *((proof.occurred_at, proof) for proof in kept)]
        first = self._y
        for at, row in sorted(
            rows, key=lambda entry: entry[0]
        ):  # of one moment: as they are, clocks in their order
            self._moment(at, row)
        self._shapes.insert(1, Line(_RAIL, first + 4, _RAIL, self._y - 8, "line", 2))
        if (more := len(proofs) - len(kept)) > 0:
            self._shapes.append(Text(_RAIL + 12, self._y + 10, f"and {many(more, 'more line')}", 11, "muted"))
            self._y += 18
        self._y += 6

    def _moment(self, at: datetime, row: Proof | str) -> None:
        y = self._y + 10
        self._shapes.append(Text(_RAIL - 10, y + 3.5, clock(at), 10.5, "muted", "end"))
        if isinstance(row, str):
            self._shapes += [
                Diamond(_RAIL, y, 5, "ink"),
                Text(_RAIL + 12, y + 3.5, row, 11, "ink", bold=True),
            ]
        else:
            ink, role = _INKS.get(row.role, ("quiet", row.role))
            count = f" ×{row.count}" if row.count > 1 else ""
            said = fit(f"{row.summary}{count}", RIGHT - _RAIL - 70, 11)
            self._shapes += [
                Dot(_RAIL, y, 4, ink, hint=row.summary),
                Text(_RAIL + 12, y + 3.5, said, 11, "ink"),
                Text(RIGHT, y + 3.5, role, 10, "muted", "end"),
            ]
        self._y += 20

    # -- the culprit

    def _root(self) -> None:
        incident = self._incident
        rule = next((one.rule for one in incident.candidates if one.chosen), "")
        self._shapes += [
            Rect(MARGIN, self._y, RIGHT - MARGIN, 44, "bad-soft", "bad", 6),
            Text(
                MARGIN + 10,
                self._y + 18,
                fit_middle(incident.root, RIGHT - MARGIN - 110, 12.5),
                12.5,
                "bad",
                bold=True,
            ),
            Rect(RIGHT - 88, self._y + 7, 78, 16, "bad", radius=8),
            Text(RIGHT - 49, self._y + 18.5, "root cause", 10, "paper", "middle", bold=True),
            Text(
                MARGIN + 10,
                self._y + 35,
                fit(
                    f"{incident.family}, {incident.certainty.value}" + (f", by {rule}" if rule else ""),
                    RIGHT - MARGIN - 20,
                    11,
                ),
                11,
                "ink",
            ),
        ]
        self._y += 52

    # -- who hangs on it

    def _all_victims(self) -> None:
        top = self._y - 8
        trunk: list[float] = []
        for (kind, what), names in self._victims.items():
            trunk.append(self._y + 9)
            self._shapes += [
                Line(MARGIN + 10, self._y + 9, MARGIN + 24, self._y + 9, "quiet"),
                Text(MARGIN + 30, self._y + 13, _said(kind, what), 11.5, "ink", bold=True),
                Text(RIGHT, self._y + 13, many(len(names), what), 11, "muted", "end"),
            ]
            self._y += 20
            self._names(names)
        if trunk:
            self._shapes.append(Line(MARGIN + 10, top, MARGIN + 10, trunk[-1], "quiet"))
            self._y += 4

    def _names(self, names: Sequence[str]) -> None:
        left = MARGIN + 30
        if len(names) > MAX_NAMED:
            squares = min(len(names), MAX_SQUARES)
            for number in range(squares):
                column, row = number % _ACROSS, number // _ACROSS
                self._shapes.append(Rect(left + column * 15, self._y + row * 14, 10, 10, "quiet", radius=2))
            self._y += -(-squares // _ACROSS) * 14 + 8
            return
        room = (RIGHT - left + 4) / _COLUMNS
        for number, name in enumerate(names):
            x, y = left + number % _COLUMNS * room, self._y + number // _COLUMNS * 24
            self._shapes += [
                Rect(x, y, room - 4, 20, "paper", "line", 4, hint=name),
                Text(x + 5, y + 14, fit_middle(name, room - 14, 10.5), 10.5, "ink"),
            ]
        self._y += -(-len(names) // _COLUMNS) * 24 + 4

    # -- what it was not

    def _all_rejected(self) -> None:
        if not self._rejected:
            return
        self._heading("Weighed and rejected")
        for one in self._rejected[:MAX_REJECTED]:
            said = f"{one.entity} as {one.family}"
            reason = f"{one.rule}: {one.reason}"
            self._shapes += [
                Rect(MARGIN, self._y, RIGHT - MARGIN, 36, "surface", "quiet", 6, True, hint=_lacked(one)),
                Text(MARGIN + 10, self._y + 15, fit_middle(said, RIGHT - MARGIN - 20, 11), 11, "muted"),
                Text(MARGIN + 10, self._y + 29, fit(reason, RIGHT - MARGIN - 20, 10.5), 10.5, "muted"),
            ]
            self._y += 42
        if (more := len(self._rejected) - MAX_REJECTED) > 0:
            self._shapes.append(Text(MARGIN + 10, self._y + 10, f"and {many(more, 'more')}", 11, "muted"))
            self._y += 18

    def _heading(self, text: str) -> None:
        self._shapes.append(Text(MARGIN, self._y + 12, text, 12, "ink", bold=True))
        self._y += 22

    # -- in words

    def _told(self) -> str:
        """What the drawing shows, for whoever does not see it."""
        incident = self._incident
        told = [f"Root cause: {incident.root}, {incident.family}, {incident.certainty.value}."]
        delay = span(incident.detection_delay)
        told.append(f"{many(len(incident.proofs), 'line')} of evidence; opened {delay} after the fault.")
        for (kind, what), names in self._victims.items():
            told.append(f"{many(len(names), what)} {_said(kind, what)}: {', '.join(names[:MAX_NAMED])}.")
        for one in self._rejected[:MAX_REJECTED]:
            told.append(f"Rejected: {one.entity} as {one.family}, {one.reason}.")
        return " ".join(told)


def _chosen(proofs: Sequence[Proof]) -> list[Proof]:
    """At most `MAX_PROOFS`, in turns of their roles."""
    by_role: dict[str, list[Proof]] = {"cause": [], "symptom": [], "context": []}
    for proof in proofs:
        by_role.setdefault(proof.role, []).append(proof)
    longest = max((len(found) for found in by_role.values()), default=0)
    turns = [found[number] for number in range(longest) for found in by_role.values() if number < len(found)]
    return turns[:MAX_PROOFS]


def _victims(incident: Incident, nodes: Mapping[str, NodeFact]) -> dict[tuple[TieKind, str], list[str]]:
    """Names of jobs and nodes by what joins them to the root, the closest ties first."""
    found: dict[tuple[TieKind, str], list[str]] = {}
    for job in incident.jobs:
        found.setdefault((tie_of_job(job, incident).kind, "job"), []).append(str(job))
    for node in incident.nodes:
        found.setdefault((tie_of_node(node, incident, nodes).kind, "node"), []).append(node)
    order = list(_SAID)
    kept = {key: sorted(names, key=natural) for key, names in found.items() if key[0] in order}
    return dict(sorted(kept.items(), key=lambda entry: (order.index(entry[0][0]), entry[0][1])))


def _said(kind: TieKind, what: str) -> str:
    return "by pods on its nodes" if (kind, what) == ("job", "job") else _SAID[kind]


def _lacked(one: Candidate) -> str:
    return f"would have convinced: {one.needs}" if one.needs else one.reason
