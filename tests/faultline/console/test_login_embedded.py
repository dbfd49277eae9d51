"""Who gets in: by the provider, by a trusted proxy, or nobody but this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from joserfc.jwk import RSAKey

from sandbox.fake_services.oidc import Account, OidcStandin
from sandbox.fake_services.server import InjectedFault
from streams.model.incident import Incident
from tests.faultline.console.scenes import Night, asking
from tests.faultline.console.served import ADA, BEHIND_A_PROXY, SECRET, reading, served
from tests.testbed.children import free_port

pytestmark = pytest.mark.embedded

ACCOUNT = Account(
    "u-1",
    {"name": "Ada Byron", "email": "ada@example.test", "email_verified": True, "groups": ["sre", "gpu"]},
)


@dataclass
class Place:
    """A console whose people log in at a provider."""

    night: Night
    about: Incident
    provider: OidcStandin
    base: str


@asynccontextmanager
async def place(**oidc: Any) -> AsyncIterator[Place]:
    night = Night()
    about = asking(night)
    secret = oidc.pop("client_secret", "standin-secret")
    async with OidcStandin(clock=lambda: night.now.timestamp(), client_secret=secret) as provider:
        provider.person = ACCOUNT
        port = free_port()
        settings: Mapping[str, Any] = {
            "public_url": f"http://127.0.0.1:{port}",
            "session_secret": SECRET,
            "oidc": {"issuer": provider.url, "client_id": "faultline", "client_secret": secret, **oidc},
        }
        provider.redirects.add(f"http://127.0.0.1:{port}/login/done")
        async with served(night, settings, port) as base:
            yield Place(night, about, provider, base)


async def test_a_person_logs_in_decides_and_logs_out() -> None:
    async with place() as here, reading(here.base, {}) as ada:
        page = await ada.get(f"/incidents/{here.about.id}")
        assert page.path == f"/incidents/{here.about.id}", (
            "the login leads back to the page that was asked for"
        )
        assert "Ada Byron" in page.shown
        await ada.decides(here.about.id, "approve")
        (command,) = here.night.commands
        assert command.actor == "Ada Byron (ada@example.test)"
        assert command.groups == ("oidc:sre", "oidc:gpu")
        (cookie,) = [c for c in ada.session.cookie_jar if c.key == "faultline-session"]
        assert cookie["httponly"]
        assert cookie["samesite"] == "Lax"
        token = (await ada.form(f"/incidents/{here.about.id}", "ack"))["token"]
        out = await ada.post("/logout", {"token": token})
        assert "logged out" in out.shown
        here.provider.person = None
        assert (await ada.get("/")).shown.strip() == "log in here"


async def test_a_session_ends_by_the_clock_and_what_was_typed_is_not_sent() -> None:
    async with place() as here, reading(here.base, {}) as ada:
        form = await ada.form(f"/incidents/{here.about.id}", "approve")
        here.night.now += timedelta(hours=9)
        page = await ada.post(f"/incidents/{here.about.id}/decide", form)
        assert page.status == 401
        assert "Your session has ended" in page.shown
        assert not here.night.commands


async def test_a_public_client_without_a_secret_logs_in_with_pkce_alone() -> None:
    async with place(client_secret=None) as here, reading(here.base, {}) as ada:
        assert "Ada Byron" in (await ada.get("/")).shown


async def test_an_address_that_the_provider_does_not_vouch_for_is_nobodys_id() -> None:
    async with place() as here, reading(here.base, {}) as eve:
        here.provider.person = Account("u-666", {"name": "Ada Byron", "email": "ada@example.test"})
        await eve.decides(here.about.id, "ack")
        assert here.night.commands[0].actor == "Ada Byron (u-666)"


async def test_a_person_of_many_groups_and_a_long_name_gets_in() -> None:
    """A browser drops a cookie of more than 4 KB without a word, and the login would begin again and again."""
    async with place() as here, reading(here.base, {}) as ada:
        groups = [f"{number}-" + "ä" * 60 for number in range(300)]
        here.provider.person = Account("u-1", {"name": "\U0001f525" * 200, "groups": groups})
        assert (await ada.get("/")).status == 200
        (cookie,) = [c for c in ada.session.cookie_jar if c.key == "faultline-session"]
        assert len(cookie.value) < 4_000
        await ada.decides(here.about.id, "ack")
        assert here.night.commands[0].groups[0] == f"oidc:{groups[0]}"


@pytest.mark.parametrize(
    ("lies", "why"),
    [
        ({"iss": "https://evil.example.test"}, "does not hold"),
        ({"aud": "another-client"}, "does not hold"),
        ({"aud": ["faultline", "another-client"]}, "somebody else"),
        ({"azp": "another-client"}, "somebody else"),
        ({"nonce": "of another login"}, "does not hold"),
        ({"nonce": None}, "does not hold"),
        ({"exp": 1_000_000_000}, "does not hold"),
        ({"sub": None}, "does not hold"),
    ],
)
async def test_an_id_token_that_is_not_for_this_login_lets_nobody_in(lies: dict[str, Any], why: str) -> None:
    async with place() as here, reading(here.base, {}) as eve:
        here.provider.lies = lies
        page = await eve.get("/")
        assert page.status == 403
        assert why in page.shown


async def test_a_token_signed_by_somebody_else_lets_nobody_in() -> None:
    async with place() as here, reading(here.base, {}) as eve:
        here.provider.forger = RSAKey.generate_key(2048, private=True)
        page = await eve.get("/")
        assert page.status == 403
        assert "not signed by the provider" in page.shown


async def test_a_new_key_of_the_provider_is_found() -> None:
    async with place() as here:
        async with reading(here.base, {}) as ada:
            assert "Ada Byron" in (await ada.get("/")).shown
        here.provider.rotate()
        here.provider.rotate()
        here.night.now += timedelta(minutes=1)
        async with reading(here.base, {}) as ada:
            assert "Ada Byron" in (await ada.get("/")).shown


async def test_an_answer_that_was_never_asked_for_lets_nobody_in() -> None:
    async with place() as here, reading(here.base, {}) as eve:
        page = await eve.get("/login/done?code=stolen&state=mine")
        assert page.status == 403
        assert "not begun in this browser" in page.shown


async def test_an_answer_to_another_login_lets_nobody_in() -> None:
    async with place() as here, reading(here.base, {}) as eve:
        here.provider.person = None
        await eve.get("/")
        page = await eve.get("/login/done?code=stolen&state=mine")
        assert page.status == 403
        assert "another login" in page.shown


async def test_what_the_provider_refuses_is_said() -> None:
    async with place() as here, reading(here.base, {}) as ada:
        here.provider.deny = "access_denied"
        page = await ada.get("/")
        assert page.status == 403
        assert "the provider refused: access_denied" in page.shown


@pytest.mark.parametrize("path", ["openid-configuration", "/token", "/jwks"])
async def test_a_provider_that_does_not_answer_is_named_as_the_reason(path: str) -> None:
    async with place() as here, reading(here.base, {}) as ada:
        here.provider.fail(InjectedFault(path, "status", times=9, status=503))
        page = await ada.get("/")
        assert page.status == 503
        assert "login provider does not answer" in page.shown
        here.provider.heal()
        assert "Ada Byron" in (await ada.get("/")).shown


@pytest.mark.parametrize(
    "back", ["//evil.example.test", "https://evil.example.test", "/\\evil.example.test", "javascript:1"]
)
async def test_a_login_never_leads_to_another_site(back: str) -> None:
    async with (
        place() as here,
        reading(here.base, {}) as ada,
        ada.session.get(f"{here.base}/login", params={"next": back}) as answer,
    ):
        assert str(answer.url) == f"{here.base}/"


async def test_a_forged_or_foreign_cookie_is_no_session() -> None:
    async with place() as here, reading(here.base, {}) as ada:
        await ada.get("/")
        (cookie,) = [c for c in ada.session.cookie_jar if c.key == "faultline-session"]
        (form,) = [c for c in ada.session.cookie_jar if c.key == "faultline-form"]
        here.provider.person = None
        for value in (cookie.value[:-4] + "AAAA", form.value, "", "e30.e30.", "x" * 4000):
            async with reading(here.base, {"Cookie": f"faultline-session={value}"}) as eve:
                assert (await eve.get("/")).shown.strip() == "log in here"


async def test_without_any_login_the_pages_are_read_only_and_for_this_machine_alone() -> None:
    night = Night()
    about = asking(night)
    async with served(night, {}) as base, reading(base, {}) as local:
        page = await local.get(f"/incidents/{about.id}")
        assert page.status == 200
        assert "read-only" in page.shown
        assert "<textarea" not in page.text
        assert (await local.post(f"/incidents/{about.id}/decide", {"verb": "ack"})).status == 403
    assert not night.commands


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "console.example.test"},
        {"Host": "127.0.0.1.evil.example.test"},
        {"X-Forwarded-For": "203.0.113.7"},
        {"Forwarded": "for=203.0.113.7"},
        {"Via": "1.1 proxy"},
        {"X-Real-IP": "127.0.0.1"},
    ],
)
async def test_without_any_login_others_get_nothing(headers: dict[str, str]) -> None:
    """Through a proxy, or by a name of somebody else that leads to this machine."""
    night = Night()
    asking(night)
    async with served(night, {}) as base, reading(base, headers) as other:
        for path in ("/", "/fleet", "/changes", "/search?q=gpu"):
            page = await other.get(path)
            assert page.status == 403
            assert "gpu-17" not in page.text


async def test_a_proxys_headers_are_believed_from_its_addresses_only() -> None:
    night = Night()
    asking(night)
    async with (
        served(night, {**BEHIND_A_PROXY, "proxy": {"addresses": ["192.0.2.0/24"]}}) as base,
        reading(base, ADA) as eve,
    ):
        assert (await eve.get("/")).status == 403
    async with served(night, {**BEHIND_A_PROXY, "proxy": {"addresses": ["127.0.0.0/8"]}}) as base:
        async with reading(base, ADA) as ada:
            assert "Ada" in (await ada.get("/")).shown
        async with reading(base, {}) as nobody:
            assert (await nobody.get("/")).status == 403


async def test_two_user_headers_are_no_user() -> None:
    """The proxy added its own to one that was sent to it: nobody can tell which is which."""
    night = Night()
    async with served(night) as base, reading(base, {}) as eve:
        told = [("X-Forwarded-User", "ada@example.test"), ("X-Forwarded-User", "eve@example.test")]
        assert (await eve.get("/", headers=told)).status == 403


async def test_over_https_cookies_are_secure_and_bound_to_the_host() -> None:
    night = Night()
    about = asking(night)
    settings = {**BEHIND_A_PROXY, "public_url": "https://console.example.test"}
    async with served(night, settings) as base, reading(base, ADA) as ada:
        page = await ada.get(f"/incidents/{about.id}")
        told = page.headers["Set-Cookie"]
        assert told.startswith("__Host-faultline-form=")
        assert "Secure" in told
        assert "HttpOnly" in told
