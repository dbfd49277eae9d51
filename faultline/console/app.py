"""The console's part of the gateway: its addresses, who may ask for them, and what runs beside them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial

from aiohttp import web

from faultline.console import rendering
from faultline.console.board import Board
from faultline.console.decide import Answers, Decide, Decides
from faultline.console.identity import Forbidden, Gate, LoginNeeded, Visitor, login_address
from faultline.console.live import Interest, LiveUpdates
from faultline.console.login import Login
from faultline.console.oidc import Provider
from faultline.console.pages import Pages
from faultline.console.sessions import Cookies
from faultline.live_view.view import LiveView
from runbooks.language.loader import load
from runbooks.language.schema import Runbook
from streams.config.console_settings import ConsoleSettings
from streams.model.clock import Clock, utc_now

Handler = Callable[[web.Request, Visitor], Awaitable[web.StreamResponse]]


def add_console(
    app: web.Application,
    *,
    settings: ConsoleSettings,
    view: LiveView,
    decisions: Decides,
    clock: Clock = utc_now,
    runbooks: Sequence[Runbook] | None = None,
) -> None:
    """Add the console's pages to an application that is not running yet.

    Args:
        app: The gateway's; every address below `/` that it does not answer itself.
        settings: The console's section.
        view: What is shown; somebody else keeps it up to date.
        decisions: Where commands go.
        clock: The time.
        runbooks: Those the responder has loaded; the shipped ones when not given.
    """
    console = Console(settings, view, decisions, clock, load() if runbooks is None else runbooks)
    app.add_routes(console.routes())
    app.cleanup_ctx.append(console.running)
    app.on_shutdown.append(console.end)


class Console:
    """The parts, put together."""

    def __init__(
        self,
        settings: ConsoleSettings,
        view: LiveView,
        decisions: Decides,
        clock: Clock,
        runbooks: Sequence[Runbook],
    ) -> None:
        secret = settings.session_secret.get_secret_value() if settings.session_secret else None
        cookies = Cookies(secret, secure=(settings.public_url or "").startswith("https://"))
        provider = Provider(settings) if settings.oidc.issuer is not None else None
        answers = Answers(view, cookies)
        self._clock = clock
        self._gate = Gate(settings, cookies, clock)
        self._board = Board(view)
        self._live = LiveUpdates(view, settings.readers)
        self._pages = Pages(view, self._board, answers, clock, runbooks, settings.page_size)
        self._decide = Decide(self._gate, view, decisions, answers, clock, settings.answer_wait_s)
        self._login = Login(provider, cookies, self._gate, clock, settings.session_hours * 3600)

    def routes(self) -> Iterator[web.RouteDef]:
        """Every address of the console."""
        pages: Mapping[str, Handler] = {
            "/": self._pages.overview,
            "/incidents/{id}": self._pages.incident,
            "/fleet": self._pages.fleet,
            "/runbooks": self._pages.runbooks,
            "/search": self._pages.search,
        }
        for path, handler in pages.items():
            yield web.get(path, partial(self._for_visitor, handler))
        yield web.get("/changes", partial(self._for_visitor, self.changes), allow_head=False)
        yield web.post("/incidents/{id}/decide", self._decide.decide)
        yield web.get("/login", self._login.login)
        yield web.get("/login/done", self._login.login_done)
        yield web.post("/logout", self._login.logout)
        yield web.get("/static/{name}", static)

    async def running(self, app: web.Application) -> AsyncIterator[None]:
        """Follow the view while the application runs."""
        following = asyncio.create_task(self._board.follow())
        yield
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following

    async def end(self, app: web.Application) -> None:
        """Disconnect the readers, who would keep the process from ending."""
        self._live.end()

    async def changes(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """The stream of a page's updates."""
        names = frozenset(request.query.getall("names", [])[:4]) or None
        person = visitor.person
        left_s = max(0.0, person.until - self._clock().timestamp()) if person and person.until else None
        response = web.StreamResponse(headers=rendering.HEADERS)
        return await self._live.serve(request, response, Interest(names), left_s)

    async def _for_visitor(self, handler: Handler, request: web.Request) -> web.StreamResponse:
        try:
            visitor = self._gate.visitor(request)
        except LoginNeeded as needed:
            if request.path == "/changes":
                raise web.HTTPUnauthorized(headers=rendering.HEADERS) from None
            raise web.HTTPSeeOther(login_address(needed.back), headers=rendering.HEADERS) from None
        except Forbidden as error:
            return rendering.page("refused.html", status=403, text=str(error), back="", login="")
        response = await handler(request, visitor)
        if not response.prepared:
            self._gate.keep_nonce(response, visitor, request)
        return response


async def static(request: web.Request) -> web.StreamResponse:
    """A style sheet, a script or a picture of the console. They hold nothing of what it shows, so everybody may have them."""
    found = rendering.static_files().get(request.match_info["name"])
    if found is None:
        raise web.HTTPNotFound
    content, kind = found
    headers = {**rendering.HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}
    return web.Response(body=content, content_type=kind, charset="utf-8", headers=headers)
