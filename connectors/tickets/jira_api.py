"""Jira's REST API as tickets need it: version 3 of Jira Cloud, version 2 of Jira Data Center.

Three facts shape it. A search does not see what was written seconds (at times minutes) before, except, in Cloud, for issues whose
ids are passed along (`reconcileIssues`); reading an issue, its comments and its transitions does. Nothing here is idempotent:
the same create twice makes two issues. And the two differ in how text is written (ADF, wiki mark-up) and in their search, Cloud
having removed the old one (it answers 410).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from connectors.base import LeaseHeld
from connectors.http import Ambiguous, Rejected, Upload, change, http_client, read
from connectors.tickets.adf import document, texts
from connectors.tickets.markup import wiki_text
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
from streams.config.ticket_settings import JiraSettings
from streams.model.errors import ConfigError, Permanent, Temporary
from streams.model.message import Message, Paragraph, plain

MAX_WIKI = 30_000
"""Characters; a field of Jira takes 32,767 unless the administrator says otherwise."""

MAX_LABEL = 255

_FIELDS = ["labels", "status", "summary", "resolutiondate", "updated"]
_COMMENTS_PER_PAGE = 100
_PHASES = {"new": Phase.NEW, "undefined": Phase.NEW, "indeterminate": Phase.IN_PROGRESS, "done": Phase.DONE}
_SAID_TWICE = Message("", (Paragraph("This was said twice by mistake; please see the first comment."),))


class JiraApi:
    """A `TicketApi`: issues of one project. Marks are labels."""

    folds_comments = True

    def __init__(self, settings: JiraSettings, *, cloud: bool = True) -> None:
        if not settings.base_url:
            raise ConfigError("jira.base_url: not set, so there is no Jira to open tickets in")
        self.base_url = settings.base_url.rstrip("/")
        self.search_lag_s = settings.search_lag_s
        self._settings = settings
        self._cloud = cloud
        self._root = f"rest/api/{3 if cloud else 2}"
        token = settings.token.get_secret_value() if settings.token else ""
        # Data Center takes a personal access token without a user; Cloud wants the user with every token.
        bearer = not cloud and not settings.user
        self._http = http_client(
            self.base_url,
            timeout_s=settings.timeout_s,
            auth=None if bearer else (settings.user, token),
            headers={"Authorization": f"Bearer {token}"} if bearer else {},
        )

    async def close(self) -> None:
        """Close connections."""
        await self._http.aclose()

    def misfit(self, marks: Marks) -> str:
        """Labels have 255 characters."""
        return too_long([(mark, MAX_LABEL) for mark in (*marks.all, marks.again)], "a label of Jira")

    async def search(self, mark: str, *, known: Sequence[str] = ()) -> list[Ticket]:
        """Issues of the project with a label. `known` are ids for which Cloud's answer must not lag."""
        # Of a place that fails often the latest tickets count; of an incident the first.
        order = "DESC" if mark.startswith(PLACE) else "ASC"
        jql = f"project = {_quoted(self._settings.project)} AND labels = {_quoted(mark)} ORDER BY created {order}"
        body: dict[str, Any] = {"jql": jql, "fields": _FIELDS, "maxResults": 50}
        if known and self._cloud:
            # An id of another system, from before the setting was changed, is none here.
            body["reconcileIssues"] = [int(name) for name in known if name.isascii() and name.isdigit()]
        path = f"{self._root}/search/jql" if self._cloud else f"{self._root}/search"
        answer = await read(self._http, "POST", path, json=body)
        # A label that the server ignored would make every issue of the project ours.
        return [t for t in map(self._ticket, answer.get("issues", [])) if mark in t.marks]

    async def read(self, name: str) -> Ticket | None:
        """One issue, or None when there is none (or none that we may see)."""
        try:
            params = {"fields": ",".join(_FIELDS)}
            return self._ticket(await read(self._http, "GET", self._issue(name), params=params))
        except Rejected as error:
            if error.status == 404:
                return None
            raise

    async def create(self, draft: Draft, lease: LeaseHeld) -> Ticket:
        """Make an issue. A refusal names the fields that are wrong."""
        labels = [*draft.fields.get("labels", ()), COMMON_LABEL, *draft.marks.all]
        fields = {
            "issuetype": {"name": self._settings.issue_type},
            **draft.fields,
            "project": {"key": self._settings.project},
            "summary": draft.title,
            "description": self._text(draft.message, draft.marks.key),
            "labels": labels,
        }
        try:
            answer = await change(
                self._http, "POST", f"{self._root}/issue", lease=lease, json={"fields": fields}
            )
        except Rejected as error:
            raise Permanent(f"Jira refuses the issue: {_complaint(error)}") from error
        if "id" not in answer or "key" not in answer:
            raise Ambiguous("Jira accepted the issue but returned no id")
        key = str(answer["key"])
        return Ticket(
            str(answer["id"]), key, self._url(key), _born(answer["id"]), marks=frozenset(draft.marks.all)
        )

    async def comments(self, ticket: Ticket) -> list[Comment]:
        """All comments, however many pages of them there are."""
        found: list[Comment] = []
        while True:
            page = await read(
                self._http,
                "GET",
                f"{self._issue(ticket.id)}/comment",
                params={"startAt": len(found), "maxResults": _COMMENTS_PER_PAGE},
            )
            rows = page.get("comments", [])
            found += [_comment(row) for row in rows]
            if not rows or len(found) >= int(page.get("total", 0)):
                return found

    async def comment(self, ticket: Ticket, message: Message, token: str, lease: LeaseHeld) -> None:
        """Add a comment."""
        body = {"body": self._text(message, token)}
        await self._send("POST", f"{self._issue(ticket.id)}/comment", body, lease, f"comment on {ticket.key}")

    async def drop_comment(self, ticket: Ticket, comment: Comment, lease: LeaseHeld) -> None:
        """Delete our own comment; where that is not allowed, replace its text."""
        path = f"{self._issue(ticket.id)}/comment/{comment.id}"
        try:
            await change(self._http, "DELETE", path, lease=lease)
        except Rejected as error:
            if error.status == 404:  # somebody else has deleted it
                return
            body = {"body": self._text(_SAID_TWICE, "")}
            await self._send("PUT", path, body, lease, f"edit of a comment on {ticket.key}")

    async def finish(self, ticket: Ticket, why: str, lease: LeaseHeld, *, withdrawn: bool = False) -> None:
        """Close the issue by the transition's name: its id differs between workflows."""
        await self._transition(ticket, self._settings.done_transition, "jira.done_transition", lease)

    async def reopen(self, ticket: Ticket, lease: LeaseHeld) -> None:
        """Open the issue again, likewise by name."""
        await self._transition(ticket, self._settings.reopen_transition, "jira.reopen_transition", lease)

    async def claim(self, ticket: Ticket, marks: Marks, lease: LeaseHeld) -> None:
        """Add labels and leave the others alone."""
        labels = [{"add": mark} for mark in (marks.again, marks.key, marks.incident)]
        await self._send("PUT", self._issue(ticket.id), _update(labels), lease, f"labels of {ticket.key}")

    async def forget(self, ticket: Ticket, marks: Marks, lease: LeaseHeld) -> None:
        """Remove the label of the effect, from a ticket of an earlier incident also this one's, and leave the others alone."""
        gone = [marks.key, *([marks.incident, marks.again] if marks.again in ticket.marks else [])]
        labels = [{"remove": mark} for mark in gone]
        await self._send("PUT", self._issue(ticket.id), _update(labels), lease, f"labels of {ticket.key}")

    def takes(self, file: TicketFile) -> bool:
        """Jira takes any file."""
        return True

    async def attached(self, ticket: Ticket) -> list[Attached]:
        """The attachments, by their ids, which count up."""
        answer = await read(self._http, "GET", self._issue(ticket.id), params={"fields": "attachment"})
        rows = (answer.get("fields") or {}).get("attachment") or []
        found = [Attached(str(r.get("id", "")), str(r.get("filename", "")), _author(r)) for r in rows]
        return sorted(found, key=lambda one: one.id.rjust(20, "0"))

    async def attach(self, ticket: Ticket, file: TicketFile, lease: LeaseHeld) -> str:
        """Upload an attachment."""
        try:
            answer = await change(
                self._http,
                "POST",
                f"{self._issue(ticket.id)}/attachments",
                lease=lease,
                headers={"X-Atlassian-Token": "no-check"},
                upload=Upload(file.name, file.media_type, file.content, part="file"),
            )
        except Rejected as error:
            raise Permanent(f"Jira refuses {file.name} on {ticket.key}: {_complaint(error)}") from error
        return next((str(row.get("id", "")) for row in answer.get("items", ())), "")

    async def detach(self, ticket: Ticket, attached: Attached, lease: LeaseHeld) -> None:
        """Delete an attachment; the right to delete one's own is enough."""
        try:
            await change(self._http, "DELETE", f"{self._root}/attachment/{attached.id}", lease=lease)
        except Rejected as error:
            if error.status != 404:
                what = f"the deletion of {attached.name} on {ticket.key}"
                raise Permanent(f"Jira refuses {what}: {_complaint(error)}") from error

    async def _transition(self, ticket: Ticket, wanted: str, setting: str, lease: LeaseHeld) -> None:
        path = f"{self._issue(ticket.id)}/transitions"
        offered = (await read(self._http, "GET", path)).get("transitions", [])
        chosen = next((t for t in offered if str(t["name"]).casefold() == wanted.casefold()), None)
        if chosen is None:
            names = ", ".join(str(t["name"]) for t in offered) or "none"
            raise Permanent(
                f"{ticket.key} is {ticket.status} and offers no transition {wanted!r} ({setting}): {names}"
            )
        body = {"transition": {"id": str(chosen["id"])}}
        await self._send("POST", path, body, lease, f"{wanted!r} on {ticket.key}")

    async def _send(self, method: str, path: str, body: Any, lease: LeaseHeld, what: str) -> None:
        try:
            await change(self._http, method, path, lease=lease, json=body)
        except Rejected as error:
            raise Permanent(f"Jira refuses {what}: {_complaint(error)}") from error

    def _text(self, message: Message, footer: str) -> Any:
        if self._cloud:
            return document(message, footer=footer)
        return wiki_text(message, MAX_WIKI, footer=footer)

    def _issue(self, name: str) -> str:
        return f"{self._root}/issue/{name}"

    def _url(self, key: str) -> str:
        return f"{self.base_url}/browse/{key}"

    def _ticket(self, raw: Mapping[str, Any]) -> Ticket:
        try:
            fields = raw["fields"]
            status = fields["status"]
            category = str(status["statusCategory"]["key"])
            key = str(raw["key"])
            return Ticket(
                id=str(raw["id"]),
                key=key,
                url=self._url(key),
                born=_born(raw["id"]),
                marks=frozenset(fields.get("labels") or ()),
                status=str(status["name"]),
                phase=_PHASES.get(category, Phase.IN_PROGRESS),
                # Workflows that set no resolution still tell when the issue was last touched.
                closed_at=_moment(fields.get("resolutiondate") or fields.get("updated")),
            )
        except (KeyError, TypeError) as error:
            raise Temporary(f"Jira described an issue without {error}") from error


