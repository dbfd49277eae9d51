"""Evidence is collected in the pods on a faulty node by the commands that the settings declare, bounded, and never in the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

import orjson
import pytest
from aiohttp import web
from pydantic import ValidationError

from connectors.base import Absent, Done, Effect, NoLease
from connectors.kubernetes.client import Cluster
from connectors.kubernetes.pod_evidence import MAX_KEPT, PodEvidence, first_lines
from streams.config.evidence_settings import EvidenceHook, EvidenceSettings
from streams.model.errors import Fenced
from streams.model.run import Target

STACK = EvidenceHook(name="py-spy", command=("py-spy", "dump", "--pid", "1"))
OK = {"status": "Success"}
EFFECT = Effect(
    "k", "collect_evidence", Target("Node", "node-03"), "c1", "inc-1", "run-1", "evidence",
    {"pods": "research/llm-0,research/llm-1,research/gone"}, {"family": "gpu_memory"},
)  # fmt: skip


@dataclass
class Site:
    """Pods behind HTTP; `output` and `ended` are what each command gives, `silent` never ends one."""

    output: bytes = b"Thread 1 (idle): all_reduce\n"
    ended: object = field(default_factory=lambda: OK)
    silent: bool = False
    forbidden: bool = False
    unread: bool = False
    nodes: dict[str, str] = field(default_factory=lambda: {"llm-0": "node-03", "llm-1": "node-04"})
    ready: str = "True"
    commands: list[tuple[str, list[str], str | None]] = field(default_factory=list)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        *_, name = request.path.removesuffix("/exec").split("/")
        if self.unread:
            return web.json_response({"kind": "Status", "reason": "Forbidden"}, status=403)
        if name not in self.nodes:
            return web.json_response({"kind": "Status"}, status=404)
        if not request.path.endswith("/exec"):
            conditions = [{"type": "Ready", "status": self.ready}]
            about = {"name": name, "namespace": "research"}
            return web.json_response(
                {
                    "metadata": about,
                    "spec": {"nodeName": self.nodes[name]},
                    "status": {"conditions": conditions},
                }
            )
        if self.forbidden:
            return web.json_response({"kind": "Status", "reason": "Forbidden"}, status=403)
        query = parse_qsl(request.query_string)
        container = dict(query).get("container")
        self.commands.append((name, [value for key, value in query if key == "command"], container))
        socket = web.WebSocketResponse(protocols=["v5.channel.k8s.io"])
        await socket.prepare(request)
        if self.silent:
            await asyncio.wait_for(socket.receive(), 30)
            return socket
        await socket.send_bytes(b"\x01" + self.output)
        await socket.send_bytes(b"\x03" + orjson.dumps(self.ended))
        await socket.close()
        return socket

    @asynccontextmanager
    async def running(self, *hooks: EvidenceHook) -> AsyncIterator[PodEvidence]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        place = web.TCPSite(runner, "127.0.0.1", 0)
        await place.start()
        cluster = await Cluster.at(f"http://127.0.0.1:{place.name.rsplit(':', 1)[1]}")
        evidence = PodEvidence(cluster, EvidenceSettings(hooks=hooks or (STACK,)))
        try:
            yield evidence
        finally:
            await evidence.close()
            await runner.cleanup()


async def collected(here: Site, *hooks: EvidenceHook) -> Done:
    async with here.running(*hooks) as evidence:
        done = await evidence.apply(EFFECT, NoLease())
    assert isinstance(done, Done)
    return done


async def test_the_command_runs_in_the_pods_that_are_on_the_node_and_its_first_lines_are_kept() -> None:
    here = Site()
    done = await collected(here)
    assert here.commands == [("llm-0", ["py-spy", "dump", "--pid", "1"], None)]
    assert done.result == {"py-spy in research/llm-0": "Thread 1 (idle): all_reduce"}
    assert done.detail == "collected py-spy in research/llm-0"


async def test_each_command_says_for_itself_what_came_of_it() -> None:
    here = Site(
        ended={"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "127"}]}}
    )
    done = await collected(here, STACK, EvidenceHook(name="other", command=("x",), families=("hang",)))
    assert done.result == {"py-spy in research/llm-0": "(exit code 127: Thread 1 (idle): all_reduce)"}
    assert done.detail == "collected nothing; not: py-spy in research/llm-0"


async def test_a_command_that_does_not_end_is_given_up_and_fails_nothing() -> None:
    done = await collected(Site(silent=True), STACK.model_copy(update={"timeout_s": 0.2}))
    assert "no answer in time" in str(done.result["py-spy in research/llm-0"])


async def test_without_the_right_it_is_said_and_fails_nothing() -> None:
    done = await collected(Site(forbidden=True))
    assert "403" in str(done.result["py-spy in research/llm-0"])


@pytest.mark.parametrize("here", [Site(ready="False"), Site(nodes={"llm-0": "node-09"}), Site(nodes={})])
async def test_where_no_pod_answers_nothing_is_run(here: Site) -> None:
    done = await collected(here)
    assert "no pod on node-03 answers" in done.detail
    assert not here.commands


async def test_pods_that_cannot_be_read_are_told_with_the_reason() -> None:
    done = await collected(Site(unread=True))
    assert "no pod on node-03 answers" in done.detail
    assert "403" in done.detail


async def test_output_is_read_up_to_its_bound_and_kept_up_to_a_few_lines() -> None:
    done = await collected(Site(output=b"x" * 100_000), STACK.model_copy(update={"max_bytes": 2000}))
    kept = str(done.result["py-spy in research/llm-0"])
    assert len(kept) == MAX_KEPT
    assert kept.endswith("…")


@pytest.mark.parametrize(
    "line",
    ["HF_TOKEN=hf_abc123", '"api_key": "sk-abc123"', "Authorization: Bearer abc123", "db_password: abc123",
     "AWS_SECRET_ACCESS_KEY=abc123"],
)  # fmt: skip
def test_what_looks_like_a_secret_is_not_kept(line: str) -> None:
    assert "abc123" not in first_lines(f"frame 0\n{line}\nframe 1")
    assert "frame 1" in first_lines(f"frame 0\n{line}\nframe 1")


async def test_it_is_collected_again_after_a_crash_and_never_without_a_lease() -> None:
    class Lost:
        def check(self) -> None:
            raise Fenced("the lease has run out")

    here = Site()
    async with here.running() as evidence:
        assert isinstance(await evidence.lookup(EFFECT), Absent)
        with pytest.raises(Fenced):
            await evidence.apply(EFFECT, Lost())
    assert not here.commands


@pytest.mark.parametrize(
    "hooks",
    [
        [{"name": "a", "command": []}],
        [{"name": "A b", "command": ["x"]}],
        [{"name": "a", "command": ["x"], "timeout_s": 600}],
        [{"name": "a", "command": ["x"]}, {"name": "a", "command": ["y"]}],
    ],
)
def test_settings_that_cannot_be_meant_are_refused(hooks: list[object]) -> None:
    with pytest.raises(ValidationError):
        EvidenceSettings.model_validate({"hooks": hooks})
