"""Mail under the suite that every connector passes, where SMTP, which cannot be asked, lets it.

Faults are made by the server itself, since no HTTP proxy fits before it. SMTP has no answer "I failed after I acted" and no time
to come back at: what HTTP says so with is a cut connection here, and every "not now" has the connector's own pause.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from aiosmtpd.smtp import SMTP, Envelope, Session

from connectors.base import Done, Effect, NoLease, Retry
from connectors.posts.email import Email
from streams.config.post_settings import EmailSettings
from tests.connectors.posts.blind import BlindContract
from tests.connectors.posts.effects import post
from tests.connectors.posts.mail_server import DROP, DROP_UNTAKEN, HANG, HANG_UNTAKEN, MailServer
from tests.contract.case import Case, carry_out
from tests.contract.faults import Answer, Cut, Fault, FaultProxy, Hang, Seen
from tests.contract.suite import fresh

pytestmark = pytest.mark.embedded


class MailFaults(FaultProxy):
    """The suite's queue of faults; a "write" is a mail that was handed in, taken or not."""

    def take_next(self) -> Fault | None:
        """What becomes of the mail that has just been handed in."""
        self.seen.append(Seen("DATA", "", True, time.monotonic(), None, b""))
        return self._fault("DATA", "", b"", write=True)


class FaultyMailServer(MailServer):
    """Does to each mail what the queue says."""

    def __init__(self, faults: MailFaults) -> None:
        super().__init__()
        self._faults = faults

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        match self._faults.take_next():
            case Hang(forward):
                self.at_data.append(HANG if forward else HANG_UNTAKEN)
            case Cut(forward):
                self.at_data.append(DROP if forward else DROP_UNTAKEN)
            case Answer(status=403):
                self.at_data.append("550 no")
            case Answer(status=429):
                self.at_data.append("452 too many mails")
            case Answer(forward=forward):
                self.at_data.append(DROP if forward else DROP_UNTAKEN)
        return await super().handle_DATA(server, session, envelope)


class MailCase(Case):
    """A mail for two mailboxes of their own. What counts is what a reader who folds by Message-ID sees."""

    def __init__(self, proxy: MailFaults, server: MailServer) -> None:
        super().__init__(proxy)
        self.server = server

    def effect(self) -> Effect:
        return post()

    def connector(self) -> Email:
        settings = EmailSettings(
            host="127.0.0.1",
            port=self.server.port,
            security="plain",
            sender="faultline@example.test",
            to=("ann@example.test", "bob@example.test"),
            timeout_s=0.4 if self.proxy.will_hang else 5.0,
        )
        return Email(settings, clock=lambda: datetime(2030, 5, 4, tzinfo=UTC))

    async def changes(self) -> int:
        seen = {len(self.server.mailbox(one)) for one in ("ann@example.test", "bob@example.test")}
        assert len(seen) == 1
        return seen.pop()

    async def snapshot(self) -> object:
        return list(self.server.raw)


class TestEmail(BlindContract):
    @pytest.fixture
    async def case(self) -> AsyncIterator[Case]:
        faults = MailFaults("")
        async with FaultyMailServer(faults) as server:
            yield MailCase(faults, server)

    async def test_called_by_two_processes_it_changes_the_world_once(self, case: Case) -> None:
        """The server takes both; both have one Message-ID."""
        async with fresh(case) as one, fresh(case) as other:
            assert isinstance((await carry_out(case, one))[-1], Done)
            assert isinstance((await carry_out(case, other))[-1], Done)
        assert await case.changes() == 1

    async def test_a_short_throttling_is_waited_out(self, case: Case) -> None:
        """No server says how long: the pause is a greylisting server's minute, and the caller waits it out."""
        case.proxy.on_writes(case.throttled(1))
        async with fresh(case) as connector:
            outcome = await connector.apply(case.effect(), NoLease())
            assert isinstance(outcome, Retry)
            assert outcome.after_s == 60
            assert isinstance(await connector.apply(case.effect(), NoLease()), Done)
        assert await case.changes() == 1
