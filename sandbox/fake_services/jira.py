"""A stand-in for Jira Cloud's REST API version 3, on which Data Center's (`jira_data_center.py`) is built.

Like Jira it rejects fields by name, checks the form of a text (Atlassian Document Format), leaves out of a search what was
written within the last `lag_s` seconds (unless asked to reconcile those ids), and offers transitions by an issue's status.
The old search answers 410, as it has since 2025.

    POST /rest/api/N/issue                      GET, PUT /rest/api/N/issue/{id}         (fields, labels)
    POST /rest/api/3/search/jql                 GET, POST /rest/api/N/search            (410 in Cloud)
    GET, POST /rest/api/N/issue/{id}/comment    PUT, DELETE .../comment/{comment}       (rights: `may_delete_comments`)
    GET, POST /rest/api/N/issue/{id}/transitions
    POST /rest/api/N/issue/{id}/attachments     multipart, needs X-Atlassian-Token: no-check; at most `max_attachment`
    DELETE /rest/api/N/attachment/{attachment}
"""

from __future__ import annotations

import re
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

from aiohttp import web

from sandbox.fake_services.forms import files_in
from sandbox.fake_services.server import Standin

_STATUSES = {"To Do": "new", "In Progress": "indeterminate", "Done": "done"}
_TRANSITIONS = {
    "To Do": {"11": "In Progress", "31": "Done"},
    "In Progress": {"21": "To Do", "31": "Done"},
    "Done": {"41": "To Do"},
}
_JQL = re.compile(
    r'project = "(?P<project>[^"]+)" AND labels = "(?P<label>[^"]+)" ORDER BY created (?P<order>ASC|DESC)',
    re.IGNORECASE,
)
TEXT_LIMIT = 32_767
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
class StandinFile:
    """One attachment. The same name may be there any number of times."""

    id: str
    name: str
    content: bytes
    by: str = "faultline"


@dataclass(slots=True)
class StandinIssue:
    """One issue as it is now; `comments` are documents, oldest first."""

    id: str
    key: str
    fields: dict[str, Any]
    status: str = "To Do"
    comments: list[dict[str, Any]] = field(default_factory=list)
    searchable_at: float = 0.0
    attachments: list[StandinFile] = field(default_factory=list)
    closed_at: datetime | None = None

    @property
    def labels(self) -> list[str]:
        """Its labels."""
        return list(self.fields.get("labels") or [])

    @property
    def summary(self) -> str:
        """Its summary line."""
        return str(self.fields["summary"])


