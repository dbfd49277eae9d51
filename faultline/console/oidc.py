"""Login at an OpenID Connect provider: code flow with PKCE, state and nonce (OpenID Connect Core 1.0, section 3.1; RFC 7636).

What the browser carries in between (state, nonce, verifier) is in a signed cookie of ten minutes; nothing is stored here. Of the
tokens only the ID token is read, once, and none is kept.
"""

from __future__ import annotations

import asyncio
import secrets
from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote_plus, urlsplit

import httpx
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from connectors.http import http_client
from faultline.console.sessions import MAX_GROUPS, Person, is_same
from streams.config.console_settings import ConsoleSettings
from streams.model.errors import BadInput, Unreachable
from streams.model.message import plain

LOGIN_S = 600.0
"""How long a login may take at the provider."""

_ALGORITHMS = ["RS256", "PS256", "ES256"]
"""Asymmetric ones: a client secret that leaked signs nobody's token."""
_KEYS_FOR = timedelta(hours=1)
_KEYS_AGAIN = timedelta(seconds=30)
_LEEWAY_S = 60
_MAX_ANSWER = 1024 * 1024


class Provider:
    """The provider, as its discovery document describes it. Raises Unreachable where it does not answer as it should."""

    def __init__(self, settings: ConsoleSettings) -> None:
        if settings.oidc.issuer is None or settings.public_url is None:
            raise ValueError("a provider needs an issuer and the console's public URL")
        self._oidc = settings.oidc
        self._issuer = settings.oidc.issuer
        self._redirect = settings.public_url.rstrip("/") + "/login/done"
        self._about: Mapping[str, Any] | None = None
        self._keys: KeySet | None = None
        self._keys_at: datetime | None = None
        self._once = asyncio.Lock()

    async def begin(self) -> tuple[str, dict[str, str]]:
        """Where to send the browser, and what to keep in its cookie until it comes back."""
        verifier, nonce = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
        state = secrets.token_urlsafe(24)
        async with self._client() as client:
            about = await self._describe(client)
        url = prepare_grant_uri(
            _endpoint(about, "authorization_endpoint"),
            client_id=self._oidc.client_id,
            response_type="code",
            redirect_uri=self._redirect,
            scope=" ".join(self._oidc.scopes),
            state=state,
            nonce=nonce,
            code_challenge=create_s256_code_challenge(verifier),
            code_challenge_method="S256",
        )
        return url, {"state": state, "nonce": nonce, "verifier": verifier}

    async def finish(self, answer: Mapping[str, str], kept: Mapping[str, Any], now: datetime) -> Person:
        """The person whom the provider's answer proves.

        Raises:
            BadInput: the answer does not belong to the login that was begun, or proves nobody; the text is for the person.
            Unreachable: the provider does not answer.
        """
        if not is_same(answer.get("state", ""), str(kept["state"])):
            raise BadInput("the answer belongs to another login")
        if error := answer.get("error"):
            raise BadInput(
                f"the provider refused: {plain(error, 100)} {plain(answer.get('error_description', ''), 300)}"
            )
        # RFC 9207: an answer that says whose it is must be this provider's.
        if answer.get("iss", self._issuer) != self._issuer:
            raise BadInput("the answer is another provider's")
        async with self._client() as client:
            about = await self._describe(client)
            token = await self._redeem(client, about, answer.get("code", ""), str(kept["verifier"]))
            claims = await self._proven(client, about, token, str(kept["nonce"]), now)
        return self._person(claims)

    def _client(self) -> httpx.AsyncClient:
        return http_client(self._issuer, timeout_s=self._oidc.timeout_s)

    async def _describe(self, client: httpx.AsyncClient) -> Mapping[str, Any]:
        async with self._once:
            if self._about is None:
                about = await self._get(
                    client, f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
                )
                if about.get("issuer") != self._issuer:
                    raise Unreachable(f"{self._issuer} calls itself {plain(str(about.get('issuer')), 200)}")
                for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                    _endpoint(about, name)
                self._about = about
            return self._about

    async def _redeem(
        self, client: httpx.AsyncClient, about: Mapping[str, Any], code: str, verifier: str
    ) -> str:
        """The ID token for a code, which works once."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect,
            "code_verifier": verifier,
        }
        secret, headers = self._oidc.client_secret, {}
        if secret is None:
            form["client_id"] = self._oidc.client_id
        else:
            # RFC 6749, section 2.3.1: both are form-encoded before they are put together.
            pair = f"{quote_plus(self._oidc.client_id)}:{quote_plus(secret.get_secret_value())}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        url = _endpoint(about, "token_endpoint")
        try:
            answer = await client.post(url, data=form, headers=headers)
            tokens = answer.json() if len(answer.content) <= _MAX_ANSWER else None
        except (httpx.HTTPError, ValueError) as error:
            raise Unreachable(f"{url} does not answer: {error!r}") from error
        if not isinstance(tokens, dict) or answer.status_code >= 500:
            raise Unreachable(f"{url} answers with {answer.status_code}")
        if answer.status_code != 200 or "error" in tokens:
            raise BadInput(f"the provider refused the login: {plain(str(tokens.get('error')), 100)}")
        found = tokens.get("id_token")
        if not isinstance(found, str):
            raise BadInput("the provider sent no ID token")
        return found

    async def _proven(
        self, client: httpx.AsyncClient, about: Mapping[str, Any], token: str, nonce: str, now: datetime
    ) -> Mapping[str, Any]:
        """The claims of an ID token that is the provider's, for us, for this login, and fresh (section 3.1.3.7)."""
        claims = await self._signed(client, about, token, now)
        registry = jwt.JWTClaimsRegistry(
            now=int(now.timestamp()),
            leeway=_LEEWAY_S,
            iss={"essential": True, "value": self._issuer},
            aud={"essential": True, "value": self._oidc.client_id},
            exp={"essential": True},
            iat={"essential": True},
            sub={"essential": True},
            nonce={"essential": True, "value": nonce},
        )
        try:
            registry.validate(claims)
        except JoseError as error:
            raise BadInput(f"the ID token does not hold: {plain(str(error), 200)}") from error
        for_several = isinstance(claims.get("aud"), list) and len(claims["aud"]) > 1
        if (for_several or "azp" in claims) and claims.get("azp") != self._oidc.client_id:
            raise BadInput("the ID token was made for somebody else")
        return claims

    async def _signed(
        self, client: httpx.AsyncClient, about: Mapping[str, Any], token: str, now: datetime
    ) -> dict[str, Any]:
        """The token's claims once its signature holds. Keys are read again where they may have been changed."""
        for newest in (False, True):
            keys = await self._provider_keys(client, about, now, newest=newest)
            try:
                return dict(jwt.decode(token, keys, algorithms=_ALGORITHMS).claims)
            except (JoseError, ValueError) as error:
                if newest:
                    raise BadInput("the ID token is not signed by the provider") from error
        raise AssertionError("unreachable")

    async def _provider_keys(
        self, client: httpx.AsyncClient, about: Mapping[str, Any], now: datetime, *, newest: bool
    ) -> KeySet:
        async with self._once:
            age = now - self._keys_at if self._keys_at is not None else None
            if self._keys is None or age is None or age > (_KEYS_AGAIN if newest else _KEYS_FOR):
                try:
                    self._keys = KeySet.import_key_set(await self._get(client, _endpoint(about, "jwks_uri")))  # type: ignore[arg-type]
                except (JoseError, ValueError, KeyError, TypeError) as error:
                    raise Unreachable(f"{self._issuer} publishes no usable keys") from error
                self._keys_at = now
            return self._keys

    async def _get(self, client: httpx.AsyncClient, url: str) -> dict[str, Any]:
        try:
            answer = await client.get(url)
            answer.raise_for_status()
            document = answer.json() if len(answer.content) <= _MAX_ANSWER else None
        except (httpx.HTTPError, ValueError) as error:
            raise Unreachable(f"{url} does not answer: {error!r}") from error
        if not isinstance(document, dict):
            raise Unreachable(f"{url} answers with something else than an object")
        return document

    def _person(self, claims: Mapping[str, Any]) -> Person:
        # An address that the provider does not vouch for can be anybody's; the subject never is.
        mail = claims.get("email") if claims.get("email_verified") in (True, "true") else None
        ident = plain(str(mail or claims["sub"]), 200)
        name = plain(str(claims.get("name") or claims.get("preferred_username") or ident), 200)
        told = claims.get(self._oidc.groups_claim, [])
        groups = told if isinstance(told, list) else [told]
        return Person(
            name, ident, tuple(f"oidc:{plain(str(group), 200)}" for group in groups[:MAX_GROUPS]), ""
        )


def _endpoint(about: Mapping[str, Any], name: str) -> str:
    url = about.get(name)
    if not isinstance(url, str) or urlsplit(url).scheme not in ("http", "https"):
        raise Unreachable(f"the provider's discovery names no {name}")
    return url
