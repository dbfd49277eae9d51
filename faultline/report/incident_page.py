"""The report of one incident as a page: in the order in which a reader asks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from faultline.drawings.milestones import WORDS
from faultline.drawings.words import span
from faultline.report.cost import Basis, Cost
from faultline.report.document import (
    Block,
    Bullets,
    Cell,
    Document,
    Grid,
    Link,
    Pairs,
    Paragraph,
    Picture,
    Raw,
    Section,
)
from faultline.report.incident_report import CERTAINTIES, EvidenceOf, IncidentReport
from streams.model.checkpoint import checkpoint_lines
from streams.model.clock import moment
from streams.model.counted import many
from streams.model.incident import Certainty
from streams.model.message import some

MAX_NAMES = 40
MAX_EVIDENCE = 40
MAX_DEEDS = 200
UNKNOWN = "unknown"


def incident_page(report: IncidentReport, pictures: Sequence[Picture] = ()) -> Document:
    """The page of a report. `pictures` go after what happened; Markdown leaves them out."""
    sections = [
        Section("What happened", (*_happened(report), *pictures)),
        Section("How it was noticed", tuple(_noticed(report))),
        Section("Why this is the cause", tuple(_why(report))),
        Section("What was done", tuple(_done(report))),
        Section("Recovery clocks", tuple(_clocks(report))),
        Section("What it cost", tuple(_cost(report))),
        Section("What to change", tuple(_advice(report))),
        Section("Evidence", tuple(_evidence(report))),
    ]
    return Document(report.title, report.reason, tuple(sections), tuple(_footer(report)))


def _happened(report: IncidentReport) -> Iterator[Block]:
    pairs: list[tuple[str, Cell]] = [
        ("Incident", f"{report.incident} ({report.state.replace('_', ' ')})"),
        ("Where", f"{report.root}, cluster {report.cluster}"),
        ("Kind", f"{report.family}, {report.severity}, {report.certainty}"),
        ("Jobs", f"{len(report.jobs)}: {some(report.jobs, MAX_NAMES)}" if report.jobs else "none"),
        ("Nodes", f"{len(report.nodes)}: {some(report.nodes, MAX_NAMES)}" if report.nodes else "none"),
    ]
    if (others := report.other_workloads) is not None:
        pairs.append(("Also kept from starting", f"{others.count}: {others.shortened(MAX_NAMES)}"))
    if report.merged_into:
        pairs.append(("Merged into", report.merged_into))
    if report.flaps:
        pairs.append(("Flapping", f"recovered and failed again {report.flaps} times"))
    yield Pairs(tuple(pairs))


def _noticed(report: IncidentReport) -> Iterator[Block]:
    noticed = report.noticed
    yield Paragraph(f"At {moment(noticed.at)}, {seconds(noticed.after_s)} after the fault.")
    if noticed.by:
        source = f" ({noticed.source})" if noticed.source else ""
        place = "" if noticed.where in noticed.by else f", at {noticed.where}"
        yield Paragraph(f"By: {noticed.by}{place}{source}.")
    else:
        yield Paragraph("By what is not stored with this revision.")
    if noticed.timeout_s >= 1:
        yield Paragraph(
            f"{seconds(noticed.timeout_s)} of that was the collective's own timeout: nothing else could show it earlier."
        )


def _why(report: IncidentReport) -> Iterator[Block]:
    chosen = [one for one in report.explanations if one.chosen]
    for one in chosen:
        # The incident's own reason already stands at the top of the page.
        because = "" if one.reason == report.reason else f": {one.reason}"
        yield Paragraph(f"{one.place}, as {one.family}{because}.")
        yield Paragraph(f"Rule: {one.rule}" + (f" ({one.meaning})" if one.meaning else "") + ".")
    if not chosen:
        yield Paragraph("The rule that chose it is not stored with this revision.")
    yield Paragraph(f"The evidence is {report.certainty}: {CERTAINTIES[Certainty(report.certainty)]}.")
    rejected = [one for one in report.explanations if not one.chosen]
    if rejected:
        rows = tuple((one.place, one.family, one.rule, one.reason) for one in rejected)
        yield Paragraph("What else was considered, and why it was ruled out:")
        yield Grid(("place", "as", "rule", "why not"), rows)
    else:
        yield Paragraph("No other explanation was considered.", quiet=True)


def _done(report: IncidentReport) -> Iterator[Block]:
    for plan in report.plans:
        ending = plan.outcome.replace("_", " ") or plan.state.replace("_", " ")
        why = f" ({plan.reason})" if plan.reason else ""
        yield Paragraph(f"Runbook {plan.runbook} revision {plan.revision}, mode {plan.mode}: {ending}{why}.")
    if not report.deeds:
        yield Paragraph("Nothing was done, by automation or by people, as far as is known.")
        return
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            moment(deed.at),
            deed.by,
            f"{deed.what}{' (destructive)' if deed.destructive else ''}",
            Link(f"{deed.result}: {deed.ticket}", deed.url) if deed.ticket else deed.result,
            seconds(deed.took_s) if deed.took_s is not None else "",
            deed.reason,
        )
        for deed in report.deeds[:MAX_DEEDS]
    )
    columns: tuple[str, ...] = ("when", "by", "what", "result", "took", "remarks")
    if not any(deed.reason for deed in report.deeds[:MAX_DEEDS]):
        columns, rows = columns[:-1], tuple(row[:-1] for row in rows)
    yield Grid(columns, rows)
    if (more := len(report.deeds) - MAX_DEEDS) > 0:
        yield Paragraph(f"And {more} more; `--format json` has them all.", quiet=True)


def _clocks(report: IncidentReport) -> Iterator[Block]:
    rows = tuple(
        (
            WORDS[one.name],
            moment(one.at) if one.at else UNKNOWN,
            seconds(one.after_fault_s) if one.after_fault_s is not None else "",
            seconds(one.after_previous_s) if one.after_previous_s is not None else one.unknown,
        )
        for one in report.clocks
    )
    yield Grid(("clock", "at", "after the fault", "after the clock before"), rows)


def _cost(report: IncidentReport) -> Iterator[Block]:
    cost = report.cost
    if cost.basis is Basis.NOT_STOPPED:
        yield Paragraph("It stopped no job.")
    elif cost.gpus is None:
        yield Paragraph("Unknown: it stopped jobs, and the inventory does not tell of their GPUs.")
    else:
        yield Paragraph(_lost(cost))
        pairs: list[tuple[str, Cell]] = [
            ("On the culprit's node", gpu_hours(cost.culprit)),
            ("On its victims", gpu_hours(cost.victims)),
            ("Of both, waiting to start again", gpu_hours(cost.queueing)),
            ("Besides, done since the last checkpoint and lost", gpu_hours(cost.replayed)),
        ]
        yield Pairs(tuple(pairs))
        if cost.checkpoints:
            yield Bullets(tuple(f"Last checkpoint of {line}" for line in _checkpoints(report)))
    if cost.out_of_service_nodes:
        names = some(cost.out_of_service_nodes, 10)
        until = "so far" if cost.still_closed else "until its nodes returned"
        yield Paragraph(f"Out of service besides, {until} ({names}): {gpu_hours(cost.out_of_service)}.")


def _checkpoints(report: IncidentReport) -> Iterator[str]:
    told, fault_at = report.cost.checkpoints, report.clocks[0].at
    if fault_at is not None:
        yield from checkpoint_lines([one.job for one in told[:MAX_NAMES]], told, fault_at)


_ENDS = {
    Basis.FIRST_STEP: "until the jobs made their first new step",
    Basis.RUNNING: "until the jobs' pods ran again; they report no progress, so the first step is not known",
    Basis.CLOSED: "until the incident ended; when the jobs moved again was not seen",
    Basis.NOW: "so far: it is still open",
}


def _lost(cost: Cost) -> str:
    without = seconds(cost.without_progress_s or 0.0)
    return (
        f"{gpu_hours(cost.lost)} lost: {many(cost.gpus or 0, 'GPU')} of the stopped jobs × {without} without progress, "
        f"{_ENDS[cost.basis]}."
    )


def _advice(report: IncidentReport) -> Iterator[Block]:
    if report.advice:
        yield Bullets(tuple(f"{one.topic.value.capitalize()}: {one.text}" for one in report.advice))
    else:
        yield Paragraph("Nothing: the data shows no reason to.")


def _evidence(report: IncidentReport) -> Iterator[Block]:
    for one in report.evidence[:MAX_EVIDENCE]:
        times = f" (x{one.count})" if one.count > 1 else ""
        yield Raw(
            f"{moment(one.at)} · {one.role} · {one.summary}{times} · {_sources(one)}",
            "\n".join(line.text for line in one.lines if line.text) or "(no line is stored)",
        )
    if (more := len(report.evidence) - MAX_EVIDENCE) > 0:
        yield Paragraph(f"And {more} more; `--format json` has them all.", quiet=True)
    if not report.evidence:
        yield Paragraph("None is stored with this revision.")


def _sources(one: EvidenceOf) -> str:
    return ", ".join(line.source for line in one.lines) or "no source"


def _footer(report: IncidentReport) -> Iterator[str]:
    yield f"Incident {report.incident}, revision {report.revision}, as of {moment(report.as_of)}."
    yield f"Decision {report.decision_hash}."
    for plan in report.plans:
        yield f"Run {plan.run}: {plan.runbook} revision {plan.revision}, plan {plan.digest}."
    yield "All times are UTC. GPU-hours are GPUs of the stopped jobs × hours without progress."


def seconds(number: float) -> str:
    """A span for people."""
    return span(timedelta(seconds=number))


def gpu_hours(number: float | None) -> str:
    """GPU-hours with as many digits as they deserve."""
    if number is None:
        return UNKNOWN
    return f"{number:,.0f} GPU-hours" if number >= 100 else f"{number:.3g} GPU-hours"
