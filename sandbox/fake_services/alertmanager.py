"""A stand-in for Alertmanager's silences, API v2 as 0.34 has it (the real one is in the testbed and passes the same tests).

`GET /api/v2/silences` lists all, expired ones too; `GET /api/v2/silence/{id}` shows one. `POST /api/v2/silences` makes one, or
updates the one with `id` in place when matchers and start are the same; otherwise that one is expired and another id is answered;
an unknown id is 404, an end in the past 400. `DELETE /api/v2/silence/{id}` expires. `annotations=False` drops annotations, as
versions before 0.32 do.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from sandbox.fake_services.server import Standin


class AlertmanagerStandin(Standin):
    """Silences by id in `silences`, as the API shows them."""

    def __init__(
        self, *, annotations: bool = True, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        super().__init__()
        self.silences: dict[str, dict[str, Any]] = {}
        self._annotations = annotations
        self._clock = clock
        self.app.router.add_get("/api/v2/silences", self._list)
        self.app.router.add_post("/api/v2/silences", self._set)
        self.app.router.add_get("/api/v2/silence/{id}", self._get)
        self.app.router.add_delete("/api/v2/silence/{id}", self._expire)

    def live(self) -> list[dict[str, Any]]:
        """Silences that hold now."""
        return [row for row in map(self._shown, self.silences.values()) if row["status"]["state"] == "active"]

    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response([self._shown(row) for row in self.silences.values()])

    async def _get(self, request: web.Request) -> web.Response:
        row = self.silences.get(request.match_info["id"])
        return web.Response(status=404) if row is None else web.json_response(self._shown(row))

    async def _set(self, request: web.Request) -> web.Response:
        body, now = await request.json(), self._clock()
        missing = [n for n in ("matchers", "startsAt", "endsAt", "createdBy", "comment") if not body.get(n)]
        if missing:
            return web.json_response(f"{missing[0]} in body is required", status=422)
        starts, ends = _time(body["startsAt"]), _time(body["endsAt"])
        if ends <= starts or ends <= now:
            return web.json_response("bad silence: end time can't be in the past", status=400)
        old = self.silences.get(body.get("id", ""))
        if body.get("id") and old is None:
            return web.json_response("silence not found", status=404)
        name, same = str(uuid.uuid4()), False
        if old is not None:
            alive = self._shown(old)["status"]["state"] == "active"
            same = alive and old["matchers"] == body["matchers"]
            same = same and _time(old["startsAt"]).replace(microsecond=0) == starts.replace(microsecond=0)
            if same:
                name = old["id"]
            elif alive:
                old |= {"endsAt": now.isoformat(), "updatedAt": now.isoformat()}
        self.silences[name] = {
            **{key: body[key] for key in ("matchers", "createdBy", "comment")},
            "id": name,
            "startsAt": body["startsAt"] if same else max(starts, now).isoformat(),
            "endsAt": body["endsAt"],
            "updatedAt": now.isoformat(),
            "annotations": body.get("annotations", {}) if self._annotations else {},
        }
        return web.json_response({"silenceID": name})

    async def _expire(self, request: web.Request) -> web.Response:
        row = self.silences.get(request.match_info["id"])
        if row is None:
            return web.Response(status=404)
        if self._shown(row)["status"]["state"] != "expired":
            row |= {"endsAt": self._clock().isoformat(), "updatedAt": self._clock().isoformat()}
        return web.Response(status=200)

    def _shown(self, row: dict[str, Any]) -> dict[str, Any]:
        now = self._clock()
        state = (
            "expired"
            if _time(row["endsAt"]) <= now
            else "active"
            if _time(row["startsAt"]) <= now
            else "pending"
        )
        return row | {"status": {"state": state}}


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
