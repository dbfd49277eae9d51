"""All that is known of one incident afterwards: what the journal said at each commit, and what arrived outside, and when.

`Touch` is a request that was to change something, seen from the side that got it: the API server's audit log, or the proxy in
front of the ticket system.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from connectors.jobs.suspension import RESUMED, SUSPENDED
from connectors.kubernetes.annotations import EFFECT, NODE_WORK, POWER, WORK_NODE, annotations_of, labels_of
from connectors.kubernetes.spares import RELEASED_BY, TAKES_PLACE_BY
from streams.model.conversation import TimelineEntry
from streams.model.run import EffectRecord, PlannedStep, Run, StepRecord
from tests.crash_matrix.witness import WORK, Work, place_of
from tests.testbed.audit import Write

_LABEL = re.compile(r"faultline-([0-9a-f]{32})")


@dataclass(frozen=True, slots=True)
class Version:
    """A run as it was committed; `at` is when the record was sent, so its commit came later."""

    at: datetime
    run: Run


@dataclass(frozen=True, slots=True)
class Touch:
    """One request that was to change something.

    `verb` is one of `VERBS`; `thing` is what it was about, as the other side names it (node, job, pod uid, issue);
    `key` is the effect key that it bears, empty where it bears none; `applied` says whether the other side did it.
    """

    at: datetime
    verb: str
    thing: str
    key: str = ""
    applied: bool = True


@dataclass(frozen=True, slots=True)
class Start:
    """The moment at which a responder was allowed to send a request, by its own trace: right before it left."""

    at: datetime
    action: str
    undo: bool
    key: str


VERBS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "cordon": (("cordon_node", "effect"),),
    "release": (("uncordon_node", "effect"), ("cordon_node", "undo")),
    "evict": (("drain_node", "effect"), ("suspend_job", "effect")),
    "suspend": (("suspend_job", "effect"),),
    "resume": (("resume_job", "effect"),),
    "take back": (("suspend_job", "undo"),),
    "free": (("resume_job", "effect"), ("suspend_job", "undo")),
    "open": (("open_ticket", "effect"),),
    "comment": (("comment_ticket", "effect"), ("close_ticket", "effect")),
    "close": (("close_ticket", "effect"),),
    "reset": (("reset_gpu", "effect"),),
    "validate": (("validate_node", "effect"),),
    "reboot": (("reboot_node", "effect"),),
    "give": (("release_spare", "effect"),),
    "fill": (("return_spare", "effect"),),
    "let go": (("return_spare", "effect"), ("release_spare", "undo")),
    "ask": (("apply_template", "effect"),),
    "take off": (("apply_template", "undo"),),
    "replace": (("replace_node", "effect"),),
    "measure": (("diagnose_nodes", "effect"),),
    "power": (("power_cycle_node", "effect"),),
}
"""What a request does, and what the journal may have meant by it: an action, and whether to do or to undo it."""


MEASURED: Mapping[str, str] = {"diagnose_nodes": "measure"}
"""Work on nodes that need not be closed for it."""


def meant(planned: PlannedStep, name: str) -> tuple[str, str]:
    """What the row `effect` or `undo` of a step asks of a connector: an action, and whether to do or to undo it.

    A compensation takes a step back by doing something.
    """
    if name == "undo" and planned.compensation is not None:
        return planned.compensation.action, "effect"
    return planned.action, name


@dataclass(frozen=True, slots=True)
class History:
    """One incident from its first commit to its end. `end` is how everything stands afterwards, in names of roles."""

    versions: tuple[Version, ...]
    touches: tuple[Touch, ...]
    timeline: tuple[TimelineEntry, ...]
    reports: tuple[str, ...]
    """Kinds of the `run.*` signals, in their order."""
    starts: tuple[Start, ...]
    end: Mapping[str, Any]
    works: tuple[Work, ...] = ()
    """The Jobs that came to be on the nodes, as the cluster saw them."""
    earlier: tuple[Version, ...] = ()
    """The runs of the incident that came before, where a person took one up again: `versions` are those of the last run."""

    @property
    def journal(self) -> tuple[Version, ...]:
        """All runs of the incident as committed."""
        return (*self.earlier, *self.versions)

    @property
    def last(self) -> Run:
        """The run as it stands at the end."""
        return self.versions[-1].run


def rows_for(run: Run, touch: Touch) -> Iterator[tuple[StepRecord, str, EffectRecord | None]]:
    """The rows of one version of the run that a request may belong to: the step, `effect` or `undo`, and the row."""
    for planned in run.plan.steps:
        record = run.step(planned.id)
        for name in ("effect", "undo"):
            row: EffectRecord | None = getattr(record, name)
            same_key = not touch.key or row is None or row.key == touch.key
            if meant(planned, name) in VERBS[touch.verb] and same_key:
                yield record, name, row


def node_touches(writes: Sequence[Write], nodes: Mapping[str, str]) -> Iterator[Touch]:
    """Requests about nodes and their pods; `nodes` maps the names of nodes and the uids of pods to what they are called."""
    for write in writes:
        body, done = write.body or {}, write.code in (200, 201)
        if write.resource == "nodes" and write.name in nodes:
            marks = (body.get("metadata") or {}).get("annotations") or {}
            if POWER in marks and EFFECT not in marks:
                continue  # says that a BMC is about to be asked
            verb, mark = _of_node(marks)
            yield Touch(write.at, verb, nodes[write.name], marks.get(mark) or "", done)
        elif write.subresource == "eviction":
            uid = body["deleteOptions"]["preconditions"]["uid"]
            if uid in nodes:
                yield Touch(write.at, "evict", nodes[uid], "", done)


def _of_node(marks: Mapping[str, str | None]) -> tuple[str, str]:
    """What a patch of a node that writes these annotations does, and the annotation with its key."""
    if TAKES_PLACE_BY in marks:
        return "fill", TAKES_PLACE_BY
    if RELEASED_BY in marks:
        return ("give" if marks[RELEASED_BY] else "let go"), RELEASED_BY
    return ("cordon" if marks.get(EFFECT) else "release"), EFFECT


def job_touches(writes: Sequence[Write], jobs: Mapping[tuple[str, str], str]) -> Iterator[Touch]:
    """Requests about jobs; `jobs` maps namespace and name to what they are called."""
    for write in writes:
        if (
            write.resource not in ("jobs", "pytorchjobs", "leaderworkersets")
            or (write.namespace, write.name) not in jobs
        ):
            continue
        marks = ((write.body or {}).get("metadata") or {}).get("annotations") or {}
        name, done = jobs[write.namespace, write.name], write.code == 200
        if key := marks.get(SUSPENDED):
            yield Touch(write.at, "suspend", name, key, done)
        elif key := marks.get(RESUMED):
            yield Touch(write.at, "resume", name, key, done)
        else:
            yield Touch(write.at, "take back", name, "", done)


def work_touches(writes: Sequence[Write], nodes: Mapping[str, str]) -> Iterator[Touch]:
    """Requests for Jobs that are to work on nodes; `nodes` maps their names to what they are called."""
    for write in writes:
        action = labels_of(write.body or {}).get(NODE_WORK)
        if write.resource != "jobs" or write.verb != "create" or action is None:
            continue
        place = place_of(write.body or {}, nodes)
        if place is not None:
            key = annotations_of(write.body or {})[EFFECT]
            yield Touch(write.at, {**WORK, **MEASURED}[action], place, key, write.code == 201)


def object_touches(writes: Sequence[Write], nodes: Mapping[str, str], claim: str) -> Iterator[Touch]:
    """Requests for what other controllers are to do; `claim` is the machine of the bad node."""
    about: dict[str, str] = {}
    for write in writes:
        if write.resource == "maintenancerequests" and write.verb == "create":
            body = write.body or {}
            if (node := annotations_of(body).get(WORK_NODE, "")) in nodes:
                about[body["metadata"]["name"]] = nodes[node]
                yield Touch(write.at, "ask", nodes[node], annotations_of(body)[EFFECT], write.code == 201)
        elif write.resource == "maintenancerequests" and write.name in about:
            yield Touch(write.at, "take off", about[write.name], "", write.code == 200)
        elif write.resource == "nodeclaims" and write.name == claim:
            yield Touch(write.at, "replace", "bad", "", write.code == 200)


def power_touches(requests: Sequence[Arrived]) -> Iterator[Touch]:
    """Requests to the BMC of the bad node."""
    for request in requests:
        yield Touch(request.at, "power", "bad", "", request.served in (200, 202, 204))


@dataclass(frozen=True, slots=True)
class Arrived:
    """A request over HTTP that was to change something."""

    at: datetime
    method: str
    path: str
    body: bytes
    served: int | None
    """What the other side answered; None where it never got the request."""


def ticket_touches(requests: Sequence[Arrived], incident: str, issues: Mapping[str, str]) -> Iterator[Touch]:
    """Requests about an incident's tickets; `issues` maps the ids of its issues to what they are called."""
    for request in requests:
        text, done = request.body.decode(), request.served in (200, 201, 204)
        keys = _LABEL.findall(text)
        path = request.path.partition("?")[0].split("/rest/api/3/issue")[1].strip("/").split("/")
        if path == [""]:
            if incident in text:
                yield Touch(request.at, "open", "ticket", keys[0] if keys else "", done)
        elif path[0] not in issues:
            continue
        elif path[-1] == "comment":
            yield Touch(request.at, "comment", issues[path[0]], keys[-1] if keys else "", done)
        elif path[-1] == "transitions":
            yield Touch(request.at, "close", issues[path[0]], "", done)
        else:
            raise ValueError(f"a request of a kind that nobody should send: {request.method} {request.path}")


