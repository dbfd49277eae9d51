"""A stand-in for Slack's Web API: the six methods that threads need, with Slack's own error words.

Like Slack it answers 200 with `ok: false`, shows metadata only when asked, replaces metadata on an update (what is left out
is gone), and takes messages only within Block Kit's caps: 50 blocks, 3,000 characters a section, 50 tasks a plan with ids of
their own and one of four states, no plan in an attachment, block ids that differ.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from aiohttp import web

from sandbox.fake_services.server import Standin

BOT_ID = "B0FAULTLINE"
_CAPS = {
    "section": 3000,
    "button": 75,
    "value": 2000,
    "fields": 10,
    "field": 2000,
    "blocks": 50,
    "tasks": 50,
    "block_id": 255,
    "total": 13_200,
}


class _SlackError(Exception):
    """A rejected call; the text is Slack's error word."""


@dataclass(slots=True)
class Posting:
    """One message in a channel, as it is now. `edits` counts updates."""

    ts: str
    channel: str
    text: str
    blocks: list[dict[str, Any]] = field(default_factory=list)
    attachments: list[dict[str, Any]] = field(default_factory=list)
    metadata: dict[str, Any] | None = None
    thread_ts: str | None = None
    bot_id: str = BOT_ID
    edits: int = 0
    deleted: bool = False
    visible_at: float = 0.0

    @property
    def key(self) -> str | None:
        """The idempotency key in its metadata."""
        payload = (self.metadata or {}).get("event_payload") or {}
        return payload.get("key")

    @property
    def lines(self) -> list[str]:
        """What a reader sees, as plain lines: escapes undone, marks of bold and code left out, buttons in brackets."""
        shown = [*self.blocks, *(block for one in self.attachments for block in one.get("blocks", []))]
        texts = [text for block in shown for text in _texts(block)] or [self.text]
        return [_readable(line) for text in texts for line in text.splitlines()]


