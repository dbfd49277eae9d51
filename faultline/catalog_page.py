"""The reference page of everything the detector knows by name. Part of `faultline.reference`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from faultline.markdown import Row, code, table, text
from streams.correlate.families import families
from streams.detect import catalog as catalog_folder
from streams.detect.catalog import load_catalog
from streams.detect.kube import EventSheet
from streams.detect.pauses import Sheet as PauseSheet
from streams.detect.wording import Sheet
from streams.detect.xid_catalog import Code, catalog

OTHER_SHAPES = frozenset({"xid", "kube", "pauses", "prose"})
"""Catalog files that are no sheet of wordings: the first three have tables of their own, `prose` finds quotations."""


def catalog_page() -> Iterator[str]:
    """Everything the detector knows by name, and the families of incidents."""
    yield "# Catalog"
    yield ""
    yield "What is recognised, from `streams/detect/catalog/`, and what it becomes, from `streams/correlate/families.yaml`."
    yield "How to add a row: [detection](../detection.md)."
    yield ""
    yield "## XID codes"
    yield ""
    yield "`action` is NVIDIA's immediate bucket, `repeated` the one for repeats. `154`: one usually follows and overrides it."
    yield "Source: NVIDIA, Analyzing Xid with the Xid Catalog; codes from 173 on: driver 595, nverror.h."
    yield ""
    headings = ("codes", "mnemonic", "action", "repeated", "severity", "family", "154", "cause")
    rows = [
        _xid(row, ", ".join(map(str, row.codes)))
        for row in sorted(catalog().codes, key=lambda row: row.codes)
    ]
    yield from table(headings, [*rows, _xid(catalog().unknown, "any other")])
    yield "## What a 154 asks for"
    yield ""
    recovery = [(r.value, text(r.words), code(r.action), r.severity.value) for r in catalog().recovery]
    yield from table(("value", "words", "action", "severity"), recovery)
    yield from _wordings()
    yield "## Kubernetes Events"
    yield ""
    events = [
        (code(r.reason), r.object, code(r.kind), r.state.value, r.severity.value)
        for r in load_catalog("kube", EventSheet).rows
    ]
    yield from table(("reason", "of", "signal", "state", "severity"), events)
    yield from _pauses(load_catalog("pauses", PauseSheet))
    yield "## Families of incidents"
    yield ""
    yield "Of two on one place the higher rank names the incident. `at most` is the certainty that codes alone can give it."
    yield ""
    kinds = [
        (code(name), f.rank, f.severity.value, f.cap.value, code(f.title), ", ".join(map(code, f.explains)))
        for name, f in families().families.items()
    ]
    yield from table(("family", "rank", "severity", "at most", "title", "explains on the same node"), kinds)


def _xid(row: Code, codes: str) -> Row:
    return (
        codes, code(row.mnemonic), code(row.action), code(row.investigatory), row.severity.value, code(row.family),
        "yes" if row.eval_154 else "", text(row.cause),
    )  # fmt: skip


def _wordings() -> Iterator[str]:
    """One table per sheet of wordings, whichever there are."""
    folder = Path(str(catalog_folder.__file__)).parent
    for name in sorted(path.stem for path in folder.glob("*.yaml") if path.stem not in OTHER_SHAPES):
        yield f"## Wordings: {name}"
        yield ""
        rows = [
            (code(r.id), code(r.kind), r.state.value, r.severity.value, code(r.opens), text(r.source))
            for r in load_catalog(name, Sheet).rows
        ]
        yield from table(("row", "signal", "state", "severity", "opens with (RE2)", "source"), rows)


def _pauses(sheet: PauseSheet) -> Iterator[str]:
    yield "## Pause counters"
    yield ""
    yield f"They become `fabric.pfc_storm`, {sheet.severity.value}. `duration` is the share of time paused; `frames` are per"
    yield "second, and used only where there is no duration."
    yield ""
    limits = {"duration": sheet.duration, "frames": sheet.frames, "events": sheet.events}
    rows = []
    for metric in sheet.metrics:
        limit = limits[metric.measures]
        rows.append(
            (
                code(metric.pattern),
                metric.direction,
                metric.measures,
                limit.fire,
                limit.clear,
                limit.intervals,
            )
        )
    yield from table(("metric (RE2)", "direction", "measures", "storm from", "over below", "intervals"), rows)
