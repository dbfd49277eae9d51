"""A delivery of Slack → what it asks for. Pure: the same for HTTP and for Socket Mode.

interactive      pressed buttons, submitted dialogs, the message shortcut
slash_commands   `/faultline …`                                              in slash.py
events_api       an opened App Home, replies in threads
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from faultline.gateway.slack import dialogs, slash
from faultline.gateway.slack.actions import (
    Action,
    Ask,
    Correct,
    Decide,
    Delivery,
    Nothing,
    Outsider,
    Person,
    Show,
    ShowHome,
    ThreadReply,
    person_in,
    text_in,
)
from faultline.gateway.slack.buttons import Subject, command_of, pressed, pressed_at, response_url_in
from faultline.gateway.slack.texts import message_text
from faultline.live_view.view import LiveView
from streams.model.conversation import Verb
from streams.model.errors import BadInput
from streams.model.message import Message


def action_of(delivery: Delivery, view: LiveView, cluster: str, now: datetime) -> Action:
    """What a genuine delivery asks for; `cluster` is the one that commands without an incident are for.

    Raises:
        BadInput: it is malformed; names what is wrong.
    """
    payload = delivery.payload
    try:
        match delivery.kind, payload.get("type"):
            case "interactive", "block_actions":
                return pressed(payload, view, now)
            case "interactive", "view_submission":
                return _submitted(payload, now)
            case "interactive", "message_action" if payload.get("callback_id") == dialogs.NOTE:
                return _shortcut(payload, view)
            case "slash_commands", _:
                return slash.typed(payload, view, cluster, now)
            case "events_api", _:
                return _event(payload)
    except Outsider as error:
        return Show(Message(f"Only members of this workspace can do that: {error}"), response_url_in(payload))
    return Nothing(f"{delivery.kind[:40]} of type {str(payload.get('type'))[:40]!r} asks for nothing")


def delivery_id(delivery: Delivery) -> str:
    """Equal for two deliveries of the same press, dialog, command or event; empty where Slack gives nothing to tell by."""
    payload = delivery.payload
    match delivery.kind, payload.get("type"):
        case "interactive", "block_actions":
            actions = payload.get("actions")
            first = actions[0] if isinstance(actions, list) and actions else None
            press = first if isinstance(first, Mapping) else {}
            user = payload.get("user")
            who = user.get("id") if isinstance(user, Mapping) else ""
            return f"press/{who}/{press.get('action_id')}/{press.get('action_ts')}"
        case "interactive", "view_submission":
            view = payload.get("view")
            return f"view/{view.get('id')}" if isinstance(view, Mapping) else ""
        case "events_api", _:
            return f"event/{payload.get('event_id')}" if payload.get("event_id") else ""
        case _:
            trigger = payload.get("trigger_id")
            return f"trigger/{trigger}" if trigger else ""


def _submitted(payload: Mapping[str, Any], now: datetime) -> Action:
    view = payload.get("view")
    if not isinstance(view, Mapping):
        raise BadInput("a dialog without its contents")
    person, name, callback = person_in(payload), text_in(view, "id", "the dialog"), view.get("callback_id")
    kept, typed = dialogs.kept_in(view), dialogs.typed_in(view)
    url = kept.get("u", "")
    if callback == dialogs.NOTE:
        cluster, incident = dialogs.chosen_in(view)
        if not typed:
            return Correct({"text": "A note needs words."})
        return Decide(
            command_of(Verb.NOTE, Subject(incident, cluster), person, now, name, typed), person, url
        )
    if callback != dialogs.REASON or kept.get("v") not in (Verb.REJECT, Verb.RESOLVE):
        return Nothing(f"the dialog {str(callback)[:60]!r} is none of ours")
    where = "the dialog's metadata"
    subject = Subject(text_in(kept, "i", where), text_in(kept, "c", where), kept.get("s"), kept.get("d"))
    return Decide(command_of(Verb(kept["v"]), subject, person, now, name, typed), person, url)


def _shortcut(payload: Mapping[str, Any], view: LiveView) -> Action:
    person_in(payload)
    message, url = payload.get("message"), response_url_in(payload)
    text = message_text(message.get("text")) if isinstance(message, Mapping) else ""
    incidents = [one.incident for one in view.overviews()]
    dialog = dialogs.note(incidents, text, {"u": url})
    return Ask(dialog, text_in(payload, "trigger_id"), url, "run: faultline incidents note ID TEXT")


def _event(payload: Mapping[str, Any]) -> Action:
    event = payload.get("event")
    if not isinstance(event, Mapping):
        raise BadInput("an event without its contents")
    match event.get("type"):
        case "app_home_opened" if event.get("tab") == "home":
            return ShowHome(Person(text_in(event, "user", "the event")))
        case "message":
            return _thread_reply(payload, event)
        case other:
            return Nothing(f"the event {str(other)[:60]!r} asks for nothing")


def _thread_reply(payload: Mapping[str, Any], event: Mapping[str, Any]) -> Action:
    """A note, if a person wrote it into a thread of ours: no bot's message, no edit, no deletion, no join."""
    thread_ts, ts = event.get("thread_ts"), event.get("ts")
    if not isinstance(thread_ts, str) or not isinstance(ts, str) or thread_ts == ts:
        return Nothing("a message outside of a thread")
    if event.get("bot_id") or event.get("app_id") or event.get("subtype") not in (None, "thread_broadcast"):
        return Nothing("no message of a person")
    if event.get("edited"):
        return Nothing("an edit")
    team, theirs = payload.get("team_id"), event.get("user_team")
    if isinstance(team, str) and isinstance(theirs, str) and team != theirs:
        return Nothing("a message of another workspace")
    parent = event.get("parent_user_id")
    if isinstance(parent, str) and (bots := _bots(payload)) and parent not in bots:
        return Nothing("a thread of somebody else")
    text = message_text(event.get("text"))
    if not text:
        return Nothing("a reply without words")
    person = Person(text_in(event, "user", "the message"))
    return ThreadReply(person, text_in(event, "channel", "the message"), thread_ts, ts, text)


def note_of(reply: ThreadReply, subject: Subject, name: str, now: datetime) -> Decide:
    """The command that puts a reply on the timeline of the incident whose thread it is in."""
    person = Person(reply.person.id, name)
    key = f"{reply.channel}/{reply.ts}"
    return Decide(command_of(Verb.NOTE, subject, person, pressed_at(reply.ts, now), key, reply.text), person)


def _bots(payload: Mapping[str, Any]) -> list[str]:
    """The user ids that this app has, of those the event was delivered for."""
    found = payload.get("authorizations")
    rows = found if isinstance(found, list) else []
    return [
        row["user_id"]
        for row in rows
        if isinstance(row, Mapping) and row.get("is_bot") is True and "user_id" in row
    ]
