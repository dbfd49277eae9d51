"""Whom to believe when a wrapper and what it holds both say where and when."""

from __future__ import annotations

from datetime import timedelta

from streams.ingest.records import UNKNOWN, Origin

TRUST = timedelta(minutes=15)
"""A time without an offset is believed only this near to the shipper's own time: further off it is a time zone."""


def merged(inner: Origin, outer: Origin) -> Origin:
    """What is known when `outer` wrapped what says `inner`.

    A pod prints what it likes, so its shipper is believed about the place. A relay wraps records of other hosts, so elsewhere the
    record's own name for its host counts, unless that may be the name of somebody it speaks of.
    """
    if outer is UNKNOWN or outer == UNKNOWN:
        return inner
    if outer.pod is not None or not inner.sure:
        node, sure = outer.node or inner.node, outer.sure if outer.node else inner.sure
    else:
        node, sure = inner.node, True
    at, certain = outer.at, outer.certain
    if inner.at is not None and (at is None or inner.certain or abs(at - inner.at) <= TRUST):
        at, certain = inner.at, inner.certain
    return Origin(
        at,
        node,
        outer.pod or inner.pod,
        outer.container or inner.container,
        outer.source or inner.source,
        certain,
        sure,
    )