class SlackStandin(Standin):
    """Slack with the given channels. A new message shows in the history after `lag_s`."""

    def __init__(
        self, *, token: str = "xoxb-standin", channels: tuple[str, ...] = ("C0INCIDENTS",), lag_s: float = 0.0
    ) -> None:
        super().__init__()
        self.token = token
        self.lag_s = lag_s
        self.archived: set[str] = set()
        self.missing_scopes: dict[str, str] = {}
        """Scope that the token lacks, by method."""
        self.scopes = ("chat:write", "channels:history")
        """What the token may, as a header of every answer says."""
        self.per_minute: dict[str, int] = {}
        """Optional rate limit by method, counted per channel."""
        self.channels: dict[str, list[Posting]] = {name: [] for name in channels}
        self._called: dict[tuple[str, str], list[float]] = {}
        self._numbers = count(1)
        for method, handler in {
            "auth.test": self._auth_test,
            "chat.postMessage": self._post,
            "chat.update": self._update,
            "chat.delete": self._delete,
            "conversations.history": self._history,
            "conversations.replies": self._replies,
        }.items():
            self.app.router.add_route("*", f"/api/{method}", self._method(method, handler))

    @property
    def base_url(self) -> str:
        """The value for `slack.base_url`."""
        return f"{self.url}/api"

    def roots(self, channel: str = "C0INCIDENTS") -> list[Posting]:
        """Messages of the channel itself, oldest first."""
        return [m for m in self.channels[channel] if m.thread_ts is None and not m.deleted]

    def thread(self, ts: str, channel: str = "C0INCIDENTS") -> list[Posting]:
        """Replies to a root, oldest first."""
        return [m for m in self.channels[channel] if m.thread_ts == ts and not m.deleted]

    def delete(self, ts: str) -> None:
        """Delete a message, as a user would."""
        for message in self._all():
            if message.ts == ts:
                message.deleted = True

    def _all(self) -> Iterator[Posting]:
        return (message for messages in self.channels.values() for message in messages)

    def _method(self, name: str, handler: Any) -> Any:
        async def answer(request: web.Request) -> web.Response:
            if request.headers.get("Authorization") != f"Bearer {self.token}":
                word = "invalid_auth" if "Authorization" in request.headers else "not_authed"
                return web.json_response({"ok": False, "error": word})
            args = await self._arguments(name, request)
            if args is None:
                return web.json_response({"ok": False, "error": "invalid_json"})
            if wait := self._over_limit(name, str(args.get("channel", ""))):
                return web.json_response(
                    {"ok": False, "error": "ratelimited"}, status=429, headers={"Retry-After": str(wait)}
                )
            if needed := self.missing_scopes.get(name):
                return web.json_response({"ok": False, "error": "missing_scope", "needed": needed})
            try:
                scopes = {"x-oauth-scopes": ",".join(self.scopes)}
                return web.json_response({"ok": True} | handler(args), headers=scopes)
            except _SlackError as error:
                return web.json_response({"ok": False, "error": str(error)})

        return answer

    async def _arguments(self, name: str, request: web.Request) -> dict[str, Any] | None:
        # Slack takes JSON only for methods that write; the others read the query or a form.
        if request.content_type == "application/json" and name.startswith("chat."):
            try:
                body = await request.json()
            except ValueError:
                return None
            return body if isinstance(body, dict) else None
        return dict(request.query) | {k: str(v) for k, v in (await request.post()).items()}

    def _over_limit(self, method: str, channel: str) -> int:
        limit = self.per_minute.get(method)
        if limit is None:
            return 0
        now = time.monotonic()
        called = [at for at in self._called.get((method, channel), []) if now - at < 60]
        self._called[method, channel] = called
        if len(called) >= limit:
            return max(1, int(60 - (now - called[0])) + 1)
        called.append(now)
        return 0

    def _auth_test(self, args: Mapping[str, Any]) -> dict[str, Any]:
        return {"user": "faultline", "user_id": "U0FAULTLINE", "bot_id": BOT_ID, "team_id": "T0STANDIN"}

    def _post(self, args: Mapping[str, Any]) -> dict[str, Any]:
        channel = self._channel(args)
        _check_content(args)
        thread_ts = args.get("thread_ts")
        if thread_ts is not None and self._find(channel, str(thread_ts)) is None:
            raise _SlackError("thread_not_found")
        now = time.time()
        message = Posting(
            ts=f"{int(now)}.{next(self._numbers):06d}",
            channel=channel,
            text=str(args.get("text", "")),
            blocks=args.get("blocks") or [],
            attachments=args.get("attachments") or [],
            metadata=args.get("metadata"),
            thread_ts=str(thread_ts) if thread_ts is not None else None,
            visible_at=time.monotonic() + self.lag_s,
        )
        self.channels[channel].append(message)
        return {"channel": channel, "ts": message.ts, "message": _shown(message, metadata=True)}

    def _update(self, args: Mapping[str, Any]) -> dict[str, Any]:
        channel = self._channel(args)
        _check_content(args)
        message = self._message(channel, args)
        if message.bot_id != BOT_ID:
            raise _SlackError("cant_update_message")
        message.text = str(args.get("text", ""))
        message.blocks = args.get("blocks") or []
        message.attachments = args.get("attachments") or []
        message.metadata = args.get("metadata")
        message.edits += 1
        return {"channel": channel, "ts": message.ts, "text": message.text}

    def _delete(self, args: Mapping[str, Any]) -> dict[str, Any]:
        channel = self._channel(args)
        message = self._message(channel, args)
        message.deleted = True
        return {"channel": channel, "ts": message.ts}

    def _history(self, args: Mapping[str, Any]) -> dict[str, Any]:
        channel = self._channel(args, reading=True)
        found = [m for m in self._visible(channel, args) if m.thread_ts is None]
        return _page(list(reversed(found)), args)

    def _replies(self, args: Mapping[str, Any]) -> dict[str, Any]:
        channel, ts = self._channel(args, reading=True), str(args.get("ts", ""))
        if self._find(channel, ts) is None:
            raise _SlackError("thread_not_found")
        found = [m for m in self._visible(channel, args) if m.thread_ts == ts]
        root = [m for m in self.channels[channel] if m.ts == ts]
        return _page([*root, *found], args)

    def _visible(self, channel: str, args: Mapping[str, Any]) -> Iterator[Posting]:
        oldest = float(args.get("oldest") or 0)
        latest = float(args.get("latest") or "inf")
        now = time.monotonic()
        return (
            m
            for m in self.channels[channel]
            if not m.deleted and m.visible_at <= now and oldest <= float(m.ts) <= latest
        )

    def _find(self, channel: str, ts: str) -> Posting | None:
        return next((m for m in self.channels[channel] if m.ts == ts and not m.deleted), None)

    def _message(self, channel: str, args: Mapping[str, Any]) -> Posting:
        message = self._find(channel, str(args.get("ts", "")))
        if message is None:
            raise _SlackError("message_not_found")
        return message

    def _channel(self, args: Mapping[str, Any], *, reading: bool = False) -> str:
        channel = str(args.get("channel", ""))
        if channel not in self.channels:
            raise _SlackError("channel_not_found")
        if channel in self.archived and not reading:
            raise _SlackError("is_archived")
        return channel


_TASK_MARKS = {"pending": "▫️", "in_progress": "⏳", "complete": "✅", "error": "❌"}


def _task_texts(task: Mapping[str, Any]) -> list[str]:
    parts = task["details"]["elements"][0]["elements"] if "details" in task else []
    return [task["title"], "".join(part.get("text") or part.get("fallback", "") for part in parts)]


def _texts(block: Mapping[str, Any]) -> list[str]:
    if block["type"] == "plan":
        shown = [[f"{_TASK_MARKS[task['status']]} ", *_task_texts(task)] for task in block["tasks"]]
        return [block["title"], *(f"{mark}{title}  {details}".rstrip() for mark, title, details in shown)]
    if block["type"] == "actions":
        return [" ".join(f"[{one['text']['text']}]" for one in block["elements"])]
    own = [block["text"]["text"]] if "text" in block else []
    facts = [one["text"].replace("\n", " ", 1) for one in block.get("fields", [])]
    return own + facts + [one["text"] for one in block.get("elements", [])]


