"""A stand-in for slurmrestd v0.0.41 before a real slurmctld: it speaks HTTP as documented, Slurm's commands carry it out.

Debian's slurmrestd (22.05) ends at v0.0.38, which can neither drain nor hold. Written from the OpenAPI of v0.0.41: paths, the
token's header, lists of states, numbers as `{set, infinite, number}`, `errors` with status 500 for what the controller refuses,
and fields that a body may have. It knows no requeue, as no slurmrestd does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from connectors.base import NoLease
from connectors.slurm.api import JobUpdate, Missing
from connectors.slurm.commands import Commands
from streams.model.errors import FaultlineError
from tests.testbed.slurm import SlurmCluster

VERSION = "v0.0.41"
NODE_FIELDS = {"state", "reason", "reason_uid", "comment", "extra", "features", "gres", "name", "weight"}
JOB_FIELDS = {
    "admin_comment",
    "comment",
    "excluded_nodes",
    "begin_time",
    "hold",
    "priority",
    "requeue",
    "nice",
}
NUMBERS = (
    "reason_changed_at",
    "boot_time",
    "job_id",
    "node_count",
    "priority",
    "het_job_id",
    "start_time",
    "submit_time",
)


class Slurmrestd:
    """Takes any request with the `token`."""

    def __init__(self, cluster: SlurmCluster, token: str = "token-1") -> None:
        self.token = token
        self.seen: list[str] = []
        self._slurm = Commands(config=cluster.config)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        """Serve it on loopback; yields its URL."""
        app = web.Application(middlewares=[self._checked])
        at = f"/slurm/{VERSION}"
        app.router.add_get("/openapi", self._openapi)
        app.router.add_get(f"{at}/nodes/", self._nodes)
        app.router.add_get(f"{at}/node/{{name}}", self._nodes)
        app.router.add_post(f"{at}/node/{{name}}", self._update_node)
        app.router.add_get(f"{at}/jobs/", self._jobs)
        app.router.add_get(f"{at}/job/{{id}}", self._jobs)
        app.router.add_post(f"{at}/job/{{id}}", self._update_job)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    @web.middleware
    async def _checked(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.seen.append(f"{request.method} {request.path}")
        if request.headers.get("X-SLURM-USER-TOKEN") != self.token or not request.headers.get(
            "X-SLURM-USER-NAME"
        ):
            return web.Response(status=401, text="Authentication failure")
        try:
            answer: web.StreamResponse = await handler(request)
        except Missing as error:
            what = "Invalid node name specified" if "node" in str(error) else "Invalid job id specified"
            return _refused(404, what)
        except FaultlineError as error:
            return _refused(500, str(error))
        return answer

    async def _openapi(self, _: web.Request) -> web.Response:
        return web.json_response(
            {"openapi": "3.0.3", "paths": {f"/slurm/{VERSION}/nodes/": {}, "/slurm/v0.0.39/nodes": {}}}
        )

    async def _nodes(self, request: web.Request) -> web.Response:
        name = request.match_info.get("name")
        found = await self._slurm.nodes() if name is None else [await self._slurm.node(name)]
        return web.json_response(
            {"nodes": [_as_documented(node, "state", "state_flags") for node in found], "errors": []}
        )

    async def _jobs(self, request: web.Request) -> web.Response:
        number = request.match_info.get("id")
        found = await self._slurm.jobs() if number is None else [await self._slurm.job(int(number))]
        return web.json_response({"jobs": [_as_documented(job, "job_state") for job in found], "errors": []})

    async def _update_node(self, request: web.Request) -> web.Response:
        body, name = await request.json(), request.match_info["name"]
        if (unknown := body.keys() - NODE_FIELDS) or not isinstance(body["state"], list):
            return _refused(400, f"Unknown fields: {sorted(unknown)}")
        if body["state"] == ["DRAIN"]:
            await self._slurm.drain(name, body["reason"], body["comment"], NoLease())
        else:
            assert body["state"] == ["RESUME"]
            await self._slurm.resume(name, body["comment"], NoLease())
        return web.json_response({"errors": [], "warnings": []})

    async def _update_job(self, request: web.Request) -> web.Response:
        body, job = await request.json(), int(request.match_info["id"])
        if unknown := body.keys() - JOB_FIELDS:
            return _refused(400, f"Unknown fields: {sorted(unknown)}")
        if "hold" in body:
            await (self._slurm.hold if body["hold"] else self._slurm.release)(job, NoLease())
        elif body:
            begin = body.get("begin_time")
            assert begin is None or (begin["set"] and begin["number"])
            update = JobUpdate(body.get("admin_comment"), body.get("excluded_nodes"), begin is not None)
            await self._slurm.update_job(job, update, NoLease())
        return web.json_response({"errors": [], "warnings": []})


def _as_documented(record: Mapping[str, Any], *states: str) -> dict[str, Any]:
    """A record of 22.05 as v0.0.41 writes it."""
    words = [record.get(state) for state in states]
    flat = [one.upper() for word in words for one in ([word] if isinstance(word, str) else word or [])]
    numbers = {
        key: {"set": True, "infinite": False, "number": record[key]}
        for key in NUMBERS
        if isinstance(record.get(key), int) and key != "job_id"
    }
    return {k: v for k, v in record.items() if k not in states} | numbers | {states[0]: flat}


def _refused(status: int, what: str) -> web.Response:
    error = {"description": what, "error_number": 2017, "error": what, "source": "slurm_update_job()"}
    return web.json_response({"errors": [error], "warnings": []}, status=status)
