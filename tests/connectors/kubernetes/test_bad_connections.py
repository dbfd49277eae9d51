"""Rotated tokens, throttling, slow and half-open connections: the watcher and the responder's client survive them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest
from aiohttp import web
from kubernetes.aio.config import incluster_config

from connectors.base import AlreadyDone, Done, Effect, NoLease, Outcome, Retry, Unknown
from connectors.kubernetes.client import Cluster, Object
from connectors.kubernetes.errors import Unauthorized
from connectors.kubernetes.nodes import NodeConnector
from connectors.kubernetes.watch import KindWatches, WatchPace
from streams.config.connector_settings import KubernetesSettings
from streams.model.run import Target
from streams.model.watch import WatchEvent
from tests.connectors.kubernetes.api_server import answer, document, serving
from tests.connectors.kubernetes.test_client import _kubeconfig
from tests.connectors.kubernetes.test_watch import modified, node, take
from tests.testbed.waiting import eventually

CLOSED: Object = {"type": "the server ends the watch"}

Trouble = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


@dataclass
class Nodes:
    """Serves one node, with whatever `trouble` answers instead; `token` is the one that it accepts."""

    token: str = "first"
    trouble: list[Trouble] = field(default_factory=list)
    """What becomes of the next lists and watches, one each; a trouble that answers None lets its request through."""
    listed: int = 0
    watched_from: list[str] = field(default_factory=list)
    events: asyncio.Queue[Object] = field(default_factory=asyncio.Queue)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization", "").lower() != f"bearer {self.token}":
            return answer(401, "Unauthorized")
        if request.path == "/api/v1":
            return document({"resources": [{"name": "nodes", "kind": "Node", "namespaced": False}]})
        if self.trouble and (other := await self.trouble.pop(0)(request)) is not None:
            return other
        if "watch" in request.query:
            return await self._watch(request)
        self.listed += 1
        about = {"resourceVersion": "10"}
        return document({"kind": "NodeList", "apiVersion": "v1", "items": [node("a")], "metadata": about})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.watched_from.append(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            event = await self.events.get()
            if event is CLOSED:
                return response
            await response.write(orjson.dumps(event) + b"\n")


@dataclass
class Watching:
    """A watcher at work: what it told, and how long it wanted to wait."""

    told: asyncio.Queue[WatchEvent]
    pauses: list[float]


@asynccontextmanager
async def watching(server: Nodes, folder: Path, *, silent_s: float = 60.0) -> AsyncIterator[Watching]:
    seen = Watching(asyncio.Queue(), [])

    async def no_pause(seconds: float) -> None:
        seen.pauses.append(seconds)
        await asyncio.sleep(0)

    async with serving(server.handle) as url:
        rotate(folder, url, server.token)
        settings = KubernetesSettings(kubeconfig=folder / "config", timeout_s=1.0)
        async with await Cluster.connect(settings) as cluster:
            watches = KindWatches(cluster, ["v1/Node"], pace=WatchPace(silent_s=silent_s), pause=no_pause)
            task = asyncio.create_task(watches.run(seen.told.put))
            try:
                yield seen
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


def rotate(folder: Path, url: str, token: str) -> None:
    (folder / "config").write_text(_kubeconfig(url, token))


async def half_open(request: web.Request) -> web.StreamResponse:
    """Accepted, and then nothing: the peer is gone and nobody says so."""
    response = web.StreamResponse()
    await response.prepare(request)
    await asyncio.Event().wait()
    return response


async def in_drops(request: web.Request) -> web.StreamResponse:
    """A list that begins and never comes to its end, though the connection is never silent."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.05)


def status(code: int, after_s: int | None = None) -> Trouble:
    async def trouble(request: web.Request) -> web.StreamResponse:
        response = answer(code, "Trouble")
        if after_s is not None:
            response.headers["Retry-After"] = str(after_s)
        return response

    return trouble


async def test_a_watch_lives_on_with_the_rotated_token(tmp_path: Path) -> None:
    server = Nodes()
    async with serving(server.handle) as url:
        rotate(tmp_path, url, "first")
        settings = KubernetesSettings(kubeconfig=tmp_path / "config")
        told: asyncio.Queue[WatchEvent] = asyncio.Queue()
        async with await Cluster.connect(settings) as cluster, asyncio.TaskGroup() as group:
            task = group.create_task(KindWatches(cluster, ["v1/Node"]).run(told.put))
            assert await take(told, 2) == ["+a", {"a"}]
            server.token = "second"
            rotate(tmp_path, url, "second")
            await server.events.put(CLOSED)
            await server.events.put(modified("a", "12"))
            assert await take(told, 1) == ["~a"]
            task.cancel()
    assert server.listed == 1
    assert server.watched_from == ["10", "10"]


