"""The words of pages, mails and annotations: functions from documents to a `Message` and to params. Pure.

Written for somebody who has just been woken: what broke and where, why it is theirs, what stands still, where to look.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import orjson

from faultline.notify.situations import Situation, Standing
from streams.model.clock import to_millis, to_the_second
from streams.model.incident import Incident
from streams.model.message import (
    Block,
    Code,
    Fact,
    Facts,
    Heading,
    Message,
    Paragraph,
    Table,
    Tone,
    plain,
    some,
    without_priority,
)
from streams.model.signal import Attribute

MAX_LINES = 5
MAX_NAMES = 10
MAX_ROWS = 20

Told = tuple[Incident, Standing]
"""An incident, and what it waits for."""

_WAITS = {
    Situation.APPROVAL: "waits for an approval",
    Situation.HELD: "held by the kill switch or the breaker",
    Situation.FAILED: "the automation failed",
    Situation.UNATTENDED: "nobody handles it",
    Situation.SHADOW: "only a plan in shadow mode",
}
_TONE = {
    "opened": Tone.BAD,
    Situation.APPROVAL: Tone.ASKING,
    Situation.HELD: Tone.ASKING,
    Situation.FAILED: Tone.BAD,
    Situation.UNATTENDED: Tone.BAD,
    "ended": Tone.GOOD,
}


def console_link(console_url: str | None, incident: str) -> str:
    """The incident's page of the console; empty where there is none."""
    return f"{console_url.rstrip('/')}/incidents/{incident}" if console_url else ""


def page_message(told: Sequence[Told], state: str) -> Message:
    """The notification of a page: the first incident, why, and how many more it tells of."""
    incident, standing = told[0]
    more = f" (+{len(told) - 1} more)" if len(told) > 1 else ""
    why = {
        "acknowledged": f"taken by {standing.actor or 'a person'}",
        "resolved": "no longer needs a person",
    }.get(state, _WAITS.get(standing.situation, standing.situation.value))
    return Message(f"{incident.cluster}: {incident.title}{more}: {why}")


def page_params(
    told: Sequence[Told], state: str, key: str, why: str, links: Sequence[tuple[str, str]]
) -> dict[str, Attribute]:
    """Everything a pager shows besides the notification."""
    incident, standing = told[0]
    impact = _impact([one for one, _ in told])
    details = {
        "Why you": why,
        "Waits for": standing.text,
        "Culprit": f"{incident.root}",
        "Reason": incident.reason,
        "Evidence": "\n".join(evidence_lines(incident)),
        "Jobs": some(dict.fromkeys(str(job) for one, _ in told for job in one.jobs), MAX_NAMES),
        "Nodes": some(dict.fromkeys(node for one, _ in told for node in one.nodes), MAX_NAMES),
        "Impact": impact,
        "Since": to_the_second(incident.fault_at),
        "Incidents": f"{len(told)}: {some((one.id for one, _ in told), MAX_NAMES)}"
        if len(told) > 1
        else incident.id,
        "To see it": f"faultline incidents show {incident.id}",
    }
    return {
        "dedup_key": key,
        "state": state,
        "incident": incident.id,
        "severity": incident.severity.value,
        "source": incident.root.node or str(incident.root),
        "component": str(incident.root),
        "group": incident.cluster,
        "class": incident.family,
        "details": orjson.dumps({label: text for label, text in details.items() if text}).decode(),
        "links": orjson.dumps(links).decode(),
        "actor": standing.actor,
    }


def post_message(told: Sequence[Told], moment: str, console_url: str | None) -> Message:
    """A mail or a post: `moment` is `opened`, `ended`, or the situation that waits for a person."""
    incident, standing = told[0]
    word = _word(told, moment)
    more = f" (+{len(told) - 1} more)" if len(told) > 1 else ""
    link = console_link(console_url, incident.id)
    incidents = [one for one, _ in told]
    ended = incident.closed_at if moment == "ended" else None
    facts = (
        Fact("State", f"{word} · {incident.severity} · {incident.certainty}"),
        Fact("Where", f"{incident.root} · {incident.cluster}"),
        Fact("Jobs", some(dict.fromkeys(str(job) for one in incidents for job in one.jobs), MAX_NAMES)),
        Fact("Nodes", some(dict.fromkeys(node for one in incidents for node in one.nodes), MAX_NAMES)),
        Fact("Impact", "" if moment == "ended" else _impact(incidents)),
        Fact("Started", at=incident.fault_at),
        *([Fact("Ended", at=ended)] if ended else []),
        Fact("Incident", incident.id, url=link or None),
    )
    blocks: list[Block] = [Heading(f"{incident.title}{more}"), Paragraph(incident.reason)]
    if standing.text and moment != "opened":
        blocks.append(Paragraph(standing.text))
    blocks.append(Facts(tuple(fact for fact in facts if fact.text or fact.at)))
    if len(told) > 1:
        rows = tuple((one.title, one.severity.value, one.id) for one in incidents[:MAX_ROWS])
        blocks.append(Table(("incident", "severity", "id"), rows))
        if len(told) > MAX_ROWS:
            blocks.append(Paragraph(f"and {len(told) - MAX_ROWS} more", quiet=True))
    elif lines := evidence_lines(incident):
        blocks.append(Code("\n".join(lines)))
    tone = _TONE.get(moment, Tone.QUIET)
    return Message(f"{word}: {incident.title} · {incident.cluster}{more}", tuple(blocks), tone)


def annotation_params(incident: Incident, console_url: str | None) -> dict[str, Attribute]:
    """When the incident was, and the tags it is found by."""
    ended = incident.closed_at if incident.state.is_over else None
    return {
        "incident": incident.id,
        "tags": (incident.cluster, incident.family, incident.severity.value),
        "time_ms": to_millis(incident.fault_at),
        "link": console_link(console_url, incident.id),
        **({"end_ms": max(to_millis(ended), to_millis(incident.fault_at))} if ended else {}),
    }


def silence_params(
    incident: Incident | None, name: str, node: str, state: str, until: datetime, console_url: str | None
) -> dict[str, Attribute]:
    """Which node, for which incident, until when."""
    return {
        "incident": name,
        "node": node,
        "state": state,
        "until": to_the_second(until),
        "title": plain(incident.title, 200) if incident else "",
        "link": console_link(console_url, name),
    }


def evidence_lines(incident: Incident) -> list[str]:
    """The raw lines of the causes."""
    causes = [proof for proof in incident.proofs if proof.role == "cause"]
    lines = [plain(without_priority(e.text), 400) for proof in causes for e in proof.evidence[:1] if e.text]
    return lines[:MAX_LINES]


def _word(told: Sequence[Told], moment: str) -> str:
    if moment == "opened":
        return "Opened"
    if moment == "ended":
        return "Contained" if any(s.situation is Situation.CONTAINED for _, s in told) else "Resolved"
    return _WAITS.get(Situation(moment), moment).capitalize()


def _impact(incidents: Sequence[Incident]) -> str:
    gpus, lost = sum(i.impact.gpus for i in incidents), sum(i.impact.gpu_hours_per_hour for i in incidents)
    return f"{gpus} GPUs idle, {lost:.0f} GPU-hours/h" if gpus else ""
