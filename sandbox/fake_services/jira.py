"""A stand-in for Jira Cloud's REST API version 3: issues, comments, transitions, and a search that lags.

Like Jira it rejects fields by name, checks Atlassian Document Format, leaves out of a search what was written within the
last `lag_s` seconds (unless asked to reconcile those ids), and offers transitions by the status an issue is in.
"""

from __future__ import annotations

import re
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from sandbox.fake_services.server import Standin

_STATUSES = {"To Do": "new", "In Progress": "indeterminate", "Done": "done"}
_TRANSITIONS = {
    "To Do": {"11": "In Progress", "31": "Done"},
    "In Progress": {"21": "To Do", "31": "Done"},
    "Done": {"41": "To Do"},
}
_JQL = re.compile(
    r'project = "(?P<project>[^"]+)" AND labels = "(?P<label>[^"]+)" ORDER BY created ASC', re.IGNORECASE
)
_TEXT_LIMIT = 32_767
_NODES = frozenset(
    {
        "doc",
        "paragraph",
        "heading",
        "text",
        "table",
        "tableRow",
        "tableCell",
        "tableHeader",
        "codeBlock",
        "bulletList",
        "listItem",
    }
)


@dataclass(slots=True)
class StandinIssue:
    """One issue as it is now; `comments` are documents, oldest first."""

    id: str
    key: str
    fields: dict[str, Any]
    status: str = "To Do"
    comments: list[dict[str, Any]] = field(default_factory=list)
    searchable_at: float = 0.0

    @property
    def labels(self) -> list[str]:
        """Its labels."""
        return list(self.fields.get("labels") or [])

    @property
    def summary(self) -> str:
        """Its summary line."""
        return str(self.fields["summary"])


