"""The digest as a page: first what is open, then how fast, what it cost, and what to look at. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from faultline.report.digest import Digest
from faultline.report.document import Block, Cell, Document, Grid, Number, Pairs, Paragraph, Section
from faultline.report.figures import Amount, Count, Times
from faultline.report.incident_page import UNKNOWN, gpu_hours, seconds
from runbooks.engine.shadow_report import Agreement
from streams.model.clock import moment
from streams.model.message import some

MAX_ROWS = 50
MAX_INCIDENTS = 200


def digest_page(digest: Digest) -> Document:
    """The page of a digest."""
    title = f"Incidents on {digest.cluster}"
    lead = f"From {moment(digest.since)} to {moment(digest.until)}."
    sections = (
        Section("Incidents", tuple(_incidents(digest))),
        Section("How long it took", tuple(_speed(digest))),
        Section("GPU-hours", tuple(_hours(digest))),
        Section("Repeat offenders", tuple(_offenders(digest))),
        Section("What waited for a person", tuple(_waits(digest))),
        Section("What people overruled", tuple(_overruled(digest))),
        Section("Shadow mode", tuple(_shadow(digest))),
        Section("The incidents", tuple(_list(digest))),
    )
    footer = (
        "Incidents belong to the time in which they were opened. Merged ones are counted, and left out of times and costs.",
        "Medians need 3 values, the 90th percentile 10 (nearest rank); with fewer, the range is shown. All times are UTC.",
    )
    return Document(title, lead, sections, footer)


def _number(count: Count) -> Number:
    return Number(str(count.value), count.incidents)


def _incidents(digest: Digest) -> Iterator[Block]:
    yield Pairs(
        (
            ("Opened", _number(digest.opened)),
            ("Of them still open", _number(digest.still_open)),
            ("Open from before", _number(digest.open_from_before)),
        )
    )
    if not digest.families:
        return
    states = sorted({state for row in digest.families for state in row.by_state})
    rows: list[tuple[Cell, ...]] = []
    for row in digest.families:
        cells: list[Cell] = [row.family, _number(row.total)]
        cells += [_number(row.by_state[state]) if state in row.by_state else "" for state in states]
        rows.append(tuple(cells))
    names = tuple(state.replace("_", " ") for state in states)
    yield Grid(("family", "all", *names), tuple(rows), ("all", *names))


def _speed(digest: Digest) -> Iterator[Block]:
    speed = digest.speed
    rows: tuple[tuple[str, Times], ...] = (
        ("to notice it, from the fault", speed.detect),
        ("to decide, from the notice", speed.decide),
        ("to close a node, from the fault", speed.close),
        ("to recover by automation, from the fault to the first step", speed.recover_automatic),
        ("to recover by people, from the fault to the end of the incident", speed.recover_by_people),
    )
    yield Grid(
        ("time", "n", "median", "90th percentile", "range"),
        tuple((label, *_times(times)) for label, times in rows),
        ("n", "median", "90th percentile"),
    )


def _times(times: Times) -> tuple[Cell, ...]:
    extremes = (
        f"{seconds(times.least_s)} – {seconds(times.most_s)}"
        if times.least_s is not None and times.most_s is not None and times.count > 1
        else _or_dash(times.least_s)
    )
    return (
        Number(str(times.count), times.incidents),
        _or_dash(times.median_s),
        _or_dash(times.p90_s),
        extremes,
    )


def _or_dash(value: float | None) -> str:
    return seconds(value) if value is not None else "–"


def _hours(digest: Digest) -> Iterator[Block]:
    saved = digest.gpu_hours_saved
    pairs: list[tuple[str, Cell]] = [
        ("Lost by stopped jobs, open ones so far", _amount(digest.gpu_hours_lost)),
        ("Out of service for repair", _amount(digest.gpu_hours_out_of_service)),
        ("Saved by automation", Number(gpu_hours(saved.value), saved.incidents)),
    ]
    yield Pairs(tuple(pairs))
    if saved.value is None:
        yield Paragraph(f"What was saved is unknown: {saved.why}.", quiet=True)
    else:
        yield Paragraph(
            f"Saved is computed, not measured: for each incident that a run ended, its GPUs × (this cluster's own median of "
            f"{seconds(saved.by_people_s or 0.0)} by people, over {len(saved.by_people)} incidents in the same days, less the "
            "time it really took).",
            quiet=True,
        )
    unknown = digest.gpu_hours_lost.unknown
    if unknown:
        yield Paragraph(
            f"Of {len(unknown)} more incidents the GPUs are not known: {some(unknown, 20)}.", quiet=True
        )


def _amount(amount: Amount) -> Number:
    more = f", and {len(amount.unknown)} unknown" if amount.unknown else ""
    return Number(f"{gpu_hours(amount.value)}{more}", amount.incidents)


def _offenders(digest: Digest) -> Iterator[Block]:
    if not digest.repeat_offenders:
        yield Paragraph("Nothing broke more than once.")
        return
    rows = tuple(
        (
            one.kind,
            f"{one.name} on {one.node}" if one.node and one.node not in one.name else one.name,
            Number(str(one.count), one.incidents),
            str(one.earlier) if one.earlier else "",
            ", ".join(one.families),
            _interval(one.interval),
        )
        for one in digest.repeat_offenders[:MAX_ROWS]
    )
    yield Grid(
        ("what", "which", "in this time", "before it", "families", "between them"),
        rows,
        ("in this time", "before it"),
    )
    yield from _more(len(digest.repeat_offenders) - MAX_ROWS)


def _interval(times: Times) -> str:
    if times.least_s is None or times.most_s is None:
        return ""
    return (
        seconds(times.least_s) if times.count == 1 else f"{seconds(times.least_s)} – {seconds(times.most_s)}"
    )


def _waits(digest: Digest) -> Iterator[Block]:
    if not digest.waits:
        yield Paragraph("Nothing waited for a person.")
        return
    count, middle, p90, extremes = _times(digest.waited)
    yield Grid(("n", "median", "90th percentile", "range"), ((count, middle, p90, extremes),))
    rows = tuple(
        (moment(one.since), one.incident, one.step, seconds(one.waited_s), one.outcome, one.by)
        for one in digest.waits[:MAX_ROWS]
    )
    yield Grid(("since", "incident", "step", "waited", "then", "by"), rows)
    yield from _more(len(digest.waits) - MAX_ROWS)


def _overruled(digest: Digest) -> Iterator[Block]:
    if not digest.overruled:
        yield Paragraph("Nothing.")
        return
    rows = tuple((moment(one.at), one.incident, one.by, one.what) for one in digest.overruled[:MAX_ROWS])
    yield Grid(("when", "incident", "by", "what"), rows)
    yield from _more(len(digest.overruled) - MAX_ROWS)


def _shadow(digest: Digest) -> Iterator[Block]:
    shadow = digest.shadow
    if not shadow.by_agreement:
        yield Paragraph("No run was in shadow mode.")
        return
    rows = tuple(
        (Agreement[name.upper()].value, _number(count)) for name, count in shadow.by_agreement.items()
    )
    yield Grid(("compared with people", "runs of incidents"), rows, ("runs of incidents",))
    hours = shadow.gpu_hours_saved
    share, sooner = shadow.agreed_share, shadow.minutes_saved_median
    yield Pairs(
        (
            ("People did the same", f"{share:.0%}" if share is not None else UNKNOWN),
            ("Sooner than people (median)", f"{sooner:.0f} min" if sooner is not None else UNKNOWN),
            (
                "GPU-hours it would have saved",
                Number(gpu_hours(hours.value), hours.incidents) if hours.incidents else UNKNOWN,
            ),
            ("Nodes it would have closed and people did not", some(shadow.kept_in_service, 20) or "none"),
        )
    )


def _list(digest: Digest) -> Iterator[Block]:
    if not digest.incidents:
        yield Paragraph("None.")
        return
    rows = tuple(
        (
            one.incident,
            moment(one.opened_at),
            one.title,
            one.root,
            one.state.replace("_", " "),
            one.handled_by,
            gpu_hours(one.gpu_hours_lost).removesuffix(" GPU-hours"),
        )
        for one in digest.incidents[:MAX_INCIDENTS]
    )
    yield Grid(
        ("incident", "opened", "title", "where", "state", "ended by", "GPU-hours lost"),
        rows,
        ("GPU-hours lost",),
    )
    yield from _more(len(digest.incidents) - MAX_INCIDENTS)


def _more(number: int) -> Iterator[Block]:
    if number > 0:
        yield Paragraph(f"And {number} more; `--format json` has them all.", quiet=True)
