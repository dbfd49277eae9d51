"""A stand-in for the alerts of Jira Service Management Operations, and of Opsgenie, whose integration API is the same.

`POST …/v2/alerts` (`message` at most 130 characters, `alias` 512, `description` 15,000, `priority` P1 to P5, `details`, `tags`),
`POST …/v2/alerts/{alias}/acknowledge` and `/close` with `identifierType=alias` (`Authorization: GenieKey …`) answer 202 and are
processed after `lag_s`; `lose` of them never are. While an alert with an alias is open, another create counts it up. Opsgenie
shows with the same key what became of a request (`GET /v2/alerts/requests/{id}`: `isSuccess`; 404 until it is processed), an open
alert (`GET /v2/alerts/{alias}`) and a list with closed ones (`GET /v2/alerts?query=alias: "…"`). JSM does so at another address
(`GET /v1/alerts/requests/{id}`, `GET /v1/alerts?query=…`) with an API token (basic), and its integration key only writes.
"""

from __future__ import annotations

import re
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from sandbox.fake_services.server import Standin

_QUERY = re.compile(r'alias: "(?P<alias>[^"]+)"')


@dataclass(slots=True)
class StandinAlert:
    """One alert as it is now. `log` holds what was done to it, oldest first."""

    id: str
    alias: str
    body: dict[str, Any]
    status: str = "open"
    acknowledged: bool = False
    count: int = 1
    log: list[str] = field(default_factory=list)
    visible_at: float = 0.0


class JsmStandin(Standin):
    """One integration. `opsgenie` says which of the two it is; `clock` is in seconds."""

    def __init__(
        self,
        *,
        key: str = "standin-key",
        user: str = "faultline@example.test",
        token: str = "standin-token",
        opsgenie: bool = False,
        lag_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.key, self.user, self.token, self.opsgenie, self.lag_s = key, user, token, opsgenie, lag_s
        self.alerts: list[StandinAlert] = []
        self.lose = 0
        self._processed: dict[str, bool] = {}
        self._clock = clock
        before = "" if opsgenie else "/jsm/ops/integration"
        route = self.app.router
        route.add_post(f"{before}/v2/alerts", self._create)
        route.add_post(before + "/v2/alerts/{alias}/{verb:acknowledge|close}", self._act)
        if opsgenie:
            shown = "/v2/alerts"
            route.add_get("/v2/alerts/{alias}", self._show)
        else:
            shown = "/jsm/ops/api/cloud-1/v1/alerts"
        route.add_get(shown, self._list)
        route.add_get(shown + "/requests/{request}", self._request)

    def of(self, alias: str) -> list[StandinAlert]:
        """The alerts with an alias, oldest first."""
        return [one for one in self.alerts if one.alias == alias]

    async def _create(self, request: web.Request) -> web.Response:
        if (no := self._refusal(request)) is not None:
            return no
        body = await request.json()
        if not body.get("message") or len(body["message"]) > 130:
            return web.json_response({"message": "Request body is not processable: message"}, status=422)
        if len(body.get("alias", "")) > 512 or len(body.get("description", "")) > 15_000:
            return web.json_response({"message": "Request body is not processable: too long"}, status=422)
        if body.get("priority", "P3") not in ("P1", "P2", "P3", "P4", "P5"):
            return web.json_response({"message": "Request body is not processable: priority"}, status=422)
        if self.lose:
            return self._accepted(None)
        alias = str(body.get("alias") or f"made-up-{len(self.alerts)}")
        alive = self._open(alias)
        if alive is None:
            made = StandinAlert(f"alert-{len(self.alerts) + 1}", alias, body, log=["create"])
            made.visible_at = self._clock() + self.lag_s
            self.alerts.append(made)
        else:
            alive.count += 1
        return self._accepted(True)

    async def _act(self, request: web.Request) -> web.Response:
        if (no := self._refusal(request)) is not None:
            return no
        if request.query.get("identifierType") != "alias":
            return web.json_response({"message": "Alert id is not valid"}, status=422)
        if self.lose:
            return self._accepted(None)
        alive = self._open(request.match_info["alias"])
        if alive is not None:
            verb = request.match_info["verb"]
            alive.log.append(verb)
            alive.acknowledged = True
            if verb == "close":
                alive.status = "closed"
        return self._accepted(alive is not None)

    async def _show(self, request: web.Request) -> web.Response:
        if (no := self._refusal(request)) is not None:
            return no
        found = [one for one in self._visible(request.match_info["alias"]) if one.status == "open"]
        if not found:
            return web.json_response({"message": "Alert with alias does not exist"}, status=404)
        return web.json_response({"data": _shown(found[-1])})

    async def _request(self, request: web.Request) -> web.Response:
        if (no := self._no_reader(request)) is not None:
            return no
        made = self._processed.get(request.match_info["request"])
        if made is None:
            return web.json_response(
                {"message": "Request not found. It might not be processed, yet."}, status=404
            )
        told = {"success": made, "isSuccess": made, "status": "done" if made else "Alert does not exist"}
        return web.json_response({"data": told} if self.opsgenie else told)

    async def _list(self, request: web.Request) -> web.Response:
        if (no := self._no_reader(request)) is not None:
            return no
        asked = _QUERY.fullmatch(request.query.get("query", ""))
        if asked is None:
            return web.json_response({"message": "the query cannot be read"}, status=422)
        rows = [_shown(one) for one in reversed(self._visible(asked["alias"]))]
        return web.json_response({"data": rows} if self.opsgenie else {"values": rows, "count": len(rows)})

    def _visible(self, alias: str) -> list[StandinAlert]:
        return [one for one in self.of(alias) if one.visible_at <= self._clock()]

    def _no_reader(self, request: web.Request) -> web.Response | None:
        if self.opsgenie:
            return self._refusal(request)
        expected = "Basic " + b64encode(f"{self.user}:{self.token}".encode()).decode()
        if request.headers.get("Authorization") == expected:
            return None
        return web.json_response({"code": 401, "message": "Unauthorized"}, status=401)

    def _open(self, alias: str) -> StandinAlert | None:
        return next((one for one in self.alerts if one.alias == alias and one.status == "open"), None)

    def _refusal(self, request: web.Request) -> web.Response | None:
        if request.headers.get("Authorization") == f"GenieKey {self.key}":
            return None
        return web.json_response({"message": "Key format is not valid!"}, status=422)

    def _accepted(self, made: bool | None) -> web.Response:
        """`made`: whether it succeeds; None where it is never processed."""
        request = f"request-{len(self.requests)}"
        if made is None:
            self.lose -= 1
        else:
            self._processed[request] = made
        answer = {"result": "Request will be processed", "took": 0.1, "requestId": request}
        return web.json_response(answer, status=202)


def _shown(alert: StandinAlert) -> dict[str, Any]:
    return {
        "id": alert.id,
        "alias": alert.alias,
        "status": alert.status,
        "acknowledged": alert.acknowledged,
        "count": alert.count,
        "message": alert.body["message"],
    }