class JiraStandin(Standin):
    """Jira Cloud with one project. The search lags by `lag_s`; `clock` is in seconds, `now` says when an issue was closed."""

    api = 3
    may_delete_comments = True
    max_attachment = 10 * 1024 * 1024

    def __init__(
        self,
        *,
        project: str = "GPU",
        user: str = "faultline@example.test",
        token: str = "standin-token",
        lag_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__()
        self.project, self.user, self.token, self.lag_s = project, user, token, lag_s
        self.issues: list[StandinIssue] = []
        self.transitions = {status: dict(offered) for status, offered in _TRANSITIONS.items()}
        self._clock, self._now = clock, now
        self._comment_ids: dict[int, str] = {}
        self._next_comment = count(1)
        self._next_file = count(1)
        self.may_create = True
        """Whether the token's owner has Create Issues in the project; asked for only, never enforced."""
        issue, asked = f"/rest/api/{self.api}/issue", self._authorised
        route = self.app.router.add_route
        route("GET", f"/rest/api/{self.api}/myself", asked(self._myself))
        route("GET", f"/rest/api/{self.api}/mypermissions", asked(self._permissions))
        route("POST", issue, asked(self._create))
        route("GET", f"{issue}/{{issue}}", asked(self._show))
        route("PUT", f"{issue}/{{issue}}", asked(self._update))
        route("POST", "/rest/api/3/search/jql", asked(self._search))
        for method in ("GET", "POST"):
            route(method, f"/rest/api/{self.api}/search", asked(self._old_search))
        route("GET", f"{issue}/{{issue}}/comment", asked(self._comments))
        route("POST", f"{issue}/{{issue}}/comment", asked(self._comment))
        route("PUT", f"{issue}/{{issue}}/comment/{{comment}}", asked(self._edit_comment))
        route("DELETE", f"{issue}/{{issue}}/comment/{{comment}}", asked(self._delete_comment))
        route("GET", f"{issue}/{{issue}}/transitions", asked(self._offered))
        route("POST", f"{issue}/{{issue}}/transitions", asked(self._transition))
        route("POST", f"{issue}/{{issue}}/attachments", self._attach)
        route("DELETE", f"/rest/api/{self.api}/attachment/{{attachment}}", self._detach)

    def open_issues(self) -> list[StandinIssue]:
        """Issues that are not done."""
        return [issue for issue in self.issues if _STATUSES[issue.status] != "done"]

    def _myself(self, _: Any) -> web.Response:
        return web.json_response({"emailAddress": self.user, "active": True})

    def _permissions(self, _: Any) -> web.Response:
        create = {"key": "CREATE_ISSUES", "havePermission": self.may_create}
        return web.json_response({"permissions": {"CREATE_ISSUES": create}})

    def _is_authorised(self, request: web.Request) -> bool:
        expected = "Basic " + b64encode(f"{self.user}:{self.token}".encode()).decode()
        return request.headers.get("Authorization") == expected

    def _issue(self, name: str) -> StandinIssue | None:
        return next((i for i in self.issues if name in (i.id, i.key)), None)

    def _authorised(self, handler: Any) -> Any:
        async def answer(request: web.Request) -> web.Response:
            if not self._is_authorised(request):
                return refused(
                    401, "You are not authenticated. Authentication required to perform this operation."
                )
            body: Any = None
            if request.method in ("POST", "PUT"):
                try:
                    body = await request.json()
                except ValueError:
                    return refused(
                        400, "There was an error parsing JSON. Check that your request body is valid."
                    )
            if (name := request.match_info.get("issue")) is None:
                return handler(body)  # type: ignore[no-any-return]
            if (issue := self._issue(name)) is None:
                return refused(404, "Issue does not exist or you do not have permission to see it.")
            return handler(issue, body, {**request.query, **request.match_info})  # type: ignore[no-any-return]

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
        if "description" in fields and (wrong := self._wrong_text(fields["description"])):
            errors["description"] = wrong
        return errors

    def _wrong_text(self, text: Any) -> str | None:
        return _wrong_document(text)

    def _show(self, issue: StandinIssue, body: Any, query: Mapping[str, str]) -> web.Response:
        return web.json_response(shown(issue))

    def _update(self, issue: StandinIssue, body: Any, query: Mapping[str, str]) -> web.Response:
        for change in (body.get("update") or {}).get("labels", []):
            kept = [label for label in issue.labels if label != change.get("remove")]
            issue.fields["labels"] = kept + ([change["add"]] if "add" in change else [])
        return web.Response(status=204)

    def _search(self, body: Any) -> web.Response:
        found = self._found(body, {str(number) for number in body.get("reconcileIssues", [])})
        if found is None:
            return refused(400, "Error in the JQL Query.")
        limit = int(body.get("maxResults", 50))
        return web.json_response(
            {"issues": [shown(issue) for issue in found[:limit]], "isLast": len(found) <= limit}
        )

    def _old_search(self, body: Any) -> web.Response:
        return refused(
            410, "The requested API has been removed. Please migrate to the /rest/api/3/search/jql API."
        )

    def _found(self, body: Any, reconciled: set[str]) -> list[StandinIssue] | None:
        match = _JQL.fullmatch(body.get("jql", ""))
        if match is None:
            return None
        now = self._clock()
        found = [
            issue
            for issue in self.issues
            if match["label"] in issue.labels
            and match["project"] == self.project
            and (issue.searchable_at <= now or issue.id in reconciled)
        ]
        return found[::-1] if match["order"].upper() == "DESC" else found

    def _comments(self, issue: StandinIssue, body: Any, query: Mapping[str, str]) -> web.Response:
        start, most = int(query.get("startAt", 0)), min(int(query.get("maxResults", 50)), 100)
        page = [self._shown_comment(one) for one in issue.comments[start : start + most]]
        return web.json_response(
            {"startAt": start, "maxResults": most, "total": len(issue.comments), "comments": page}
        )

    def _shown_comment(self, comment: dict[str, Any]) -> dict[str, Any]:
        return {"id": self._comment_id(comment), "author": {"accountId": "faultline"}, "body": comment}

    def _comment_id(self, comment: dict[str, Any]) -> str:
        return self._comment_ids.get(id(comment)) or self._named(comment)

    def _named(self, comment: dict[str, Any]) -> str:
        name = self._comment_ids[id(comment)] = str(next(self._next_comment))
        return name

    def _kept(self, text: Any) -> dict[str, Any]:
        """A text as it is kept among an issue's comments."""
        kept: dict[str, Any] = text
        return kept

    def _comment(self, issue: StandinIssue, body: Any, query: Mapping[str, str]) -> web.Response:
        if wrong := self._wrong_text(body.get("body")):
            return web.json_response({"errorMessages": [], "errors": {"comment": wrong}}, status=400)
        issue.comments.append(self._kept(body["body"]))
        return web.json_response(self._shown_comment(issue.comments[-1]), status=201)

    def _place_of(self, issue: StandinIssue, query: Mapping[str, str]) -> int | None:
        ids = [self._comment_id(comment) for comment in issue.comments]
        return ids.index(query["comment"]) if query["comment"] in ids else None

    def _edit_comment(self, issue: StandinIssue, body: Any, query: Mapping[str, str]) -> web.Response:
        if (place := self._place_of(issue, query)) is None:
            return refused(404, f"Can not find a comment for the id: {query['comment']}.")
        if wrong := self._wrong_text(body.get("body")):
            return web.json_response({"errorMessages": [], "errors": {"comment": wrong}}, status=400)
        del self._comment_ids[id(issue.comments[place])]
        issue.comments[place] = self._kept(body["body"])
        self._comment_ids[id(issue.comments[place])] = query["comment"]
        return web.json_response(self._shown_comment(issue.comments[place]))

    def _delete_comment(self, issue: StandinIssue, body: Any, query: Mapping[str, str]) -> web.Response:
        if not self.may_delete_comments:
            return refused(400, "You do not have permission to delete this comment.")
        if (place := self._place_of(issue, query)) is None:
            return refused(404, f"Can not find a comment for the id: {query['comment']}.")
        del self._comment_ids[id(issue.comments[place])]
        del issue.comments[place]
        return web.Response(status=204)

    async def _attach(self, request: web.Request) -> web.Response:
        if not self._is_authorised(request):
            return refused(401, "You are not authenticated.")
        if request.headers.get("X-Atlassian-Token") != "no-check":
            return web.Response(status=403, text="XSRF check failed")
        if (issue := self._issue(request.match_info["issue"])) is None:
            return refused(404, "Issue does not exist or you do not have permission to see it.")
        name, content = (await files_in(request)).get("file", ("", b""))
        if not name:
            return refused(400, "The multipart form has no field named file.")
        if len(content) > self.max_attachment:
            return refused(413, f"The file exceeds its maximum size of {self.max_attachment} bytes.")
        issue.attachments.append(made := StandinFile(str(next(self._next_file)), name, content))
        return web.json_response([_file(made)])

    async def _detach(self, request: web.Request) -> web.Response:
        if not self._is_authorised(request):
            return refused(401, "You are not authenticated.")
        for issue in self.issues:
            for one in issue.attachments:
                if one.id == request.match_info["attachment"]:
                    issue.attachments.remove(one)
                    return web.Response(status=204)
        return refused(404, "The attachment with this id does not exist.")

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
            return refused(400, f"Transition id '{wanted}' is not valid for this issue.")
        issue.status = status
        issue.closed_at = self._now() if _STATUSES[status] == "done" else None
        return web.Response(status=204)


def _status(name: str) -> dict[str, Any]:
    return {"name": name, "statusCategory": {"key": _STATUSES[name]}}


def shown(issue: StandinIssue) -> dict[str, Any]:
    """An issue as Jira describes it."""
    fields = {
        "summary": issue.summary,
        "labels": issue.labels,
        "status": _status(issue.status),
        "resolutiondate": issue.closed_at.strftime("%Y-%m-%dT%H:%M:%S.000%z") if issue.closed_at else None,
        "attachment": [_file(one) for one in issue.attachments],
    }
    return {"id": issue.id, "key": issue.key, "fields": fields}


def _file(one: StandinFile) -> dict[str, Any]:
    return {"id": one.id, "filename": one.name, "size": len(one.content), "author": {"accountId": one.by}}


def refused(status: int, message: str) -> web.Response:
    """A refusal as Jira words it."""
    return web.json_response({"errorMessages": [message], "errors": {}}, status=status)


def _wrong_document(document: Any) -> str | None:
    if not isinstance(document, dict) or document.get("type") != "doc" or document.get("version") != 1:
        return "Operation value must be an Atlassian Document (see the Atlassian Document Format)"
    wrong, length = _inspect(document)
    if wrong:
        return wrong
    return (
        f"The entered text is too long. It exceeds the allowed limit of {TEXT_LIMIT:,} characters."
        if length > TEXT_LIMIT
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
