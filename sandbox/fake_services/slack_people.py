"""A stand-in for the half of Slack where people act, whichever way it reaches the app. Written from its public documentation.

| what | and its limits here |
|---|---|
| `views.open`, `views.publish` | a trigger lives three seconds and is used once; titles of 24 characters, 100 blocks |
| response URLs | five posts within thirty minutes |
| `usergroups.list`, `users.info` | members with `include_users` |

A person's act (`press`, `submit`, `type`, `note`, `open_home`, `write`) returns the app's acknowledgement.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from sandbox.fake_services.slack import Posting, _SlackError
from sandbox.fake_services.slack_deliveries import APP, Ack, SlackDeliveries

TEAM, BOT_USER = "T0STANDIN", "U0FAULTLINE"
URL_USES = 5


@dataclass(slots=True)
class Answer:
    """One post to a response URL: shown to `user` only, unless it says otherwise."""

    user: str
    body: dict[str, Any]

    @property
    def text(self) -> str:
        """Its plain text."""
        return str(self.body.get("text", ""))


@dataclass(slots=True)
class _Url:
    user: str
    until: float
    uses: int = 0


@dataclass(slots=True)
class Person:
    """Somebody in the workspace, or in another one that shares the channel."""

    id: str
    name: str
    team: str = TEAM


class SlackPeople(SlackDeliveries):
    """Slack with people in it."""

    def __init__(
        self,
        *,
        app_token: str = "xapp-standin",
        signing_secret: str = "standin-signing-secret",
        trigger_s: float = 3.0,
        url_s: float = 1800.0,
        **more: Any,
    ) -> None:
        super().__init__(app_token=app_token, signing_secret=signing_secret, **more)
        self.trigger_s = trigger_s
        self.url_s = url_s
        self.groups: dict[str, list[str]] = {}
        self.people: dict[str, Person] = {}
        self.answers: list[Answer] = []
        self.dialogs: dict[str, dict[str, Any]] = {}
        self.homes: dict[str, dict[str, Any]] = {}
        self.published = 0
        self._triggers: dict[str, tuple[float, str]] = {}
        self._urls: dict[str, _Url] = {}
        for method, handler in {
            "views.open": self._open,
            "views.publish": self._publish,
            "usergroups.list": self._usergroups,
            "users.info": self._user,
        }.items():
            self.app.router.add_route("*", f"/api/{method}", self._method(method, handler))
        self.app.router.add_post("/actions/{name}", self._responded)

    # -- what people do

    def person(self, name: str, team: str = TEAM) -> Person:
        """Somebody with this name; the same one every time."""
        known = next((one for one in self.people.values() if (one.name, one.team) == (name, team)), None)
        if known is None:
            known = Person(f"U{len(self.people) + 1:07d}", name, team)
            self.people[known.id] = known
        return known

    def press_of(
        self, who: Person, action: str, value: str, *, on_home: bool = False, at: float | None = None
    ) -> dict[str, Any]:
        """A `block_actions` payload, of a button in a message or on the App Home."""
        payload = {
            "type": "block_actions", "team": {"id": TEAM, "domain": "standin"}, "api_app_id": APP,
            "user": {"id": who.id, "username": who.name, "name": who.name, "team_id": who.team},
            "trigger_id": self._trigger(who),
            "actions": [
                {"type": "button", "action_id": action, "block_id": "b", "value": value, "action_ts": f"{at or time.time():.6f}"}
            ],
        }  # fmt: skip
        if on_home:
            return payload | {"container": {"type": "view"}, "view": {"type": "home", "id": "V0HOME"}}
        return payload | {"container": {"type": "message"}, "response_url": self._url(who)}

    async def press(self, who: Person, action: str, value: str, **more: Any) -> Ack:
        """Press a button."""
        return await self.deliver("interactive", self.press_of(who, action, value, **more))

    async def submit(self, who: Person, view_id: str, values: Mapping[str, Any]) -> Ack:
        """Submit a dialog; `values` by block, a text or the value of the chosen option."""
        view = self.dialogs[view_id]
        state = {
            name: {name: {"selected_option": {"value": value["chosen"]}} if isinstance(value, dict) else {"value": value}}
            for name, value in values.items()
        }  # fmt: skip
        payload = {
            "type": "view_submission", "team": {"id": TEAM},
            "user": {"id": who.id, "username": who.name, "name": who.name, "team_id": who.team},
            "view": {**view, "id": view_id, "state": {"values": state}},
        }  # fmt: skip
        return await self.deliver("interactive", payload)

    async def type(self, who: Person, text: str) -> Ack:
        """`/faultline text`."""
        payload = {
            "command": "/faultline", "text": text, "team_id": TEAM, "channel_id": "C0INCIDENTS", "user_id": who.id,
            "user_name": who.name, "api_app_id": APP, "trigger_id": self._trigger(who), "response_url": self._url(who),
        }  # fmt: skip
        return await self.deliver("slash_commands", payload)

    async def note(self, who: Person, text: str) -> Ack:
        """The shortcut on a message."""
        payload = {
            "type": "message_action", "callback_id": "faultline.note", "team": {"id": TEAM}, "trigger_id": self._trigger(who),
            "user": {"id": who.id, "name": who.name, "team_id": who.team}, "response_url": self._url(who),
            "message": {"type": "message", "text": text, "ts": "1.0"}, "channel": {"id": "C0INCIDENTS"},
        }  # fmt: skip
        return await self.deliver("interactive", payload)

    async def open_home(self, who: Person) -> Ack:
        """Open the App Home."""
        return await self.happen(
            {"type": "app_home_opened", "user": who.id, "tab": "home", "channel": "D0HOME"}
        )

    async def write(
        self, who: Person, text: str, thread_ts: str | None = None, channel: str = "C0INCIDENTS", **more: Any
    ) -> Ack:
        """Write a message into a channel or a thread. `more` are fields of the event, as bots, edits and others have them."""
        ts = f"{time.time():.6f}"
        self.channels[channel].append(
            Posting(ts=ts, channel=channel, text=text, thread_ts=thread_ts, bot_id="")
        )
        event = {
            "type": "message",
            "user": who.id,
            "text": text,
            "ts": ts,
            "channel": channel,
            "user_team": who.team,
        }
        if thread_ts is not None:
            root = self._find(channel, thread_ts)
            event |= {
                "thread_ts": thread_ts,
                "parent_user_id": BOT_USER if root is not None and root.bot_id else "U9",
            }
        return await self.happen({**event, **more})

    async def happen(self, event: Mapping[str, Any]) -> Ack:
        """An event of the Events API."""
        return await self.deliver(
            "events_api",
            {
                "type": "event_callback", "team_id": TEAM, "api_app_id": APP, "event": dict(event),
                "event_id": f"Ev{next(self._count):08d}", "event_time": int(time.time()),
                "authorizations": [{"team_id": TEAM, "user_id": BOT_USER, "is_bot": True}],
            },
        )  # fmt: skip

    # -- what the app calls

    async def _arguments(self, name: str, request: web.Request) -> dict[str, Any] | None:
        if request.content_type == "application/json" and name.startswith("views."):
            body = orjson.loads(await request.read())
            return body if isinstance(body, dict) else None
        return await super()._arguments(name, request)

    def _open(self, args: Mapping[str, Any]) -> dict[str, Any]:
        until, user = self._triggers.pop(str(args.get("trigger_id")), (None, ""))
        if until is None:
            raise _SlackError("invalid_trigger_id")
        if time.monotonic() > until:
            raise _SlackError("expired_trigger_id")
        view = _checked_view(args.get("view"), "modal")
        name = f"V{next(self._count):08d}"
        self.dialogs[name] = view | {"opened_by": user}
        return {"view": view | {"id": name}}

    def _publish(self, args: Mapping[str, Any]) -> dict[str, Any]:
        view = _checked_view(args.get("view"), "home")
        user = str(args.get("user_id"))
        if user not in self.people:
            raise _SlackError("user_not_found")
        self.published += 1
        self.homes[user] = view
        return {"view": view | {"id": "V0HOME"}}

    def _usergroups(self, args: Mapping[str, Any]) -> dict[str, Any]:
        include = str(args.get("include_users")).lower() in ("true", "1")
        rows = [
            {"id": name, "handle": name.lower()} | ({"users": users} if include else {})
            for name, users in self.groups.items()
        ]
        return {"usergroups": rows}

    def _user(self, args: Mapping[str, Any]) -> dict[str, Any]:
        person = self.people.get(str(args.get("user")))
        if person is None:
            raise _SlackError("user_not_found")
        return {"user": {"id": person.id, "name": person.name, "profile": {"display_name": person.name}}}

    async def _responded(self, request: web.Request) -> web.Response:
        url = self._urls.get(request.match_info["name"])
        if "Authorization" in request.headers:
            return web.Response(status=400, text="a token was sent to a response URL")
        if url is None or time.monotonic() > url.until:
            return web.json_response({"ok": False, "error": "expired_url"}, status=404)
        if url.uses >= URL_USES:
            return web.json_response({"ok": False, "error": "used_url"}, status=404)
        url.uses += 1
        self.answers.append(Answer(url.user, await request.json()))
        return web.Response(text="ok")

    def _trigger(self, who: Person) -> str:
        name = f"{next(self._count)}.trigger"
        self._triggers[name] = (time.monotonic() + self.trigger_s, who.id)
        return name

    def _url(self, who: Person) -> str:
        name = f"url-{next(self._count)}"
        self._urls[name] = _Url(who.id, time.monotonic() + self.url_s)
        return f"{self.url}/actions/{name}"


def _checked_view(view: Any, kind: str) -> dict[str, Any]:
    if not isinstance(view, dict) or view.get("type") != kind:
        raise _SlackError("invalid_arguments")
    if kind == "modal" and not 0 < len(view.get("title", {}).get("text", "")) <= 24:
        raise _SlackError("invalid_arguments")
    if len(view.get("private_metadata", "")) > 3000 or len(view.get("callback_id", "")) > 255:
        raise _SlackError("invalid_arguments")
    blocks = view.get("blocks")
    if not isinstance(blocks, list) or not 0 < len(blocks) <= 100 or any(map(_wrong, blocks)):
        raise _SlackError("invalid_arguments")
    has_inputs = any(block.get("type") == "input" for block in blocks)
    if has_inputs and "submit" not in view:
        raise _SlackError("invalid_arguments")
    return view


def _wrong(block: Mapping[str, Any]) -> bool:
    if block.get("type") != "input":
        return False
    element = block.get("element", {})
    options = element.get("options")
    if options is not None and not 0 < len(options) <= 100:
        return True
    texts = [option["text"]["text"] for option in options or ()]
    values = [option["value"] for option in options or ()]
    return any(not 0 < len(text) <= 75 for text in texts) or any(
        not 0 < len(value) <= 150 for value in values
    )
