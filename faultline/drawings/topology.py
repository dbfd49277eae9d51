"""Where an incident is: the leaf or rack, the nodes on it, the faulty part, and the jobs that were hit.

What has a name is drawn with it while there is room; beyond that, victims become small squares with a count, and groups become
one line each. So forty nodes are read by name, and a thousand at a glance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from faultline.drawings.places import UNKNOWN, Group, beside, gpus_of, groups_of
from faultline.drawings.render import svg_of
from faultline.drawings.shapes import MARGIN, RIGHT, Dot, Drawing, Ink, Line, Rect, Shape, Text
from faultline.drawings.words import BOLD, fit_middle, width_of
from streams.model.counted import many
from streams.model.facts import NodeFact
from streams.model.incident import Incident

MAX_NAMED = 48
"""Up to this many victims are drawn by name, over all groups."""
MAX_FRAMES = 8
"""Groups that get a frame of their own; further ones get a line."""
MAX_LINES = 12
MAX_SQUARES = 96
"""Small squares in one group; the count beside them says how many nodes there are."""
MAX_JOBS = 8
_COLUMNS = 4
_INSET = 10
_CELL = 22
_TAG = 78
"""Width of the words that mark the culprit."""


def topology_svg(incident: Incident, nodes: Mapping[str, NodeFact]) -> str:
    """Where the incident is, as an SVG element. Pure: the same documents give the same text.

    Args:
        incident: Its latest revision.
        nodes: The nodes of its cluster by name, as the inventory shows them; those it does not know are drawn as unknown.
    """
    return svg_of(_Layout(incident, nodes).drawing())


class _Layout:
    """Places frames from top to bottom. `y` is where the next one begins."""

    def __init__(self, incident: Incident, nodes: Mapping[str, NodeFact]) -> None:
        self._incident, self._nodes = incident, nodes
        self._groups = groups_of(incident, nodes)
        self._shapes: list[Shape] = []
        self._trunk: list[float] = []
        """Heights at which something hangs on the trunk at the left."""
        self._y = 6.0

    def drawing(self) -> Drawing:
        """All of it."""
        victims = sum(len(group.victims) for group in self._groups)
        named = victims <= MAX_NAMED
        self._cluster()
        if (root := beside(self._incident.root)) and not any(group.is_root for group in self._groups):
            self._root_alone(root)
        for group in self._groups[:MAX_FRAMES]:
            self._frame(group, named=named)
        self._further(self._groups[MAX_FRAMES:])
        if not self._groups:
            self._note("no node is named")
        self._jobs()
        top = [Line(MARGIN + 6, self._trunk[0], MARGIN + 6, self._trunk[-1], "quiet")] if self._trunk else []
        title = f"Where {self._incident.id} is: {self._incident.title}"
        shapes = (*top, *self._shapes)
        return Drawing(f"topology {self._incident.id}", title, self._told(), self._y + 4, shapes)

    # -- from the top

    def _cluster(self) -> None:
        name = fit_middle(f"cluster {self._incident.cluster}", 200, 12)
        self._shapes += [
            Dot(MARGIN + 6, self._y + 7, 4, "quiet"),
            Text(MARGIN + 18, self._y + 11, name, 12, "ink", bold=True),
            Text(RIGHT, self._y + 11, self._counts(), 11, "muted", "end"),
        ]
        self._trunk.append(self._y + 7)
        self._y += 24

    def _counts(self) -> str:
        parts = [many(sum(group.size for group in self._groups), "node")]
        if gpus := self._incident.impact.gpus:
            parts.append(f"{gpus:,} GPUs idle" if not self._incident.state.is_over else f"{gpus:,} GPUs")
        if jobs := len(self._incident.jobs):
            parts.append(many(jobs, "job"))
        return " · ".join(parts)

    def _root_alone(self, name: str) -> None:
        """A root cause that stands above the nodes: a switch, a power feed, a storage."""
        begin = self._begin(30, culprit=True)
        self._shapes += [
            Text(
                begin + _INSET,
                self._y + 19,
                fit_middle(name, RIGHT - begin - _INSET * 2 - 74, 12.5),
                12.5,
                "bad",
                bold=True,
            ),
            *_tag(RIGHT - _INSET, self._y + 15),
        ]
        self._y += 40

    def _begin(self, height: float, *, culprit: bool = False) -> float:
        """A frame at the trunk; returns its left edge."""
        left = MARGIN + 20
        self._shapes += [
            Line(MARGIN + 6, self._y + 15, left, self._y + 15, "quiet"),
            Rect(
                left,
                self._y,
                RIGHT - left,
                height,
                "bad-soft" if culprit else "surface",
                "bad" if culprit else "line",
                6,
            ),
        ]
        self._trunk.append(self._y + 15)
        return left

    # -- one leaf or rack

    def _frame(self, group: Group, *, named: bool) -> None:
        victims = group.victims
        rows = -(-len(victims) // _COLUMNS) if named else 0
        squares = 0 if named else min(len(victims), MAX_SQUARES)
        across = 24
        height = 30.0 + (46 if group.culprit else 0) + rows * (_CELL + 4)
        height += -(-squares // across) * 14 + (8 if victims else 0) + (4 if group.is_root else 0)
        left = self._begin(height)
        if group.is_root:
            self._shapes.append(Rect(left, self._y, RIGHT - left, 30, "bad-soft", "bad", 6))
        self._heading(group, left)
        y = self._y + (36 if group.is_root else 32)
        if group.culprit:
            self._culprit(group.culprit, left + _INSET, y)
            y += 46
        if named:
            self._cells(victims, left + _INSET, y)
        else:
            self._squares(squares, left + _INSET, y, across)
        self._y += height + 10

    def _heading(self, group: Group, left: float) -> None:
        said = many(group.size, "node")
        if group.racks:
            said = f"{group.racks} · {said}"
        if group.is_root and (port := self._incident.root.port):
            said = f"port {port} · {said}"
        right = RIGHT - _INSET
        if group.is_root:
            self._shapes += _tag(right, self._y + 15)
            right -= _TAG + 8
        said = fit_middle(said, 170, 11)
        name = _name(group)
        room = right - left - _INSET - width_of(said, 11) - 10
        ink: Ink = "bad" if group.is_root else "ink" if group.kind else "muted"
        self._shapes += [
            Text(left + _INSET, self._y + 19, fit_middle(name, room / BOLD, 12), 12, ink, bold=True),
            Text(right, self._y + 19, said, 11, "muted", "end"),
        ]

    def _culprit(self, name: str, left: float, y: float) -> None:
        """The node of the root cause with its GPUs, the faulty one among them marked."""
        incident = self._incident
        right = RIGHT - _INSET
        total, index = gpus_of(incident, self._nodes.get(name))
        part = _part(incident)
        self._shapes += [
            Rect(left, y, right - left, 40, "bad-soft", "bad", 5),
            Text(left + 8, y + 16, fit_middle(name, 160, 12.5), 12.5, "bad", bold=True),
            *_tag(right - 8, y + 12),
        ]
        # Without its index, which of the squares the GPU is cannot be said: then none is marked.
        places = min(total, 16)
        begin = right - 8 - places * 13
        for number in range(places):
            is_faulty = number == index
            self._shapes.append(
                Rect(
                    begin + number * 13, y + 24, 10, 10, "bad" if is_faulty else "paper",
                    "bad" if is_faulty else "quiet", 2, hint=f"GPU {number}",
                )
            )  # fmt: skip
        text = part or ("the node itself" if total else "the node itself; its GPUs are not known")
        room = begin - left - 16 if places else right - left - 16
        self._shapes.append(Text(left + 8, y + 32, fit_middle(text, room, 11), 11, "ink"))

    def _cells(self, victims: Sequence[str], left: float, y: float) -> None:
        room = (RIGHT - _INSET - left + 4) / _COLUMNS
        for number, name in enumerate(victims):
            x, top = left + number % _COLUMNS * room, y + number // _COLUMNS * (_CELL + 4)
            known = name in self._nodes
            self._shapes += [
                Rect(x, top, room - 4, _CELL, "paper", "line" if known else "quiet", 4, not known, hint=name),
                Text(x + 6, top + 15, fit_middle(name, room - 15, 11), 11, "ink" if known else "muted"),
            ]

    def _squares(self, squares: int, left: float, y: float, across: int) -> None:
        for number in range(squares):
            x, top = left + number % across * 15, y + number // across * 14
            self._shapes.append(Rect(x, top, 10, 10, "quiet", radius=2))

    def _further(self, groups: Sequence[Group]) -> None:
        """Groups without a frame: a line each, and the last ones together."""
        shown, rest = groups[:MAX_LINES], groups[MAX_LINES:]
        for group in shown:
            self._line(_name(group), many(group.size, "node"))
        if rest:
            self._line(
                f"and {many(len(rest), 'more place')}", many(sum(group.size for group in rest), "node")
            )
        if groups:
            self._y += 6

    def _line(self, name: str, said: str) -> None:
        left = MARGIN + 20
        self._shapes += [
            Line(MARGIN + 6, self._y + 9, left, self._y + 9, "quiet"),
            Text(left + 6, self._y + 13, fit_middle(name, 250, 11.5), 11.5, "ink"),
            Text(RIGHT - _INSET, self._y + 13, said, 11, "muted", "end"),
        ]
        self._trunk.append(self._y + 9)
        self._y += 20

    # -- the jobs

    def _jobs(self) -> None:
        jobs = self._incident.jobs
        self._shapes.append(Text(MARGIN, self._y + 14, _jobs_heading(self._incident), 11, "muted", bold=True))
        self._y += 22
        if not jobs:
            self._note("none is named")
            return
        x, y = float(MARGIN), self._y
        for name in [
            *map(str, jobs[:MAX_JOBS]),
            *([f"+{len(jobs) - MAX_JOBS} more"] * (len(jobs) > MAX_JOBS)),
        ]:
            text = fit_middle(name, RIGHT - MARGIN - 20, 11)
            width = width_of(text, 11) + 18
            if x + width > RIGHT and x > MARGIN:
                x, y = float(MARGIN), y + 26
            is_root = self._incident.root.kind == "job" and name == str(self._incident.root.job)
            self._shapes += [
                Rect(x, y, width, 21, "bad-soft" if is_root else "paper", "bad" if is_root else "active", 10),
                Text(x + 9, y + 14.5, text, 11, "bad" if is_root else "ink"),
            ]
            x += width + 6
        self._y = y + 27

    def _note(self, text: str) -> None:
        self._shapes.append(Text(MARGIN + 20, self._y + 10, text, 11, "muted"))
        self._y += 20

    # -- in words

    def _told(self) -> str:
        """What the drawing shows, for whoever does not see it."""
        told = [f"Root cause: {self._incident.root}."]
        for group in self._groups[:MAX_FRAMES]:
            name = _name(group)
            names = ", ".join(group.victims[:8])
            more = f" and {len(group.victims) - 8} more" if len(group.victims) > 8 else ""
            who = f"{group.culprit} is the culprit; " if group.culprit else ""
            told.append(
                f"{name[:1].upper()}{name[1:]}: {who}{many(len(group.victims), 'victim')}"
                + (f": {names}{more}." if names else ".")
            )
        if rest := self._groups[MAX_FRAMES:]:
            told.append(f"{many(len(rest), 'more place')}, {many(sum(g.size for g in rest), 'node')}.")
        jobs = self._incident.jobs
        names = ", ".join(map(str, jobs[:MAX_JOBS]))
        told.append(f"{_jobs_heading(self._incident)}: {names}." if jobs else "No job is named.")
        return " ".join(told)


def _part(incident: Incident) -> str:
    """The faulty part of the culprit's node; empty where it is the node itself."""
    root = incident.root
    if root.gpu is not None:
        return f"GPU {root.gpu.key}"
    if root.nic is not None:
        link = f" → {root.switch} {root.port or ''}".rstrip() if root.switch else ""
        return f"NIC {root.nic}{link}"
    return ""


def _name(group: Group) -> str:
    """`leaf leaf-01` would say it twice."""
    if not group.kind:
        return UNKNOWN
    kind = group.kind.replace("-", " ")
    return group.name if group.name.lower().startswith(kind) else f"{kind} {group.name}"


def _jobs_heading(incident: Incident) -> str:
    return f"{many(len(incident.jobs), 'job')} affected" if incident.jobs else "Jobs"


def _tag(right: float, middle: float) -> list[Shape]:
    """The words that mark the culprit, at the right end of its row."""
    return [
        Rect(right - _TAG, middle - 8, _TAG, 16, "bad", radius=8),
        Text(right - _TAG / 2, middle + 3.5, "root cause", 10, "paper", "middle", bold=True),
    ]
