"""Posts as mail through one SMTP server.

What SMTP answers is told apart: a server that says "not now" (4xx), "never" (5xx), and one that says nothing once it had the
mail. The last may have sent it, and nobody can be asked; the mail is handed in again, and because each copy has the same
Message-ID, servers and readers that fold by it show one. After `MAX_UNCLEAR` such tries a post counts as made, so that a server
that takes mail and hangs does not fill mailboxes.

Recipients are refused one by one. Those whom the server puts off are tried again while the others are not mailed again; if
another process goes on, they get a copy, which folds. Whoever was put off for too long holds up no other mail for an hour.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import aiosmtplib

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
)
from connectors.http import translated
from connectors.posts.mail_message import mail, message_id
from connectors.posts.post import POST, Post, Remembered, post_of, unclear
from connectors.posts.smtp import NOT_NOW_S, Refusals, answered, connected, is_temporary, offer, told
from connectors.rendering.text import one_line
from streams.config.post_settings import EmailSettings, is_mail_address
from streams.model.errors import ConfigError, Permanent

MAX_RECIPIENTS = 100
"""RFC 5321: every server takes this many."""
MAX_UNCLEAR = 3
"""Times a mail is handed in whose fate is not known."""
MAX_DEFERRED = 6
"""Times the recipients whom the server puts off are tried while others have the mail: greylisting ends within five minutes."""
NOT_WAITED_FOR = timedelta(hours=1)
"""How long nobody waits for a recipient who was put off so often: a full mailbox must not hold up everybody's mail."""


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
        self._deferred = Remembered[int]()
        self._not_waited_for = Remembered[datetime]()
        """Until when a mail waits no longer for this address."""
        self._places = asyncio.Semaphore(settings.at_once)

    async def close(self) -> None:
        """Nothing is kept open: a connection lasts for one mail."""

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Hand the mail in, to those who have not got it yet."""
        if (known := self._made.get(effect.key)) is not None:
            return known
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
        had = self._sent_to.get(effect.key) or ()
        content = self._content(effect, post, to)
        async with connected(self._settings, self._domain) as server:
            missing = [one for one in to if one not in had]
            accepted, refused = await offer(
                server, self._sender, missing, within_s=self._settings.timeout_s * 2
            )
            if accepted:
                lease.check()
                try:
                    await server.data(content)
                except aiosmtplib.SMTPDataError as error:
                    raise answered(error) from error
                except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
                    return self._no_answer(effect, type(error).__name__)
        return self._over(effect, had + accepted, refused)

    def _over(self, effect: Effect, sent_to: tuple[str, ...], refused: Refusals) -> Outcome:
        """What comes of a conversation after which these have the mail, and these were refused or put off."""
        self._sent_to.put(effect.key, sent_to)
        if deferred := self._waited_for(effect, refused, others=bool(sent_to)):
            return Retry(NOT_NOW_S, f"mailed to {len(sent_to)}, put off: {told(deferred)}")
        if not sent_to:
            raise Permanent(f"every recipient was refused: {told(refused)}")
        result: Result = {
            "message_id": message_id(effect, self._domain),
            "sent_to": sent_to,
            "refused": tuple(f"{address}: {code} {words}" for address, (code, words) in refused.items()),
        }
        detail = f"mailed to {len(sent_to)}" + (f", refused: {told(refused)}" if refused else "")
        self._made.put(effect.key, AlreadyDone(result, detail))
        for known in (self._unclear, self._deferred, self._sent_to):
            known.forget(effect.key)
        return Done(result, detail)

    def _waited_for(self, effect: Effect, refused: Refusals, *, others: bool) -> Refusals:
        """Those who were put off and are to be tried again. Nobody is waited for without end once others have the mail."""
        now = self._clock()
        deferred = {
            address: answer
            for address, answer in refused.items()
            if is_temporary(answer) and (self._not_waited_for.get(address) or now) <= now
        }
        if not deferred or not others:
            return deferred
        tries = (self._deferred.get(effect.key) or 0) + 1
        self._deferred.put(effect.key, tries)
        if tries < MAX_DEFERRED:
            return deferred
        for address in deferred:
            self._not_waited_for.put(address, now + NOT_WAITED_FOR)
        return {}

    def _no_answer(self, effect: Effect, why: str) -> Outcome:
        """The outcome of a mail that the server had and said nothing about."""
        tries = (self._unclear.get(effect.key) or 0) + 1
        self._unclear.put(effect.key, tries)
        if tries >= MAX_UNCLEAR:
            self._made.put(effect.key, unclear(f"handed in {tries} times without an answer"))
        return Unknown(f"no answer to the mail: {why}", after_s=NOT_NOW_S)

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

    def _content(self, effect: Effect, post: Post, to: tuple[str, ...]) -> bytes:
        return mail(
            effect,
            post,
            sender=self._sender,
            to=to,
            list_id=self._settings.list_id,
            now=self._clock(),
        ).as_bytes()


def _names(value: object) -> tuple[str, ...]:
    """Names from an attribute: separated by commas, or several already."""
    if isinstance(value, tuple):
        return tuple(map(str, value))
    return tuple(one for one in re.split(r"\s*,\s*", str(value or "").strip(" ,")) if one)
