"""A real browser for tests: Debian's Chromium, without a window, driven by the DevTools protocol over its own web socket."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

AXE = Path(__file__).with_name("axe.min.js")
"""axe-core 4.14.1, as its package ships it (MPL-2.0): a checker of accessibility, for tests only."""

_START_S = 60.0
_ANSWER_S = 60.0


_UNTIL = """new Promise((done, fail) => {
  const look = %s, what = %s, end = Date.now() + %d;
  const again = () => {
    let found = false;
    try { found = look(); } catch { }
    if (found) done(found); else if (Date.now() > end) fail(new Error("never: " + what)); else setTimeout(again, 20);
  };
  again();
})"""


class Tab:
    """One page. Every wait has a deadline, so a page that hangs is a failure."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self.problems: list[str] = []
        """What the console of the browser's developer tools says: errors, and what the content policy stopped."""
        self.requests: list[str] = []
        """Every address that was asked for."""
        self._reading = asyncio.create_task(self._read())

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command of the protocol, and its result."""
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(_ANSWER_S):
            return await answer

    async def go(self, url: str) -> None:
        """Open an address and wait until it is loaded."""
        self._loaded.clear()
        await self.call("Page.navigate", url=url)
        await self.loaded()

    async def loaded(self) -> None:
        """Wait until a page is loaded that something else has led to."""
        async with asyncio.timeout(_ANSWER_S):
            await self._loaded.wait()

    async def click_through(self, selector: str) -> None:
        """Click something that leads to another page, and wait for that."""
        self._loaded.clear()
        await self.js(f"document.querySelector({json.dumps(selector)}).click()")
        await self.loaded()

    async def js(self, expression: str) -> Any:
        """The value of an expression in the page."""
        told = await self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in told:
            raise AssertionError(told["exceptionDetails"].get("exception", told["exceptionDetails"]))
        return told["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Wait until an expression is true in the page, looked at again and again."""
        return await self.js(_UNTIL % (f"() => ({expression})", json.dumps(expression), _ANSWER_S * 500))

    async def looks(self, *, dark: bool = False, width: int = 1360, height: int = 900) -> None:
        """The reader's colours and the size of the window."""
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        await self.call("Emulation.setEmulatedMedia", features=features)
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def picture(self, path: Path, *, whole: bool = False) -> None:
        """A picture of what is shown, or of the whole page."""
        told = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(told["data"]))

    async def faults(self) -> list[str]:
        """What axe finds serious or critical on the page, each with where it is."""
        await self.js(_axe() + "; true")
        found = await self.js(
            "axe.run(document, {resultTypes: ['violations']}).then(r => r.violations"
            ".filter(v => ['serious', 'critical'].includes(v.impact))"
            ".map(v => v.id + ': ' + v.nodes.slice(0, 4).map(n => n.target + ' ' + (n.any[0] || {}).message).join(' | ')))"
        )
        return [str(fault) for fault in found]

    async def close(self) -> None:
        """Stop listening."""
        self._reading.cancel()
        await self._socket.close()

    async def _read(self) -> None:
        async for message in self._socket:
            told = json.loads(message.data)
            if (answer := self._answers.pop(told.get("id", 0), None)) is not None and not answer.done():
                if "error" in told:
                    answer.set_exception(AssertionError(told["error"]))
                else:
                    answer.set_result(told["result"])
                continue
            params: Mapping[str, Any] = told.get("params", {})
            match told.get("method"):
                case "Page.loadEventFired":
                    self._loaded.set()
                case "Network.requestWillBeSent":
                    self.requests.append(params["request"]["url"])
                case "Log.entryAdded":
                    self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
                case "Runtime.exceptionThrown":
                    self.problems.append(str(params["exceptionDetails"]))


@asynccontextmanager
async def chromium(folder: Path, headers: Mapping[str, str] | None = None) -> AsyncIterator[Tab]:
    """A browser with one page, whose requests carry `headers`. Its profile lies in `folder`."""
    program = shutil.which("chromium")
    assert program is not None, "chromium is not installed"
    process = await asyncio.create_subprocess_exec(
        program,
        "--headless=new", "--remote-debugging-port=0", f"--user-data-dir={folder / 'profile'}", "--no-first-run",
        "--disable-gpu", "--disable-extensions", "--disable-background-networking", "--disable-sync",
        "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        # As root, in a container, there is neither a sandbox nor much shared memory; it only opens our own pages.
        "--no-sandbox", "--disable-dev-shm-usage", "about:blank",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL, env={**os.environ, "HOME": str(folder)},
    )  # fmt: skip
    try:
        async with aiohttp.ClientSession() as session:
            url = await _page(session, folder / "profile" / "DevToolsActivePort")
            async with session.ws_connect(url, max_msg_size=0) as socket:
                tab = Tab(socket)
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await tab.call(f"{domain}.enable")
                if headers:
                    await tab.call("Network.setExtraHTTPHeaders", headers=dict(headers))
                try:
                    yield tab
                finally:
                    await tab.close()
    finally:
        process.kill()
        await process.wait()


async def _page(session: aiohttp.ClientSession, told: Path) -> str:
    """The web socket of the browser's first page, once it says where it listens."""
    async with asyncio.timeout(_START_S):
        while True:
            if lines := await asyncio.to_thread(_lines, told):
                async with session.get(f"http://127.0.0.1:{lines[0]}/json/list") as answer:
                    pages = [one for one in await answer.json() if one["type"] == "page"]
                if pages:
                    return str(pages[0]["webSocketDebuggerUrl"])
            await asyncio.sleep(0.05)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@cache
def _axe() -> str:
    return AXE.read_text(encoding="utf-8")
