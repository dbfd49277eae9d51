"""The pages to read: what each shows, from the view, for one visitor."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import web
from markupsafe import Markup

from faultline.console import rendering
from faultline.console.board import STATES, Board, Choice
from faultline.console.decide import Answers
from faultline.console.fleet_page import GROUPINGS, By, fleet
from faultline.console.forms import WORDS
from faultline.console.identity import Visitor
from faultline.console.incident_page import incident_page
from faultline.console.runbook_page import runbook_page
from faultline.drawings import decision_svg, timeline_svg, topology_svg
from faultline.live_view.view import LiveView
from runbooks.language.schema import Runbook
from streams.model.clock import Clock
from streams.model.control import Control
from streams.model.message import plain

MAX_QUERY = 200
MAX_NODES = 40
"""Nodes that a search names."""
MINUTES = ((10, "10 min"), (30, "30 min"), (60, "1 h"), (240, "4 h"))


class Pages:
    """The handlers of the pages. `page_size` is the rows of a list."""

    def __init__(
        self,
        view: LiveView,
        board: Board,
        answers: Answers,
        clock: Clock,
        runbooks: Sequence[Runbook],
        page_size: int,
    ) -> None:
        self._view = view
        self._board = board
        self._answers = answers
        self._clock = clock
        self._runbooks = runbooks
        self._page_size = page_size

    async def overview(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """What is open and what waits."""
        state = request.query.get("state", "open")
        choice = Choice(
            cluster=_told(request, "cluster"),
            family=_told(request, "family"),
            state=state if state in STATES else "open",
            words=_told(request, "q"),
            page=_number(request, "page"),
        )
        return self._list(visitor, choice, "overview.html", "/")

    async def search(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Incidents by any of their words, and nodes by name."""
        words = _told(request, "q")
        found = self._view.find(words) if words.startswith("inc-") and len(words) > 8 else []
        if len(found) == 1:
            raise web.HTTPSeeOther(f"/incidents/{quote(found[0])}")
        choice = Choice(state="all", words=words, page=_number(request, "page"))
        nodes = [
            (cluster, name)
            for cluster in self._view.clusters
            for name in self._view.nodes(cluster)
            if words and words.lower() in name.lower()
        ]
        return self._list(
            visitor,
            choice,
            "search.html",
            "/search",
            nodes=nodes[:MAX_NODES],
            more_nodes=max(0, len(nodes) - MAX_NODES),
        )

    def _list(self, visitor: Visitor, choice: Choice, template: str, path: str, **more: Any) -> web.Response:
        listing = self._board.listing(choice, self._page_size)
        told = {"cluster": choice.cluster, "family": choice.family, "state": choice.state, "q": choice.words}

        def address(**changes: object) -> str:
            kept = {name: str(value) for name, value in {**told, **changes}.items() if value}
            return f"{path}?{urlencode(kept)}"

        return self._shown(template, visitor, path, choice=choice, listing=listing, address=address, **more)

    async def incident(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """One incident."""
        name = request.match_info["id"]
        one = self._view.overview(name)
        if one is None:
            found = self._view.find(name) if len(name) >= 6 else []
            if len(found) == 1:
                raise web.HTTPSeeOther(f"/incidents/{quote(found[0])}")
            return self._shown("missing.html", visitor, "", status=404, wanted=name)
        cluster = one.incident.cluster
        nodes = self._view.nodes(cluster)
        timeline = self._view.timeline(name)
        shown = incident_page(one, timeline, nodes, self._view.jobs(cluster))
        return self._shown(
            "incident.html",
            visitor,
            f"/incidents/{name}",
            interest=f"names={quote(name)}&names={quote(cluster)}",
            limits_of=(cluster,),
            page=shown,
            # Both templates escape what they are given, as every other does.
            timeline_svg=Markup(timeline_svg(one.incident, one.runs, timeline, self._clock())),
            topology_svg=Markup(topology_svg(one.incident, nodes)),
            decision_svg=Markup(decision_svg(one.incident, one.runs, nodes)),
            words=WORDS,
            minutes=MINUTES,
            told=await self._answers.told(request),
            press=secrets.token_urlsafe(9),
        )

    async def fleet(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """The nodes."""
        clusters = self._view.clusters
        cluster = _told(request, "cluster")
        cluster = cluster if cluster in clusters else next(iter(clusters), "")
        by: By = next((one for one in GROUPINGS if one == request.query.get("by")), "rack")
        shown = fleet(
            self._view.nodes(cluster),
            self._board.places(cluster),
            by,
            _number(request, "page"),
            self._page_size * 8,
        )
        return self._shown(
            "fleet.html",
            visitor,
            "/fleet",
            fleet=shown,
            cluster=cluster,
            clusters=clusters,
            by=by,
            groupings=GROUPINGS,
        )

    async def runbooks(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """The runbooks, and how they went."""
        runs = [run for row in self._board.rows() for run in self._view.runs(row.id)]
        return self._shown("runbooks.html", visitor, "/runbooks", books=runbook_page(self._runbooks, runs))

    def _shown(
        self,
        template: str,
        visitor: Visitor,
        path: str,
        *,
        status: int = 200,
        interest: str = "",
        limits_of: Sequence[str] | None = None,
        **values: Any,
    ) -> web.Response:
        now = self._clock()
        controls = [
            self._view.control(name) for name in (self._view.clusters if limits_of is None else limits_of)
        ]
        return rendering.page(
            template,
            status=status,
            visitor=visitor,
            path=path,
            interest=interest,
            ready=self._view.ready,
            controls=[control for control in controls if _limits(control, now)],
            now=now,
            age=lambda at: rendering.Age(at, now),
            waiting=sum(row.asks and row.rank == 0 for row in self._board.rows()),
            can_decide=visitor.person is not None,
            has_session=visitor.person is not None and bool(visitor.person.session),
            **values,
        )


def _limits(control: Control, now: datetime) -> bool:
    frozen = not all(freeze.has_ended(now) for freeze in control.freezes)
    return control.kill_switch is not None or control.breaker is not None or frozen


def _told(request: web.Request, name: str) -> str:
    return plain(request.query.get(name, ""), MAX_QUERY).strip()


def _number(request: web.Request, name: str) -> int:
    told = request.query.get(name, "1")
    return int(told) if told.isascii() and told.isdecimal() and len(told) < 7 else 1
