"""What a storage's own monitoring says of it: alerts about it, and health checks of its servers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from streams.correlate.node_rules.storage_names import Outage
from streams.correlate.policy.families import families
from streams.correlate.sightings import Sighting
from streams.correlate.state.place import of_storage
from streams.model.signal import Attribute

UNNAMED = "not named"
MONITORED = "monitoring"
"""Fact of a storage's fault: what its monitoring says of it."""
_MAX_KEPT = 16
_MAX_SHOWN = 6


def is_of_monitoring(s: Sighting) -> bool:
    """Whether it is what watches a storage that says so: an alert, or a server's own health check."""
    return s.text("subtype") == "remote_filesystem" or "system" in s.attributes


def witnesses(
    system: str, lost: Sequence[tuple[str, Outage]], told: Sequence[Outage]
) -> list[tuple[str, Outage]]:
    """What monitoring says of a storage that clients do not reach, as of one more that does not reach it.

    An alert fires minutes after what it is about, by its rule's patience. It ends with them: one that nobody resolves holds no
    incident open.
    """
    ends, patience = [o.interval.end for _, o in lost], families().shared.storage.quiet
    last = max((end for end in ends if end is not None), default=None) if None not in ends else None
    found = []
    for o in told:
        i = o.interval
        if o.firm and (last is None or i.start <= last):
            since = min(
                (p.interval.start for _, p in lost if i.start - patience <= p.interval.start <= i.start),
                default=i.start,
            )
            found.append(
                (of_storage(system), replace(o, interval=replace(i, start=since, end=i.end or last)))
            )
    return found


def _alerts(told: Iterable[Outage]) -> list[str]:
    """What the alerts about a storage are called, and the health checks of its servers."""
    lines = (s for o in told for s in o.interval.sightings if s.firing)
    return sorted(
        {s.text("alert") or s.text("reason") or s.text("event") or s.text("subtype") for s in lines}
    )


def of_monitoring(told: Sequence[Outage]) -> str:
    """What monitoring says of a storage, for a reason."""
    names = sorted({o.target for o in told})
    return f"Its monitoring reports {', '.join(_alerts(told)[:_MAX_SHOWN])} ({', '.join(names[:_MAX_SHOWN])})"


def monitored(told: Sequence[Outage]) -> dict[str, Attribute]:
    """The fact `MONITORED`, where it says that the storage is not reached."""
    return {MONITORED: tuple(_alerts(told)[:_MAX_KEPT])} if any(o.firm for o in told) else {}


def only_one(told: Mapping[str, Sequence[Outage]], since: datetime, until: datetime) -> tuple[str, bool]:
    """The one storage that monitoring complains of in a time, and whether it is not reached; of several one that is not."""
    patience = families().shared.storage.quiet
    near = {
        system: any(o.firm for o in mine)
        for system, outages in told.items()
        if (
            mine := [
                o
                for o in outages
                if o.interval.start <= until + patience
                and (o.interval.end is None or o.interval.end >= since - patience)
            ]
        )
    }
    firm = [system for system, is_firm in near.items() if is_firm]
    if len(firm) == 1:
        return firm[0], True
    return (next(iter(near)), False) if len(near) == 1 else (UNNAMED, False)
