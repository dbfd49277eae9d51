"""Tokens for `OAUTHBEARER`, by OAuth's client credentials (RFC 6749, section 4.4).

A token is kept for all connections of a process and replaced before it ends. A provider that is away costs nothing as long as
the kept token lasts: it is asked again for the next connection.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import structlog
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

from streams.config.kafka_oauth import KafkaOAuthSettings

if TYPE_CHECKING:
    import httpx

log = structlog.get_logger(__name__)

RENEW_AT = 0.8
"""The part of a token's life after which it is replaced: a connection that begins with it must still be accepted."""
SHORTEST_S = 60.0
"""The life of a token whose provider does not say it (RFC 6749 makes `expires_in` optional)."""
TIMEOUT_S = 10.0
LARGEST_BYTES = 64 * 1024


class NoLogin(KafkaError):  # type: ignore[misc]
    """Nothing to log in with now. aiokafka tries such a connection again; any other error would end its background tasks."""

    def __str__(self) -> str:
        return str(self.args[0])


class ClientCredentials(AbstractTokenProvider):  # type: ignore[misc]
    """One client at a provider. Faust connects from a thread of its own, so nothing here belongs to an event loop."""

    def __init__(
        self, settings: KafkaOAuthSettings, *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._now = monotonic
        self._lock = threading.Lock()
        self._token = ""
        self._renew_at = self._ends_at = 0.0

    @classmethod
    def of(cls, settings: KafkaOAuthSettings) -> ClientCredentials:
        """The one of this process for these settings: its clients share the token."""
        return _shared(settings)

    async def token(self) -> str:
        """A token that has not ended, new where a fifth or less of the kept one's life is left.

        Raises:
            NoLogin: the provider gives none, and the kept one has ended.
        """
        return await asyncio.to_thread(self._take)

    def _take(self) -> str:
        import httpx  # a tenth of the start of every process, and few of them log in this way

        with self._lock:
            if self._now() < self._renew_at:
                return self._token
            try:
                self._ask()
            except (httpx.HTTPError, OSError, ValueError) as error:
                reason = f"no token from {self._settings.token_url}: {_plain(error)}"
                if self._now() >= self._ends_at:
                    raise NoLogin(reason) from error
                log.warning(
                    "the token for Kafka could not be renewed; the present one still lasts", reason=reason
                )
            return self._token

    def _ask(self) -> None:
        import httpx

        wanted = self._settings
        form = {"grant_type": "client_credentials"}
        form |= {name: value for name in ("scope", "audience") if (value := getattr(wanted, name))}
        asked_at = self._now()
        verify = ssl.create_default_context(cafile=wanted.cafile)
        # No redirects: they would carry the secret to whomever the answer names.
        with httpx.Client(verify=verify, timeout=TIMEOUT_S, follow_redirects=False) as client:
            answer = client.post(wanted.token_url or "", data=form, auth=(wanted.client_id, wanted.secret()))
        if answer.status_code != httpx.codes.OK or len(answer.content) > LARGEST_BYTES:
            raise ValueError(f"it answered {answer.status_code}{_error_of(answer)}")
        told = answer.json()
        token = told.get("access_token") if isinstance(told, dict) else None
        if not isinstance(token, str) or not token:
            raise ValueError("its answer holds no access_token")
        life = told.get("expires_in", SHORTEST_S)
        life_s = float(life) if isinstance(life, int | float | str) else SHORTEST_S
        self._token = token
        self._renew_at, self._ends_at = asked_at + life_s * RENEW_AT, asked_at + life_s


@cache
def _shared(settings: KafkaOAuthSettings) -> ClientCredentials:
    return ClientCredentials(settings)


def _error_of(answer: httpx.Response) -> str:
    """OAuth's error code. Nothing else of the answer is repeated: some providers echo what they were sent."""
    try:
        told = answer.json()
    except ValueError:
        return ""
    code = told.get("error") if isinstance(told, dict) else None
    return f" ({code[:60]})" if isinstance(code, str) else ""


def _plain(error: Exception) -> str:
    return str(error) or type(error).__name__