async def test_the_token_of_the_pods_own_service_account_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, token = Nodes(), tmp_path / "token"
    token.write_text("first")
    (tmp_path / "ca.crt").write_text("nobody reads it over plain HTTP")
    async with serving(server.handle) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
        monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
        monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
        read = incluster_config.InClusterConfigLoader._load_config

        def without_a_certificate(self: incluster_config.InClusterConfigLoader) -> None:
            read(self)
            self.host, self.ssl_ca_cert = url, None

        monkeypatch.setattr(incluster_config.InClusterConfigLoader, "_load_config", without_a_certificate)
        async with await Cluster.connect(KubernetesSettings()) as cluster:
            for accepted in ("first", "second", "third"):
                server.token = accepted
                token.write_text(accepted)
                for _ in range(2):
                    assert (await cluster.get("/api/v1/nodes"))["items"]
            server.token = "fourth"
            token.write_text("")
            with pytest.raises(Unauthorized):
                await cluster.get("/api/v1/nodes")
            token.write_text("fourth")
            assert (await cluster.get("/api/v1/nodes"))["items"]


@pytest.mark.parametrize(
    "trouble",
    [status(500), status(502), status(503), status(410), status(429, 7), in_drops, half_open],
    ids=["500", "502", "503", "410", "429", "a list in drops", "a half-open list"],
)
async def test_a_list_in_trouble_is_made_again(tmp_path: Path, trouble: Trouble) -> None:
    server = Nodes(trouble=[trouble])
    async with watching(server, tmp_path) as seen:
        assert await take(seen.told, 2) == ["+a", {"a"}]
    assert seen.pauses
    assert server.listed == 1


async def test_a_throttled_list_is_not_made_again_before_the_server_wants_it(tmp_path: Path) -> None:
    server = Nodes(trouble=[status(429, 7), status(429, 9)])
    async with watching(server, tmp_path) as seen:
        assert await take(seen.told, 2) == ["+a", {"a"}]
    assert seen.pauses[0] >= 7
    assert seen.pauses[1] >= 9


@pytest.mark.parametrize("trouble", [half_open, status(503), status(429, 1)], ids=["half-open", "503", "429"])
async def test_a_watch_in_trouble_goes_on_from_where_it_was(tmp_path: Path, trouble: Trouble) -> None:
    server = Nodes()

    async def lets_the_list_through(_: web.Request) -> None:
        return None

    server.trouble = [lets_the_list_through, trouble]
    await server.events.put(modified("a", "11"))
    async with watching(server, tmp_path, silent_s=0.3) as seen:
        assert await take(seen.told, 3) == ["+a", {"a"}, "~a"]
    assert server.listed == 1
    assert server.watched_from[0] == "10"


# The responder's client


@dataclass
class OneNode:
    """Serves one node that takes merge patches; `trouble` comes before each answer, as for `Nodes`."""

    thing: Object = field(
        default_factory=lambda: {
            "metadata": {"name": "gpu-07", "uid": "u", "resourceVersion": "5"},
            "spec": {},
        }
    )
    trouble: list[Trouble] = field(default_factory=list)
    patched: int = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if self.trouble and (other := await self.trouble.pop(0)(request)) is not None:
            return other
        if request.method == "PATCH":
            self.patched += 1
            patch = await request.json()
            about = {**self.thing["metadata"], **patch["metadata"]}
            self.thing = {**self.thing, "metadata": about, "spec": patch["spec"]}
        return document(self.thing)


EFFECT = Effect("key-1", "cordon_node", Target("Node", "gpu-07"), "c1", "inc-1", "run-1", "cordon")


async def through(_: web.Request) -> None:
    """No trouble."""


@pytest.mark.parametrize(
    ("trouble", "first"),
    [
        ([status(401), status(401)], Retry),
        ([status(429, 30)], Retry),
        ([through, status(401), status(401)], Retry),
        ([through, status(409), through], Done),
        ([through, status(500)], Unknown),
        ([through, status(503)], Unknown),
        ([through, half_open], Unknown),
        ([status(500)], Done),
        ([status(410)], Done),
    ],
    ids=[
        "401 read",
        "429",
        "401 write",
        "409",
        "500 write",
        "503 write",
        "half-open write",
        "500 read",
        "410 read",
    ],
)
async def test_a_change_in_trouble_is_made_once(trouble: list[Trouble], first: type[Outcome]) -> None:
    server = OneNode(trouble=list(trouble))
    # Short only where nothing else ends the request: a busy machine may need longer for a connection.
    timeout_s = 2.0 if half_open in trouble else 20.0
    async with serving(server.handle) as url, await Cluster.at(url, timeout_s=timeout_s) as cluster:
        connector = NodeConnector(cluster)
        outcome = await connector.apply(EFFECT, NoLease())
        assert isinstance(outcome, first), outcome

        async def over() -> bool:
            return isinstance(await connector.apply(EFFECT, NoLease()), Done | AlreadyDone)

        await eventually(over, "the node is cordoned")
    assert server.patched == 1


async def test_credentials_that_are_being_written_are_waited_for(tmp_path: Path) -> None:
    server = Nodes(token="second")
    async with serving(server.handle) as url:
        rotate(tmp_path, url, "first")
        async with await Cluster.connect(KubernetesSettings(kubeconfig=tmp_path / "config")) as cluster:
            (tmp_path / "config").write_text("users: [{")
            outcome = await NodeConnector(cluster).apply(EFFECT, NoLease())
            assert isinstance(outcome, Retry), outcome
            rotate(tmp_path, url, "second")
            assert (await cluster.get("/api/v1/nodes"))["items"]
