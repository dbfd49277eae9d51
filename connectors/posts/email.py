"""Posts as mail through one SMTP server.

What SMTP answers is told apart: a server that says "not now" (4xx), "never" (5xx), and one that says nothing once it had the
mail. The last may have sent it, and nobody can be asked; the mail is handed in again, and because each copy has the same
Message-ID, servers and readers that fold by it show one. After `MAX_UNCLEAR` such tries the post is given up, so that a server
that takes mail and hangs does not fill mailboxes.

Recipients are refused one by one. Those who may be accepted later are tried again; the others have got their mail by then, which
`Waiting` carries to the next call.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiosmtplib
import structlog

from connectors.base import (
    Absent,
    AlreadyDone,
    Done,
    Effect,
    LeaseHeld,
    Outcome,
    Refused,
    Result,
    Retry,
    Unknown,
    Waiting,
)
from connectors.http import translated
from connectors.posts.mail_message import mail, message_id
from connectors.posts.post import POST, Remembered, post_of
from connectors.rendering.text import one_line
from streams.config.post_settings import EmailSettings, is_mail_address
from streams.model.errors import ConfigError, Permanent, Temporary

log = structlog.get_logger(__name__)

MAX_RECIPIENTS = 100
"""RFC 5321: every server takes this many."""
MAX_UNCLEAR = 3
"""Times a mail is handed in whose fate is not known."""
MAX_DEFERRED = 5
"""Times the recipients whom the server puts off are tried before they are given up."""

_NOT_NOW_S = 60.0
"""Greylisting servers want a pause of about a minute."""
_DOWN_S = 15.0
_QUIT_S = 2.0


class Email:
    """`post`. Params besides: `to`, addresses separated by commas, instead of the settings' own.

    Result: `message_id`, `sent_to`, `refused` (addresses, each with the server's reason).
    """

    actions = frozenset({POST})

    def __init__(
        self, settings: EmailSettings, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        if not settings.host or settings.sender is None:
            raise ConfigError("posts.email.host and posts.email.sender are not set")
        self._settings = settings
        self._sender = settings.sender
        self._domain = settings.sender.rpartition("@")[2]
        self._clock = clock
        self._made = Remembered[AlreadyDone]()
        self._sent_to = Remembered[tuple[str, ...]]()
        self._unclear = Remembered[int]()
        self._places = asyncio.Semaphore(settings.at_once)

    async def close(self) -> None:
        """Nothing is kept open: a connection lasts for one mail."""

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Hand the mail in, to those who have not got it yet."""
        if (known := self._made.get(effect.key)) is not None:
            return known
        if (self._unclear.get(effect.key) or 0) >= MAX_UNCLEAR:
            return Refused(f"handed in {MAX_UNCLEAR} times without an answer; it is not sent again")
        async with self._places:
            return await translated(self._post(effect, lease))

    async def lookup(self, effect: Effect) -> Outcome:
        """SMTP cannot be asked. Where this process does not know better, it is handed in again: a copy folds into the first."""
        return self._made.get(effect.key) or Absent("SMTP cannot be asked; a copy has the same Message-ID")

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Never: a mail cannot be called back."""
        return Refused("a mail cannot be called back")

    async def _post(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        post = post_of(effect)
        to = self._recipients(effect)
        had = _names(effect.prior.get("sent_to")) + (self._sent_to.get(effect.key) or ())
        missing = tuple(one for one in to if one not in had)
        if not missing:
            return self._over(effect, to, {})
        content = mail(
            effect,
            post,
            sender=self._sender,
            to=to,
            list_id=self._settings.list_id,
            now=self._clock(),
        ).as_bytes()
        async with self._connected() as server:
            accepted, refused = await self._offer(server, missing)
            deferred = {address: why for address, why in refused.items() if _is_temporary(why)}
            if not accepted and deferred:
                return self._put_off(effect, had, deferred)
            if not accepted:
                raise Permanent(f"every recipient was refused: {_told(refused)}")
            # The last moment at which nothing has happened: until the end of DATA the server promises nothing.
            lease.check()
            try:
                await server.data(content)
            except aiosmtplib.SMTPDataError as error:
                raise _answered(error) from error
            except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
                tries = (self._unclear.get(effect.key) or 0) + 1
                self._unclear.put(effect.key, tries)
                return Unknown(f"no answer to the mail: {type(error).__name__}", after_s=_NOT_NOW_S)
        sent_to = had + accepted
        self._sent_to.put(effect.key, sent_to)
        if deferred:
            return self._put_off(effect, sent_to, deferred)
        return self._over(effect, sent_to, refused, new=True)

    def _put_off(
        self, effect: Effect, sent_to: tuple[str, ...], deferred: dict[str, tuple[int, str]]
    ) -> Outcome:
        """What comes of recipients whom the server may accept later: another try, or none after `MAX_DEFERRED` of them."""
        if not sent_to:
            # Nobody has it: the caller's own deadline says when to stop.
            return Retry(_NOT_NOW_S, f"put off: {_told(deferred)}")
        tries = effect.prior.get("tries", 0)
        tries = (tries if isinstance(tries, int) else 0) + 1
        if tries >= MAX_DEFERRED:
            return self._over(effect, sent_to, deferred, new=True)
        result: Result = {"sent_to": sent_to, "tries": tries}
        return Waiting(_NOT_NOW_S, f"sent to {len(sent_to)}, put off: {_told(deferred)}", result)

    def _over(
        self,
        effect: Effect,
        sent_to: tuple[str, ...],
        refused: dict[str, tuple[int, str]],
        *,
        new: bool = False,
    ) -> Outcome:
        result: Result = {
            "message_id": message_id(effect, self._domain),
            "sent_to": sent_to,
            "refused": tuple(f"{address}: {code} {words}" for address, (code, words) in refused.items()),
        }
        detail = f"mailed to {len(sent_to)}" + (f", refused: {_told(refused)}" if refused else "")
        found = AlreadyDone(result, detail)
        self._made.put(effect.key, found)
        self._unclear.forget(effect.key)
        return Done(result, detail) if new else found

    def _recipients(self, effect: Effect) -> tuple[str, ...]:
        """Whom this post is for.

        Raises:
            Permanent: when it names somebody who is not an address, or too many.
        """
        named = effect.params.get("to")
        to = tuple(dict.fromkeys(_names(named))) if named else self._settings.to
        if wrong := [one for one in to if not is_mail_address(one)]:
            raise Permanent(f"not a mail address: {one_line(wrong[0], 100)!r}")
        if not to or len(to) > MAX_RECIPIENTS:
            raise Permanent(f"{len(to)} recipients; 1 to {MAX_RECIPIENTS} are possible in one post")
        return to

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[aiosmtplib.SMTP]:
        """A connection, encrypted and logged in as the settings say.

        Raises:
            Temporary: no server, or one that says "not now".
            Permanent: one that will not have us, or does not speak TLS.
        """
        settings = self._settings
        password = settings.password.get_secret_value() if settings.password is not None else ""
        server = aiosmtplib.SMTP(
            hostname=settings.host,
            port=settings.port,
            timeout=settings.timeout_s,
            use_tls=settings.security == "tls",
            start_tls=False,  # by hand below: never "where it is offered"
            cert_bundle=str(settings.ca_file) if settings.ca_file is not None else None,
            local_hostname=self._domain,
        )
        try:
            try:
                async with asyncio.timeout(settings.timeout_s * 2):
                    await server.connect()
                    await server.ehlo()
                    if settings.security == "starttls":
                        if not server.supports_extension("starttls"):
                            raise Permanent(f"{settings.host} offers no STARTTLS; nothing was sent")
                        await server.starttls()
                    if settings.user:
                        await server.login(settings.user, password)
            except aiosmtplib.SMTPResponseException as error:
                raise _answered(error) from error
            except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
                raise Temporary(
                    f"{settings.host}: {type(error).__name__} {one_line(str(error), 200)}",
                    retry_after_s=_DOWN_S,
                ) from error
            yield server
        finally:
            await _hang_up(server)

    async def _offer(
        self, server: aiosmtplib.SMTP, to: Collection[str]
    ) -> tuple[tuple[str, ...], dict[str, tuple[int, str]]]:
        """Name sender and recipients. Returns who was accepted, and the answer to each who was not.

        Raises:
            Temporary: the connection was lost, or the server says "not now" to all of it.
            Permanent: the server does not take mail from us.
        """
        accepted, refused = list[str](), dict[str, tuple[int, str]]()
        try:
            # A server that answers each recipient just in time must not keep a place for an hour.
            async with asyncio.timeout(self._settings.timeout_s * 2):
                await server.mail(self._sender)
                for address in to:
                    try:
                        await server.rcpt(address)
                    except aiosmtplib.SMTPRecipientRefused as error:
                        if error.code == aiosmtplib.SMTPStatus.domain_unavailable:
                            raise
                        refused[address] = (error.code, one_line(error.message, 200))
                    else:
                        accepted.append(address)
        except aiosmtplib.SMTPResponseException as error:
            raise _answered(error) from error
        except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
            raise Temporary(
                f"{self._settings.host}: {type(error).__name__}", retry_after_s=_DOWN_S
            ) from error
        return tuple(accepted), refused


async def _hang_up(server: aiosmtplib.SMTP) -> None:
    """Say goodbye, briefly: what was accepted is accepted whatever comes of it."""
    try:
        if server.is_connected:
            await server.quit(timeout=_QUIT_S)
    except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
        log.debug("the mail server did not say goodbye", reason=str(error))
    finally:
        server.close()


def _answered(error: aiosmtplib.SMTPResponseException) -> Temporary | Permanent:
    """What the server's answer to a whole mail means."""
    words = f"the mail server said {error.code} {one_line(str(error.message), 200)}"
    if 400 <= error.code < 500:
        return Temporary(words, retry_after_s=_NOT_NOW_S)
    return Permanent(words)


def _is_temporary(answer: tuple[int, str]) -> bool:
    return 400 <= answer[0] < 500


def _told(refused: dict[str, tuple[int, str]]) -> str:
    return ", ".join(f"{address} ({code} {words})" for address, (code, words) in list(refused.items())[:5])


def _names(value: object) -> tuple[str, ...]:
    """Names from an attribute: separated by commas, or several already."""
    if isinstance(value, tuple):
        return tuple(map(str, value))
    return tuple(one for one in re.split(r"\s*,\s*", str(value or "").strip(" ,")) if one)
