"""GitHub's REST API for issues as tickets need it.

Issues are found by listing a label, which sees what was just written; the search API does not and is not used. Labels that a
token may not set are dropped without a word, and an issue without them would never be found again: so the right is checked first.
There are no attachments; a text file becomes a folded comment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from connectors.base import LeaseHeld
from connectors.http import Ambiguous, Rejected, change, http_client, read, read_list
from connectors.tickets.hidden_marks import hidden, marks_hidden_in, others, with_marks
from connectors.tickets.inert import fenced
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
from streams.config.ticket_settings import GitHubSettings
from streams.model.errors import ConfigError, Permanent, Temporary
from streams.model.message import Message, plain

MAX_BODY = 60_000
"""Characters; GitHub takes 65,536."""
MAX_FILE = 55_000
MAX_PAGES = 50
MAX_LABEL = 50

_MAY_LABEL = ("admin", "maintain", "push", "triage")


class GitHubApi:
    """A `TicketApi`: issues of one repository. Marks are labels, and a hidden line in the body.

    `assignees` are those whom the settings assign: anybody else has taken the issue on.
    """

    folds_comments = True

    def __init__(self, settings: GitHubSettings, *, assignees: Collection[str] = ()) -> None:
        if not settings.repository:
            raise ConfigError("tickets.github.repository: not set, and tickets.system is github")
        self.search_lag_s = settings.search_lag_s
        self._assignees = frozenset(assignees)
        self._repository = f"repos/{settings.repository}"
        self._may_label = False
        token = settings.token.get_secret_value() if settings.token else ""
        self._http = http_client(
            settings.base_url,
            timeout_s=settings.timeout_s,
            headers={
                "Authorization": f"Bearer {token}",
                "Accept": "application/vnd.github+json",
                "X-GitHub-Api-Version": "2022-11-28",
            },
        )

    async def close(self) -> None:
        """Close connections."""
        await self._http.aclose()

    def misfit(self, marks: Marks) -> str:
        """Labels have 50 characters. The key is in the body."""
        return too_long([(marks.incident, MAX_LABEL), (marks.place, MAX_LABEL)], "a label of GitHub")

    async def search(self, mark: str, *, known: Sequence[str] = ()) -> list[Ticket]:
        """Issues with a label. Of a place that fails often the latest count."""
        params = {
            "labels": mark,
            "state": "all",
            "per_page": 100,
            "sort": "created",
            "direction": "desc" if mark.startswith(PLACE) else "asc",
        }
        rows = await read_list(self._http, f"{self._repository}/issues", params=params)
        # Pull requests are listed among the issues.
        tickets = [self._ticket(row) for row in rows if "pull_request" not in row]
        return [ticket for ticket in tickets if mark in ticket.marks]

    async def read(self, name: str) -> Ticket | None:
        """One issue by its number. One that was moved or deleted is none."""
        if not name.isascii() or not name.isdigit():
            return None
        try:
            row = await read(self._http, "GET", self._issue(name))
        except Rejected as error:
            if error.status in (301, 404, 410):
                return None
            raise
        return None if "pull_request" in row else self._ticket(row)

    async def create(self, draft: Draft, lease: LeaseHeld) -> Ticket:
        """Make an issue."""
        await self._check_rights()
        marks = draft.marks
        wanted = draft.fields.get("labels", ())
        labels = [*wanted, COMMON_LABEL, marks.incident, *([marks.place] if marks.place else [])]
        body = markdown_text(draft.message, MAX_BODY, footer=hidden(marks.all))
        issue = {**draft.fields, "title": draft.title, "body": body, "labels": labels}
        try:
            row = await change(self._http, "POST", f"{self._repository}/issues", lease=lease, json=issue)
        except Rejected as error:
            raise Permanent(f"GitHub refuses the issue: {_complaint(error)}") from error
        if "number" not in row:
            raise Ambiguous("GitHub accepted the issue but returned no number")
        return self._ticket(row)

    async def comments(self, ticket: Ticket) -> list[Comment]:
        """All comments, however many pages of them there are."""
        found: list[Comment] = []
        for page in range(1, MAX_PAGES + 1):
            rows = await read_list(
                self._http, f"{self._issue(ticket.id)}/comments", params={"per_page": 100, "page": page}
            )
            found += [
                Comment(
                    str(row.get("id")),
                    str((row.get("user") or {}).get("login", "")),
                    str(row.get("body") or ""),
                )
                for row in rows
            ]
            if len(rows) < 100:
                return found
        raise Permanent(
            f"{ticket.key} has more than {MAX_PAGES * 100} comments: whether ours is there is unknown"
        )

    async def comment(self, ticket: Ticket, message: Message, token: str, lease: LeaseHeld) -> None:
        """Add a comment."""
        await self._say(ticket, markdown_text(message, MAX_BODY, footer=token), lease)

    async def drop_comment(self, ticket: Ticket, comment: Comment, lease: LeaseHeld) -> None:
        """Delete our own comment."""
        path = f"{self._repository}/issues/comments/{comment.id}"
        await self._send("DELETE", path, None, lease, f"the deletion of a comment on {ticket.key}", gone=True)

    async def finish(self, ticket: Ticket, why: str, lease: LeaseHeld, *, withdrawn: bool = False) -> None:
        """Close it."""
        change_ = {"state": "closed", "state_reason": "not_planned" if withdrawn else "completed"}
        await self._send("PATCH", self._issue(ticket.id), change_, lease, f"closing {ticket.key}")

    async def reopen(self, ticket: Ticket, lease: LeaseHeld) -> None:
        """Open it again."""
        change_ = {"state": "open", "state_reason": "reopened"}
        await self._send("PATCH", self._issue(ticket.id), change_, lease, f"reopening {ticket.key}")

    async def claim(self, ticket: Ticket, marks: Marks, lease: LeaseHeld) -> None:
        """Hide the marks in the body first: once the label is there, the issue is found by it."""
        row = await read(self._http, "GET", self._issue(ticket.id))
        body = with_marks(str(row.get("body") or ""), marks)
        await self._send("PATCH", self._issue(ticket.id), {"body": body}, lease, f"an edit of {ticket.key}")
        labels = {"labels": [marks.incident]}
        await self._send(
            "POST", f"{self._issue(ticket.id)}/labels", labels, lease, f"a label of {ticket.key}"
        )

    async def forget(self, ticket: Ticket, marks: Marks, lease: LeaseHeld) -> None:
        """Take the incident's label off."""
        path = f"{self._issue(ticket.id)}/labels/{marks.incident}"
        await self._send("DELETE", path, None, lease, f"a label of {ticket.key}", gone=True)

    def takes(self, file: TicketFile) -> bool:
        """Only what can be read as a comment."""
        return file.media_type == "text/plain"

    async def attached(self, ticket: Ticket) -> list[Attached]:
        """The files that stand in comments."""
        found = [
            Attached(comment.id, name, comment.by)
            for comment in await self.comments(ticket)
            for name in ("evidence.txt",)
            if _file_token(name) in comment.text
        ]
        return sorted(found, key=lambda one: one.id.rjust(20, "0"))

    async def attach(self, ticket: Ticket, file: TicketFile, lease: LeaseHeld) -> str:
        """Put the file into a folded comment."""
        text = fenced(file.content.decode(errors="replace"), MAX_FILE)
        body = f"<details><summary>{file.name}</summary>\n\n{text}\n\n</details>\n\n<!-- {_file_token(file.name)} -->"
        return await self._say(ticket, body, lease)

    async def detach(self, ticket: Ticket, attached: Attached, lease: LeaseHeld) -> None:
        """Delete the comment."""
        await self.drop_comment(ticket, Comment(attached.id, attached.by, ""), lease)

    async def _check_rights(self) -> None:
        if self._may_label:
            return
        rights = (await read(self._http, "GET", self._repository)).get("permissions") or {}
        if not any(rights.get(name) for name in _MAY_LABEL):
            raise Permanent(
                f"tickets.github.token may not set labels in {self._repository[6:]}: "
                "it needs the right to write issues, and its owner the role triage or more"
            )
        self._may_label = True

    async def _say(self, ticket: Ticket, body: str, lease: LeaseHeld) -> str:
        path = f"{self._issue(ticket.id)}/comments"
        answer = await self._send("POST", path, {"body": body}, lease, f"the comment on {ticket.key}")
        return str(answer.get("id", ""))

    async def _send(
        self, method: str, path: str, body: Any, lease: LeaseHeld, what: str, *, gone: bool = False
    ) -> Mapping[str, Any]:
        """`gone`: that it is not there (any more) is what was wanted."""
        try:
            return await change(self._http, method, path, lease=lease, json=body)
        except Rejected as error:
            if gone and error.status == 404:
                return {}
            raise Permanent(f"GitHub refuses {what}: {_complaint(error)}") from error

    def _issue(self, number: str) -> str:
        return f"{self._repository}/issues/{number}"

    def _ticket(self, row: Mapping[str, Any]) -> Ticket:
        try:
            number, state = int(row["number"]), str(row["state"])
        except (KeyError, TypeError, ValueError) as error:
            raise Temporary(f"GitHub described an issue without {error}") from error
        labels = (label if isinstance(label, str) else label.get("name") for label in row.get("labels") or ())
        taken = others((str(who.get("login")) for who in row.get("assignees") or ()), self._assignees)
        return Ticket(
            id=str(number),
            key=f"#{number}",
            url=str(row.get("html_url", "")),
            born=f"{number:012d}",
            marks=marks_hidden_in(str(row.get("body") or "")) | {str(name) for name in labels if name},
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
    """GitHub's `message`, then what is wrong with which field."""
    wrong = error.body.get("errors") or []
    fields = [
        f"{one.get('field', '?')}: {one.get('message') or one.get('code', '')}"
        for one in (wrong if isinstance(wrong, list) else [])
        if isinstance(one, dict)
    ]
    told = "; ".join([str(error.body.get("message") or ""), *fields]).strip("; ")
    return plain(told or str(error), 500)
