"""A job is asked for a checkpoint once, in the way that it declares, and what it answers is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

import orjson
import pytest
from aiohttp import web

from connectors.base import Absent, AlreadyDone, Done, Effect, NoLease, Refused, Waiting
from connectors.jobs.checkpoint_hook import is_pod_address
from connectors.jobs.checkpoint_marks import REQUESTED_AT, REQUESTED_BY, REQUESTED_FOR
from connectors.jobs.checkpoint_requests import CheckpointRequests
from connectors.kubernetes.client import Cluster, Object
from streams.job_kinds.checkpoint_way import LAST, REQUEST
from streams.model.clock import rfc3339
from streams.model.errors import Fenced
from streams.model.run import Target

JOB = "/apis/batch/v1/namespaces/research/jobs/llm"
PODS = "/api/v1/namespaces/research/pods"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
EFFECT = Effect(
    "key-1", "request_checkpoint", Target("Job", "llm", "research", "uid-1"), "c1", "inc-1", "run-1", "s"
)
LEASE = NoLease()


@dataclass
class Site:
    """A few objects behind HTTP, as an API server shows them, and a trainer's hook; what is asked of either is kept."""

    job: Object
    pods: list[Object] = field(default_factory=list)
    hook: Callable[[str], web.Response] = lambda method: web.json_response({"saved": True, "step": 48000})
    ended: Mapping[str, Any] = field(default_factory=lambda: {"status": "Success"})
    asked: list[str] = field(default_factory=list)
    commands: list[list[str]] = field(default_factory=list)
    now: datetime = NOW
    url: str = ""

    @property
    def marks(self) -> dict[str, str]:
        found: dict[str, str] = self.job["metadata"].get("annotations") or {}
        return found

    async def serve(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/save":
            body = await request.read()
            self.asked.append(f"{request.method} {orjson.loads(body)['request'] if body else ''}".strip())
            return self.hook(request.method)
        if request.path == JOB and request.method == "PATCH":
            patch = await request.json()
            if patch["metadata"]["resourceVersion"] != self.job["metadata"]["resourceVersion"]:
                return web.json_response({"kind": "Status", "reason": "Conflict"}, status=409)
            self.job["metadata"]["annotations"] = {**self.marks, **patch["metadata"]["annotations"]}
            self.job["metadata"]["resourceVersion"] += "1"
            return web.json_response(self.job)
        if request.path == JOB:
            return web.json_response(self.job)
        if request.path == PODS:
            return web.json_response({"kind": "PodList", "items": self.pods, "metadata": {}})
        if request.path.endswith("/exec"):
            return await self._exec(request)
        return web.json_response({"kind": "Status"}, status=404)

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=["v5.channel.k8s.io"])
        await socket.prepare(request)
        self.commands.append([value for key, value in parse_qsl(request.query_string) if key == "command"])
        await socket.send_bytes(b"\x01out\n")
        await socket.send_bytes(b"\x03" + orjson.dumps(self.ended))
        await socket.close()
        return socket

    @asynccontextmanager
    async def running(self) -> AsyncIterator[CheckpointRequests]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.serve)
        runner = web.AppRunner(app)
        await runner.setup()
        port_of = web.TCPSite(runner, "127.0.0.1", 0)
        await port_of.start()
        self.url = f"http://127.0.0.1:{port_of.name.rsplit(':', 1)[1]}"
        port = int(self.url.rsplit(":", 1)[1])
        for one in self.pods:
            one["spec"]["containers"] = [{"name": "train", "ports": [{"containerPort": port}]}]
        if self.marks.get(REQUEST) == "http":
            self.job["metadata"]["annotations"][REQUEST] = f"http:{port}/save"
        cluster = await Cluster.at(self.url)
        requests = CheckpointRequests(cluster, lambda: self.now, reachable=lambda ip: ip == "127.0.0.1")
        try:
            yield requests
        finally:
            await requests.close()
            await runner.cleanup()


