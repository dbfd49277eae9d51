"""Who asks for a page, and whether it may be shown to them.

Three ways: a session after a login at the provider, the headers of a trusted proxy, or nobody. Nobody gets read-only pages, and
only from this machine itself: what the console shows are log lines and host names.
"""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from aiohttp import web

from faultline.console.sessions import FORM, Cookies, Person
from streams.config.console_settings import ConsoleSettings
from streams.model.clock import Clock
from streams.model.message import plain

_FORWARDED = ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP")
MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who looks at a page: a person, or nobody in particular. `form_token` is empty where nothing may be decided."""

    person: Person | None = None
    form_token: str = ""
    nonce: str = ""
    """Of the cookie that `form_token` belongs to."""


class Forbidden(Exception):
    """The page is not for this visitor; the text says why and is shown."""


class LoginNeeded(Exception):
    """Nobody is logged in; `back` is where to return to."""

    def __init__(self, back: str) -> None:
        super().__init__(back)
        self.back = back


class Gate:
    """Tells who a visitor is. Its answer is for one request."""

    def __init__(self, settings: ConsoleSettings, cookies: Cookies, clock: Clock) -> None:
        self._settings = settings
        self._cookies = cookies
        self._clock = clock
        self._proxies = [ipaddress.ip_network(one) for one in settings.proxy.addresses]
        self._public = _origin(settings.public_url) if settings.public_url else None

    def visitor(self, request: web.Request) -> Visitor:
        """Who asks. Raises Forbidden or LoginNeeded for a request that gets no page."""
        person = self._by_proxy(request) or self._by_session(request)
        if person is not None:
            nonce = self._nonce(request)
            return Visitor(person, self._cookies.form_token(nonce, person), nonce)
        if self._settings.oidc.issuer is not None:
            raise LoginNeeded(back_to(request))
        if self._settings.has_login:
            raise Forbidden("This console is reached through its login proxy only.")
        if not is_local(request):
            raise Forbidden(
                "No login is configured here, so these pages are served to this machine alone. "
                "Set console.oidc or console.proxy to let others in."
            )
        return Visitor()

    def check_form(self, request: web.Request, told: str) -> Person:
        """The person who sends a form. Raises Forbidden where it was not made by this console for them."""
        visitor = self.visitor(request)
        if visitor.person is None:
            raise Forbidden("These pages are read-only: without a login nobody can tell who decides.")
        if not self._is_same_origin(request):
            raise Forbidden("The form was sent from another site.")
        if not self._cookies.is_form_token(told, visitor.nonce, visitor.person):
            raise Forbidden(
                "The form belongs to another session, or has expired. Go back, reload the page, and try again."
            )
        return visitor.person

    def keep_nonce(self, response: web.StreamResponse, visitor: Visitor, request: web.Request) -> None:
        """Leave the cookie that forms are bound to in the reader's browser."""
        if visitor.nonce and self._cookies.get(request, FORM, self._clock()) is None:
            age_s = self._settings.session_hours * 3600
            self._cookies.put(response, FORM, {"v": visitor.nonce}, self._clock(), age_s)

    def _nonce(self, request: web.Request) -> str:
        kept = self._cookies.get(request, FORM, self._clock())
        return str(kept["v"]) if kept else secrets.token_urlsafe(12)

    def _by_session(self, request: web.Request) -> Person | None:
        if self._settings.oidc.issuer is None:
            return None
        return self._cookies.person(request, self._clock())

    def _by_proxy(self, request: web.Request) -> Person | None:
        if not self._proxies or not _is_in(peer(request), self._proxies):
            return None
        headers, names = request.headers, self._settings.proxy
        who = headers.getall(names.user_header, [])
        # Two of them: the proxy added its own to what somebody had sent, and nobody can tell which is which.
        ident = plain(who[0], MAX_NAME).strip() if len(who) == 1 else ""
        if not ident:
            return None
        name = plain(headers.get(names.name_header, "").strip(), MAX_NAME) or ident
        groups = (group.strip() for group in headers.get(names.groups_header, "").split(","))
        return Person(name, ident, tuple(f"oidc:{plain(group, MAX_NAME)}" for group in groups if group), "")

    def _is_same_origin(self, request: web.Request) -> bool:
        """Whether the browser says the form comes from our own pages. Every browser says so of a POST."""
        if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            return False
        told = request.headers.get("Origin") or request.headers.get("Referer") or ""
        origin = _origin(str(told))
        if origin is None:
            return False
        if self._public is not None:
            return origin == self._public
        return origin[1] == request.host.lower()


def peer(request: web.Request) -> str:
    """The address at the other end of the connection; empty where it is not known."""
    name = request.transport.get_extra_info("peername") if request.transport is not None else None
    return str(name[0]) if isinstance(name, tuple) else ""


def is_local(request: web.Request) -> bool:
    """Whether a browser on this machine asks for a page of this machine, by both addresses and through nothing.

    The name it asked for counts, too: a page elsewhere can make its own name lead to 127.0.0.1.
    """
    if "Host" not in request.headers or any(header in request.headers for header in _FORWARDED):
        return False
    try:
        host = urlsplit(f"//{request.host}").hostname or ""
    except ValueError:
        return False
    return _is_loopback(peer(request)) and (host == "localhost" or _is_loopback(host))


def back_to(request: web.Request) -> str:
    """Where a login returns to: the page that was asked for, if it can be asked for again."""
    return request.path_qs if request.method == "GET" else "/"


def safe_path(told: str) -> str:
    """A path of this console, whatever an address says: never another host."""
    parts = urlsplit(told)
    fine = (
        told.startswith("/")
        and not told.startswith(("//", "/\\"))
        and not parts.netloc
        and told.isprintable()
    )
    return quote(told, safe="/?&=%:,.~-_*@!$'()+;") if fine else "/"


def login_address(back: str) -> str:
    """Where to log in and come back from."""
    return f"/login?next={quote(safe_path(back), safe='')}"


def _origin(url: str) -> tuple[str, str] | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.netloc:
        return None
    return parts.scheme, parts.netloc.lower()


def _is_in(address: str, networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None) or found
    return any(mapped in network for network in networks)


def _is_loopback(host: str) -> bool:
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return False
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback
