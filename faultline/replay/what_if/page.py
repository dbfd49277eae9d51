"""A what-if as a page: Markdown that fits a comment on a change, or one HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from faultline.replay.difference import Difference, Pair
from faultline.replay.what_if.budget import Exceeded
from faultline.replay.what_if.figures import counted, headline
from faultline.replay.what_if.result import WhatIf
from faultline.replay.what_if.structure_text import lines, rows
from faultline.report.document import Block, Bullets, Document, Grid, Paragraph, Section
from faultline.report.html import html
from faultline.report.markdown import markdown
from streams.model.clock import moment

MAX_COMMENT = 60_000
"""Characters of the Markdown: GitHub takes 65,536 in a comment."""
MAX_ON_PAGE = 1_000
"""Incidents of an HTML page; the JSON has them all."""
MAX_EDITS = 30


def markdown_of(found: WhatIf, over: Sequence[Exceeded] = ()) -> str:
    """As many of the incidents as fit into a comment; the summary always does."""
    shown = len(found.differing)
    while len(text := markdown(document_of(found, over, shown))) > MAX_COMMENT and shown:
        shown = min(shown - 1, shown * MAX_COMMENT // len(text))
    return text


def html_of(found: WhatIf, over: Sequence[Exceeded] = ()) -> str:
    """One file that opens without a network, light and dark."""
    return html(document_of(found, over, MAX_ON_PAGE))


def document_of(found: WhatIf, over: Sequence[Exceeded], incidents: int) -> Document:
    """The page with so many of the incidents that differ."""
    differing = found.differing
    sections = [Section("Summary", tuple(_summary(found, over)))]
    if found.structure is not None:
        table = Grid(
            ("what", "as it was", "as asked", "between"),
            tuple(rows(found.structure)),
            ("as it was", "as asked"),
        )
        sections.append(Section("Structure", (table, Bullets(tuple(lines(found.structure))))))
    several = len(found.edits) > 1
    sections += [_incident(pair, shows_edits=several) for pair in differing[:incidents]]
    if len(differing) > incidents:
        left = len(differing) - incidents
        text = f"{left} more incidents differ; `faultline whatif --output json` has them all."
        sections.append(Section("More", (Paragraph(text),)))
    footer = (
        f"{found.before.records:,} records, {found.before.signals:,} signals",
        f"decision hash {found.before.decision_hash} before, {found.after.decision_hash} after",
    )
    return Document("What if", headline(found), tuple(sections), footer)


def _summary(found: WhatIf, over: Sequence[Exceeded]) -> Iterator[Block]:
    if over:
        yield Paragraph("Over budget:")
        yield Bullets(tuple(map(str, over)))
    edits = [str(edit) for edit in found.edits[:MAX_EDITS]]
    if len(found.edits) > MAX_EDITS:
        edits.append(f"and {len(found.edits) - MAX_EDITS} more edits")
    yield Paragraph("The edit:" if edits else "Nothing is edited.")
    if edits:
        yield Bullets(tuple(edits))
    yield Grid(("what", "before", "after", "change"), tuple(counted(found.summary)), ("before", "after"))


def _incident(pair: Pair, *, shows_edits: bool) -> Section:
    one = pair.either
    ids = " → ".join(dict.fromkeys(side.incident for side in (pair.before, pair.after) if side is not None))
    columns = ("what", "before", "after", "edit")[: 4 if shows_edits else 3]
    rows = tuple(_row(difference)[: len(columns)] for difference in pair.differences)
    return Section(
        one.title,
        (
            Paragraph(f"{ids}, {moment(one.fault_at)}", quiet=True),
            Grid(columns, rows),
        ),
    )


def _row(one: Difference) -> tuple[str, ...]:
    return (
        one.what,
        _with_why(one.before, one.why_before),
        _with_why(one.after, one.why_after),
        "; ".join(one.causes),
    )


def _with_why(text: str, why: str) -> str:
    if not text:
        return "none"
    return f"{text}: {why}" if why and why != text else text
