"""The operator's own tool is asked once, by a signed request, about an empty node that is ours; what it says has to show."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from aiohttp import web

from connectors.base import Absent, Blocked, Done, Refused, Unknown, Waiting
from connectors.posts.webhook import signature
from connectors.power.work_hook import WorkHook
from sandbox.fake_services.server import InjectedFault, Standin
from streams.config.connector_settings import NodeWorkSettings
from tests.connectors.objects import pod
from tests.connectors.power.a_node import Miniature, Played, closed_node, played

KEY = b"a secret of the tool's very own."
SECRET = "whsec_" + base64.b64encode(KEY).decode()


class Tool(Standin):
    """An operator's tool: it folds copies by their id, and does what a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[str, dict[str, Any]] = {}
        self.state: dict[str, Any] = {"state": "running"}
        self.app.router.add_post("/machines", self._take)
        self.app.router.add_get("/machines/{id}", self._tell)

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if not self._is_signed(request, body):
            return web.json_response({}, status=401)
        about = orjson.loads(body)
        self.asked.setdefault(about["id"], about)
        return web.Response(status=202)

    async def _tell(self, request: web.Request) -> web.Response:
        if not self._is_signed(request, b""):
            return web.json_response({}, status=401)
        known = request.match_info["id"] in self.asked
        return web.json_response(self.state if known else {}, status=200 if known else 404)

    def _is_signed(self, request: web.Request, body: bytes) -> bool:
        name, stamp = request.headers["webhook-id"], int(request.headers["webhook-timestamp"])
        return request.headers["webhook-signature"] == signature(KEY, name, stamp, body)


@pytest.fixture
async def tool() -> AsyncIterator[Tool]:
    async with Tool() as standin:
        yield standin


@pytest.fixture
async def cluster() -> Miniature:
    return Miniature(closed_node())


def asked_for(tool: Tool, cluster: Miniature, action: str, secret: str = SECRET) -> Played:
    hook = {"url": f"{tool.url}/machines", "secret": secret, "actions": [action], "timeout_s": 0.5}
    settings = NodeWorkSettings.model_validate({"hook": hook})
    return played(WorkHook(cluster, settings), action)  # type: ignore[arg-type]


async def until_asked(step: Played) -> None:
    assert isinstance(await step.apply(), Waiting)
    assert isinstance(await step.apply(), Waiting)


async def test_a_power_cycle_is_done_by_another_boot_whatever_the_tool_says(
    tool: Tool, cluster: Miniature
) -> None:
    step = asked_for(tool, cluster, "power_cycle_node")
    await until_asked(step)
    (about,) = tool.asked.values()
    assert (about["action"], about["node"], about["id"]) == ("power_cycle_node", "gpu-07", "key-1")
    assert (about["incident"], about["run"], about["boot_id"]) == ("inc-1", "run-1", "boot-1")
    tool.state = {"state": "done"}
    waits = await step.apply()
    assert isinstance(waits, Waiting)
    assert "waiting for gpu-07 to boot anew" in waits.detail
    assert cluster.node is not None
    cluster.node["status"]["nodeInfo"]["bootID"] = "boot-2"
    assert isinstance(await step.apply(), Done)


@pytest.mark.parametrize("how", ["deleted", "another"])
async def test_a_replacement_is_done_when_the_node_is_gone(tool: Tool, cluster: Miniature, how: str) -> None:
    step = asked_for(tool, cluster, "replace_node")
    await until_asked(step)
    tool.state = {"state": "done"}
    assert isinstance(await step.apply(), Waiting)
    assert cluster.node is not None
    if how == "deleted":
        cluster.node = None
    else:
        cluster.node["metadata"]["uid"] = "uid-new"
    assert isinstance(await step.apply(), Done)


@pytest.mark.parametrize("fault", ["lose_answer", "lose_request", "hang", "status"])
async def test_a_request_that_may_be_lost_is_looked_up_and_folded(
    tool: Tool, cluster: Miniature, fault: Any
) -> None:
    step = asked_for(tool, cluster, "replace_node")
    await step.apply()
    tool.fail(InjectedFault("/machines", fault))
    assert isinstance(await step.apply(), Unknown)
    arrived = bool(tool.asked)
    assert isinstance(await step.lookup(), Waiting if arrived else Absent)
    assert isinstance(await step.apply(), Waiting)
    assert list(tool.asked) == ["key-1"]


async def test_what_the_tool_could_not_do_fails_the_step_in_its_words(tool: Tool, cluster: Miniature) -> None:
    step = asked_for(tool, cluster, "replace_node")
    await until_asked(step)
    tool.state = {"state": "failed", "message": "no capacity\nin the zone"}
    failed = await step.apply()
    assert isinstance(failed, Refused)
    assert failed.reason == "the tool could not do it: no capacity in the zone"


async def test_a_tool_that_has_forgotten_the_request_is_not_asked_again(
    tool: Tool, cluster: Miniature
) -> None:
    step = asked_for(tool, cluster, "replace_node")
    await until_asked(step)
    tool.asked.clear()
    assert isinstance(await step.apply(), Blocked)
    assert not tool.asked


async def test_nothing_is_asked_about_a_node_that_a_job_uses_or_that_is_not_ours(
    tool: Tool, cluster: Miniature
) -> None:
    cluster.pods.append(pod("train-0"))
    assert isinstance(await asked_for(tool, cluster, "replace_node").apply(), Blocked)
    cluster.pods.clear()
    cluster.node = closed_node(number=2)
    assert isinstance(await asked_for(tool, cluster, "replace_node").apply(), Refused)
    assert not tool.requests


async def test_a_tool_that_does_not_know_the_secret_refuses(tool: Tool, cluster: Miniature) -> None:
    other = "whsec_" + base64.b64encode(b"another secret, as long as that.").decode()
    step = asked_for(tool, cluster, "replace_node", other)
    await step.apply()
    assert isinstance(await step.apply(), Refused)
