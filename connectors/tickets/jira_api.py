"""The part of Jira Cloud's REST API version 3 that tickets need: one method per request, typed errors, no policy.

Two facts shape its callers. A search does not see what was written seconds (at times minutes) before, except for issues whose
ids are passed along (`reconcileIssues`); reading an issue, its comments and its transitions does. And nothing here is
idempotent: the same create twice makes two issues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from connectors.base import LeaseHeld
from connectors.http import Ambiguous, Rejected, change, http_client, read
from connectors.tickets.adf import Node, texts
from streams.config.connector_settings import JiraSettings
from streams.model.errors import ConfigError, Permanent, Temporary
from streams.model.message import plain

_FIELDS = ["labels", "status", "summary"]
_COMMENTS_PER_PAGE = 100


@dataclass(frozen=True, slots=True)
class Issue:
    """One issue as the server just returned it. `category` is Jira's status category: `new`, `indeterminate` or `done`."""

    id: str
    key: str
    status: str
    category: str
    labels: frozenset[str]

    @property
    def is_done(self) -> bool:
        """True when its status counts as done, whatever the status is called."""
        return self.category == "done"


@dataclass(frozen=True, slots=True)
class Created:
    """What Jira returns for a new issue."""

    id: str
    key: str


@dataclass(frozen=True, slots=True)
class IssueTransition:
    """A change of status that the workflow offers now."""

    id: str
    name: str


class JiraApi:
    """The requests. Every method raises what `connectors.http.read` and `change` raise."""

    def __init__(self, settings: JiraSettings) -> None:
        if not settings.base_url:
            raise ConfigError("jira.base_url: not set, so there is no Jira to open tickets in")
        self.base_url = settings.base_url.rstrip("/")
        token = settings.token.get_secret_value() if settings.token else ""
        self._http = http_client(self.base_url, timeout_s=settings.timeout_s, auth=(settings.user, token))

    async def close(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def create(self, fields: Mapping[str, Any], lease: LeaseHeld) -> Created:
        """Make an issue. A refusal names the fields that are wrong."""
        try:
            answer = await change(
                self._http, "POST", "rest/api/3/issue", lease=lease, json={"fields": fields}
            )
        except Rejected as error:
            raise Permanent(f"Jira refuses the issue: {_complaint(error)}") from error
        if "id" not in answer or "key" not in answer:
            raise Ambiguous("Jira accepted the issue but returned no id")
        return Created(str(answer["id"]), str(answer["key"]))

    async def search(self, label: str, project: str, *, known: Sequence[str] = ()) -> list[Issue]:
        """Issues of a project with a label, oldest first. `known` are ids for which the answer must not lag."""
        jql = f"project = {_quoted(project)} AND labels = {_quoted(label)} ORDER BY created ASC"
        body: dict[str, Any] = {"jql": jql, "fields": _FIELDS, "maxResults": 50}
        if known:
            body["reconcileIssues"] = [int(issue_id) for issue_id in known]
        answer = await read(self._http, "POST", "rest/api/3/search/jql", json=body)
        issues = [_issue(raw) for raw in answer.get("issues", [])]
        # A label that the server ignored would make every issue of the project ours.
        return sorted((issue for issue in issues if label in issue.labels), key=lambda issue: int(issue.id))

    async def issue(self, id_or_key: str) -> Issue | None:
        """One issue, or None when there is none (or none that we may see)."""
        try:
            params = {"fields": ",".join(_FIELDS)}
            return _issue(await read(self._http, "GET", f"rest/api/3/issue/{id_or_key}", params=params))
        except Rejected as error:
            if error.status == 404:
                return None
            raise

    async def has_comment(self, issue: str, token: str) -> bool:
        """Whether a comment carries the token, however many pages of comments there are."""
        start = 0
        while True:
            page = await read(
                self._http,
                "GET",
                f"rest/api/3/issue/{issue}/comment",
                params={"startAt": start, "maxResults": _COMMENTS_PER_PAGE},
            )
            comments = page.get("comments", [])
            if any(token in text for comment in comments for text in texts(comment.get("body"))):
                return True
            start += len(comments)
            if not comments or start >= int(page.get("total", 0)):
                return False

    async def comment(self, issue: str, body: Node, lease: LeaseHeld) -> None:
        """Add a comment."""
        path = f"rest/api/3/issue/{issue}/comment"
        try:
            await change(self._http, "POST", path, lease=lease, json={"body": body})
        except Rejected as error:
            raise Permanent(f"Jira refuses the comment on {issue}: {_complaint(error)}") from error

    async def remove_label(self, issue: str, label: str, lease: LeaseHeld) -> None:
        """Remove one label and leave the others alone."""
        update = {"update": {"labels": [{"remove": label}]}}
        await change(self._http, "PUT", f"rest/api/3/issue/{issue}", lease=lease, json=update)

    async def transitions(self, issue: str) -> list[IssueTransition]:
        """The transitions that the workflow offers now."""
        answer = await read(self._http, "GET", f"rest/api/3/issue/{issue}/transitions")
        return [IssueTransition(str(raw["id"]), str(raw["name"])) for raw in answer.get("transitions", [])]

    async def transition(self, issue: str, transition: IssueTransition, lease: LeaseHeld) -> None:
        """Change the status."""
        path = f"rest/api/3/issue/{issue}/transitions"
        try:
            await change(self._http, "POST", path, lease=lease, json={"transition": {"id": transition.id}})
        except Rejected as error:
            raise Permanent(f"Jira refuses {transition.name!r} on {issue}: {_complaint(error)}") from error


def _issue(raw: Mapping[str, Any]) -> Issue:
    try:
        fields = raw["fields"]
        status = fields["status"]
        return Issue(
            id=str(raw["id"]),
            key=str(raw["key"]),
            status=str(status["name"]),
            category=str(status["statusCategory"]["key"]),
            labels=frozenset(fields.get("labels") or ()),
        )
    except (KeyError, TypeError) as error:
        raise Temporary(f"Jira described an issue without {error}") from error


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
