"""Login and logout in the browser: to the provider, back from it, and out."""

from __future__ import annotations

import structlog
from aiohttp import web

from faultline.console import rendering
from faultline.console.forms import read_form
from faultline.console.identity import Forbidden, Gate, LoginNeeded, login_address, safe_path
from faultline.console.oidc import LOGIN_S, Provider
from faultline.console.sessions import FORM, LOGIN, SESSION, Cookies
from streams.model.clock import Clock
from streams.model.errors import BadInput, Unreachable

log = structlog.get_logger(__name__)


class Login:
    """The handlers of a login. Without a provider nobody needs one: a proxy has seen to it, or the pages are read-only."""

    def __init__(
        self, provider: Provider | None, cookies: Cookies, gate: Gate, clock: Clock, session_s: float
    ) -> None:
        self._provider = provider
        self._cookies = cookies
        self._gate = gate
        self._clock = clock
        self._session_s = session_s

    async def login(self, request: web.Request) -> web.StreamResponse:
        """Send the browser to the provider."""
        back = safe_path(request.query.get("next", "/"))
        if self._provider is None:
            raise web.HTTPSeeOther("/")
        try:
            url, kept = await self._provider.begin()
        except Unreachable as error:
            log.error("the login provider does not answer", error=str(error))
            return rendering.page(
                "refused.html",
                status=503,
                text="The login provider does not answer.",
                back=back,
                login=login_address(back),
            )
        response = web.HTTPSeeOther(url, headers=rendering.HEADERS)
        self._cookies.put(response, LOGIN, {**kept, "back": back[:1_000]}, self._clock(), LOGIN_S)
        raise response

    async def login_done(self, request: web.Request) -> web.StreamResponse:
        """Take the provider's answer and begin a session."""
        kept = self._cookies.get(request, LOGIN, self._clock())
        if self._provider is None:
            raise web.HTTPSeeOther("/")
        back = safe_path(str(kept["back"])) if kept else "/"
        try:
            if kept is None:
                raise BadInput("the login was not begun in this browser, or took too long")
            person = await self._provider.finish(dict(request.query), kept, self._clock())
        except (BadInput, Unreachable) as error:
            log.warning("a login failed", reason=str(error))
            text = (
                f"Login failed: {error}."
                if isinstance(error, BadInput)
                else "The login provider does not answer."
            )
            status = 403 if isinstance(error, BadInput) else 503
            response: web.Response = rendering.page(
                "refused.html", status=status, text=text, back="", login=login_address(back)
            )
        else:
            log.info("logged in", actor=person.actor, groups=len(person.groups))
            response = web.HTTPSeeOther(back, headers=rendering.HEADERS)
            self._cookies.log_in(response, person, self._clock(), self._session_s)
        self._cookies.drop(response, LOGIN)
        if isinstance(response, web.HTTPException):
            raise response
        return response

    async def logout(self, request: web.Request) -> web.StreamResponse:
        """End the session in this browser."""
        try:
            form = await read_form(request)
            self._gate.check_form(request, form.get("token", ""))
        except (Forbidden, LoginNeeded, BadInput) as error:
            if not isinstance(error, LoginNeeded):
                return rendering.page("refused.html", status=403, text=str(error), back="/", login="")
        response = rendering.page(
            "refused.html", text="You are logged out.", back="", login=login_address("/")
        )
        self._cookies.drop(response, SESSION)
        self._cookies.drop(response, FORM)
        return response
