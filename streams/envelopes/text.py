"""Plain text records: one line or many, with whatever headers their loggers put before them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from streams.envelopes import header, quotation
from streams.envelopes.opened import MAX_LINE, Opened, Outside
from streams.model.entity import PodRef
from streams.model.record import LogLine

_COLOURS = re.compile(
    r"(?:\x1b|#033|\\x1b|\\033|\\u001b)\[[\d;]{0,16}[mK]|(?<!\w)\[\d{1,2}(?:;\d{1,3}){0,4}m"
)
"""A terminal's colours, also as relays rewrite their escape character or drop it."""

_TRUST = timedelta(minutes=15)
"""A time without an offset is believed only this near to the shipper's own time: further off it is a time zone."""


def read(
    text: str,
    outside: Outside,
    into: Opened,
    *,
    at: datetime | None = None,
    node: str | None = None,
    pod: PodRef | None = None,
    container: str | None = None,
    source: str = "",
) -> None:
    """Split `text` into lines and add each to `into`; the keywords are what the shipper knew about all of them.

    For a pod only the shipper's node counts (pods print what they like, and their records are keyed by pod); otherwise the
    host in the text wins, because a collector relays the lines of other hosts.
    """
    quoting = False
    for raw in text.splitlines():
        raw = _COLOURS.sub("", raw)
        if not raw.strip():
            continue
        if len(raw) > MAX_LINE:
            into.cut += 1
            raw = raw[:MAX_LINE]
        found = header.read(raw, at or outside.received_at)
        quoting = quoting or (pod is None and not raw[: found.start].strip() and quotation.begins(raw))
        host = node if pod else found.host or node or outside.node
        origin = "kernel" if found.kernel or source == "kernel" else source or found.tag
        into.observations.append(
            LogLine(
                raw,
                at=_when(found, at),
                node=host,
                pod=pod,
                container=container,
                source=quotation.SOURCE if quoting and source != "kernel" else origin,
                start=found.start,
            )
        )


def _when(found: header.Header, shipped: datetime | None) -> datetime | None:
    if found.at is None or shipped is None or found.certain:
        return found.at or shipped
    return found.at if abs(shipped - found.at) <= _TRUST else shipped
