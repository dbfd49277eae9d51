"""What `faultline replay` prints: decisions, how they compare with production's, and with those that were kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import click

from faultline.cli.output import MAX_CELL, table
from faultline.replay.against import Compared, Divergence, Verdict
from faultline.replay.difference import Difference
from faultline.replay.expected import difference_lines
from faultline.replay.replayed import Replayed
from streams.model.clock import moment, rfc3339
from streams.model.counted import many
from streams.model.message import plain


def decided_table(decided: Replayed, only: str = "") -> None:
    """Incidents, actions, what came late, and the hash; of one incident, if its id is given."""
    found = [one for one in decided.incidents.values() if only in ("", one.id)]
    table(
        ("incident", "fault at", "type", "root cause", "state", "cause"),
        (
            (i.id, moment(i.fault_at), i.family, i.root, i.state.value, i.reason)
            for i in sorted(found, key=lambda i: (i.fault_at, i.id))
        ),
        empty="no incidents in this capture",
    )
    click.echo()
    table(
        ("incident", "runbook", "step", "action", "target", "verdict", "reason"),
        (
            (a.incident, a.runbook, a.step, a.action, a.target, a.verdict, a.reason)
            for a in decided.actions
            if only in ("", a.incident)
        ),
        empty="no actions would be taken",
    )
    click.echo()
    for entry in decided.late if not only else ():
        click.echo(f"{moment(entry.at)}  {plain(entry.text, MAX_CELL)}")
    click.echo(
        f"{many(decided.records, 'record')}, {many(decided.signals, 'signal')}, {many(decided.dead_letters, 'dead letter')}"
    )
    click.echo(f"decision hash {decided.decision_hash}")


def decided_records(decided: Replayed, only: str = "") -> Iterator[dict[str, Any]]:
    """The same, for programs."""
    for line in decided.lines():
        if not only or only in (line.get("id"), line.get("incident")) or line["record"] == "summary":
            yield line


def compared_table(found: Sequence[Compared]) -> None:
    """How each incident compares with production's, then what differs and why."""
    table(
        ("incident", "fault at", "compared", "title", "differences"),
        (
            (name.incident, moment(name.fault_at), one.verdict, name.title, _count(one))
            for one, name in ((one, one.pair.either) for one in found)
        ),
        empty="no incidents on either side",
    )
    for one in found:
        if one.verdict is not Verdict.SAME:
            click.echo()
            click.echo("\n".join(plain(line, MAX_CELL) for line in _details(one)))
    click.echo()
    verdicts = Counter(one.verdict for one in found)
    unexplained = sum(1 for one in found if one.differences)
    click.echo(
        ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in Verdict)
        + f"; {unexplained} without an explanation"
    )


def _count(one: Compared) -> str:
    if not one.differences and not one.explained:
        return ""
    return f"{len(one.differences)} unexplained, {len(one.explained)} explained"


def _details(one: Compared) -> Iterator[str]:
    yield f"{one.pair.either.incident} {one.pair.either.title}"
    if one.first is not None:
        yield f"  first parts at {moment(one.first.at)}"
        yield f"    production: {one.first.there or 'nothing'}" + _because(one.first.why_there)
        yield f"    replay:     {one.first.here or 'nothing'}" + _because(one.first.why_here)
    for difference in one.differences:
        yield from difference_lines(difference, "production", "replay")
    for difference, why in one.explained:
        yield from difference_lines(difference, "production", "replay")
        yield f"        explained: {why}"


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def compared_record(one: Compared) -> dict[str, Any]:
    """One incident's comparison, for programs."""
    return {
        "record": "compared",
        "incident": one.pair.either.incident,
        "fault_at": rfc3339(one.pair.either.fault_at),
        "title": one.pair.either.title,
        "compared": one.verdict.value,
        "first": _first(one.first),
        "differences": [
            *(_difference(each, "") for each in one.differences),
            *(_difference(each, why) for each, why in one.explained),
        ],
    }


def _first(first: Divergence | None) -> dict[str, Any] | None:
    if first is None:
        return None
    return {
        "at": rfc3339(first.at),
        "production": first.there,
        "replay": first.here,
        "why_production": first.why_there,
        "why_replay": first.why_here,
    }


def _difference(one: Difference, explained: str) -> dict[str, Any]:
    return {
        "aspect": one.aspect.value,
        "what": one.what,
        "production": one.before,
        "replay": one.after,
        "why_production": one.why_before,
        "why_replay": one.why_after,
        "explained": explained,
    }