class JiraStandin(Standin):
    """Jira with one project. The search lags by `lag_s`; `clock` is in seconds."""

    def __init__(
        self,
        *,
        project: str = "GPU",
        user: str = "faultline@example.test",
        token: str = "standin-token",
        lag_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.project, self.user, self.token, self.lag_s = project, user, token, lag_s
        self.issues: list[StandinIssue] = []
        self.transitions = {status: dict(offered) for status, offered in _TRANSITIONS.items()}
        self._clock = clock
        route = self.app.router.add_route
        route("POST", "/rest/api/3/issue", self._authorised(self._create))
        route("GET", "/rest/api/3/issue/{issue}", self._authorised(self._show))
        route("PUT", "/rest/api/3/issue/{issue}", self._authorised(self._update))
        route("POST", "/rest/api/3/search/jql", self._authorised(self._search))
        route("GET", "/rest/api/3/issue/{issue}/comment", self._authorised(self._comments))
        route("POST", "/rest/api/3/issue/{issue}/comment", self._authorised(self._comment))
        route("GET", "/rest/api/3/issue/{issue}/transitions", self._authorised(self._offered))
        route("POST", "/rest/api/3/issue/{issue}/transitions", self._authorised(self._transition))

    def open_issues(self) -> list[StandinIssue]:
        """Issues that are not done."""
        return [issue for issue in self.issues if _STATUSES[issue.status] != "done"]

    def _authorised(self, handler: Any) -> Any:
        async def answer(request: web.Request) -> web.Response:
            expected = "Basic " + b64encode(f"{self.user}:{self.token}".encode()).decode()
            if request.headers.get("Authorization") != expected:
                return _refused(
                    401, "You are not authenticated. Authentication required to perform this operation."
                )
            body: Any = None
            if request.method in ("POST", "PUT"):
                try:
                    body = await request.json()
                except ValueError:
                    return _refused(
                        400, "There was an error parsing JSON. Check that your request body is valid."
                    )
            if (name := request.match_info.get("issue")) is None:
                return handler(body)  # type: ignore[no-any-return]
            issue = next((i for i in self.issues if name in (i.id, i.key)), None)
            if issue is None:
                return _refused(404, "Issue does not exist or you do not have permission to see it.")
            return handler(issue, body, request.query)  # type: ignore[no-any-return]

        return answer

    def _create(self, body: Any) -> web.Response:
        fields = body.get("fields", {}) if isinstance(body, dict) else {}
        if errors := self._wrong_fields(fields):
            return web.json_response({"errorMessages": [], "errors": errors}, status=400)
        number = len(self.issues) + 1
        issue = StandinIssue(
            str(10_000 + number), f"{self.project}-{number}", fields, searchable_at=self._clock() + self.lag_s
        )
        self.issues.append(issue)
        return web.json_response(
            {"id": issue.id, "key": issue.key, "self": f"{self.url}/rest/api/3/issue/{issue.id}"}, status=201
        )

    def _wrong_fields(self, fields: Mapping[str, Any]) -> dict[str, str]:
        errors: dict[str, str] = {}
        if (fields.get("project") or {}).get("key") != self.project:
            errors["project"] = "Specify a valid project ID or key"
        if (fields.get("issuetype") or {}).get("name") not in ("Task", "Bug", "Incident"):
            errors["issuetype"] = "Specify a valid issue type"
        summary = fields.get("summary") or ""
        if not summary.strip():
            errors["summary"] = "You must specify a summary of the issue."
        elif len(summary) > 255 or "\n" in summary:
            errors["summary"] = "The summary is invalid: it must be one line of at most 255 characters."
        if any(not isinstance(label, str) or " " in label for label in fields.get("labels") or []):
            errors["labels"] = "The label contains spaces which is invalid."
        if "description" in fields and (wrong := _wrong_document(fields["description"])):
            errors["description"] = wrong
        return errors

    def _show(self, issue: StandinIssue, body: Any, query: Mapping[str, str]) -> web.Response:
        return web.json_response(_shown(issue))

    def _update(self, issue: StandinIssue, body: Any, query: Mapping[str, str]) -> web.Response:
        for change in (body.get("update") or {}).get("labels", []):
            kept = [label for label in issue.labels if label != change.get("remove")]
            issue.fields["labels"] = kept + ([change["add"]] if "add" in change else [])
        return web.Response(status=204)

    def _search(self, body: Any) -> web.Response:
        match = _JQL.fullmatch(body.get("jql", ""))
        if match is None:
            return _refused(400, "Error in the JQL Query.")
        reconciled = {str(number) for number in body.get("reconcileIssues", [])}
        now = self._clock()
        found = [
            issue
            for issue in self.issues
            if match["label"] in issue.labels
            and match["project"] == self.project
            and (issue.searchable_at <= now or issue.id in reconciled)
        ]
        limit = int(body.get("maxResults", 50))
        return web.json_response(
            {"issues": [_shown(issue) for issue in found[:limit]], "isLast": len(found) <= limit}
        )

    def _comments(self, issue: StandinIssue, body: Any, query: Mapping[str, str]) -> web.Response:
        start, most = int(query.get("startAt", 0)), min(int(query.get("maxResults", 50)), 100)
        page = [
            {"id": str(number), "body": document}
            for number, document in enumerate(issue.comments[start : start + most], start=start + 1)
        ]
        return web.json_response(
            {"startAt": start, "maxResults": most, "total": len(issue.comments), "comments": page}
        )

    def _comment(self, issue: StandinIssue, body: Any, query: Mapping[str, str]) -> web.Response:
        if wrong := _wrong_document(body.get("body")):
            return web.json_response({"errorMessages": [], "errors": {"comment": wrong}}, status=400)
        issue.comments.append(body["body"])
        return web.json_response({"id": str(len(issue.comments)), "body": body["body"]}, status=201)

    def _offered(self, issue: StandinIssue, body: Any, query: Mapping[str, str]) -> web.Response:
        offered = [
            {"id": number, "name": status, "to": _status(status)}
            for number, status in self.transitions[issue.status].items()
        ]
        return web.json_response({"transitions": offered})

    def _transition(self, issue: StandinIssue, body: Any, query: Mapping[str, str]) -> web.Response:
        wanted = str((body.get("transition") or {}).get("id"))
        status = self.transitions[issue.status].get(wanted)
        if status is None:
            return _refused(400, f"Transition id '{wanted}' is not valid for this issue.")
        issue.status = status
        return web.Response(status=204)


def _status(name: str) -> dict[str, Any]:
    return {"name": name, "statusCategory": {"key": _STATUSES[name]}}


def _shown(issue: StandinIssue) -> dict[str, Any]:
    fields = {"summary": issue.summary, "labels": issue.labels, "status": _status(issue.status)}
    return {"id": issue.id, "key": issue.key, "fields": fields}


def _refused(status: int, message: str) -> web.Response:
    return web.json_response({"errorMessages": [message], "errors": {}}, status=status)


def _wrong_document(document: Any) -> str | None:
    if not isinstance(document, dict) or document.get("type") != "doc" or document.get("version") != 1:
        return "Operation value must be an Atlassian Document (see the Atlassian Document Format)"
    wrong, length = _inspect(document)
    if wrong:
        return wrong
    return (
        f"The entered text is too long. It exceeds the allowed limit of {_TEXT_LIMIT:,} characters."
        if length > _TEXT_LIMIT
        else None
    )


def _inspect(node: Any) -> tuple[str | None, int]:
    if not isinstance(node, dict) or node.get("type") not in _NODES:
        return "INVALID_INPUT", 0
    if node["type"] == "text":
        text = node.get("text")
        return ("INVALID_INPUT", 0) if not isinstance(text, str) or not text else (None, len(text))
    length = 0
    for child in node.get("content", []):
        wrong, size = _inspect(child)
        if wrong:
            return wrong, 0
        length += size
    return None, length
