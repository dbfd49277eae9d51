"""When an announced end of a node is due: the times that clouds and their agents write, as one attribute in UTC.

Notices name the time as RFC 3339, as an HTTP date or as seconds since 1970, some without a zone, some only by a rule ("two
minutes before"). `not_before` is always RFC 3339 in UTC; where no zone was written, `not_before_zone` says that UTC was assumed.
Sources: Azure Metadata Service, Scheduled Events; Amazon EC2, spot interruption notices (two minutes) and instance events;
Compute Engine, preemption (30 s); AKS, node-problem-detector ("Preempt Scheduled: Mon, 02 Mar 2026 19:01:45 GMT").
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from streams.detect.matching import re2_patterns
from streams.ingest import timestamps
from streams.model.clock import rfc3339
from streams.model.kinds import SignalKind
from streams.model.node_notice import ASSUMED_ZONE, NOT_BEFORE
from streams.model.signal import Attribute

_EARLIEST, _LATEST = timedelta(days=-2), timedelta(days=400)
"""A time further from the line than this is no deadline of it: a placeholder, or a clock that was never set."""

_AT = re2_patterns.compile(
    r"(?:(?:at|on|before|between|NotBefore:?|[Ss]cheduled:|[Ss]tart(?:s|ing)?(?: at)?:?|after) )"
    r"(?P<due>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.]{0,10}(?:Z|[+-]\d\d:?\d\d| ?(?:UTC|GMT))?"
    r"|(?:[A-Z][a-z]{2}, )?\d{1,2} [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d(?: ?(?:GMT|UTC|Z|[+-]\d{4}))?)"
)
"""The time in the message of an Event."""

_BRIEF = re2_patterns.compile(r"(?i)\bfreeze|\bfrozen|\"?EventType\"?\W{1,4}Freeze")
_MIGRATES = re2_patterns.compile(r"MIGRATE_ON_HOST_MAINTENANCE|(?i)\blive[- ]migrat")
_GRAVER = re2_patterns.compile(r"(?i)\b(?:preempt|terminate|redeploy|reboot)(?:\b|s)")

FREEZE, MIGRATION = "freeze", "migration"
"""Subtypes of what a node is over with in seconds: no reason to move anything."""

_LEADS = {
    "EC2 Spot Instance Interruption Warning": 120,
    "compute.instances.preempted": 30,
    "instance/preempted": 30,
}
"""Notices that name no time, by how long before the end they come (seconds)."""


def with_time(
    kind: str, attributes: Mapping[str, Attribute], text: str, said_at: datetime, *, of_event: bool
) -> Mapping[str, Attribute]:
    """The attributes of a notice with its time and how grave it is; any other finding's as they are.

    `of_event`: `text` is an Event's message and not a log line, whose first time is that of the line.
    """
    if kind != SignalKind.NODE_MAINTENANCE:
        return attributes
    more: dict[str, Attribute] = {}
    about = " ".join((str(attributes.get("action", "")), str(attributes.get("reason", "")), text[:400]))
    if _MIGRATES.search(about):
        more["subtype"] = MIGRATION
    elif _BRIEF.search(about) and not _GRAVER.search(about):
        more["subtype"] = FREEZE
    written = attributes.get("due")
    if written is None and of_event and (found := _AT.search(text)) is not None:
        written = found["due"]
    due = timestamps.any_form(written) if isinstance(written, (str, int, float)) else None
    if due is None:
        lead_s = next((s for words, s in _LEADS.items() if words in text[:400]), None)
        due = said_at + timedelta(seconds=lead_s) if lead_s is not None else None
    elif isinstance(written, str) and not timestamps.has_zone(written.strip()):
        more[ASSUMED_ZONE] = "UTC"
    if due is not None and said_at + _EARLIEST <= due <= said_at + _LATEST:
        more[NOT_BEFORE] = rfc3339(due)
    else:
        more.pop(ASSUMED_ZONE, None)
    return {**attributes, **more} if more else attributes
