"""A stand-in for Grafana's annotations: `/api/annotations` with a service account token.

`POST` (`time`, `timeEnd` in epoch milliseconds, `tags`, `text`, `dashboardUID`, `panelId`) answers an id. `GET` filters by every
`tags` given, `type` and `dashboardUID`, newest first, `limit` 100. `PATCH /api/annotations/{id}` changes what is given, `DELETE`
deletes. A point is shown with an end that is its start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from sandbox.fake_services.server import Standin


class GrafanaStandin(Standin):
    """One organisation; `annotations` by id, as the API shows them."""

    def __init__(self, *, token: str = "standin-token") -> None:
        super().__init__()
        self.token = token
        self.annotations: dict[int, dict[str, Any]] = {}
        self._next = 1
        route = self.app.router.add_route
        route("GET", "/api/annotations", self._authorised(self._list))
        route("POST", "/api/annotations", self._authorised(self._create))
        route("PATCH", "/api/annotations/{id}", self._authorised(self._patch))
        route("DELETE", "/api/annotations/{id}", self._authorised(self._delete))

    def _authorised(self, handler: Callable[[web.Request, Any], web.Response]) -> Any:
        async def answer(request: web.Request) -> web.Response:
            if request.headers.get("Authorization") != f"Bearer {self.token}":
                return web.json_response({"message": "Invalid API key"}, status=401)
            body = await request.json() if request.method in ("POST", "PATCH") else None
            return handler(request, body)

        return answer

    def _create(self, request: web.Request, body: Any) -> web.Response:
        if not body.get("text") or not isinstance(body.get("time"), int):
            return web.json_response({"message": "Failed to save annotation"}, status=400)
        row = {
            name: body.get(name) for name in ("dashboardUID", "panelId", "time", "timeEnd", "tags", "text")
        }
        self.annotations[self._next] = {
            "id": self._next,
            **row,
            "timeEnd": body.get("timeEnd") or body["time"],
        }
        self._next += 1
        return web.json_response({"message": "Annotation added", "id": self._next - 1})

    def _list(self, request: web.Request, _: Any) -> web.Response:
        tags, limit = set(request.query.getall("tags", [])), int(request.query.get("limit", 100))
        board = request.query.get("dashboardUID")
        rows = [
            row
            for row in sorted(self.annotations.values(), key=lambda row: (-row["time"], -row["id"]))
            if tags <= set(row["tags"] or []) and board in (None, row["dashboardUID"])
        ]
        return web.json_response(rows[:limit])

    def _patch(self, request: web.Request, body: Any) -> web.Response:
        row = self.annotations.get(int(request.match_info["id"]))
        if row is None:
            return web.json_response({"message": "Annotation not found"}, status=404)
        row |= {name: body[name] for name in ("text", "tags", "time", "timeEnd") if name in body}
        return web.json_response({"message": "Annotation patched"})

    def _delete(self, request: web.Request, _: Any) -> web.Response:
        if self.annotations.pop(int(request.match_info["id"]), None) is None:
            return web.json_response({"message": "Annotation not found"}, status=404)
        return web.json_response({"message": "Annotation deleted"})