def pod(name: str = "llm-0", index: str = "0", ip: str = "127.0.0.1", **spec: object) -> Object:
    return {
        "metadata": {
            "name": name,
            "namespace": "research",
            "labels": {"batch.kubernetes.io/job-completion-index": index},
            "ownerReferences": [{"kind": "Job", "uid": "uid-1", "controller": True}],
        },
        "spec": spec,
        "status": {"podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def site(said: str | None = "annotation", *pods: Object, **metadata: object) -> Site:
    annotations = {REQUEST: said} if said is not None else {}
    about = {
        "name": "llm",
        "namespace": "research",
        "uid": "uid-1",
        "resourceVersion": "1",
        "annotations": annotations,
    }
    return Site(
        {"kind": "Job", "apiVersion": "batch/v1", "metadata": about | metadata, "spec": {}}, list(pods)
    )


async def test_by_annotation_it_is_asked_once_and_its_own_annotation_is_the_answer() -> None:
    here = site()
    async with here.running() as requests:
        first = await requests.apply(EFFECT, LEASE)
        assert isinstance(first, Waiting)
        assert here.marks[REQUESTED_AT] == rfc3339(NOW)
        assert (here.marks[REQUESTED_BY], here.marks[REQUESTED_FOR]) == ("key-1", "inc-1")
        version = here.job["metadata"]["resourceVersion"]
        here.now += timedelta(seconds=5)
        assert isinstance(await requests.apply(EFFECT, LEASE), Waiting)
        here.job["metadata"]["annotations"][LAST] = rfc3339(NOW - timedelta(seconds=1))
        assert isinstance(await requests.apply(EFFECT, LEASE), Waiting), "an older one is no answer"
        here.job["metadata"]["annotations"][LAST] = rfc3339(NOW + timedelta(seconds=3))
        done = await requests.apply(replace(EFFECT, prior=first.result), LEASE)
        assert isinstance(done, Done)
        assert "saved a checkpoint at" in done.detail
        assert here.job["metadata"]["resourceVersion"] == version, "nothing was written a second time"


async def test_what_a_crashed_process_asked_is_found_and_not_asked_again() -> None:
    here = site("http", pod())
    here.hook = lambda method: web.Response(status=202)
    async with here.running() as requests:
        assert isinstance(await requests.lookup(EFFECT), Absent)
        assert isinstance(await requests.apply(EFFECT, LEASE), Waiting)
        assert isinstance(await requests.lookup(EFFECT), Waiting)
        assert isinstance(await requests.apply(EFFECT, LEASE), Waiting)
        here.hook = lambda method: web.json_response({"saved": True})
        assert isinstance(await requests.lookup(EFFECT), AlreadyDone)
    assert here.asked == ["POST key-1", "GET", "GET", "GET"]


async def test_a_crash_before_it_was_asked_over_http_leaves_the_request_that_nobody_repeats() -> None:
    here = site("http", pod())
    here.job["metadata"]["annotations"] |= {
        REQUESTED_AT: rfc3339(NOW),
        REQUESTED_BY: "key-1",
        REQUESTED_FOR: "inc-1",
    }
    here.hook = lambda method: web.Response(status=404)
    async with here.running() as requests:
        assert isinstance(await requests.apply(EFFECT, LEASE), Waiting)
    assert here.asked == ["GET"]


@pytest.mark.parametrize(
    ("incident", "later_s", "again"),
    [("inc-1", 600, False), ("inc-2", 60, False), ("inc-2", 600, True)],
    ids=["same incident, other runbook", "another incident meanwhile", "another incident later"],
)
async def test_who_is_asked_already_is_not_asked_again(incident: str, later_s: float, again: bool) -> None:
    here = site()
    async with here.running() as requests:
        await requests.apply(EFFECT, LEASE)
        here.now += timedelta(seconds=later_s)
        other = replace(EFFECT, key="key-2", incident=incident)
        assert isinstance(await requests.apply(other, LEASE), Waiting)
    assert here.marks[REQUESTED_BY] == ("key-2" if again else "key-1")


async def test_over_http_the_pod_of_the_first_rank_is_asked_and_its_answer_is_the_proof() -> None:
    here = site("http", pod("llm-b", "1", ip="10.0.0.9"), pod("llm-z", "0"))
    async with here.running() as requests:
        done = await requests.apply(EFFECT, LEASE)
    assert isinstance(done, Done)
    assert done.result == {"step": 48000}
    assert here.asked == ["POST key-1"]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (web.Response, Waiting),
        (lambda: web.Response(text="ok"), Waiting),
        (lambda: web.Response(body=b'{"saved": true' + b" " * 10_000 + b"}"), Waiting),
        (lambda: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), Refused),
        (lambda: web.Response(status=500), Refused),
    ],
    ids=["empty", "no JSON", "too long", "a redirect", "an error"],
)
async def test_what_is_no_proof(answer: Callable[[], web.Response], outcome: type) -> None:
    here = site("http", pod())
    here.hook = lambda method: answer()
    async with here.running() as requests:
        assert isinstance(await requests.apply(EFFECT, LEASE), outcome)
    assert here.asked == ["POST key-1"]


