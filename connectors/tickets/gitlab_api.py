"""GitLab's REST API for issues as tickets need it.

Issues are found by listing a label, which sees what was just written. Nothing is idempotent. A line that begins with a slash is a
quick action wherever text goes (`/close` in a log line would close the issue), and titles resolve mentions, too: `inert.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from connectors.base import LeaseHeld
from connectors.http import Ambiguous, Rejected, Upload, change, http_client, read, read_list
from connectors.tickets.hidden_marks import hidden, marks_hidden_in, others, with_marks
from connectors.tickets.markup import markdown_text
from connectors.tickets.ticket_api import (
    COMMON_LABEL,
    PLACE,
    Attached,
    Comment,
    Draft,
    Marks,
    Phase,
    Ticket,
    TicketFile,
    too_long,
)
from streams.config.ticket_settings import GitLabSettings
from streams.model.errors import ConfigError, Permanent, Temporary
from streams.model.message import Message, plain

MAX_BODY = 100_000
"""Characters; GitLab takes a million, people don't."""
MAX_PAGES = 50
MAX_LABEL = 255


class GitLabApi:
    """A `TicketApi`: issues of one project. Marks are labels, and a hidden line in the description.

    `assignees` are the ids of those whom the settings assign: anybody else has taken the issue on.
    """

    folds_comments = True

    def __init__(self, settings: GitLabSettings, *, assignees: Collection[str] = ()) -> None:
        if not settings.project:
            raise ConfigError("tickets.gitlab.project: not set, and tickets.system is gitlab")
        self.search_lag_s = settings.search_lag_s
        self._assignees = frozenset(assignees)
        self._project = f"api/v4/projects/{quote(settings.project, safe='')}"
        token = settings.token.get_secret_value() if settings.token else ""
        self._http = http_client(
            settings.base_url, timeout_s=settings.timeout_s, headers={"PRIVATE-TOKEN": token}
        )

    async def close(self) -> None:
        """Close connections."""
        await self._http.aclose()

    def misfit(self, marks: Marks) -> str:
        """Labels have 255 characters. The key is in the description."""
        return too_long([(marks.incident, MAX_LABEL), (marks.place, MAX_LABEL)], "a label of GitLab")

    async def search(self, mark: str, *, known: Sequence[str] = ()) -> list[Ticket]:
        """Issues with a label. Of a place that fails often the latest count."""
        params = {
            "labels": mark,
            "scope": "all",
            "state": "all",
            "per_page": 100,
            "order_by": "created_at",
            "sort": "desc" if mark.startswith(PLACE) else "asc",
        }
        rows = await read_list(self._http, f"{self._project}/issues", params=params)
        return [ticket for ticket in map(self._ticket, rows) if mark in ticket.marks]

    async def read(self, name: str) -> Ticket | None:
        """One issue by its number in the project."""
        if not name.isascii() or not name.isdigit():
            return None
        try:
            return self._ticket(await read(self._http, "GET", self._issue(name)))
        except Rejected as error:
            if error.status == 404:
                return None
            raise

    async def create(self, draft: Draft, lease: LeaseHeld) -> Ticket:
        """Make an issue. Labels that the project lacks are made with it."""
        marks = draft.marks
        wanted = draft.fields.get("labels", ())
        own = wanted.split(",") if isinstance(wanted, str) else wanted
        labels = [*own, COMMON_LABEL, marks.incident, *([marks.place] if marks.place else [])]
        issue = {
            **draft.fields,
            "title": draft.title,
            "description": markdown_text(draft.message, MAX_BODY, footer=hidden(marks.all)),
            "labels": ",".join(labels),
        }
        try:
            row = await change(self._http, "POST", f"{self._project}/issues", lease=lease, json=issue)
        except Rejected as error:
            raise Permanent(f"GitLab refuses the issue: {_complaint(error)}") from error
        if "iid" not in row:
            raise Ambiguous("GitLab accepted the issue but returned no number")
        return self._ticket(row)

    async def comments(self, ticket: Ticket) -> list[Comment]:
        """All notes but GitLab's own, however many pages of them there are."""
        found: list[Comment] = []
        for page in range(1, MAX_PAGES + 1):
            params = {"sort": "asc", "order_by": "created_at", "per_page": 100, "page": page}
            rows = await read_list(self._http, f"{self._issue(ticket.id)}/notes", params=params)
            found += [
                Comment(
                    str(row.get("id")),
                    str((row.get("author") or {}).get("id", "")),
                    str(row.get("body") or ""),
                )
                for row in rows
                if not row.get("system")
            ]
            if len(rows) < 100:
                return found
        raise Permanent(
            f"{ticket.key} has more than {MAX_PAGES * 100} notes: whether ours is there is unknown"
        )

    async def comment(self, ticket: Ticket, message: Message, token: str, lease: LeaseHeld) -> None:
        """Add a note."""
        await self._say(ticket, markdown_text(message, MAX_BODY, footer=token), lease)

    async def drop_comment(self, ticket: Ticket, comment: Comment, lease: LeaseHeld) -> None:
        """Delete our own note."""
        path = f"{self._issue(ticket.id)}/notes/{comment.id}"
        try:
            await change(self._http, "DELETE", path, lease=lease)
        except Rejected as error:
            if error.status != 404:
                raise Permanent(f"GitLab keeps a note on {ticket.key}: {_complaint(error)}") from error

    async def finish(self, ticket: Ticket, why: str, lease: LeaseHeld, *, withdrawn: bool = False) -> None:
        """Close it."""
        await self._edit(ticket, {"state_event": "close"}, lease, "closing")

    async def reopen(self, ticket: Ticket, lease: LeaseHeld) -> None:
        """Open it again."""
        await self._edit(ticket, {"state_event": "reopen"}, lease, "reopening")

    async def claim(self, ticket: Ticket, marks: Marks, lease: LeaseHeld) -> None:
        """Add the incident's label and hide the marks in the description, in one request."""
        row = await read(self._http, "GET", self._issue(ticket.id))
        description = with_marks(str(row.get("description") or ""), marks)
        await self._edit(
            ticket, {"add_labels": marks.incident, "description": description}, lease, "an edit of"
        )

    async def forget(self, ticket: Ticket, marks: Marks, lease: LeaseHeld) -> None:
        """Take the incident's label off."""
        await self._edit(ticket, {"remove_labels": marks.incident}, lease, "a label of")

    def takes(self, file: TicketFile) -> bool:
        """GitLab takes any file."""
        return True

    async def attached(self, ticket: Ticket) -> list[Attached]:
        """The files that notes of ours link to."""
        found = [
            Attached(comment.id, name, comment.by)
            for comment in await self.comments(ticket)
            for name in ("evidence.json", "evidence.txt", "timeline.svg")
            if _file_token(name) in comment.text
        ]
        return sorted(found, key=lambda one: one.id.rjust(20, "0"))

    async def attach(self, ticket: Ticket, file: TicketFile, lease: LeaseHeld) -> str:
        """Upload the file and link it in a note. An upload whose note was lost is linked from nowhere and harms nobody."""
        body = Upload(file.name, file.media_type, file.content, part="file")
        try:
            answer = await change(self._http, "POST", f"{self._project}/uploads", lease=lease, upload=body)
        except Rejected as error:
            raise Permanent(f"GitLab refuses {file.name} on {ticket.key}: {_complaint(error)}") from error
        if not isinstance(answer.get("url"), str):
            raise Ambiguous(f"GitLab accepted {file.name} but returned no address")
        note = f"[{file.name}]({answer['url']})\n\n<!-- {_file_token(file.name)} -->"
        return await self._say(ticket, note, lease)

    async def detach(self, ticket: Ticket, attached: Attached, lease: LeaseHeld) -> None:
        """Delete the note. The upload stays, linked from nowhere."""
        await self.drop_comment(ticket, Comment(attached.id, attached.by, ""), lease)

    async def _say(self, ticket: Ticket, body: str, lease: LeaseHeld) -> str:
        try:
            answer = await change(
                self._http, "POST", f"{self._issue(ticket.id)}/notes", lease=lease, json={"body": body}
            )
        except Rejected as error:
            raise Permanent(f"GitLab refuses the note on {ticket.key}: {_complaint(error)}") from error
        return str(answer.get("id", ""))

    async def _edit(self, ticket: Ticket, fields: Mapping[str, Any], lease: LeaseHeld, what: str) -> None:
        try:
            await change(self._http, "PUT", self._issue(ticket.id), lease=lease, json=dict(fields))
        except Rejected as error:
            raise Permanent(f"GitLab refuses {what} {ticket.key}: {_complaint(error)}") from error

    def _issue(self, iid: str) -> str:
        return f"{self._project}/issues/{iid}"

    def _ticket(self, row: Mapping[str, Any]) -> Ticket:
        try:
            iid, state = int(row["iid"]), str(row["state"])
        except (KeyError, TypeError, ValueError) as error:
            raise Temporary(f"GitLab described an issue without {error}") from error
        taken = others((str(who.get("id")) for who in row.get("assignees") or ()), self._assignees)
        return Ticket(
            id=str(iid),
            key=f"#{iid}",
            url=str(row.get("web_url", "")),
            born=f"{iid:012d}",
            marks=marks_hidden_in(str(row.get("description") or "")) | frozenset(row.get("labels") or ()),
            status=state,
            phase=Phase.DONE if state == "closed" else Phase.IN_PROGRESS if taken else Phase.NEW,
            closed_at=_moment(row.get("closed_at")),
        )


def _file_token(name: str) -> str:
    return f"faultline-file-{name.replace('.', '-')}"


def _moment(value: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(value))
    except ValueError:
        return None


def _complaint(error: Rejected) -> str:
    """GitLab's `message`, a text or a list by field, or its `error`."""
    told = error.body.get("message") or error.body.get("error") or ""
    if isinstance(told, dict):
        told = "; ".join(f"{name}: {what}" for name, what in told.items())
    return plain(str(told) or str(error), 500)
