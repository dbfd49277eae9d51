"""A stand-in for an OpenID Connect provider, with real RS256 signatures.

Endpoints, as in OpenID Connect Discovery 1.0 and Core 1.0:
- `GET /.well-known/openid-configuration`: issuer, authorization_endpoint, token_endpoint, jwks_uri
- `GET /authorize`: response_type=code, client_id, redirect_uri, scope, state, nonce, code_challenge,
  code_challenge_method=S256; redirects at once as `person`, or with an error (`deny`); a client, a redirect_uri or a scope that
  it does not know gets an error page, never a redirect
- `POST /token`: grant_type=authorization_code, code, redirect_uri, code_verifier; client_secret_basic, or client_id in the body
  of a public client; answers access_token, token_type, expires_in, id_token; `invalid_client` 401, `invalid_grant` 400
- `POST /token` with grant_type=client_credentials: a service with its own secret (`services`) gets an access token, a JWT with
  itself as `sub`; `expires_in` is `service_token_s`
- `GET /jwks`: the public keys, by kid

A code can be redeemed once and for a minute (RFC 6749, section 4.1.2), and only with its verifier (RFC 7636).
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from joserfc import jwt
from joserfc.jwk import RSAKey

from sandbox.fake_services.server import Standin

CODE_S = 60.0


@dataclass(frozen=True, slots=True)
class _Code:
    redirect: str
    nonce: str
    challenge: str
    until: float
    claims: dict[str, Any]


@dataclass(slots=True)
class Account:
    """Who logs in. `claims` go into the ID token over those that every token has."""

    sub: str = "u-4711"
    claims: dict[str, Any] = field(default_factory=dict)


class OidcStandin(Standin):
    """A provider with one client. `person` is who is logged in there; None shows its login page instead of redirecting."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        client_id: str = "faultline",
        client_secret: str | None = "standin-secret",
    ) -> None:
        super().__init__()
        self.client_id = client_id
        self.client_secret = client_secret
        self.redirects: set[str] = set()
        """Addresses that are registered for the client."""
        self.person: Account | None = Account()
        self.deny = ""
        """An OAuth error to answer with instead, like `access_denied`."""
        self.lies: dict[str, Any] = {}
        """Claims to change after all others: a wrong `aud`, `nonce`, `iss`, `exp` …"""
        self.services: dict[str, str] = {}
        """Clients that log in as themselves, each with its secret."""
        self.service_token_s = 300.0
        self._clock = clock
        self._codes: dict[str, _Code] = {}
        self._keys: list[RSAKey] = []
        self.forger: RSAKey | None = None
        """Signs instead of the provider's own key, under that one's name."""
        self.rotate()
        self.app.router.add_get("/.well-known/openid-configuration", self._discovery)
        self.app.router.add_get("/authorize", self._authorize)
        self.app.router.add_post("/token", self._token)
        self.app.router.add_get("/jwks", self._jwks)

    def rotate(self) -> None:
        """A new key; the one before stays published."""
        number = len(self._keys) + 1
        key = RSAKey.generate_key(2048, {"kid": f"key-{number}", "use": "sig", "alg": "RS256"}, private=True)
        self._keys = [*self._keys[-1:], key]

    async def _discovery(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/jwks",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
                "code_challenge_methods_supported": ["S256"],
            }
        )

    async def _jwks(self, request: web.Request) -> web.Response:
        return web.json_response({"keys": [key.as_dict(private=False) for key in self._keys]})

    async def _authorize(self, request: web.Request) -> web.Response:
        asked = request.query
        known = asked.get("client_id") == self.client_id and asked.get("redirect_uri") in self.redirects
        if not known or "openid" not in asked.get("scope", "").split():
            return web.Response(status=400, text="unknown client, redirect_uri or scope")
        if asked.get("response_type") != "code" or asked.get("code_challenge_method") != "S256":
            raise web.HTTPFound(
                _with(asked["redirect_uri"], error="invalid_request", state=asked.get("state", ""))
            )
        if self.deny:
            raise web.HTTPFound(_with(asked["redirect_uri"], error=self.deny, state=asked.get("state", "")))
        if self.person is None:
            return web.Response(text="log in here")
        code = secrets.token_urlsafe(16)
        claims = {"sub": self.person.sub, **self.person.claims}
        self._codes[code] = _Code(
            asked["redirect_uri"],
            asked.get("nonce", ""),
            asked.get("code_challenge", ""),
            self._clock() + CODE_S,
            claims,
        )
        raise web.HTTPFound(_with(asked["redirect_uri"], code=code, state=asked.get("state", "")))

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        if form.get("grant_type") == "client_credentials":
            return self._service_token(request, str(form.get("audience", "")))
        if not self._is_client(request, str(form.get("client_id", ""))):
            return web.json_response({"error": "invalid_client"}, status=401)
        code = self._codes.pop(str(form.get("code", "")), None)
        verifier = str(form.get("code_verifier", "")).encode()
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier).digest()).decode().rstrip("=")
        fits = (
            code is not None
            and form.get("grant_type") == "authorization_code"
            and code.redirect == form.get("redirect_uri")
            and code.until > self._clock()
            and code.challenge == challenge
        )
        if code is None or not fits:
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response(
            {
                "access_token": secrets.token_urlsafe(16),
                "token_type": "Bearer",
                "expires_in": 300,
                "id_token": self._id_token(code),
            }
        )

    def _service_token(self, request: web.Request, audience: str) -> web.Response:
        header = request.headers.get("Authorization", "")
        for name, secret in self.services.items():
            expected = base64.b64encode(f"{name}:{secret}".encode()).decode()
            if secrets.compare_digest(header.encode(), f"Basic {expected}".encode()):
                now = self._clock()
                token = self._signed(
                    {
                        "iss": self.url,
                        "sub": name,
                        "aud": audience or self.client_id,
                        "iat": int(now),
                        "exp": int(now + self.service_token_s),
                        "scope": "kafka",
                        **self.lies,
                    }
                )
                return web.json_response(
                    {"access_token": token, "token_type": "Bearer", "expires_in": self.service_token_s}
                )
        return web.json_response({"error": "invalid_client"}, status=401)

    def _signed(self, claims: dict[str, Any]) -> str:
        key = self._keys[-1]
        return jwt.encode({"alg": "RS256", "kid": key.kid}, claims, self.forger or key)

    def _id_token(self, code: _Code) -> str:
        now = int(self._clock())
        claims = {
            "iss": self.url,
            "aud": self.client_id,
            "iat": now,
            "exp": now + 300,
            "nonce": code.nonce,
            **code.claims,
            **self.lies,
        }
        return self._signed(claims)

    def _is_client(self, request: web.Request, told: str) -> bool:
        header = request.headers.get("Authorization", "")
        if self.client_secret is None:
            return not header and told == self.client_id
        expected = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        return secrets.compare_digest(header.encode(), f"Basic {expected}".encode())


def _with(address: str, **parameters: str) -> str:
    return f"{address}?{urlencode(parameters)}"
