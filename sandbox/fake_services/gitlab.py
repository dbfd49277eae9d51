"""A stand-in for GitLab's REST API for issues, of one project.

    GET, POST /api/v4/projects/{id}/issues         GET, PUT .../issues/{iid}
    GET, POST .../issues/{iid}/notes               DELETE .../issues/{iid}/notes/{id}
    POST /api/v4/projects/{id}/uploads             multipart, field `file`

Its traps are there: quick actions in a description or note are carried out (a line `/close` closes), its own notes stand among
the notes, titles have at most 255 characters, texts a million, and a token without the scope gets 403.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

from aiohttp import web

from sandbox.fake_services.forms import files_in
from sandbox.fake_services.server import Standin

_QUICK_ACTION = re.compile(r"(?m)^/(close|assign|label)\b")
_CODE = re.compile(r"(?ms)^(`{3,})[^`\n]*\n.*?^\1")


@dataclass(slots=True)
class StandinNote:
    """One note; GitLab's own are `system`."""

    id: int
    body: str
    system: bool = False


@dataclass(slots=True)
class StandinGitLabIssue:
    """One issue; notes oldest first."""

    iid: int
    title: str
    description: str
    labels: list[str]
    assignee_ids: list[int]
    state: str = "opened"
    notes: list[StandinNote] = field(default_factory=list)
    closed_at: datetime | None = None


