"""A stand-in for the BMC of one server, written from DMTF's DSP0266 (protocol), DSP2046 (ComputerSystem, Task, Session) and what
vendors' guides say of resets.

`GET /redfish/v1/Systems` and the system; `POST …/Actions/ComputerSystem.Reset`; sessions; task monitors. Everything but the root
needs a login: Basic, or a session's `X-Auth-Token`. As real ones do, it takes a reset before it does it: `powers` is called when
the machine starts anew, `stays_off` when it goes off.

How it differs from the best case, on request:
    tasks          a reset is answered with 202 and a task monitor, which is gone once it was read as done
    busy           so many requests to reset are answered with 503 and Retry-After
    deaf           a reset is taken and nothing happens
    fails          the task of a reset ends as an Exception
    allowed        reset types; another one is refused with 400. `info`: they are told by an ActionInfo alone
    refuses_moot   On while it is on, and ForceOff while it is off, are refused with 409
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable

from aiohttp import web

from sandbox.fake_services.server import Standin

ROOT = "/redfish/v1"
SYSTEM = f"{ROOT}/Systems/1"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
UUID = "4c4c4544-0042-3510-8052-b4c04f4d3732"
TYPES = ("On", "ForceOff", "ForceRestart", "GracefulShutdown", "GracefulRestart", "PowerCycle", "Nmi")
MOST_SESSIONS = 4


class RedfishStandin(Standin):
    """One BMC. `power` is the machine's, `resets` are those that were taken, in their order."""

    def __init__(self, *, user: str = "faultline", password: str = "secret", uuid: str = UUID) -> None:
        super().__init__()
        self.user, self.password, self.uuid = user, password, uuid
        self.power = "On"
        self.resets: list[str] = []
        self.sessions: dict[str, str] = {}
        self.allowed: tuple[str, ...] = TYPES
        self.info = False
        self.tasks = False
        self.busy = 0
        self.deaf = False
        self.fails = False
        self.refuses_moot = False
        self.systems = ("1",)
        self.powers: Callable[[], None] = lambda: None
        self.stays_off: Callable[[], None] = lambda: None
        self._tasks: dict[str, str] = {}
        add = self.app.router
        add.add_get(f"{ROOT}/", self._root)
        add.add_post(f"{ROOT}/SessionService/Sessions", self._log_in)
        add.add_delete(f"{ROOT}/SessionService/Sessions/{{id}}", self._log_out)
        add.add_get(f"{ROOT}/Systems", self._list)
        add.add_get(f"{ROOT}/Systems/{{id}}", self._system)
        add.add_get(f"{ROOT}/Systems/{{id}}/ResetActionInfo", self._action_info)
        add.add_post(f"{ROOT}/Systems/{{id}}/Actions/ComputerSystem.Reset", self._reset)
        add.add_get(f"{ROOT}/TaskService/TaskMonitors/{{id}}", self._monitor)

    async def _root(self, request: web.Request) -> web.Response:
        return web.json_response({"RedfishVersion": "1.18.0", "Systems": {"@odata.id": f"{ROOT}/Systems"}})

    async def _log_in(self, request: web.Request) -> web.Response:
        body = await request.json()
        if (body.get("UserName"), body.get("Password")) != (self.user, self.password):
            return _error(401, "Base.1.18.ResourceAtUriUnauthorized", "The login was not accepted.")
        if len(self.sessions) >= MOST_SESSIONS:
            return _error(503, "Base.1.18.SessionLimitExceeded", "There are too many sessions.")
        name, token = str(len(self.sessions) + 1), secrets.token_hex(8)
        self.sessions[name] = token
        where = f"{ROOT}/SessionService/Sessions/{name}"
        return web.json_response(
            {"@odata.id": where, "Id": name}, status=201, headers={"X-Auth-Token": token, "Location": where}
        )

    async def _log_out(self, request: web.Request) -> web.Response:
        if (no := self._stranger(request)) is not None:
            return no
        self.sessions.pop(request.match_info["id"], None)
        return web.Response(status=204)

    async def _list(self, request: web.Request) -> web.Response:
        if (no := self._stranger(request)) is not None:
            return no
        members = [{"@odata.id": f"{ROOT}/Systems/{name}"} for name in self.systems]
        return web.json_response({"Members": members, "Members@odata.count": len(members)})

    async def _system(self, request: web.Request) -> web.Response:
        if (no := self._stranger(request)) is not None:
            return no
        if request.match_info["id"] not in self.systems:
            return _error(404, "Base.1.18.ResourceMissingAtURI", "There is no such resource.")
        action: dict[str, object] = {"target": RESET}
        if self.info:
            action["@Redfish.ActionInfo"] = f"{SYSTEM}/ResetActionInfo"
        else:
            action["ResetType@Redfish.AllowableValues"] = list(self.allowed)
        return web.json_response(
            {
                "@odata.id": SYSTEM, "Id": "1", "UUID": self.uuid or None, "PowerState": self.power,
                "SystemType": "Physical", "Actions": {"#ComputerSystem.Reset": action},
            }
        )  # fmt: skip

    async def _action_info(self, request: web.Request) -> web.Response:
        if (no := self._stranger(request)) is not None:
            return no
        parameter = {"Name": "ResetType", "DataType": "String", "AllowableValues": list(self.allowed)}
        return web.json_response({"Id": "ResetActionInfo", "Parameters": [parameter]})

    async def _reset(self, request: web.Request) -> web.Response:
        if (no := self._stranger(request)) is not None:
            return no
        if self.busy:
            self.busy -= 1
            return web.json_response({}, status=503, headers={"Retry-After": "1"})
        kind = str((await request.json()).get("ResetType"))
        if kind not in self.allowed:
            return _error(400, "Base.1.18.ActionParameterNotSupported", f"{kind} is not supported.")
        if self.refuses_moot and (kind, self.power) in (("On", "On"), ("ForceOff", "Off")):
            return _error(409, "Base.1.18.NoOperation", "The machine is in that state.")
        self.resets.append(kind)
        if not self.deaf and not self.fails:
            self._do(kind)
        if not self.tasks:
            return web.Response(status=204)
        name = str(len(self._tasks) + 1)
        self._tasks[name] = "Running"
        where = f"{ROOT}/TaskService/TaskMonitors/{name}"
        body = {"@odata.id": f"{ROOT}/TaskService/Tasks/{name}", "Id": name, "TaskState": "New"}
        return web.json_response(body, status=202, headers={"Location": where})

    def _do(self, kind: str) -> None:
        if kind in ("ForceOff", "GracefulShutdown"):
            if self.power != "Off":
                self.power = "Off"
                self.stays_off()
        elif kind == "On":
            if self.power != "On":
                self.power = "On"
                self.powers()
        elif self.power == "On" and kind != "Nmi":
            self.powers()

    def finish_tasks(self) -> None:
        """Let every task come to its end."""
        self._tasks = dict.fromkeys(self._tasks, "Exception" if self.fails else "Completed")

    async def _monitor(self, request: web.Request) -> web.Response:
        if (no := self._stranger(request)) is not None:
            return no
        name = request.match_info["id"]
        state = self._tasks.get(name)
        if state is None:
            return _error(404, "Base.1.18.ResourceMissingAtURI", "There is no such resource.")
        if state == "Running":
            return web.json_response({"Id": name, "TaskState": "Running"}, status=202)
        del self._tasks[name]
        messages = [{"Message": "The power supply did not answer."}] if state == "Exception" else []
        status = "Critical" if state == "Exception" else "OK"
        return web.json_response({"Id": name, "TaskState": state, "TaskStatus": status, "Messages": messages})

    def _stranger(self, request: web.Request) -> web.Response | None:
        """The answer to who is not logged in; None to others."""
        if request.headers.get("X-Auth-Token") in self.sessions.values():
            return None
        basic = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        if request.headers.get("Authorization") == f"Basic {basic}":
            return None
        return _error(401, "Base.1.18.NoValidSession", "There is no valid session.")


def _error(status: int, code: str, message: str) -> web.Response:
    told = [{"MessageId": code, "Message": message}]
    return web.json_response(
        {"error": {"code": code, "message": message, "@Message.ExtendedInfo": told}}, status=status
    )
