"""A page as its connectors get it: the params of an effect, bounded and without control characters.

`page` raises it; `update_page` brings an existing one to the state in its params and never raises a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import orjson

from connectors.base import Effect
from streams.model.codec import decode
from streams.model.errors import BadInput, Permanent
from streams.model.message import Message, is_web_address, plain

PAGE = "page"
UPDATE = "update_page"

State = Literal["triggered", "acknowledged", "resolved"]

CHECK_AFTER = 6
"""A page that was taken is looked for after so many times the pause between two lookups."""

MAX_DETAIL = 8_000
"""Characters of one detail."""
MAX_DETAILS = 40


@dataclass(frozen=True, slots=True)
class Page:
    """One page. `key` is the same for everything that is ever said about it; `details` are label and text."""

    key: str
    state: State
    summary: str
    severity: str
    source: str
    component: str
    group: str
    kind: str
    details: Mapping[str, str]
    links: tuple[tuple[str, str], ...]
    actor: str = ""
    """Who acknowledged it, where that is known."""


def page_of(effect: Effect) -> Page:
    """The page in an effect's params.

    Raises:
        Permanent: when there is no readable page in it.
    """
    params = effect.params
    try:
        message = decode(Message, str(params.get("message", "")))
        details, links = _json(params, "details", {}), _json(params, "links", [])
    except (BadInput, orjson.JSONDecodeError) as error:
        raise Permanent(f"no page in the effect: {error}") from error
    state = str(params.get("state", ""))
    if state not in ("triggered", "acknowledged", "resolved") or not params.get("dedup_key"):
        raise Permanent(f"no page in the effect: state {state!r}, key {params.get('dedup_key')!r}")
    group, kind = (one_line(str(params.get(name, "")), 200) for name in ("group", "class"))
    incident = str(params.get("incident") or effect.incident)
    cluster = group or effect.cluster
    return Page(
        key=str(params["dedup_key"]),
        state=cast("State", state),
        # Pagers refuse a page without words, and then nobody wakes up.
        summary=one_line(message.summary, 2_000) or f"{kind or 'incident'} in {cluster}: {incident}",
        severity=str(params.get("severity", "error")),
        source=one_line(str(params.get("source", "")), 200) or cluster,
        component=one_line(str(params.get("component", "")), 200),
        group=group,
        kind=kind,
        details={
            one_line(str(label), 100): plain(str(text), MAX_DETAIL)
            for label, text in list(details.items())[:MAX_DETAILS]
        },
        links=tuple((str(url), one_line(str(text), 200)) for url, text in links if is_web_address(str(url))),
        actor=one_line(str(params.get("actor", "")), 200),
    )


def one_line(text: str, limit: int) -> str:
    """Plain text on one line; empty where nothing of it can be seen."""
    line = plain(" ".join(text.split()), limit)
    return line if any(sign.isprintable() and not sign.isspace() for sign in line) else ""


def _json(params: Mapping[str, Any], name: str, otherwise: Any) -> Any:
    return orjson.loads(str(params[name])) if params.get(name) else otherwise
