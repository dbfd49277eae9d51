"""Signed cookies: who is logged in, a login on its way, and the token that a form has to bring back.

Nothing is stored on the server, so every replica with the same secret knows every session. A session cannot be taken back before
it expires; that is why it lasts hours and not weeks.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from aiohttp import web
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

SESSION, LOGIN, FORM = "session", "login", "form"
"""What a cookie is for. The purpose is signed with it: one kind never passes for another."""

MAX_GROUPS = 50
"""Groups of a person that a session keeps: a browser takes no cookie of more than 4 KB."""
MAX_COOKIE = 3_800

_BRACKETS = re.compile(r"[()\s]")


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody whose identity is proven. `id` is what cannot be chosen; `session` binds forms to this login."""

    name: str
    id: str
    groups: tuple[str, ...]
    session: str
    until: float = 0.0
    """When the session ends, in seconds since the epoch; 0 for one that each request proves anew."""

    @property
    def actor(self) -> str:
        """How commands name the person. What is in the last brackets is the id, so an id holds none of its own."""
        return f"{self.name} ({_BRACKETS.sub('_', self.id)})"


def is_same(told: str, right: str) -> bool:
    """Whether a stranger's text is the right one, which is ASCII, in a time that tells nothing of where they differ.

    Bytes that are no UTF-8 arrive as halves of surrogate pairs, which cannot be encoded again.
    """
    return told.isascii() and hmac.compare_digest(told, right)


class Cookies:
    """Makes and reads the console's cookies. `secure`: people come over https."""

    def __init__(self, secret: str | None, *, secure: bool) -> None:
        raw = (secret or secrets.token_hex(32)).encode()
        self._key = OctKey.import_key(hashlib.blake2b(raw, person=b"faultline cookie").digest())
        self._form_key = hashlib.blake2b(raw, person=b"faultline form").digest()
        self._secure = secure

    def name(self, purpose: str) -> str:
        """A cookie's name. Over https the prefix keeps other hosts of the domain from setting it."""
        return f"__Host-faultline-{purpose}" if self._secure else f"faultline-{purpose}"

    def put(
        self,
        response: web.StreamResponse,
        purpose: str,
        claims: Mapping[str, Any],
        now: datetime,
        age_s: float,
    ) -> None:
        """Set a signed cookie that expires."""
        response.set_cookie(
            self.name(purpose),
            self._signed(claims, purpose, now, age_s),
            max_age=int(age_s),
            path="/",
            secure=self._secure,
            httponly=True,
            samesite="Lax",
        )

    def _signed(self, claims: Mapping[str, Any], purpose: str, now: datetime, age_s: float) -> str:
        about = {**claims, "aud": purpose, "exp": int(now.timestamp() + age_s)}
        return jwt.encode({"alg": "HS256"}, about, self._key)

    def get(self, request: web.Request, purpose: str, now: datetime) -> dict[str, Any] | None:
        """What a cookie holds; None where there is none, it is forged or it has expired."""
        value = request.cookies.get(self.name(purpose))
        if not value:
            return None
        try:
            claims = jwt.decode(value, self._key, algorithms=["HS256"]).claims
        except (JoseError, ValueError):
            return None
        expires = claims.get("exp")
        fresh = isinstance(expires, int | float) and now.timestamp() < expires
        return claims if fresh and claims.get("aud") == purpose else None

    def drop(self, response: web.StreamResponse, purpose: str) -> None:
        """Take a cookie away."""
        response.del_cookie(self.name(purpose), path="/", secure=self._secure, httponly=True, samesite="Lax")

    def log_in(self, response: web.StreamResponse, person: Person, now: datetime, age_s: float) -> None:
        """Begin a session."""
        groups, name = list(person.groups[:MAX_GROUPS]), person.name
        claims = {"n": name, "i": person.id, "g": groups, "s": secrets.token_urlsafe(12)}
        # A browser drops a cookie that is too large without a word, and the login would begin again, for ever.
        while len(self._signed(claims, SESSION, now, age_s)) > MAX_COOKIE and (groups or name):
            if groups:
                groups.pop()
            else:
                claims["n"] = name = name[:-20]
        self.put(response, SESSION, claims, now, age_s)

    def person(self, request: web.Request, now: datetime) -> Person | None:
        """Who is logged in by the session cookie."""
        claims = self.get(request, SESSION, now)
        if claims is None:
            return None
        groups = tuple(str(group) for group in claims["g"])
        return Person(str(claims["n"]), str(claims["i"]), groups, str(claims["s"]), float(claims["exp"]))

    def form_token(self, nonce: str, person: Person) -> str:
        """What a form must bring back, for the nonce in the reader's cookie and for this person's session alone."""
        told = "\0".join((nonce, person.session, person.id)).encode()
        return hmac.new(self._form_key, told, hashlib.sha256).hexdigest()

    def is_form_token(self, told: str, nonce: str, person: Person) -> bool:
        """Whether a form was made for this person, in this session and this browser."""
        return bool(nonce) and nonce.isascii() and is_same(told, self.form_token(nonce, person))

    def seal(self, text: str) -> str:
        """A short signature for a part of an address that only the console writes."""
        return hmac.new(self._form_key, b"address\0" + text.encode(), hashlib.sha256).hexdigest()[:20]
