"""Certificates and passwords are taken anew for every connection, and a half replaced pair breaks nothing."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import faust
import httpx
import pytest
from pydantic import SecretStr, ValidationError

from streams.config.kafka_oauth import KafkaOAuthSettings
from streams.config.settings import KafkaSettings
from streams.correlate.faust_app import _credentials
from streams.kafka import oauth_token
from streams.kafka.login import PasswordFile, RotatingContext, security
from streams.kafka.oauth_token import ClientCredentials, NoLogin
from streams.model.errors import ConfigError
from tests.testbed.certificates import Authority

PROVIDER = KafkaOAuthSettings(
    token_url="https://id.example.test/token", client_id="detector", client_secret=SecretStr("hidden")
)


@asynccontextmanager
async def server(authority: Authority) -> AsyncIterator[tuple[int, list[str]]]:
    """Listens with mutual TLS: its port, and the names of who came."""
    names: list[str] = []
    certificate, key = authority.issue("server", server=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.file)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(certificate, key)

    async def meet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        subject = writer.get_extra_info("peercert")["subject"]
        names.append(subject[0][0][1])
        writer.write(b"hello")
        writer.close()

    async with await asyncio.start_server(meet, "127.0.0.1", 0, ssl=context) as listening:
        yield listening.sockets[0].getsockname()[1], names


async def connect(port: int, context: ssl.SSLContext) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    assert await reader.read() == b"hello"
    writer.close()


def replace(target: tuple[Path, Path], source: tuple[Path, Path], *, which: int | None = None) -> None:
    """As cert-manager does: a new file takes the place of the old one."""
    for number, (old, new) in enumerate(zip(target, source, strict=True)):
        if which in (None, number):
            copy = old.with_suffix(".new")
            copy.write_bytes(new.read_bytes())
            copy.rename(old)


async def test_the_next_connection_shows_the_certificate_that_lies_there_now(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    mine, next_one = authority.issue("old"), authority.issue("new")
    context = RotatingContext(authority.file, *mine)
    async with server(authority) as (port, names):
        await connect(port, context)
        replace(mine, next_one, which=0)
        await connect(port, context)
        replace(mine, next_one, which=1)
        await connect(port, context)
    assert names == ["old", "old", "new"], "a certificate without its key yet must not be used"


async def test_an_authority_that_is_taken_back_is_trusted_no_longer(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "a"), Authority(tmp_path / "b", "Other CA")
    mine = authority.issue("me")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.file.read_bytes())
    context = RotatingContext(trusted, *mine)
    async with server(authority) as (port, _):
        await connect(port, context)
        trusted.write_bytes(other.file.read_bytes() * 2)
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(port, context)


async def test_a_broker_of_another_name_is_not_trusted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = RotatingContext(authority.file, *authority.issue("me"))
    async with server(authority) as (port, _):
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            await asyncio.open_connection(
                "127.0.0.1", port, ssl=context, server_hostname="kafka.example.test"
            )


def test_files_that_cannot_be_used_at_the_start_are_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(ConfigError, match="ssl_cafile"):
        RotatingContext(tmp_path / "ca.pem", None, None)


def test_a_password_is_read_each_time_and_a_missing_one_is_tried_again(tmp_path: Path) -> None:
    file = tmp_path / "password"
    password = PasswordFile(file)
    with pytest.raises(NoLogin, match="sasl_password_file"):
        password.read()
    file.write_text("one two\n")
    assert password.read() == "one two"
    file.write_text("three")
    assert password.read() == "three"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"security_protocol": "SSL"}, faust.SSLCredentials),
        (
            {"security_protocol": "SASL_SSL", "sasl_username": "u", "sasl_password": "p"},
            faust.SASLCredentials,
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "oauth": PROVIDER},
            faust.OAuthCredentials,
        ),
    ],
)
def test_the_correlators_own_client_logs_in_as_the_others_do(changes: dict[str, object], kind: type) -> None:
    settings = KafkaSettings.model_validate(changes)
    assert isinstance(_credentials(settings), kind)
    assert isinstance(security(settings)["ssl_context"], RotatingContext)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"token_url": "http://id.example.test/token"}, "https"),
        ({"client_id": ""}, "client_id: not set"),
        ({"client_secret": None}, "exactly one"),
        ({"client_secret_file": "/secret"}, "exactly one"),
    ],
)
def test_a_provider_that_cannot_work_is_refused_at_the_start(changes: dict[str, object], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        KafkaOAuthSettings.model_validate({**PROVIDER.model_dump(), **changes})


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}, "oauth.token_url: not set"),
        ({"oauth": PROVIDER}, "oauth.token_url: not used"),
        ({"security_protocol": "SASL_SSL", "sasl_username": "u"}, "sasl_password: not set"),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_username": "u",
                "sasl_password": "p",
                "sasl_password_file": "/p",
            },
            "one of the two",
        ),
    ],
)
def test_a_login_that_is_not_whole_is_refused_at_the_start(changes: dict[str, object], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        KafkaSettings.model_validate(changes)


class Clock:
    """A monotonic clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_a_token_is_kept_renewed_early_and_outlives_a_provider_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[httpx.Response | Exception] = []

    def answer(request: httpx.Request) -> httpx.Response:
        assert b"hidden" not in request.content, "the secret belongs in the header"
        given = answers.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    real = httpx.Client
    monkeypatch.setattr(httpx, "Client", lambda **options: real(transport=httpx.MockTransport(answer)))
    clock = Clock()
    provider = ClientCredentials(PROVIDER, monotonic=clock)

    def token(name: str) -> httpx.Response:
        return httpx.Response(200, json={"access_token": name, "expires_in": 100})

    answers.append(token("first"))
    assert [await provider.token(), await provider.token()] == ["first", "first"], "asked once"
    clock.now += 85
    answers.append(httpx.ConnectError("refused"))
    assert await provider.token() == "first", "it still lasts"
    answers.append(token("second"))
    assert await provider.token() == "second"
    clock.now += 101
    for wrong in (
        httpx.ConnectError("refused"),
        httpx.Response(302, headers={"location": "https://elsewhere.example.test"}),
        httpx.Response(200, json={"access_token": ""}),
        httpx.Response(200, json=["no", "object"]),
        httpx.Response(200, content=b"x" * (oauth_token.LARGEST_BYTES + 1)),
        httpx.Response(401, json={"error": "invalid_client", "error_description": "secret was hidden"}),
    ):
        answers.append(wrong)
        with pytest.raises(NoLogin) as caught:
            await provider.token()
        assert "hidden" not in str(caught.value)
