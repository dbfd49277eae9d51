"""What a cloud or an operator announced about a node: that it goes, when, and whether it comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import AwareDatetime

from streams.model.clock import parse_rfc3339, span
from streams.model.errors import BadInput
from streams.model.signal import Attribute

NoticeKind = Literal["termination", "scheduled_event", "host_maintenance", "freeze", "migration"]
"""Subtypes of `node.maintenance`. A freeze and a migration are over in seconds: nothing has to be moved for them."""

NOT_BEFORE = "not_before"
"""Attribute of a signal: when it is due, RFC 3339 in UTC."""
ASSUMED_ZONE = "not_before_zone"
"""Attribute of a signal whose time was written without a zone: the one that was assumed."""
UNREAD = "unread"
"""Attribute of a signal, and fact of an incident: what stands where the time should, when that cannot be read."""
WITHIN_S = "within_s"
"""Attribute of a signal that names no time: how long after the notice it is due, by its maker's word."""

DEADLINE = "deadline"
"""Fact of an incident: when the node goes, RFC 3339 in UTC."""
DEADLINE_S = "deadline_s"
"""Fact of an incident: the same, in seconds since 1970."""
NOTICE_S = "notice_s"
"""Fact of an incident: seconds from when the notice was read until then; 0 where that was over already."""
NODE_ENDS = "node_ends"
"""Fact of an incident: `gone` where the node does not come back, else `back`."""
OPENS = "opens"
"""Fact of an incident whose deadline was far away when it was announced: from when on it is told, RFC 3339 in UTC."""
ZONE = "deadline_zone"
"""Fact of an incident whose deadline was written without a zone."""


@dataclass(frozen=True, slots=True)
class NodeNotice:
    """One notice on a Node object."""

    by: str
    mark: str
    """The label, annotation, taint or condition that says so."""
    subtype: NoticeKind
    not_before: AwareDatetime | None = None
    """When it is due, where the mark says so."""
    within_s: int | None = None
    """How long after the mark appeared, where only its maker's documentation says so."""
    unread: str | None = None
    """What stands where the time should, when that cannot be read."""


def deadline_in(facts: Mapping[str, Attribute]) -> datetime | None:
    """The deadline among the facts of an incident; None where there is none, and where it cannot be read."""
    written = facts.get(DEADLINE)
    try:
        return parse_rfc3339(written) if isinstance(written, str) else None
    except BadInput:
        return None


def opens_in(facts: Mapping[str, Attribute]) -> datetime | None:
    """From when on an incident is told that was announced long before; None for every other one."""
    written = facts.get(OPENS)
    try:
        return parse_rfc3339(written) if isinstance(written, str) else None
    except BadInput:
        return None


def announced(facts: Mapping[str, Attribute]) -> str:
    """The deadline in words, and how long before it was announced; empty where there is none."""
    due = deadline_in(facts)
    if due is None:
        return ""
    notice_s, zone = facts.get(NOTICE_S), facts.get(ZONE)
    text = f"at {due:%H:%M:%S} UTC on {due:%d %b}"
    if zone is not None:
        text += f" (it names no zone, {zone} is assumed)"
    if isinstance(notice_s, int):
        text += (
            f", {span(notice_s)} after the notice"
            if notice_s
            else ", which was past when the notice was read"
        )
    return text


def remaining(due: datetime, now: datetime) -> str:
    """`at 03:09:00 UTC, 87 s from now`, or how long ago that was."""
    left_s = (due - now).total_seconds()
    when = f"at {due:%H:%M:%S} UTC" if abs(left_s) < 43_200 else f"at {due:%H:%M} UTC on {due:%d %b}"
    return f"{when}, {span(left_s)} from now" if left_s > 0 else f"{when}, {span(-left_s)} ago"