def starts_in(trace: Path, keys: Callable[[str], bool]) -> Iterator[Start]:
    """The starts of requests that a responder's trace tells of, for the effects whose key `keys` takes."""
    with trace.open() as lines:
        for line in lines:
            when, _, label, *about = line.split()
            name, _, point = label.partition(":")
            if point == "before_request" and about and keys(about[0]):
                undo = name.startswith("undo_")
                at = datetime.fromtimestamp(float(when), UTC)
                yield Start(at, name.removeprefix("undo_"), undo, about[0])


def told(history: History) -> str:
    """For people who look at a case that went wrong: everything in the order of time."""
    lines = [(v.at, f"committed revision {v.run.revision}: {_states(v.run)}") for v in history.journal]
    lines += [
        (t.at, f"request {t.verb} {t.thing} {t.key[:8]} {'applied' if t.applied else 'not applied'}")
        for t in history.touches
    ]
    lines += [(s.at, f"may send {'undo ' * s.undo}{s.action} {s.key[:8]}") for s in history.starts]
    lines += [(w.at, f"the cluster has it: {w}") for w in history.works]
    lines += [(e.at, f"said {e.event}: {e.text}") for e in history.timeline]
    shown = [f"{at:%H:%M:%S.%f} {text}" for at, text in sorted(lines, key=lambda line: line[0])]
    return "\n".join([*shown, f"end {json.dumps(history.end, default=str)}"])


def _states(run: Run) -> str:
    def row(name: str, effect: EffectRecord | None) -> str:
        return f" {name} {effect.state} until {effect.lease_until:%H:%M:%S}" if effect else ""

    steps = [f"{r.id} {r.state}{row('effect', r.effect)}{row('undo', r.undo)}" for r in run.steps]
    return f"{run.state} [" + "; ".join(steps) + "]"
