"""One conversation with a mail server up to the mail itself, with its answers as errors that say whether to come back.

Until the end of DATA a server promises nothing, so whatever goes wrong here means that nothing was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import aiosmtplib
import structlog

from connectors.rendering.text import one_line
from streams.config.post_settings import EmailSettings
from streams.model.errors import Permanent, Temporary

log = structlog.get_logger(__name__)

NOT_NOW_S = 60.0
"""The pause after "not now": greylisting servers want about a minute at least."""
_DOWN_S = 15.0
_QUIT_S = 2.0

Answer = tuple[int, str]
"""An SMTP reply: its code and its words, on one line."""
Refusals = dict[str, Answer]
"""What the server said of each recipient that it did not accept."""


@asynccontextmanager
async def connected(settings: EmailSettings, domain: str) -> AsyncIterator[aiosmtplib.SMTP]:
    """A connection, encrypted and logged in as the settings say.

    Raises:
        Temporary: no server, or one that says "not now".
        Permanent: one that will not have us, or does not speak TLS.
    """
    password = settings.password.get_secret_value() if settings.password is not None else ""
    server = aiosmtplib.SMTP(
        hostname=settings.host,
        port=settings.port,
        timeout=settings.timeout_s,
        use_tls=settings.security == "tls",
        start_tls=False,  # by hand below: never "where it is offered"
        cert_bundle=str(settings.ca_file) if settings.ca_file is not None else None,
        local_hostname=domain,
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
            raise answered(error) from error
        except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
            raise Temporary(
                f"{settings.host}: {type(error).__name__} {one_line(str(error), 200)}", retry_after_s=_DOWN_S
            ) from error
        yield server
    finally:
        await _hang_up(server)


async def offer(
    server: aiosmtplib.SMTP, sender: str, to: Collection[str], *, within_s: float
) -> tuple[tuple[str, ...], Refusals]:
    """Name sender and recipients. Returns who was accepted, and the answer to each who was not.

    Raises:
        Temporary: the connection was lost, or the server says "not now" to all of it.
        Permanent: the server does not take mail from us.
    """
    accepted, refused = list[str](), Refusals()
    try:
        # A server that answers each recipient just in time must not keep a place for an hour.
        async with asyncio.timeout(within_s):
            await server.mail(sender)
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
        raise answered(error) from error
    except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
        raise Temporary(f"the mail server: {type(error).__name__}", retry_after_s=_DOWN_S) from error
    return tuple(accepted), refused


def answered(error: aiosmtplib.SMTPResponseException) -> Temporary | Permanent:
    """What the server's answer to a whole mail, or to us, means."""
    words = f"the mail server said {error.code} {one_line(str(error.message), 200)}"
    if is_temporary((error.code, "")):
        return Temporary(words, retry_after_s=NOT_NOW_S)
    return Permanent(words)


def is_temporary(answer: Answer) -> bool:
    """Whether the server may say yes later."""
    return 400 <= answer[0] < 500


def told(refused: Refusals) -> str:
    """The first few of them, for people."""
    return ", ".join(f"{address} ({code} {words})" for address, (code, words) in list(refused.items())[:5])


async def _hang_up(server: aiosmtplib.SMTP) -> None:
    """Say goodbye, briefly: what was accepted is accepted whatever comes of it."""
    try:
        if server.is_connected:
            await server.quit(timeout=_QUIT_S)
    except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
        log.debug("the mail server did not say goodbye", reason=str(error))
    finally:
        server.close()