def _readable(line: str) -> str:
    line = re.sub(r"<https?://[^|>]*\|([^>]*)>", r"\1", line)
    line = re.sub(r"<!date\^\d+\^[^|>]*\|([^>]*)>", r"\1", line.replace("```", "").replace("*", ""))
    return line.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _page(messages: list[Posting], args: Mapping[str, Any]) -> dict[str, Any]:
    limit = int(args.get("limit") or 100)
    start = int(args.get("cursor") or 0)
    metadata = str(args.get("include_all_metadata", "")).lower() == "true"
    following = start + limit if start + limit < len(messages) else None
    return {
        "messages": [_shown(m, metadata=metadata) for m in messages[start : start + limit]],
        "has_more": following is not None,
        "response_metadata": {"next_cursor": str(following) if following is not None else ""},
    }


def _shown(message: Posting, *, metadata: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "type": "message",
        "ts": message.ts,
        "text": message.text,
        "bot_id": message.bot_id,
        "blocks": message.blocks,
        "attachments": message.attachments,
    }
    if message.thread_ts is not None:
        shown["thread_ts"] = message.thread_ts
    if metadata and message.metadata is not None:
        shown["metadata"] = message.metadata
    return shown


def _check_content(args: Mapping[str, Any]) -> None:
    blocks = list(args.get("blocks") or [])
    inner = [
        block for attachment in args.get("attachments") or [] for block in attachment.get("blocks") or []
    ]
    if not args.get("text") and not blocks and not inner:
        raise _SlackError("no_text")
    if len(str(args.get("text", ""))) > 40_000:
        raise _SlackError("msg_too_long")
    if max(len(blocks), len(inner)) > _CAPS["blocks"] or any(map(_wrong_block, [*blocks, *inner])):
        raise _SlackError("invalid_blocks")
    kinds = [block.get("type") for block in blocks]
    names = [block["block_id"] for block in [*blocks, *inner] if "block_id" in block]
    if "plan" in {block.get("type") for block in inner} or kinds.count("plan") > 1:
        raise _SlackError("invalid_attachments")
    if len(set(names)) < len(names) or any(not 0 < len(name) <= _CAPS["block_id"] for name in names):
        raise _SlackError("invalid_blocks")
    if len(str(args.get("text", ""))) + sum(map(_characters, [*blocks, *inner])) > _CAPS["total"]:
        raise _SlackError("msg_blocks_too_long")
    metadata = args.get("metadata")
    if metadata is not None and not (
        isinstance(metadata, dict) and {"event_type", "event_payload"} <= set(metadata)
    ):
        raise _SlackError("invalid_metadata_format")


def _wrong_block(block: Mapping[str, Any]) -> bool:
    match block.get("type"):
        case "section" if "fields" in block:
            fields = block["fields"]
            return not 0 < len(fields) <= _CAPS["fields"] or any(
                len(f["text"]) > _CAPS["field"] for f in fields
            )
        case "section":
            return not 0 < len(block["text"]["text"]) <= _CAPS["section"]
        case "context":
            return not 0 < len(block["elements"]) <= 10 or any(not e["text"] for e in block["elements"])
        case "actions":
            return not 0 < len(block["elements"]) <= 25 or any(map(_wrong_button, block["elements"]))
        case "header":
            return not 0 < len(block["text"]["text"]) <= 150
        case "divider":
            return False
        case "plan":
            tasks = block.get("tasks", [])
            ids = {task.get("task_id") for task in tasks}
            return (
                not block.get("title")
                or not 0 < len(tasks) <= _CAPS["tasks"]
                or len(ids) < len(tasks)
                or any(map(_wrong_task, tasks))
            )
        case _:
            return True


def _wrong_task(task: Mapping[str, Any]) -> bool:
    """A task has an id, a title, one of four states and details as rich text of one element; it says no type of its own."""
    details = task.get("details", {"type": "rich_text", "elements": [{}]})
    return (
        "type" in task
        or not task.get("task_id")
        or not task.get("title")
        or task.get("status") not in ("pending", "in_progress", "complete", "error")
        or details.get("type") != "rich_text"
        or len(details.get("elements", [])) != 1
    )


def _wrong_button(button: Mapping[str, Any]) -> bool:
    return len(button["text"]["text"]) > _CAPS["button"] or len(button.get("value", "")) > _CAPS["value"]


def _characters(block: Mapping[str, Any]) -> int:
    if block["type"] == "plan":
        return len(block["title"]) + sum(len(text) for task in block["tasks"] for text in _task_texts(task))
    texts = [block["text"]["text"]] if "text" in block else []
    texts += [one["text"] for one in block.get("fields", [])]
    texts += [
        one["text"] if isinstance(one["text"], str) else one["text"]["text"]
        for one in block.get("elements", [])
    ]
    return sum(map(len, texts))
