"""What is wrong or hardly meant in the detector's catalog: row by row, between rows, and against correlation and runbooks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from faultline.lint.table_source import TableSource, source_of
from runbooks.language.lint import LintFinding
from streams.config.table_overlay import ROOTS, unknown_files
from streams.correlate.policy.families import Families
from streams.correlate.sightings import Sighting
from streams.detect import (
    alerts,
    dcgm_codes,
    kube_events,
    managers,
    nic_names,
    noise,
    sel,
    smi_query,
    subjects,
    sxid_catalog,
    unknown_errors,
    weak_signs,
    xid_catalog,
)
from streams.detect.matching import prose, re2_patterns
from streams.detect.matching.log_patterns import PatternSheet, PatternTable
from streams.detect.metrics import first_values, pause_counters, rule_rows
from streams.model.clock import from_millis
from streams.model.entity import Entity
from streams.model.errors import ConfigError
from streams.model.kinds import SignalKind
from streams.model.signal import Severity

CATALOG = ROOTS[0]

_KINDS: Mapping[str, Any] = {
    "lines": PatternSheet,
    "metrics": rule_rows.MetricFile,
    "signs": weak_signs.SignSheet,
    "xid": xid_catalog.XidCatalog,
    "sxid": sxid_catalog.SxidCatalog,
    "kube": kube_events.EventSheet,
    "dcgm": dcgm_codes.CodeSheet,
    "sel": sel.SelSheet,
    "alerts": alerts.AlertSheet,
    "managers": managers.ManagerSheet,
    "prose": prose.Prose,
    "noise": noise.DedupRules,
    "smi": smi_query.SmiSheet,
    "unknown": unknown_errors.UnknownSheet,
    "subjects": subjects.SubjectSheet,
    "sign_words": weak_signs.SignWords,
    "first_values": first_values.FirstValues,
    "pauses": pause_counters.PauseSheet,
    "nic_labels": nic_names.NicLabelSheet,
}
"""By file, or by folder: what a table has to be."""

_PLACED_BY_TABLE = ("gpu.", "node.")
"""Kinds that only a row of families.yaml gives a place; links, storms and jobs have rules of their own."""

Level = Literal["fault", "warning"]


def tables(folder: Path | None) -> tuple[dict[str, TableSource], list[LintFinding]]:
    """Every table of the catalog by its name (`lines/kernel`), with what `folder` lays over it; and what cannot be read."""
    found: dict[str, TableSource] = {}
    faults: list[LintFinding] = []
    if folder is not None:
        faults += [
            LintFinding(f"{line.split(': ', 1)[0]}:1:1", "fault", line.split(": ", 1)[1])
            for line in unknown_files(folder)
        ]
    for table in sorted(CATALOG.rglob("*.yaml")):
        relative = table.relative_to(CATALOG)
        own = folder / relative if folder is not None and (folder / relative).is_file() else None
        source, unreadable = source_of(table, own)
        faults += unreadable
        if source is not None:
            found[relative.with_suffix("").as_posix()] = source
    return found, faults


def value_faults(name: str, source: TableSource) -> Iterator[LintFinding]:
    """The values of a table that do not fit: with one of them nothing can be detected."""
    return source.faults(_KINDS[name.split("/")[0]])


def lint_catalog(
    found: Mapping[str, TableSource], families: Families | None, uncovered: Collection[str]
) -> list[LintFinding]:
    """Every fault and warning.

    Args:
        found: The tables by name.
        families: The table of families; None where it is not valid, and rows are not held against it.
        uncovered: Families that no runbook of their own handles.
    """
    findings: list[LintFinding] = []
    for name, source in found.items():
        wrong = list(value_faults(name, source))
        findings += wrong
        if wrong:
            continue
        findings += _patterns(source)
        findings += _same_ids(source)
        if name.startswith("lines/"):
            findings += _overlaps(source)
        if name in ("xid", "sxid"):
            findings += _same_codes(source, "codes" if name == "xid" else "effects")
        if families is not None and name != "subjects":  # the correlator reads those as unknown
            findings += _uncorrelated(source, families)
        if name == "xid":
            findings += _xid_families(source, uncovered)
    return findings


_PATTERN_KEYS = frozenset({"hint", "speaks", "opens", "needs", "unless", "fields", "subtypes"})


def _patterns(source: TableSource) -> Iterator[LintFinding]:
    """Patterns of lines and events that RE2 refuses: the process that loads them does not start."""
    content = source.content
    if not isinstance(content, Mapping):
        return
    places: list[tuple[tuple[int | str, ...], Any]] = [(("fields",), content.get("fields"))]
    for number, row in enumerate(content.get("rows") or ()):
        if isinstance(row, Mapping):
            places += [(("rows", number, key), row[key]) for key in row if key in _PATTERN_KEYS]
    for path, value in places:
        for inside, pattern in _texts(value):
            try:
                re2_patterns.compile(pattern)
            except ConfigError as error:
                yield LintFinding(source.place(*path, *inside), "fault", f"RE2 refuses the pattern: {error}")


def _texts(value: Any) -> Iterator[tuple[tuple[int | str, ...], str]]:
    if isinstance(value, str):
        yield (), value
    elif isinstance(value, list):
        yield from (((number,), one) for number, one in enumerate(value) if isinstance(one, str))
    elif isinstance(value, Mapping):
        yield from (((str(key),), one) for key, one in value.items() if isinstance(one, str))


def _same_ids(source: TableSource) -> Iterator[LintFinding]:
    seen: set[str] = set()
    rows = source.content.get("rows") if isinstance(source.content, Mapping) else None
    for number, row in enumerate(rows or ()):
        if isinstance(row, Mapping) and isinstance(name := row.get("id"), str):
            if name in seen:
                yield LintFinding(source.place("rows", number, "id"), "fault", f"there are two rows {name}")
            seen.add(name)


def _same_codes(source: TableSource, key: str) -> Iterator[LintFinding]:
    """Codes with two rows: only the last one would count."""
    seen: dict[int, int] = {}
    for number, row in enumerate(source.content.get(key) or ()):
        for code in row.get("codes", ()):
            if code in seen:
                message = f"code {code} has two rows: only this one counts"
                yield LintFinding(source.place(key, number, "codes"), "fault", message)
            seen[code] = number


def _overlaps(source: TableSource) -> Iterator[LintFinding]:
    """Rows whose messages another row of the file takes: of those that open at the same place the first one counts."""
    sheet = PatternSheet.model_validate(source.content)
    try:
        table = PatternTable(sheet)
    except ConfigError:
        return  # told of as a pattern that RE2 refuses
    first: dict[tuple[Any, ...], str] = {}
    for number, row in enumerate(sheet.rows):
        place = source.place("rows", number, "opens")
        same = (row.opens, row.needs, row.unless, row.programs, row.fallback)
        if (other := first.setdefault(same, row.id)) != row.id:
            yield LintFinding(place, "fault", f"{row.id} is never found: {other} opens with the same words")
            continue
        for text in (sample.text for sample in row.samples):
            hits = {hit.row.id for hit in table.find(text, 0)}
            if row.id not in hits and hits:
                yield LintFinding(
                    place, "fault", f"{', '.join(sorted(hits))} takes a sample of {row.id}: {text[:80]!r}"
                )
                break


def _uncorrelated(source: TableSource, families: Families) -> Iterator[LintFinding]:
    """Rows whose signals belong to no family: nothing ever comes of them."""
    for path, row in _rows(source.content, ()):
        kind = str(row["kind"])
        if not kind.startswith(_PLACED_BY_TABLE) or kind in (SignalKind.GPU_XID, SignalKind.NODE_NOT_READY):
            continue
        sets = row.get("sets") or row.get("attributes") or {}
        for subtype in sorted(
            {str(sets.get("subtype") or row.get("subtype") or ""), *(row.get("subtypes") or {})}
        ):
            if families.rule(_sighting(kind, subtype, str(row.get("severity", "error")))) is None:
                what = f"{kind} {subtype}".rstrip()
                message = f"no row of policy/families.yaml speaks of {what}: nothing comes of it"
                yield LintFinding(source.place(*path, "kind"), "warning", message)


def _rows(
    content: Any, path: tuple[int | str, ...]
) -> Iterator[tuple[tuple[int | str, ...], Mapping[str, Any]]]:
    """Every mapping that names a kind of signal, however deep, with its path."""
    if isinstance(content, Mapping):
        if isinstance(content.get("kind"), str) and "." in content["kind"]:
            yield path, content
        for key, value in content.items():
            yield from _rows(value, (*path, str(key)))
    elif isinstance(content, list):
        for number, value in enumerate(content):
            yield from _rows(value, (*path, number))


def _sighting(kind: str, subtype: str, severity: str) -> Sighting:
    """What the correlator would see of such a row, as far as the table of families asks."""
    at = from_millis(0)
    attributes = {"subtype": subtype} if subtype else {}
    return Sighting("lint", kind, Entity("lint", node="n1"), at, at, at, Severity(severity), True, attributes)


def _xid_families(source: TableSource, uncovered: Collection[str]) -> Iterator[LintFinding]:
    named: defaultdict[str, list[int]] = defaultdict(list)
    for number, row in enumerate(source.content.get("codes") or ()):
        named[str(row.get("family"))].append(number)
    for family, numbers in named.items():
        for number in numbers:
            place = source.place("codes", number, "family")
            if family in uncovered:
                yield LintFinding(place, "warning", f"no runbook of its own handles the family {family}")
