"""Mail handed to a real SMTP server on loopback: what readers see, and what is made of the server's answers."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from connectors.base import (
    Absent,
    AlreadyDone,
    Done,
    Effect,
    NoLease,
    Outcome,
    Refused,
    Retry,
    Unknown,
)
from connectors.posts.email import MAX_DEFERRED, MAX_UNCLEAR, Email
from connectors.posts.mail_message import MAX_HTML, MAX_TEXT
from streams.config.post_settings import EmailSettings
from streams.model.errors import Fenced
from streams.model.message import Code, Heading, Message, Paragraph
from streams.model.signal import Attribute
from tests.connectors.posts.effects import INCIDENT, post
from tests.connectors.posts.mail_server import DROP, DROP_BEFORE, HANG, MailServer, contexts
from tests.contract.case import LostLease, when_sent

pytestmark = pytest.mark.embedded

ANN, BOB = "ann@example.test", "bob@example.test"
NOW = datetime(2030, 5, 4, 3, 2, 1, tzinfo=UTC)


@pytest.fixture
async def server() -> AsyncIterator[MailServer]:
    async with MailServer() as running:
        yield running


def email(server: MailServer, clock: Callable[[], datetime] = lambda: NOW, **settings: Any) -> Email:
    wishes: dict[str, object] = {
        "host": "127.0.0.1",
        "port": server.port,
        "security": "plain",
        "sender": "faultline@ops.example.test",
        "to": (ANN, BOB),
        "timeout_s": 5.0,
    }
    return Email(EmailSettings(**(wishes | settings)), clock=clock)


async def sent(connector: Email, effect: Effect | None = None) -> Outcome:
    return await connector.apply(effect or post(), NoLease())


# -- what readers see


async def test_a_mail_has_text_and_html_and_asks_for_no_answer(server: MailServer) -> None:
    outcome = await sent(email(server))
    assert isinstance(outcome, Done)
    ((to, mail),) = server.mails
    assert to == (ANN, BOB)
    assert mail["Subject"] == "GPU fell off the bus on gpu-17"
    assert mail["From"] == "Faultline <faultline@ops.example.test>"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["List-Id"] == "Faultline incidents <faultline.ops.example.test>"
    assert mail["Message-ID"] == outcome.result["message_id"]
    assert mail["X-Faultline-Incident"] == INCIDENT
    plain, rich = mail.get_body(("plain",)), mail.get_body(("html",))
    assert plain is not None
    assert rich is not None
    assert "Node: gpu-17 <https://console.example.test/n/gpu-17>" in plain.get_content()
    shown = rich.get_content()
    assert '<a href="https://console.example.test/n/gpu-17"' in shown
    assert "color-scheme" in shown
    assert "Approve" not in shown + plain.get_content()
    assert max(map(len, server.raw[0].splitlines())) <= 998


async def test_mails_of_an_incident_make_one_thread_also_for_who_never_got_the_first(
    server: MailServer,
) -> None:
    connector = email(server)
    await sent(connector, post("a" * 32))
    await sent(connector, post("b" * 32, first=False))
    await sent(connector, post("c" * 32, first=False, thread="inc-another"))
    first, second, other = (mail for _, mail in server.mails)
    assert first["References"] == second["References"] == second["In-Reply-To"]
    assert first["In-Reply-To"] is None
    assert first["Subject"] == second["Subject"]
    assert other["References"] != first["References"]
    assert len({mail["Message-ID"] for _, mail in server.mails}) == 3


async def test_a_copy_from_another_process_is_folded_by_its_message_id(server: MailServer) -> None:
    await sent(email(server))
    successor = email(server)
    assert isinstance(await successor.lookup(post()), Absent)
    assert isinstance(await sent(successor), Done)
    assert len(server.mails) == 2
    assert len(server.mailbox(ANN)) == 1


async def test_what_this_process_has_sent_it_does_not_send_again(server: MailServer) -> None:
    connector = email(server)
    await sent(connector)
    assert isinstance(await sent(connector), AlreadyDone)
    assert isinstance(await connector.lookup(post()), AlreadyDone)
    assert isinstance(await connector.undo(post(), NoLease()), Refused)
    assert len(server.mails) == 1


@pytest.mark.parametrize(
    "subject",
    [
        "x\r\nBcc: eve@example.test\r\n\r\nbody",
        "x\nBcc: eve@example.test",
        "x\rBcc: eve@example.test",
        "x\u2028Bcc: eve@example.test",
        "x\x85Bcc: eve@example.test",
        "x\x0bBcc: eve@example.test\x0c\x1c\x1d\x1e",
        "\r\n\r\n",
        "=?utf-8?q?x=0D=0ABcc:_eve@example.test?=",
        "==??utf-8?b?eA0KQmNjOiBldmVAZXhhbXBsZS50ZXN0?=",
        "ü" * 5_000 + "\r\nBcc: eve@example.test",
    ],
)
async def test_no_text_makes_a_header(server: MailServer, subject: str) -> None:
    message = Message(subject, (Heading(subject), Paragraph(subject), Code(subject + "\r\n.\r\nQUIT\r\n")))
    assert isinstance(await sent(email(server), post(message=message, subject=subject)), Done)
    ((to, mail),) = server.mails
    assert to == (ANN, BOB)
    assert mail["Bcc"] is None
    assert mail.get_content_type() == "multipart/alternative"
    assert mail.defects == []
    assert b"\nBcc" not in server.raw[0].partition(b"\r\n\r\n")[0]
    assert len(mail["Subject"].splitlines()) == 1


@pytest.mark.parametrize(
    "to",
    [
        "eve",
        "ann@example.test\r\nRCPT TO:<eve@example.test>",
        "a@b@c",
        "<a@b>",
        "a b@c",
        "é@x.test",
        "@",
        " , ",
    ],
)
async def test_whoever_is_no_address_gets_no_mail(server: MailServer, to: str) -> None:
    assert isinstance(await sent(email(server), post(to=to)), Refused)
    assert server.connections == 0


@pytest.mark.parametrize(
    "to", ["carl@example.test", ("carl@example.test",), "carl@example.test, carl@example.test"]
)
async def test_a_post_may_name_its_own_readers(server: MailServer, to: Attribute) -> None:
    await sent(email(server), post(to=to))
    assert [to for to, _ in server.mails] == [("carl@example.test",)]


async def test_a_mail_of_megabytes_is_cut(server: MailServer) -> None:
    message = Message("much", tuple(Code("x" * 5_000_000) for _ in range(30)))
    assert isinstance(await sent(email(server), post(message=message)), Done)
    assert len(server.raw[0]) < 2 * (MAX_TEXT + MAX_HTML)
    assert b"the rest is left out" in server.raw[0]


# -- what the server answers


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("421 closing", Retry),
        ("451 later", Retry),
        ("452 no room", Retry),
        ("550 no", Refused),
        ("552 too large", Refused),
        ("554 spam", Refused),
    ],
)
async def test_an_answer_to_the_whole_mail(server: MailServer, answer: str, kind: type[Outcome]) -> None:
    server.at_data = deque([answer])
    connector = email(server)
    assert isinstance(await sent(connector), kind)
    assert server.mails == []
    if kind is Retry:
        assert isinstance(await sent(connector), Done)
        assert len(server.mails) == 1


async def test_a_recipient_who_is_refused_keeps_the_mail_from_nobody_else(server: MailServer) -> None:
    server.at_rcpt[BOB] = deque(["550 no such user"])
    outcome = await sent(email(server))
    assert isinstance(outcome, Done)
    assert outcome.result["sent_to"] == (ANN,)
    assert outcome.result["refused"] == (f"{BOB}: 550 no such user",)
    assert BOB in outcome.detail
    assert [to for to, _ in server.mails] == [(ANN,)]


async def test_if_every_recipient_is_refused_so_is_the_post(server: MailServer) -> None:
    server.at_rcpt = {ANN: deque(["550 no"]), BOB: deque(["553 no"])}
    assert isinstance(await sent(email(server)), Refused)
    assert server.mails == []


async def test_a_recipient_who_is_put_off_gets_it_later_and_the_other_once(server: MailServer) -> None:
    server.at_rcpt[BOB] = deque(["451 greylisted"])
    connector = email(server)
    outcome = await sent(connector)
    assert isinstance(outcome, Retry)
    assert outcome.after_s == 60
    again = await sent(connector)
    assert isinstance(again, Done)
    assert again.result["sent_to"] == (ANN, BOB)
    assert [to for to, _ in server.mails] == [(ANN,), (BOB,)]


async def test_if_another_process_goes_on_who_had_it_gets_a_copy_that_folds(server: MailServer) -> None:
    server.at_rcpt[BOB] = deque(["451 greylisted"])
    await sent(email(server))
    assert isinstance(await sent(email(server)), Done)
    assert (len(server.mailbox(ANN)), len(server.mailbox(BOB))) == (1, 1)


async def test_a_recipient_who_is_put_off_for_ever_holds_up_no_other_mail(server: MailServer) -> None:
    server.at_rcpt[BOB] = deque(["452 mailbox full"] * (MAX_DEFERRED + 2))
    now = [NOW]
    connector = email(server, clock=lambda: now[0])
    outcomes = [await sent(connector) for _ in range(MAX_DEFERRED)]
    assert [type(one) for one in outcomes] == [Retry] * (MAX_DEFERRED - 1) + [Done]
    assert outcomes[-1].result["refused"] == (f"{BOB}: 452 mailbox full",)  # type: ignore[union-attr]
    next_mail = await sent(connector, post("b" * 32))
    assert isinstance(next_mail, Done)
    assert next_mail.result["sent_to"] == (ANN,)
    now[0] += timedelta(hours=2)
    assert isinstance(await sent(connector, post("c" * 32)), Retry)
    assert isinstance(await sent(connector, post("c" * 32)), Done)
    assert [to for to, _ in server.mails] == [(ANN,), (ANN,), (ANN,), (BOB,)]


async def test_if_all_are_put_off_nothing_was_sent(server: MailServer) -> None:
    server.at_rcpt = {ANN: deque(["452 too many"]), BOB: deque(["451 later"])}
    connector = email(server)
    assert isinstance(await sent(connector), Retry)
    assert isinstance(await sent(connector), Done)
    assert len(server.mails) == 1


@pytest.mark.parametrize("fault", [HANG, DROP])
async def test_an_answer_lost_after_data_is_unclear_and_a_copy_folds(server: MailServer, fault: str) -> None:
    server.at_data = deque([fault])
    connector = email(server, timeout_s=0.5)
    assert isinstance(await when_sent(lambda: sent(connector)), Unknown)
    assert isinstance(await connector.lookup(post()), Absent)
    assert isinstance(await sent(email(server)), Done)
    assert len(server.mails) == 2
    assert len(server.mailbox(ANN)) == 1


async def test_a_server_that_takes_mail_and_never_answers_does_not_fill_mailboxes(server: MailServer) -> None:
    server.at_data = deque([DROP] * 50)
    connector = email(server)
    outcomes = [await sent(connector) for _ in range(MAX_UNCLEAR)]
    assert [type(one) for one in outcomes] == [Unknown] * MAX_UNCLEAR
    found = await connector.lookup(post())
    assert isinstance(found, AlreadyDone)
    assert found.result == {"unclear": True}
    assert await sent(connector) == found
    assert len(server.mails) == MAX_UNCLEAR


async def test_a_connection_lost_before_data_is_a_mail_that_was_not_sent(server: MailServer) -> None:
    server.at_rcpt[BOB] = deque([DROP_BEFORE])
    connector = email(server)
    assert isinstance(await sent(connector), Retry)
    assert isinstance(await sent(connector), Done)
    assert len(server.mails) == 1


async def test_a_recipient_answered_with_421_ends_the_connection_and_is_tried_again(
    server: MailServer,
) -> None:
    server.at_rcpt[ANN] = deque(["421 shutting down"])
    connector = email(server)
    assert isinstance(await sent(connector), Retry)
    assert server.mails == []


async def test_a_server_that_is_not_there_is_tried_again() -> None:
    async with MailServer() as gone:
        connector = email(gone)
    assert isinstance(await sent(connector), Retry)


async def test_without_its_lease_no_mail_leaves(server: MailServer) -> None:
    with pytest.raises(Fenced):
        await email(server).apply(post(), LostLease())
    assert server.mails == []


# -- TLS and login


async def test_starttls_and_login(tmp_path: Path) -> None:
    tls, authority = contexts(tmp_path)
    async with MailServer(tls=tls, login=("faultline", "hush")) as server:
        kept: dict[str, Any] = {"security": "starttls", "ca_file": authority, "user": "faultline"}
        assert isinstance(await sent(email(server, **kept, password=SecretStr("hush"))), Done)
        assert server.encrypted == [True]
        wrong = await sent(email(server, **kept, password=SecretStr("wrong")))
        assert isinstance(wrong, Refused)
        assert "535" in wrong.reason
        assert "wrong" not in wrong.reason


async def test_tls_from_the_start(tmp_path: Path) -> None:
    tls, authority = contexts(tmp_path)
    async with MailServer(tls=tls, implicit_tls=True) as server:
        assert isinstance(await sent(email(server, security="tls", ca_file=authority)), Done)
        assert server.encrypted == [True]


@pytest.mark.parametrize("security", ["tls", "starttls"])
async def test_a_certificate_that_nobody_vouches_for_gets_no_mail(tmp_path: Path, security: str) -> None:
    tls, _ = contexts(tmp_path)
    async with MailServer(tls=tls, implicit_tls=security == "tls") as server:
        assert isinstance(await sent(email(server, security=security)), Retry)
        assert server.mails == []


async def test_a_server_without_starttls_gets_no_mail_in_plain_text(server: MailServer) -> None:
    outcome = await sent(email(server, security="starttls"))
    assert isinstance(outcome, Refused)
    assert server.mails == []


# -- settings


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"sender": None}, "sender"),
        ({"to": ()}, "to"),
        ({"user": "x"}, "password"),
        ({"user": "x", "password": "y", "security": "plain"}, "user"),
        ({"sender": "Eve <eve@example.test>"}, "sender"),
        ({"to": ("ann@example.test\nBcc: x@y",)}, "to"),
        ({"host": "mail.example.test:25"}, "host"),
        ({"list_id": "a b"}, "list_id"),
    ],
)
def test_settings_that_cannot_work_say_which(wrong: dict[str, object], named: str) -> None:
    right: dict[str, object] = {"host": "mail.example.test", "sender": "f@example.test", "to": (ANN,)}
    with pytest.raises(ValidationError, match=named):
        EmailSettings(**(right | wrong))


def test_addresses_may_come_in_one_string() -> None:
    settings = EmailSettings.model_validate({"host": "m", "sender": "f@example.test", "to": f"{ANN}, {BOB}"})
    assert settings.to == (ANN, BOB)