class GitLabStandin(Standin):
    """GitLab with one project."""

    def __init__(
        self,
        *,
        project: str = "infra/gpu-tickets",
        token: str = "standin-token",
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__()
        self.project, self.token = project, token
        self.issues: list[StandinGitLabIssue] = []
        self.uploads: dict[str, bytes] = {}
        self.may_write = True
        self.token_expires: datetime | None = None
        self._ids = count(1)
        self._now = now
        root, route = "/api/v4/projects/{project}", self.app.router.add_route
        route("GET", "/api/v4/personal_access_tokens/self", self._own_token)
        route("GET", f"{root}/issues", self._asked(self._list))
        route("POST", f"{root}/issues", self._asked(self._create))
        route("GET", f"{root}/issues/{{iid}}", self._asked(self._show))
        route("PUT", f"{root}/issues/{{iid}}", self._asked(self._update))
        route("GET", f"{root}/issues/{{iid}}/notes", self._asked(self._notes))
        route("POST", f"{root}/issues/{{iid}}/notes", self._asked(self._note))
        route("DELETE", f"{root}/issues/{{iid}}/notes/{{note}}", self._asked(self._delete_note))
        route("POST", f"{root}/uploads", self._asked(self._upload))

    async def _own_token(self, request: web.Request) -> web.Response:
        if request.headers.get("PRIVATE-TOKEN") != self.token:
            return web.json_response({"message": "401 Unauthorized"}, status=401)
        ends = f"{self.token_expires:%Y-%m-%d}" if self.token_expires is not None else None
        return web.json_response({"active": True, "scopes": ["api"], "expires_at": ends})

    def _asked(self, handler: Any) -> Any:
        async def answer(request: web.Request) -> web.Response:
            if request.headers.get("PRIVATE-TOKEN") != self.token:
                return web.json_response({"message": "401 Unauthorized"}, status=401)
            if request.match_info["project"] != self.project:
                return web.json_response({"message": "404 Project Not Found"}, status=404)
            if request.method != "GET" and not self.may_write:
                told = {"error": "insufficient_scope", "error_description": "needs the scope api"}
                return web.json_response(told, status=403)
            if "iid" not in request.match_info:
                return await handler(request)  # type: ignore[no-any-return]
            issue = next((i for i in self.issues if str(i.iid) == request.match_info["iid"]), None)
            if issue is None:
                return web.json_response({"message": "404 Not found"}, status=404)
            return await handler(request, issue)  # type: ignore[no-any-return]

        return answer

    async def _list(self, request: web.Request) -> web.Response:
        wanted = set(filter(None, request.query.get("labels", "").split(",")))
        found = [issue for issue in self.issues if wanted <= set(issue.labels)]
        if request.query.get("sort", "desc") == "desc":
            found = found[::-1]
        return web.json_response([self._shown(i) for i in found[: int(request.query.get("per_page", 20))]])

    async def _create(self, request: web.Request) -> web.Response:
        body = await request.json()
        if wrong := _wrong(body):
            return wrong
        issue = StandinGitLabIssue(
            len(self.issues) + 1,
            body["title"],
            body.get("description") or "",
            list(dict.fromkeys(filter(None, body.get("labels", "").split(",")))),
            list(body.get("assignee_ids", [])),
        )
        self.issues.append(issue)
        self._act(issue, issue.description)
        return web.json_response(self._shown(issue), status=201)

    async def _show(self, request: web.Request, issue: StandinGitLabIssue) -> web.Response:
        return web.json_response(self._shown(issue))

    async def _update(self, request: web.Request, issue: StandinGitLabIssue) -> web.Response:
        body = await request.json()
        if wrong := _wrong(body):
            return wrong
        issue.description = body.get("description", issue.description)
        gone = set(body.get("remove_labels", "").split(","))
        added = filter(None, body.get("add_labels", "").split(","))
        issue.labels = list(dict.fromkeys([*(name for name in issue.labels if name not in gone), *added]))
        match body.get("state_event"):
            case "close":
                issue.state, issue.closed_at = "closed", self._now()
            case "reopen":
                issue.state, issue.closed_at = "opened", None
        if event := body.get("state_event"):
            issue.notes.append(StandinNote(next(self._ids), f"{event}d", system=True))
        return web.json_response(self._shown(issue))

    async def _notes(self, request: web.Request, issue: StandinGitLabIssue) -> web.Response:
        most, page = int(request.query.get("per_page", 20)), int(request.query.get("page", 1))
        rows = issue.notes[(page - 1) * most : page * most]
        return web.json_response(
            [{"id": n.id, "body": n.body, "system": n.system, "author": {"id": 7}} for n in rows]
        )

    async def _note(self, request: web.Request, issue: StandinGitLabIssue) -> web.Response:
        body = await request.json()
        if wrong := _wrong(body):
            return wrong
        note = StandinNote(next(self._ids), body["body"])
        issue.notes.append(note)
        self._act(issue, note.body)
        return web.json_response({"id": note.id, "body": note.body}, status=201)

    async def _delete_note(self, request: web.Request, issue: StandinGitLabIssue) -> web.Response:
        kept = [note for note in issue.notes if str(note.id) != request.match_info["note"]]
        if len(kept) == len(issue.notes):
            return web.json_response({"message": "404 Not found"}, status=404)
        issue.notes = kept
        return web.Response(status=204)

    async def _upload(self, request: web.Request) -> web.Response:
        name, content = (await files_in(request)).get("file", ("", b""))
        if not name:
            return web.json_response({"error": "file is missing"}, status=400)
        url = f"/uploads/{next(self._ids):032x}/{name}"
        self.uploads[url] = content
        return web.json_response({"url": url, "alt": name}, status=201)

    def _act(self, issue: StandinGitLabIssue, text: str) -> None:
        if _QUICK_ACTION.search(_CODE.sub("", text)):
            issue.state, issue.closed_at = "closed", self._now()

    def _shown(self, issue: StandinGitLabIssue) -> dict[str, Any]:
        return {
            "iid": issue.iid,
            "title": issue.title,
            "description": issue.description,
            "state": issue.state,
            "labels": issue.labels,
            "assignees": [{"id": one} for one in issue.assignee_ids],
            "web_url": f"{self.url}/{self.project}/-/issues/{issue.iid}",
            "closed_at": issue.closed_at.isoformat() if issue.closed_at else None,
        }


def _wrong(body: Mapping[str, Any]) -> web.Response | None:
    if len(body.get("title") or "") > 255:
        return web.json_response(
            {"message": {"title": ["is too long (maximum is 255 characters)"]}}, status=400
        )
    for name in ("description", "body"):
        if len(body.get(name) or "") > 1_000_000:
            return web.json_response({"message": {name: ["is too long"]}}, status=400)
    return None
