"""One BMC, by Redfish: the state of its system, and resets of it.

Sources: DMTF DSP0266 (protocol: 202 with a task monitor, 503 with Retry-After, sessions), DSP2046 and DSP0268 (ComputerSystem,
Reset, ResetType). What vendors do otherwise: allowed reset types may be listed in an ActionInfo instead of beside the action; a
204, a 200 with a message and a 202 with a task all mean that the reset was taken, none that it had an effect.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx

from connectors.base import LeaseHeld, NoLease
from connectors.http import Rejected, Throttled, answer_of, http_client, read, retry_after_s, send_once
from connectors.power.bmc_address import authorities
from streams.config.power_settings import RedfishSettings
from streams.model.errors import FaultlineError, Permanent, Temporary
from streams.model.message import plain

ROOT = "/redfish/v1"
MAX_WORDS = 200
_DONE = ("Completed",)
_FAILED = ("Exception", "Killed", "Cancelled", "Interrupted")

TaskState = Literal["running", "done", "failed"]


@dataclass(frozen=True, slots=True)
class System:
    """A computer system as its BMC tells it. `power` is `On`, `Off`, `PoweringOn`, `PoweringOff`, `Paused`, or empty. `allowed`
    are the reset types, empty where the BMC does not say."""

    path: str
    uuid: str
    power: str
    reset_path: str
    allowed: frozenset[str]


class Bmc:
    """A logged-in client of one BMC; made by `logged_in`."""

    def __init__(self, client: httpx.AsyncClient, settings: RedfishSettings) -> None:
        self._client = client
        self._settings = settings

    async def system(self) -> System:
        """Its system as it is now.

        Raises:
            Temporary: it does not answer for now.
            Permanent: it refuses, or has no such system, or several and none is named.
        """
        path = await self._system_path()
        found = await read(self._client, "GET", path)
        action = (found.get("Actions") or {}).get("#ComputerSystem.Reset") or {}
        target = str(action.get("target") or f"{path}/Actions/ComputerSystem.Reset")
        allowed = action.get("ResetType@Redfish.AllowableValues")
        if allowed is None and (info := action.get("@Redfish.ActionInfo")):
            allowed = _allowed_by(await read(self._client, "GET", _path(str(info))))
        return System(
            path=path,
            uuid=str(found.get("UUID") or ""),
            power=str(found.get("PowerState") or ""),
            reset_path=_path(target),
            allowed=frozenset(map(str, allowed or ())),
        )

    async def reset(self, system: System, kind: str, lease: LeaseHeld) -> str:
        """Ask for a reset, once. Returns the path of the task that carries it out, empty where the BMC names none.

        Raises:
            Fenced, Temporary, Ambiguous, Rejected: as `connectors.http.change`; a 503 certainly did nothing.
        """
        response = await send_once(
            self._client, "POST", system.reset_path, lease=lease, json={"ResetType": kind}
        )
        if response.status_code == 503:
            raise Throttled("the BMC is busy (503)", retry_after_s=retry_after_s(response))
        body = answer_of(self._client, "POST", system.reset_path, response)
        if response.status_code != 202:
            return ""
        return _path(response.headers.get("Location") or str(body.get("@odata.id") or ""))

    async def task(self, path: str) -> tuple[TaskState, str]:
        """How far a task is, and what it says. A monitor that is gone, or that answers without a state, is done."""
        try:
            response = await self._client.get(path)
        except httpx.RequestError as error:
            raise Temporary(f"the task {path} does not answer: {type(error).__name__}") from error
        if response.status_code in (404, 410):
            return "done", ""
        if response.status_code >= 500 or response.status_code in (401, 403, 429):
            raise Temporary(f"the task {path} cannot be read ({response.status_code})")
        try:
            body = response.json() if response.content else {}
        except ValueError:
            body = {}
        if response.status_code >= 400:
            return "failed", _message(body)
        state = str(body.get("TaskState") or "") if isinstance(body, dict) else ""
        if state in _FAILED or (state in _DONE and body.get("TaskStatus") == "Critical"):
            return "failed", _message(body) or state
        return ("running" if response.status_code == 202 and state not in _DONE else "done"), ""

    async def _system_path(self) -> str:
        if self._settings.system:
            return f"{ROOT}/Systems/{self._settings.system}"
        found = (await read(self._client, "GET", f"{ROOT}/Systems")).get("Members") or []
        paths = [str(one.get("@odata.id") or "") for one in found if isinstance(one, dict)]
        if len(paths) != 1 or not paths[0]:
            raise Permanent(
                f"the BMC has {len(paths)} systems: name the right one in node_work.redfish.system"
            )
        return _path(paths[0])


@asynccontextmanager
async def logged_in(address: str, login: tuple[str, str], settings: RedfishSettings) -> AsyncIterator[Bmc]:
    """A client of the BMC at an address. A session is logged out at the end: BMCs have few of them.

    Raises:
        Temporary, Permanent: logging in failed.
    """
    basic = login if settings.auth == "basic" else None
    tls = authorities(settings.ca_file) if address.startswith("https://") else None
    async with http_client(address, timeout_s=settings.timeout_s, auth=basic, tls=tls) as client:
        session = "" if basic else await _log_in(client, login)
        try:
            yield Bmc(client, settings)
        finally:
            if session:
                await _log_out(client, session)


async def _log_in(client: httpx.AsyncClient, login: tuple[str, str]) -> str:
    path = f"{ROOT}/SessionService/Sessions"
    user, password = login
    body = {"UserName": user, "Password": password}
    response = await send_once(client, "POST", path, lease=NoLease(), json=body)
    answer_of(client, "POST", path, response)
    token = response.headers.get("X-Auth-Token")
    if not token:
        raise Permanent("the BMC gave no session")
    client.headers["X-Auth-Token"] = token
    return _path(response.headers.get("Location", ""))


async def _log_out(client: httpx.AsyncClient, session: str) -> None:
    try:
        await client.delete(session)
    except httpx.RequestError:
        return  # it ends by itself after the BMC's own timeout


def refused_login(error: FaultlineError) -> bool:
    """Whether the BMC did not accept the login."""
    return isinstance(error, Rejected) and error.status in (401, 403)


def _allowed_by(info: Mapping[str, Any]) -> list[str]:
    for parameter in info.get("Parameters") or []:
        if isinstance(parameter, dict) and parameter.get("Name") == "ResetType":
            return [str(value) for value in parameter.get("AllowableValues") or []]
    return []


def _path(address: str) -> str:
    """Only the path: a BMC must not lead the password to another host."""
    parts = urlsplit(address)
    return parts.path + (f"?{parts.query}" if parts.query else "")


def _message(body: Any) -> str:
    """What a BMC says, bounded and on one line."""
    if not isinstance(body, dict):
        return ""
    inner = body.get("error")
    error = inner if isinstance(inner, dict) else body
    told = error.get("@Message.ExtendedInfo") or body.get("Messages") or [error]
    words = [str(one.get("Message") or one.get("message") or "") for one in told if isinstance(one, dict)]
    return " ".join(plain("; ".join(filter(None, words)), MAX_WORDS).split())