def _comment(raw: Mapping[str, Any]) -> Comment:
    body = raw.get("body")
    text = body if isinstance(body, str) else "\n".join(texts(body))
    return Comment(str(raw.get("id")), _author(raw), text)


def _author(raw: Mapping[str, Any]) -> str:
    author = raw.get("author") or {}
    return str(author.get("accountId") or author.get("name") or "")


def _born(issue_id: object) -> str:
    return f"{int(str(issue_id)):020d}"


def _moment(value: object) -> datetime | None:
    """Jira's `2026-11-25T22:53:17.000+0000`."""
    try:
        return datetime.strptime(str(value), "%Y-%m-%dT%H:%M:%S.%f%z")
    except ValueError:
        return None


def _update(labels: list[dict[str, str]]) -> dict[str, Any]:
    return {"update": {"labels": labels}}


def _complaint(error: Rejected) -> str:
    """What Jira says is wrong: `errors` by field, then `errorMessages`, then the status."""
    by_field = error.body.get("errors") or {}
    general = error.body.get("errorMessages") or []
    reasons = (
        [f"field {name}: {text}" for name, text in by_field.items()] if isinstance(by_field, dict) else []
    )
    reasons += [str(text) for text in general] if isinstance(general, list) else []
    return plain("; ".join(reasons) or str(error), 500)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
