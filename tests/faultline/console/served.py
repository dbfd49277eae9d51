"""The console on a loopback port, and a browser without a window for tests that read pages: cookies, and no more."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import unescape
from typing import Any

import aiohttp
from aiohttp import web

from faultline.console.app import add_console
from streams.config.console_settings import ConsoleSettings
from tests.faultline.console.scenes import Night
from tests.testbed.waiting import eventually

ADA = {
    "X-Forwarded-User": "ada@example.test",
    "X-Forwarded-Preferred-Username": "Ada",
    "X-Forwarded-Groups": "sre, gpu",
}
DEADLINE_S = 30.0
SECRET = "a secret of the tests, 32 characters or more"
BEHIND_A_PROXY: Mapping[str, Any] = {"proxy": {"addresses": ["127.0.0.1"]}, "session_secret": SECRET}


@dataclass
class Answer:
    """One answer: where it led in the end, and its text."""

    status: int
    path: str
    address: str
    """The path with its query."""
    text: str
    headers: Mapping[str, str]

    @property
    def shown(self) -> str:
        """The text as a reader sees it, roughly: without tags, with entities undone."""
        return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", self.text)))


@dataclass
class Reader:
    """Somebody with a browser. Forms are sent as a browser sends them, with the page's address as origin."""

    session: aiohttp.ClientSession
    base: str

    async def get(self, path: str, **more: Any) -> Answer:
        async with self.session.get(self.base + path, **more) as answer:
            return await _answer(answer)

    async def post(self, path: str, form: Mapping[str, str], **headers: str) -> Answer:
        sent = {"Origin": self.base, **headers}
        async with self.session.post(self.base + path, data=dict(form), headers=sent) as answer:
            return await _answer(answer)

    async def shows(self, address: str, base: str, words: str) -> None:
        """Wait until a page of the console at `base` shows these words."""

        async def look() -> bool:
            async with self.session.get(base + address) as answer:
                return words in (await _answer(answer)).shown

        await eventually(look, words)

    async def form(self, path: str, button: str) -> dict[str, str]:
        """The fields of the form with this button on a page, with the button pressed."""
        page = (await self.get(path)).text
        form = next(f for f in re.findall(r"<form.*?</form>", page, re.S) if f'value="{button}"' in f)
        fields = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form)
        chosen = {"minutes": "30"} if 'name="minutes"' in form else {}
        return {**{name: unescape(value) for name, value in fields}, **chosen, "reason": "", "verb": button}

    async def decides(self, incident: str, button: str, reason: str = "") -> Answer:
        """Open an incident's page, type a reason, press a button, and follow to the answer."""
        path = f"/incidents/{incident}"
        return await self.post(f"{path}/decide", {**await self.form(path, button), "reason": reason})


async def _answer(answer: aiohttp.ClientResponse) -> Answer:
    return Answer(answer.status, answer.url.path, answer.url.path_qs, await answer.text(), answer.headers)


@asynccontextmanager
async def served(
    night: Night, settings: Mapping[str, Any] = BEHIND_A_PROXY, port: int = 0
) -> AsyncIterator[str]:
    """The console of a night, at the address that is yielded."""
    app = web.Application()
    add_console(
        app,
        settings=ConsoleSettings.model_validate(settings),
        view=night.view,
        decisions=night,
        clock=night.clock,
    )
    runner = web.AppRunner(app, shutdown_timeout=2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def reading(base: str, headers: Mapping[str, str] = ADA) -> AsyncIterator[Reader]:
    """A reader whose requests carry `headers`."""
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(headers=dict(headers), cookie_jar=jar) as session:
        yield Reader(session, base)


async def events(answer: aiohttp.ClientResponse, count: int) -> list[str]:
    """The names of the next events."""
    found: list[str] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < count and (line := await answer.content.readline()):
            if line.startswith(b"event: "):
                found.append(line.decode().removeprefix("event: ").strip())
    return found
