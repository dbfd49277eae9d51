"""Copies of tickets, comments and files that got through, folded into the first; and the closing that says its reason once.

Copies come from requests that were thought lost. Whoever sees two keeps the older one, so two processes never disagree.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import structlog

from connectors.base import LeaseHeld
from connectors.http import Ambiguous
from connectors.tickets.ticket_api import Comment, Ticket, TicketApi, TicketFile
from streams.model.errors import Permanent, Temporary
from streams.model.message import Fact, Facts, Message, Paragraph

log = structlog.get_logger(__name__)

_TOKEN = re.compile(r"faultline-(?:[0-9a-f]{16,}(?:-undo|-again)?|(?:copy-of|file)-[A-Za-z0-9_-]+)")


async def finish(
    api: TicketApi, ticket: Ticket, why: Message, token: str, lease: LeaseHeld, *, withdrawn: bool = False
) -> None:
    """Comment the reason (once), then close."""
    comments = await api.comments(ticket)
    await fold_comments(api, ticket, comments, lease)
    if not holds(comments, token):
        await api.comment(ticket, why, token, lease)
    await api.finish(ticket, why.summary, lease, withdrawn=withdrawn)


async def fold(api: TicketApi, tickets: Sequence[Ticket], lease: LeaseHeld) -> None:
    """Close every later duplicate with a pointer to the first. Duplicates come from creates that were thought lost."""
    first, *later = tickets
    for copy in later:
        if copy.is_done:
            continue
        text = f"Duplicate of {first.key} (same incident); please continue there."
        try:
            why = Message(text, (Paragraph(text), Facts((Fact("ticket", first.url, url=first.url),))))
            token = f"faultline-copy-of-{re.sub('[^A-Za-z0-9]', '-', first.key)}"
            await finish(api, copy, why, token, lease, withdrawn=True)
        except Ambiguous as error:
            # About a copy only: what the step itself wants has not been sent, so it is tried again and not looked up.
            raise Temporary(str(error)) from error
        except Permanent as error:
            # The ticket itself is fine; a duplicate that the workflow will not close is left to an operator.
            log.warning("could not close duplicate ticket", first=first.key, copy=copy.key, reason=str(error))


async def fold_comments(
    api: TicketApi, ticket: Ticket, comments: Sequence[Comment], lease: LeaseHeld
) -> None:
    """Take back each of our comments whose token an earlier one carries."""
    first: dict[str, Comment] = {}
    for comment in comments:
        for token in _TOKEN.findall(comment.text)[-1:]:
            said = first.setdefault(token, comment)
            if said is comment or not api.folds_comments or not _says_again(comment, said, token):
                continue
            try:
                await api.drop_comment(ticket, comment, lease)
            except Ambiguous as error:
                raise Temporary(str(error)) from error
            except Permanent as error:
                log.warning("could not take back a doubled comment", ticket=ticket.key, reason=str(error))


async def attach_once(api: TicketApi, ticket: Ticket, file: TicketFile, lease: LeaseHeld) -> None:
    """Attach a file that is not there yet. Where somebody did the same meanwhile, the first of the two copies stays.

    Only files of one author are copies of each other: what a person attached under the same name is theirs.
    """
    if any(one.name == file.name for one in await api.attached(ticket)):
        return
    made = await api.attach(ticket, file, lease)
    same = [one for one in await api.attached(ticket) if one.name == file.name]
    author = next((one.by for one in same if one.id == made), None)
    for copy in [one for one in same if one.by == author][1:]:
        try:
            await api.detach(ticket, copy, lease)
        except Ambiguous as error:
            raise Temporary(str(error)) from error
        except Permanent as error:
            log.warning(
                "could not delete a doubled file", ticket=ticket.key, file=file.name, reason=str(error)
            )


def _says_again(comment: Comment, first: Comment, token: str) -> bool:
    """Whether it is ours, too, and no quotation: by the same author, with the same heading, and nothing behind the token.

    The facts between may differ: the incident may have gone on before the second was sent.
    """
    ends = re.sub(r"\W+\Z", "", comment.text).endswith(token)
    return ends and comment.by == first.by and _opening(comment) == _opening(first)


def _opening(comment: Comment) -> str:
    return comment.text.partition("\n")[0]


def holds(comments: Sequence[Comment], token: str) -> bool:
    """Whether one of the comments carries the token itself, not one that begins with it."""
    whole = re.compile(rf"{re.escape(token)}(?![A-Za-z0-9_-])")
    return any(whole.search(comment.text) for comment in comments)
