"""What each answer of an API server means for the caller, over real HTTP on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from aiohttp import web

from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.errors import (
    AlreadyExists,
    Conflict,
    EvictionBlocked,
    Forbidden,
    Gone,
    MaybeApplied,
    NotFound,
    Unauthorized,
)
from streams.config.connector_settings import KubernetesSettings
from streams.model.errors import ConfigError, FaultlineError, Permanent, Temporary, Unreachable
from tests.connectors.kubernetes.api_server import answer, cluster_of, document, serving

NODE = path_of("v1", "nodes", name="gpu-07")
BUDGET = {"causes": [{"reason": "DisruptionBudget", "message": "needs 3 healthy pods"}]}


@pytest.mark.parametrize(
    ("status", "reason", "on_read", "on_write"),
    [
        (400, "BadRequest", Permanent, Permanent),
        (401, "Unauthorized", Unauthorized, Unauthorized),
        (403, "Forbidden", Forbidden, Forbidden),
        (404, "NotFound", NotFound, NotFound),
        (409, "Conflict", Conflict, Conflict),
        (409, "AlreadyExists", AlreadyExists, AlreadyExists),
        (410, "Expired", Gone, Gone),
        (422, "Invalid", Permanent, Permanent),
        (429, "TooManyRequests", Temporary, Temporary),
        (500, "InternalError", Temporary, MaybeApplied),
        (503, "ServiceUnavailable", Temporary, MaybeApplied),
        (504, "Timeout", Temporary, MaybeApplied),
    ],
)
async def test_a_refusal_says_whether_the_write_may_have_happened(
    status: int, reason: str, on_read: type[FaultlineError], on_write: type[FaultlineError]
) -> None:
    async def refuse(_: web.Request) -> web.Response:
        return answer(status, reason, message="because")

    async with cluster_of(refuse) as cluster:
        with pytest.raises(FaultlineError, match="because") as read:
            await cluster.get(NODE)
        with pytest.raises(FaultlineError, match="because") as write:
            await cluster.patch(NODE, {"spec": {"unschedulable": True}})
    assert (type(read.value), type(write.value)) == (on_read, on_write)


async def test_nobody_listening_is_surely_not_sent() -> None:
    with socket.socket() as held:  # bound and not listening: nobody else can get the port meanwhile
        held.bind(("127.0.0.1", 0))
        async with await Cluster.at(f"http://127.0.0.1:{held.getsockname()[1]}") as cluster:
            with pytest.raises(Unreachable):
                await cluster.patch(NODE, {})


async def test_a_write_without_an_answer_in_time_may_have_been_applied() -> None:
    asked = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with cluster_of(hang, timeout_s=1.0) as cluster:
        written, read = await asyncio.gather(
            cluster.create(path_of("v1", "pods", namespace="team-a"), {}),
            cluster.get(NODE),
            return_exceptions=True,
        )
    assert isinstance(written, MaybeApplied)
    assert isinstance(read, Temporary)
    assert asked.is_set()


async def test_a_connection_cut_instead_of_an_answer_may_have_been_applied() -> None:
    async def cut(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return answer(200)

    async with cluster_of(cut) as cluster:
        with pytest.raises(MaybeApplied):
            await cluster.evict("team-a", "train-0")


async def test_a_deletion_whose_answer_was_lost_is_not_sent_again() -> None:
    sent = []

    async def cut(request: web.Request) -> web.Response:
        sent.append(request.method)
        assert request.transport is not None
        request.transport.abort()
        return answer(200)

    async with cluster_of(cut) as cluster:
        with pytest.raises(MaybeApplied):
            await cluster.delete(NODE, uid="u-1")
    assert sent == ["DELETE"]


@pytest.mark.parametrize(
    ("more", "expected"), [({"details": BUDGET}, EvictionBlocked), ({"message": "too many"}, Temporary)]
)
async def test_a_429_of_a_budget_is_told_from_one_of_flow_control(
    more: dict[str, object], expected: type[Temporary]
) -> None:
    async def too_many(_: web.Request) -> web.Response:
        response = answer(429, "TooManyRequests", **more)
        response.headers["Retry-After"] = "7"
        return response

    async with cluster_of(too_many) as cluster:
        with pytest.raises(Temporary) as refused:
            await cluster.evict("team-a", "train-0")
    assert type(refused.value) is expected
    assert refused.value.retry_after_s == 7


async def test_a_list_is_read_page_by_page_and_its_items_know_their_kind() -> None:
    pages = {
        None: {
            "items": [{"metadata": {"name": "a"}}],
            "metadata": {"continue": "x/+=", "resourceVersion": "5"},
        },
        "x/+=": {"items": [{"metadata": {"name": "b"}}], "metadata": {"resourceVersion": "5"}},
    }

    async def page(request: web.Request) -> web.Response:
        assert request.query["limit"] == "1"
        return document({"kind": "NodeList", "apiVersion": "v1", **pages[request.query.get("continue")]})

    async with cluster_of(page) as cluster:
        seen = [
            (items[0]["metadata"]["name"], items[0]["kind"], items[0]["apiVersion"], version)
            async for items, version in cluster.list_pages("/api/v1/nodes", limit=1)
        ]
    assert seen == [("a", "Node", "v1", "5"), ("b", "Node", "v1", "5")]


@pytest.mark.parametrize(
    ("kind", "body", "content_type"),
    [
        ("merge", {"spec": {}}, "application/merge-patch+json"),
        ("strategic", {"spec": {}}, "application/strategic-merge-patch+json"),
        ("json", [{"op": "test", "path": "/a", "value": 1}], "application/json-patch+json"),
    ],
)
async def test_each_kind_of_patch_is_sent_as_what_it_is(kind: str, body: object, content_type: str) -> None:
    async def echo(request: web.Request) -> web.Response:
        return document({"type": request.content_type, "body": await request.json(), **request.query})

    async with cluster_of(echo) as cluster:
        sent = await cluster.patch(NODE, body, kind)  # type: ignore[arg-type]
    assert (sent["type"], sent["body"], sent["fieldManager"]) == (content_type, body, "faultline")


async def test_a_watch_yields_events_of_any_length_and_an_error_event_ends_it_as_an_error() -> None:
    long = {"type": "ADDED", "object": {"data": "x" * 5_000_000}}
    old = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}}

    async def stream(request: web.Request) -> web.StreamResponse:
        assert request.query["allowWatchBookmarks"] == "true"
        assert int(request.query["timeoutSeconds"]) > 0
        response = web.StreamResponse()
        await response.prepare(request)
        for event in (long, old):
            await response.write(orjson.dumps(event) + b"\n")
        return response

    seen: list[Object] = []
    async with cluster_of(stream) as cluster:
        with pytest.raises(Gone, match="too old"):
            await _collect(cluster.watch("/api/v1/nodes", "1"), seen)
    assert seen == [long]


async def test_a_watch_that_shows_nothing_is_taken_as_dead() -> None:
    async def silence(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"\n")
        await asyncio.Event().wait()
        return response

    seen: list[Object] = []
    async with cluster_of(silence) as cluster:
        with pytest.raises(Temporary):
            await _collect(cluster.watch("/api/v1/nodes", "1", silent_s=0.2), seen)
    assert seen == []


async def test_an_expired_token_is_read_again_once(tmp_path: Path) -> None:
    tokens = []

    async def guarded(request: web.Request) -> web.Response:
        tokens.append(request.headers["Authorization"])
        return document({}) if tokens[-1] == "Bearer fresh" else answer(401, "Unauthorized")

    async with serving(guarded) as url:
        config = tmp_path / "config"
        config.write_text(_kubeconfig(url, "stale"))
        async with await Cluster.connect(KubernetesSettings(kubeconfig=config)) as cluster:
            config.write_text(_kubeconfig(url, "fresh"))
            await cluster.patch(NODE, {})
            assert tokens == ["Bearer stale", "Bearer fresh"]
            config.write_text(_kubeconfig(url, "stale"))
            await cluster.get(NODE)
    assert tokens[2:] == ["Bearer fresh"]


async def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        await Cluster.connect(KubernetesSettings(kubeconfig=tmp_path / "nowhere"))


async def test_a_kind_is_looked_up_once_and_a_missing_one_is_not_found() -> None:
    asked = []

    async def discovery(request: web.Request) -> web.Response:
        asked.append(request.path)
        if request.path != "/apis/batch/v1":
            return answer(404, "NotFound")
        resources = [
            {"name": "jobs/status", "kind": "Job", "namespaced": True},
            {"name": "jobs", "kind": "Job", "namespaced": True},
        ]
        return document({"resources": resources})

    async with cluster_of(discovery) as cluster:
        for _ in range(2):
            job = await cluster.resource("batch/v1/Job")
        with pytest.raises(NotFound):
            await cluster.resource("kubeflow.org/v1/PyTorchJob")
    assert job.path("team a", "train/1") == "/apis/batch/v1/namespaces/team%20a/jobs/train%2F1"
    assert asked == ["/apis/batch/v1", "/apis/kubeflow.org/v1"]


async def _collect(events: AsyncIterator[Object], into: list[Object]) -> None:
    async for event in events:
        into.append(event)


def _kubeconfig(url: str, token: str) -> str:
    return f"""
apiVersion: v1
kind: Config
current-context: here
clusters: [{{name: here, cluster: {{server: "{url}"}}}}]
users: [{{name: me, user: {{token: {token}}}}}]
contexts: [{{name: here, context: {{cluster: here, user: me}}}}]
"""
