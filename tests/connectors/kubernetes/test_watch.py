"""List and watch against a scripted API server: bookmarks, 410, cuts, missing kinds, outages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
import structlog
from aiohttp import web

from connectors.kubernetes.client import Cluster
from connectors.kubernetes.watch import Backoff, KindWatches, WatchPace, versions_of
from streams.model.watch import KindListed, ObjectChange, WatchEvent
from tests.connectors.kubernetes.api_server import answer, document, serving
from tests.testbed.waiting import eventually

CUT = b"cut"


def node(name: str, version: str = "1") -> dict[str, Any]:
    return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name, "resourceVersion": version}}


def modified(name: str, version: str) -> dict[str, Any]:
    return {"type": "MODIFIED", "object": node(name, version)}


@dataclass
class Server:
    """Answers each list by the next of `lists` (the last stays), each watch by the next of `watches`; then it hangs.

    A watch's script holds events, bytes written as they are, and `CUT`, which cuts the connection.
    """

    lists: list[list[str]] = field(default_factory=lambda: [["a"]])
    watches: list[Sequence[dict[str, Any] | bytes]] = field(default_factory=list)
    watched_from: list[str] = field(default_factory=list)
    listed: int = 0
    failing: bool = False
    failed: int = 0
    unserved: bool = False
    forbidden: int | None = None
    version: str = "v1"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if self.failing:
            self.failed += 1
            return answer(503, "ServiceUnavailable")
        if request.path == "/api/v1":
            served = [] if self.unserved else [{"name": "nodes", "kind": "Node", "namespaced": False}]
            return document({"resources": served})
        if request.path.startswith("/apis/example.com/"):
            if request.path.split("/")[3] != self.version:
                return answer(404, "NotFound")
            if request.path == f"/apis/example.com/{self.version}":
                kind = {"name": "trainings", "kind": "Training", "namespaced": True}
                return document({"resources": [kind]})
        if self.forbidden is not None:
            self.failed += 1
            return answer(self.forbidden, "Forbidden")
        return await (self._watch if "watch" in request.query else self._list)(request)

    async def _list(self, _: web.Request) -> web.StreamResponse:
        self.listed += 1
        names = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        items = [{"metadata": {"name": name}} for name in names]
        about = {"resourceVersion": str(10 * self.listed)}
        return document({"kind": "NodeList", "apiVersion": "v1", "items": items, "metadata": about})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.watched_from.append(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        if not self.watches:
            await asyncio.sleep(float(request.query["timeoutSeconds"]))
            return response
        for event in self.watches.pop(0):
            if event is CUT:
                assert request.transport is not None
                request.transport.close()
                return response
            await response.write(event if isinstance(event, bytes) else orjson.dumps(event) + b"\n")
        return response


@asynccontextmanager
async def watching(
    server: Server, pace: WatchPace | None = None, kinds: Sequence[str] = ("v1/Node",)
) -> AsyncIterator[asyncio.Queue[WatchEvent]]:
    told: asyncio.Queue[WatchEvent] = asyncio.Queue()

    async def no_pause(_: float) -> None:
        await asyncio.sleep(0)

    async with serving(server.handle) as url, await Cluster.at(url) as cluster:
        watches = KindWatches(cluster, kinds, pace=pace, pause=no_pause)
        task = asyncio.create_task(watches.run(told.put))
        try:
            yield told
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def take(told: asyncio.Queue[WatchEvent], count: int) -> list[object]:
    """The next events, short: `+name`, `~name`, `-name`, or the listed names."""
    return [short(await asyncio.wait_for(told.get(), 60)) for _ in range(count)]


def short(event: WatchEvent) -> object:
    if isinstance(event, KindListed):
        return None if event.names is None else {name for _, name in event.names}
    assert isinstance(event, ObjectChange)
    sign = {"ADDED": "+", "MODIFIED": "~", "DELETED": "-"}[event.type]
    return sign + str(event.object["metadata"]["name"])


async def test_what_exists_is_told_first_and_then_what_changes() -> None:
    server = Server([["a", "b"]], watches=[[{"type": "DELETED", "object": node("a", "11")}]])
    async with watching(server) as told:
        assert await take(told, 4) == ["+a", "+b", {"a", "b"}, "-a"]


async def test_a_watch_that_ends_goes_on_from_the_last_bookmark() -> None:
    bookmark = {"type": "BOOKMARK", "object": {"kind": "Node", "metadata": {"resourceVersion": "40"}}}
    server = Server(watches=[[modified("a", "11"), bookmark], []])
    async with watching(server) as told:
        assert await take(told, 3) == ["+a", {"a"}, "~a"]
        await until(lambda: len(server.watched_from) >= 3)
    assert server.watched_from[:3] == ["10", "40", "40"]
    assert server.listed == 1


async def test_a_410_leads_to_a_new_list_that_tells_what_vanished() -> None:
    old = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
    server = Server([["a", "b"], ["b"]], watches=[[old]])
    async with watching(server) as told:
        assert await take(told, 5) == ["+a", "+b", {"a", "b"}, "+b", {"b"}]
        await until(lambda: len(server.watched_from) >= 2)
    assert server.watched_from == ["10", "20"]


async def test_a_connection_cut_inside_an_event_goes_on_from_the_last_whole_one() -> None:
    half = orjson.dumps(modified("a", "12"))[:-20]
    server = Server(watches=[[modified("a", "11"), half, CUT], [modified("a", "12")]])
    async with watching(server) as told:
        assert await take(told, 4) == ["+a", {"a"}, "~a", "~a"]
        await until(lambda: len(server.watched_from) >= 3)
    assert server.watched_from == ["10", "11", "12"]
    assert server.listed == 1


async def test_a_version_the_server_never_accepts_ends_in_a_new_list() -> None:
    from_a_backup = {"type": "ERROR", "object": {"kind": "Status", "code": 504, "reason": "Timeout"}}
    server = Server([["a"], ["b"]], watches=[[from_a_backup]] * 5)
    async with watching(server) as told:
        assert await take(told, 4) == ["+a", {"a"}, "+b", {"b"}]


async def test_an_outage_is_waited_out_and_told_once() -> None:
    server = Server(failing=True)
    with structlog.testing.capture_logs() as lines:
        async with watching(server) as told:
            await until(lambda: server.failed > 3)
            server.failing = False
            assert await take(told, 2) == ["+a", {"a"}]
            await until(lambda: len(server.watched_from) >= 1)
    assert [line["event"] for line in lines] == ["watch failed, retrying", "watch recovered"]


async def test_a_kind_that_is_not_served_is_no_error_and_is_found_when_it_comes() -> None:
    server = Server(unserved=True)
    async with watching(server, WatchPace(missing_s=3600)) as told:
        assert await take(told, 1) == [None]
        server.unserved = False
        seen = await take(told, 1)
        while seen == [None]:
            seen = await take(told, 1)
        assert seen == ["+a"]


async def test_a_kind_counts_as_gone_only_when_it_stays_unserved() -> None:
    server = Server(unserved=True)
    async with watching(server, WatchPace(missing_s=0.05)) as told:
        seen = await take(told, 1)
        while seen[-1] is None:
            seen += await take(told, 1)
    assert seen[0] is None
    assert seen[-1] == set()


async def test_it_is_told_that_a_kind_is_not_served_also_when_its_objects_count_as_gone() -> None:
    server = Server(unserved=True)
    async with watching(server, WatchPace(missing_s=0.05)) as told:
        events = [await asyncio.wait_for(told.get(), 60) for _ in range(4)]
    assert [(type(event), event.served) for event in events if isinstance(event, KindListed)] == [
        (KindListed, False)
    ] * 4


OLD, NEW = "example.com/v1alpha1/Training", "example.com/v1/Training"


def test_versions_of_one_kind_are_one_kind() -> None:
    other = "example.org/v1/Training"
    assert versions_of(["v1/Node", NEW, other, OLD, NEW]) == {
        "v1/Node": ("v1/Node",),
        NEW: (NEW, OLD),
        other: (other,),
    }


@pytest.mark.parametrize("served", ["v1", "v1alpha1"])
async def test_of_several_versions_the_first_that_is_served_is_watched_under_the_first_name(
    served: str,
) -> None:
    server = Server(version=served)
    async with watching(server, kinds=[NEW, OLD]) as told:
        await asyncio.wait_for(told.get(), 60)
        listed = await asyncio.wait_for(told.get(), 60)
    assert isinstance(listed, KindListed)
    assert (listed.kind, listed.served, len(listed.names or ())) == (NEW, True, 1)


async def test_a_kind_whose_version_is_served_no_more_is_watched_in_the_other() -> None:
    server = Server(version="v1", watches=[[]])
    async with watching(server, WatchPace(relist_s=0.05, missing_s=3600), [NEW, OLD]) as told:
        await take(told, 2)
        server.version = "v1alpha1"
        events = [await asyncio.wait_for(told.get(), 60) for _ in range(10)]
        while not any(isinstance(event, KindListed) and not event.served for event in events):
            events.append(await asyncio.wait_for(told.get(), 60))
        again = await asyncio.wait_for(told.get(), 60)
        while not (isinstance(again, KindListed) and again.names):
            again = await asyncio.wait_for(told.get(), 60)
    assert again.kind == NEW


async def test_a_kind_that_may_not_be_listed_is_no_outage_and_is_watched_once_it_may() -> None:
    server = Server(forbidden=403)
    with structlog.testing.capture_logs() as lines:
        async with watching(server, kinds=[NEW]) as told:
            first = await asyncio.wait_for(told.get(), 60)
            assert isinstance(first, KindListed)
            assert (first.names, first.served, first.permitted) == (None, True, False)
            server.forbidden = None
            seen = await take(told, 1)
            while seen == [None]:
                seen = await take(told, 1)
            assert seen == ["+a"]
    assert lines == []


@pytest.mark.parametrize(("kind", "status"), [("v1/Node", 403), (NEW, 401)])
async def test_a_refusal_of_nodes_or_of_the_credentials_is_a_failure(kind: str, status: int) -> None:
    server = Server(forbidden=status)
    with structlog.testing.capture_logs() as lines:
        async with watching(server, kinds=[kind]) as told:
            await until(lambda: server.failed > 3)
            assert told.empty()
    assert [line["event"] for line in lines] == ["watch forbidden (RBAC), retrying"]


async def test_a_full_list_is_made_again_when_its_time_has_come() -> None:
    server = Server(watches=[[], []])
    async with watching(server, WatchPace(relist_s=0.05)) as told:
        assert await take(told, 4) == ["+a", {"a"}, "+a", {"a"}]


def test_waiting_grows_with_jitter_and_obeys_the_server() -> None:
    backoff = Backoff()
    waits = [backoff.next_s() for _ in range(12)]
    assert 0.25 <= waits[0] <= 0.5
    assert all(15 <= wait <= 30 for wait in waits[7:])
    assert len(set(waits)) == len(waits)
    assert backoff.next_s(120) == 120
    backoff.reset()
    assert backoff.next_s() <= 0.5


async def until(condition: Callable[[], bool]) -> None:
    async def it_is() -> bool:
        return condition()

    await eventually(it_is, "the server was asked")