async def test_only_a_port_that_a_container_declares_is_called() -> None:
    here = site("http:9/save", pod())
    async with here.running() as requests:
        refused = await requests.apply(EFFECT, LEASE)
    assert isinstance(refused, Refused)
    assert "declares the port 9" in refused.reason
    assert REQUESTED_AT not in here.marks, "what cannot be asked bears no request"


@pytest.mark.parametrize(
    ("ip", "may"),
    [("10.2.3.4", True), ("fd00::5", True), ("127.0.0.1", False), ("169.254.169.254", False), ("::1", False),
     ("fe80::1", False), ("0.0.0.0", False), ("224.0.0.1", False), ("metadata.internal", False), ("", False)],
)  # fmt: skip
def test_only_the_address_of_a_pod_is_called(ip: str, may: bool) -> None:
    assert is_pod_address(ip) is may


async def test_a_signal_goes_to_the_first_process_once() -> None:
    here = site("signal:USR1", pod())
    async with here.running() as requests:
        assert isinstance(await requests.apply(EFFECT, LEASE), Waiting)
        assert isinstance(await requests.apply(EFFECT, LEASE), Waiting)
    assert here.commands == [["kill", "-s", "USR1", "1"]]


async def test_a_signal_that_fails_is_said() -> None:
    here = site("signal:USR1", pod())
    here.ended = {"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "126"}]}}
    async with here.running() as requests:
        refused = await requests.apply(EFFECT, LEASE)
    assert isinstance(refused, Refused)
    assert "kill -s USR1 in llm-0 failed: out" in refused.reason


@pytest.mark.parametrize("shared", ["hostPID", "shareProcessNamespace"])
async def test_no_signal_goes_where_process_1_is_not_the_containers_own(shared: str) -> None:
    here = site("signal:TERM", pod() | {"spec": {shared: True}})
    async with here.running() as requests:
        refused = await requests.apply(EFFECT, LEASE)
    assert isinstance(refused, Refused)
    assert shared in refused.reason
    assert not here.commands


@pytest.mark.parametrize(
    ("here", "why"),
    [
        (site(None), "declares no way"),
        (site("annotation", uid="another"), "was replaced"),
        (site("annotation", labels={"faultline.dev/managed": "false"}), "opted out"),
        (site("signal:USR1"), "none of its pods is ready"),
    ],
)
async def test_why_it_is_not_asked(here: Site, why: str) -> None:
    async with here.running() as requests:
        refused = await requests.apply(EFFECT, LEASE)
    assert isinstance(refused, Refused)
    assert why in refused.reason
    assert REQUESTED_AT not in here.marks


class Lost:
    def check(self) -> None:
        raise Fenced("the lease has run out")


@pytest.mark.parametrize("said", ["annotation", "http", "signal:USR1"])
async def test_without_a_lease_nobody_is_asked(said: str) -> None:
    here = site(said, pod())
    async with here.running() as requests:
        with pytest.raises(Fenced):
            await requests.apply(EFFECT, Lost())
    assert (here.asked, here.commands, REQUESTED_AT in here.marks) == ([], [], False)


async def test_two_at_once_ask_once() -> None:
    here = site("http", pod())
    async with here.running() as requests:
        await asyncio.gather(*(requests.apply(EFFECT, LEASE) for _ in range(4)))
    assert here.asked.count("POST key-1") == 1
