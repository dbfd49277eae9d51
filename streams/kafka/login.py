"""How a client proves who it is: certificates, passwords and tokens, each taken anew for every connection.

cert-manager, Vault's agent and a mounted Secret replace files under a running process. What was loaded once would work until it
expires and then fail in every replica at the same time, so nothing is loaded once: connections that stand go on, the next one
uses what lies there now.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import structlog
from aiokafka import client as aiokafka_client
from aiokafka import conn as aiokafka_conn

from streams.config.settings import KafkaSettings
from streams.kafka.oauth_token import ClientCredentials, NoLogin
from streams.model.errors import ConfigError

log = structlog.get_logger(__name__)


class RotatingContext(ssl.SSLContext):
    """A TLS context that is built again when one of its files has changed.

    A pair of files is replaced one after the other: where a certificate does not fit its key, the context from before stays
    until both are there.
    """

    def __new__(cls, *_: Any) -> RotatingContext:
        """Make the shell: `SSLContext` takes its one argument here."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, cafile: Path | None, certfile: Path | None, keyfile: Path | None) -> None:
        self._files = cafile, certfile, keyfile
        self._seen = self._state()
        self._context = self._load()

    def wrap_bio(self, *args: Any, **options: Any) -> Any:
        """As `ssl.SSLContext.wrap_bio`, which asyncio calls for each connection, with the files of now."""
        state = self._state()
        if state != self._seen:
            try:
                self._context, self._seen = self._load(), state
                log.info("Kafka certificates reloaded", files=[str(f) for f in self._files if f])
            except ConfigError as error:
                log.warning(
                    "changed Kafka certificates are not usable yet; the former stay", reason=str(error)
                )
        return self._context.wrap_bio(*args, **options)

    def _state(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_state(file) for file in self._files)

    def _load(self) -> ssl.SSLContext:
        cafile, certfile, keyfile = self._files
        try:
            context = ssl.create_default_context(cafile=cafile)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if certfile is not None:
                # Without a password to ask for, an encrypted key is an error instead of a prompt that nobody sees.
                context.load_cert_chain(certfile, keyfile, password=lambda: "")
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"kafka.ssl_cafile, ssl_certfile, ssl_keyfile: {error}") from error
        return context


def _state(file: Path | None) -> tuple[int, int, int] | None:
    """What changes when a file is replaced, through a symbolic link too: Secrets are mounted as links to a dated folder."""
    try:
        found = file.stat() if file is not None else None
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size) if found else None


class PasswordFile:
    """A password that is read from its file for each connection."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> str:
        """The password now, without the line's end.

        Raises:
            NoLogin: when the file cannot be read.
        """
        try:
            return self._file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise NoLogin(f"kafka.sasl_password_file: {error}") from error


_create_conn = aiokafka_client.create_conn


async def _with_present_password(*args: Any, sasl_plain_password: Any = None, **options: Any) -> Any:
    if isinstance(sasl_plain_password, PasswordFile):
        sasl_plain_password = sasl_plain_password.read()
    return await _create_conn(*args, sasl_plain_password=sasl_plain_password, **options)


# aiokafka takes a password once for a client's whole life and has no callback for it, as it has for tokens. This is the one
# place where it opens connections, for Faust's clients as well.
aiokafka_client.create_conn = _with_present_password


class _Bearer(aiokafka_conn.OAuthAuthenticator):  # type: ignore[misc]
    """Hears that a token is refused.

    A broker answers such a token with a reason and no error, and with the error only when that is acknowledged (RFC 7628, section
    3.2.3). aiokafka's own takes the reason for a success, and then asks for metadata for ever and gets none.
    """

    async def step(self, payload: bytes | None) -> tuple[bytes, bool] | None:
        """What is sent next; None when the login is over."""
        if self._token_sent and payload:
            log.error("the broker refuses the token for Kafka", reason=payload[:200].decode(errors="replace"))
            return b"\x01", True
        step: tuple[bytes, bool] | None = await super().step(payload)
        return step


aiokafka_conn.OAuthAuthenticator = _Bearer


def security(settings: KafkaSettings) -> dict[str, Any]:
    """What aiokafka needs for `kafka.security_protocol`, `kafka.sasl_*`, `kafka.oauth` and `kafka.ssl_*`.

    Raises:
        ConfigError: when certificates or keys cannot be loaded.
    """
    if settings.security_protocol == "PLAINTEXT":
        return {}
    options: dict[str, Any] = {"security_protocol": settings.security_protocol}
    if settings.security_protocol.endswith("SSL"):
        options["ssl_context"] = RotatingContext(
            settings.ssl_cafile, settings.ssl_certfile, settings.ssl_keyfile
        )
    if settings.security_protocol.startswith("SASL"):
        options["sasl_mechanism"] = settings.sasl_mechanism
        options |= _login(settings)
    return options


def _login(settings: KafkaSettings) -> dict[str, Any]:
    if settings.sasl_mechanism == "OAUTHBEARER":
        return {"sasl_oauth_token_provider": ClientCredentials.of(settings.oauth)}
    password: Any = settings.sasl_password.get_secret_value() if settings.sasl_password else None
    if settings.sasl_password_file is not None:
        password = PasswordFile(settings.sasl_password_file)
    return {"sasl_plain_username": settings.sasl_username, "sasl_plain_password": password}
