"""What a cluster holds at each moment, by its own order: who worked on a node, whose the node was then, and what was on it.

The store behind an API server numbers all changes of all objects, and a watch tells them with their numbers. So it can be said
without any clock whether a Job came to be before or after a pod was gone or a node was let go. `works_in` is pure; `Witness`
follows a cluster for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Self

from connectors.kubernetes.annotations import (
    EFFECT,
    INCIDENT,
    NODE_WORK,
    WORK_NODE,
    annotations_of,
    labels_of,
)
from connectors.kubernetes.client import Cluster, Object
from streams.model.errors import Temporary
from tests.testbed.waiting import eventually

Kind = Literal["node", "pod", "job", "object"]

WORK: Mapping[str, str] = {"reset_gpu": "reset", "validate_node": "validate", "reboot_node": "reboot"}
"""What a Job for an action does to its node."""

PART = "test.faultline.dev/part"
"""Annotation of the templates of a session: which of its diagnostics a Job is."""


def place_of(job: Object, roles: Mapping[str, str]) -> str | None:
    """What a Job is about, in the names of roles: a node, a diagnostic on it, or a pair of nodes. None for nodes of others."""
    names = annotations_of(job).get(WORK_NODE, "").split(",")
    if not roles.keys() >= set(names):
        return None
    return " ".join(filter(None, ("+".join(roles[name] for name in names), annotations_of(job).get(PART))))


@dataclass(frozen=True, slots=True)
class Sight:
    """One state of an object, from `revision` of the store on; `thing` is None once it is gone."""

    revision: int
    kind: Kind
    uid: str
    thing: Object | None


@dataclass(frozen=True, slots=True)
class Work:
    """A Job that came to be for a node. `verb` is what it does, `thing` what the node is called, `key` the effect's.

    held    the node was closed for the incident when the Job came to be
    let_go  it was not any more at some moment before the work was over: before the Job ended, or the node had booted anew
    over    it was over at last
    pods    what used the node's GPUs when the Job came to be, in the names of roles
    """

    at: datetime
    verb: str
    thing: str
    key: str
    held: bool
    let_go: bool
    over: bool
    pods: tuple[str, ...] = ()


def works_in(sights: Iterable[Sight], incident: str, roles: Mapping[str, str]) -> Iterator[Work]:
    """The Jobs on the nodes that have a role; `roles` has names of nodes and uids of pods."""
    told = sorted(sights, key=lambda sight: sight.revision)
    begun: set[str] = set()
    for number, sight in enumerate(told):
        if sight.kind != "job" or sight.thing is None or sight.uid in begun:
            continue
        begun.add(sight.uid)
        job, marks = sight.thing, annotations_of(sight.thing)
        name, action = marks.get(WORK_NODE, ""), labels_of(job).get(NODE_WORK, "")
        place = place_of(job, roles)
        if place is None or action not in WORK:
            continue
        before = {earlier.uid: earlier for earlier in told[:number]}
        node = next(
            (s.thing for s in before.values() if s.thing and s.thing["metadata"]["name"] == name), None
        )
        held, let_go, over = _is_held(node, incident), False, False
        for later in told[number:]:
            if later.kind == "job" and later.uid == sight.uid and action != "reboot_node":
                over = over or later.thing is None or _has_ended(later.thing)
            elif later.kind == "node" and later.thing and later.thing["metadata"]["name"] == name:
                if action == "reboot_node":
                    over = over or boot_of(later.thing) != boot_of(node)
                let_go = let_go or (not over and not _is_held(later.thing, incident))
        using = [
            roles[s.uid] for s in before.values() if s.kind == "pod" and s.uid in roles and _is_alive(s.thing)
        ]
        at = datetime.fromisoformat(job["metadata"]["creationTimestamp"])
        yield Work(at, WORK[action], place, marks[EFFECT], held, let_go, over, tuple(sorted(using)))


def boot_of(node: Object | None) -> str:
    """The boot that a node reports."""
    return str(((node or {}).get("status") or {}).get("nodeInfo", {}).get("bootID", ""))


def _is_held(node: Object | None, incident: str) -> bool:
    owners = annotations_of(node or {}).get(INCIDENT, "").split(",")
    return node is not None and bool(node["spec"].get("unschedulable")) and incident in owners


def _is_alive(pod: Object | None) -> bool:
    return pod is not None and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def _has_ended(job: Object) -> bool:
    conditions = job.get("status", {}).get("conditions") or []
    return any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in conditions)


@dataclass(frozen=True, slots=True)
class Place:
    """Objects that are followed: a kind, the path of its list, and a label selector."""

    kind: Kind
    path: str
    selector: str


@dataclass
class Witness:
    """Sees every state of the objects at its places. Build it with `watching`."""

    cluster: Cluster
    places: Sequence[Place]
    saw: Callable[[Sight], None]
    """Called with each state as it is seen."""
    sights: list[Sight] = field(default_factory=list)
    _there: dict[Place, dict[str, int]] = field(default_factory=dict)
    _following: list[asyncio.Task[None]] = field(default_factory=list)

    @classmethod
    @asynccontextmanager
    async def watching(
        cls, cluster: Cluster, places: Sequence[Place], saw: Callable[[Sight], None] = lambda sight: None
    ) -> AsyncIterator[Self]:
        """See what is there, and all that comes, until the block ends."""
        witness = cls(cluster, places, saw)
        for place in places:
            witness._there[place] = {}
            pages = [p async for p in cluster.list_pages(place.path, query={"labelSelector": place.selector})]
            for thing in (thing for things, _ in pages for thing in things):
                witness._take(place, thing)
            since = pages[-1][1]
            following = witness._follow(place, since)
            witness._following.append(asyncio.create_task(following, name=f"watch {place.path}"))
        try:
            yield witness
        finally:
            for task in witness._following:
                task.cancel()
            await asyncio.gather(*witness._following, return_exceptions=True)

    async def catch_up(self) -> None:
        """Wait until nothing is there, or gone, that has not been seen.

        Raises:
            Temporary: a watch was cut or has ended; what came since is not known.
        """

        async def nothing_is_new() -> bool:
            for task in self._following:
                if task.done():
                    task.result()
                    raise Temporary(f"{task.get_name()} has ended")
            for place in self.places:
                listed = await self.cluster.list_all(place.path, query={"labelSelector": place.selector})
                there = {t["metadata"]["uid"]: int(t["metadata"]["resourceVersion"]) for t in listed}
                if there != self._there[place]:
                    return False
            return True

        await eventually(nothing_is_new, "all of it is seen")

    async def _follow(self, place: Place, since: str) -> None:
        events = self.cluster.watch(place.path, since, query={"labelSelector": place.selector})
        async for event in events:
            if event["type"] != "BOOKMARK":
                self._take(place, event["object"], gone=event["type"] == "DELETED")

    def _take(self, place: Place, thing: Object, *, gone: bool = False) -> None:
        about, there = thing["metadata"], self._there[place]
        revision, uid = int(about["resourceVersion"]), str(about["uid"])
        if gone:
            there.pop(uid, None)
        else:
            there[uid] = revision
        sight = Sight(revision, place.kind, uid, None if gone else thing)
        self.sights.append(sight)
        self.saw(sight)
