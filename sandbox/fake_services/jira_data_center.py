"""A stand-in for Jira Data Center's REST API version 2: what differs from Cloud's, which `jira.py` lists.

GET, POST /rest/api/2/search     as Cloud had it; it knows no `reconcileIssues`
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from sandbox.fake_services.jira import TEXT_LIMIT, JiraStandin, refused, shown


class JiraDataCenterStandin(JiraStandin):
    """Jira Data Center with one project: version 2, wiki mark-up, a personal access token, the old search (no reconciling)."""

    api = 2

    def _is_authorised(self, request: web.Request) -> bool:
        given = request.headers.get("Authorization")
        return given == f"Bearer {self.token}" or super()._is_authorised(request)

    def _wrong_text(self, text: Any) -> str | None:
        if not isinstance(text, str):
            return "Operation value must be a string"
        if len(text) > TEXT_LIMIT:
            return f"The entered text is too long. It exceeds the allowed limit of {TEXT_LIMIT:,} characters."
        return None

    def _old_search(self, body: Any) -> web.Response:
        if "reconcileIssues" in body:
            return refused(400, 'Unrecognized field "reconcileIssues"')
        found = self._found(body, set())
        if found is None:
            return refused(400, "Error in the JQL Query.")
        limit = int(body.get("maxResults", 50))
        return web.json_response(
            {
                "startAt": 0,
                "maxResults": limit,
                "total": len(found),
                "issues": [shown(issue) for issue in found[:limit]],
            }
        )

    def _kept(self, text: Any) -> dict[str, Any]:
        return {"wiki": text}

    def _shown_comment(self, comment: dict[str, Any]) -> dict[str, Any]:
        return {"id": self._comment_id(comment), "author": {"name": "faultline"}, "body": comment["wiki"]}
