"""A stand-in for GitHub's REST API for issues, of one repository.

    GET /repos/{owner}/{name}                      (what the token may)
    GET, POST /repos/{owner}/{name}/issues         GET, PATCH .../issues/{number}
    GET, POST .../issues/{number}/comments         DELETE .../issues/comments/{id}
    POST .../issues/{number}/labels                DELETE .../issues/{number}/labels/{label}
    GET /search/issues                             (lags by `lag_s`)

Its traps are there: pull requests stand among the issues, labels of a token without the right are dropped without a word, a label
has at most 50 characters and a body 65,536, an unknown assignee is 422, and whoever writes too fast gets a 403 (`limit_writes`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

from aiohttp import web

from sandbox.fake_services.server import Standin


@dataclass(slots=True)
class StandinGitHubIssue:
    """One issue; `comments` are texts by id, oldest first."""

    number: int
    title: str
    body: str
    labels: list[str]
    assignees: list[str]
    state: str = "open"
    state_reason: str | None = None
    comments: dict[int, str] = field(default_factory=dict)
    pull_request: bool = False
    searchable_at: float = 0.0
    closed_at: datetime | None = None


class GitHubStandin(Standin):
    """GitHub with one repository. `may_label`: whether the token's owner may set labels."""

    def __init__(
        self,
        *,
        repository: str = "example/gpu-tickets",
        token: str = "standin-token",
        people: tuple[str, ...] = ("gpu-oncall",),
        lag_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__()
        self.repository, self.token, self.people, self.lag_s = repository, token, people, lag_s
        self.issues: list[StandinGitHubIssue] = []
        self.may_label = True
        self.refused_writes = 0
        """How many of the next writes meet the secondary rate limit, as GitHub words it."""
        self.token_expires: datetime | None = None
        """When the token ends, as a header of every answer says (fine-grained and classic tokens with an end)."""
        self._ids = count(1)
        self._clock, self._now = clock, now
        root, route = f"/repos/{repository}", self.app.router.add_route
        route("GET", root, self._asked(self._about))
        route("GET", f"{root}/issues", self._asked(self._list))
        route("POST", f"{root}/issues", self._asked(self._create))
        route("DELETE", f"{root}/issues/comments/{{comment}}", self._asked(self._delete_comment))
        route("GET", f"{root}/issues/{{number}}", self._asked(self._show))
        route("PATCH", f"{root}/issues/{{number}}", self._asked(self._update))
        route("GET", f"{root}/issues/{{number}}/comments", self._asked(self._comments))
        route("POST", f"{root}/issues/{{number}}/comments", self._asked(self._comment))
        route("POST", f"{root}/issues/{{number}}/labels", self._asked(self._label))
        route("DELETE", f"{root}/issues/{{number}}/labels/{{label}}", self._asked(self._unlabel))
        route("GET", "/search/issues", self._asked(self._search))

    def limit_writes(self, times: int) -> None:
        """Answer the next writes as GitHub answers whoever makes content too fast: 403, in words only."""
        self.refused_writes = times

    def _asked(self, handler: Any) -> Any:
        async def answer(request: web.Request) -> web.Response:
            if request.headers.get("Authorization") != f"Bearer {self.token}":
                return _refused(401, "Bad credentials")
            if request.method != "GET" and self.refused_writes:
                self.refused_writes -= 1
                return _refused(403, "You have exceeded a secondary rate limit. Please wait a few minutes.")
            body = await request.json() if request.method in ("POST", "PATCH") else None
            if "number" not in request.match_info:
                return handler(request, body)  # type: ignore[no-any-return]
            named = request.match_info["number"]
            issue = next((i for i in self.issues if str(i.number) == named), None)
            return _refused(404, "Not Found") if issue is None else handler(request, body, issue)

        return answer

    def _about(self, request: web.Request, body: Any) -> web.Response:
        may = {"admin": False, "push": self.may_label, "triage": self.may_label, "pull": True}
        ends = {}
        if self.token_expires is not None:
            ends["github-authentication-token-expiration"] = f"{self.token_expires:%Y-%m-%d %H:%M:%S UTC}"
        return web.json_response({"full_name": self.repository, "permissions": may}, headers=ends)

    def _list(self, request: web.Request, body: Any) -> web.Response:
        wanted = set(filter(None, request.query.get("labels", "").split(",")))
        found = [i for i in self.issues if wanted <= set(i.labels)]
        if (state := request.query.get("state", "open")) != "all":
            found = [issue for issue in found if issue.state == state]
        if request.query.get("direction", "desc") == "desc":
            found = found[::-1]
        return web.json_response([self._shown(i) for i in found[: int(request.query.get("per_page", 30))]])

    def _search(self, request: web.Request, body: Any) -> web.Response:
        found = [i for i in self.issues if i.searchable_at <= self._clock()]
        return web.json_response({"total_count": len(found), "items": [self._shown(i) for i in found]})

    def _create(self, request: web.Request, body: Any) -> web.Response:
        if wrong := self._wrong(body):
            return wrong
        issue = StandinGitHubIssue(
            len(self.issues) + 1,
            body["title"],
            body.get("body") or "",
            list(dict.fromkeys(body.get("labels", []))) if self.may_label else [],
            list(body.get("assignees", [])),
            searchable_at=self._clock() + self.lag_s,
        )
        self.issues.append(issue)
        return web.json_response(self._shown(issue), status=201)

    def _wrong(self, body: Mapping[str, Any]) -> web.Response | None:
        for name, most in (("title", 256), ("body", 65_536)):
            if len(body.get(name) or "") > most:
                return _invalid(name, f"{name} is too long (maximum is {most} characters)")
        if "title" in body and not str(body["title"]).strip():
            return _invalid("title", "title can't be blank")
        for label in body.get("labels", []):
            if len(label) > 50:
                return _invalid("labels", "name is too long (maximum is 50 characters)")
        for who in body.get("assignees", []):
            if who not in self.people:
                return _invalid("assignees", f"{who} cannot be assigned to this issue")
        return None

    def _show(self, request: web.Request, body: Any, issue: StandinGitHubIssue) -> web.Response:
        return web.json_response(self._shown(issue))

    def _update(self, request: web.Request, body: Any, issue: StandinGitHubIssue) -> web.Response:
        if wrong := self._wrong(body):
            return wrong
        issue.body = body.get("body", issue.body)
        if (state := body.get("state")) is not None:
            issue.state, issue.state_reason = state, body.get("state_reason")
            issue.closed_at = self._now() if state == "closed" else None
        return web.json_response(self._shown(issue))

    def _comments(self, request: web.Request, body: Any, issue: StandinGitHubIssue) -> web.Response:
        most, page = int(request.query.get("per_page", 30)), int(request.query.get("page", 1))
        rows = list(issue.comments.items())[(page - 1) * most : page * most]
        return web.json_response(
            [{"id": key, "user": {"login": "faultline-bot"}, "body": text} for key, text in rows]
        )

    def _comment(self, request: web.Request, body: Any, issue: StandinGitHubIssue) -> web.Response:
        if wrong := self._wrong(body):
            return wrong
        key = next(self._ids)
        issue.comments[key] = body["body"]
        return web.json_response({"id": key, "body": body["body"]}, status=201)

    def _delete_comment(self, request: web.Request, body: Any) -> web.Response:
        key = int(request.match_info["comment"])
        for issue in self.issues:
            if issue.comments.pop(key, None) is not None:
                return web.Response(status=204)
        return _refused(404, "Not Found")

    def _label(self, request: web.Request, body: Any, issue: StandinGitHubIssue) -> web.Response:
        issue.labels = list(dict.fromkeys([*issue.labels, *body["labels"]]))
        return web.json_response([{"name": name} for name in issue.labels])

    def _unlabel(self, request: web.Request, body: Any, issue: StandinGitHubIssue) -> web.Response:
        if (label := request.match_info["label"]) not in issue.labels:
            return _refused(404, "Label does not exist")
        issue.labels.remove(label)
        return web.json_response([{"name": name} for name in issue.labels])

    def _shown(self, issue: StandinGitHubIssue) -> dict[str, Any]:
        return {
            "number": issue.number,
            "title": issue.title,
            "body": issue.body,
            "state": issue.state,
            "labels": [{"name": name} for name in issue.labels],
            "assignees": [{"login": name} for name in issue.assignees],
            "html_url": f"{self.url}/{self.repository}/issues/{issue.number}",
            "closed_at": issue.closed_at.isoformat() if issue.closed_at else None,
            **({"pull_request": {"url": "…"}} if issue.pull_request else {}),
        }


def _refused(status: int, message: str) -> web.Response:
    return web.json_response({"message": message}, status=status)


def _invalid(name: str, message: str) -> web.Response:
    wrong = [{"resource": "Issue", "field": name, "code": "custom", "message": message}]
    return web.json_response({"message": "Validation Failed", "errors": wrong}, status=422)
