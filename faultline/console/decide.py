"""Decisions: a form becomes a command, and the responder's answer is where the browser is led next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote, urlencode

import structlog
from aiohttp import web
from aiokafka.errors import KafkaError

from faultline.console import rendering
from faultline.console.forms import WORDS, command_of, read_form
from faultline.console.identity import Forbidden, Gate, LoginNeeded, login_address
from faultline.console.sessions import Cookies, is_same
from faultline.live_view.decisions import Decision, is_refusal
from faultline.live_view.view import LiveView
from streams.model.clock import Clock
from streams.model.conversation import Command, Verb
from streams.model.errors import BadInput, Temporary, Unreachable

log = structlog.get_logger(__name__)


class Decides(Protocol):
    """Sends a command and waits for its answer: `faultline.live_view.decisions.Decisions`."""

    async def decide(self, command: Command, wait_s: float) -> Decision:
        """Send the command; it is durable when this returns, answered or not."""
        ...


@dataclass(frozen=True, slots=True)
class Told:
    """What became of a decision, shown on top of its incident's page. `accepted` is None without an answer."""

    verb: str
    accepted: bool | None
    text: str


class Answers:
    """Carries a decision in the address of the page that shows its answer, so that nothing is kept between the two."""

    def __init__(self, view: LiveView, cookies: Cookies) -> None:
        self._view = view
        self._cookies = cookies

    def address(self, command: Command) -> str:
        """The page that shows the answer to a command."""
        mark = f"{command.id}:{command.verb}"
        told = urlencode({"told": mark, "seal": self._cookies.seal(mark)})
        return f"/incidents/{quote(command.incident)}?{told}"

    async def told(self, request: web.Request) -> Told | None:
        """What the address says was decided, and what the responder has answered by now."""
        mark, seal = request.query.get("told", ""), request.query.get("seal", "")
        if not mark or not mark.isascii() or not is_same(seal, self._cookies.seal(mark)):
            return None
        command, _, verb = mark.partition(":")
        answers = await self._view.answers(command, 0)
        if not answers:
            return Told(
                WORDS[Verb(verb)],
                None,
                "No responder has answered. It will be applied when one is back; the timeline shows the result.",
            )
        accepted = [entry for entry in answers if not is_refusal(entry)]
        text = "; ".join(dict.fromkeys(entry.text for entry in accepted or answers))
        return Told(WORDS[Verb(verb)], bool(accepted), text)


class Decide:
    """Takes the forms of an incident's page."""

    def __init__(
        self, gate: Gate, view: LiveView, decisions: Decides, answers: Answers, clock: Clock, wait_s: float
    ) -> None:
        self._gate = gate
        self._view = view
        self._decisions = decisions
        self._answers = answers
        self._clock = clock
        self._wait_s = wait_s

    async def decide(self, request: web.Request) -> web.StreamResponse:
        """Send a decision to the responder and lead the browser to its answer."""
        name = request.match_info["id"]
        try:
            form = await read_form(request)
            person = self._gate.check_form(request, form.get("token", ""))
            incident = self._view.incident(name)
            if incident is None:
                raise BadInput("This incident is not known any more.")
            command = command_of(
                form, incident=name, cluster=incident.cluster, person=person, now=self._clock()
            )
        except LoginNeeded:
            return _refused(
                401, "Your session has ended. Log in again, then decide on what the page shows now.", name
            )
        except Forbidden as error:
            return _refused(403, str(error), name)
        except BadInput as error:
            return _refused(400, str(error), name)
        try:
            # An answer that is there already belongs to an earlier press of the same button.
            if not await self._view.answers(command.id, 0):
                await self._decisions.decide(command, self._wait_s)
        except (Unreachable, Temporary, KafkaError) as error:
            log.error("a decision was not stored", incident=name, verb=command.verb.value, error=repr(error))
            return _refused(
                503,
                "Kafka does not answer, so it is not known whether the decision was stored. Go back and press again: "
                "the same press counts once.",
                name,
            )
        raise web.HTTPSeeOther(self._answers.address(command), headers=rendering.HEADERS)


def _refused(status: int, text: str, incident: str) -> web.Response:
    back = f"/incidents/{quote(incident)}"
    return rendering.page(
        "refused.html",
        status=status,
        text=text,
        back=back,
        login=login_address(back) if status == 401 else "",
    )
