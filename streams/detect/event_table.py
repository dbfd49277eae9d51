"""Rows of `kubectl get events` and `kubectl events`, read as the Events that they show.

`[NAMESPACE]  LAST SEEN  TYPE  REASON  OBJECT  [SUBOBJECT  SOURCE]  MESSAGE`: only all namespaces have the first column, only wide
output the two in brackets. A row may come by itself, without the header that names its columns, and rows may be joined to a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise

from streams.detect.matching import re2_patterns
from streams.detect.matching.log_patterns import MAX_HITS
from streams.detect.matching.quotation_filter import reported
from streams.detect.matching.re2_patterns import Match
from streams.model.record import KubeEvent, LogLine

RECENT = re2_patterns.compile(r"\d{1,3}s|\d{1,2}m(?:\d{1,2}s)?")
"""Ages of less than an hour or so: a listing shows the past as well."""

_HEADER = re2_patterns.compile(
    r"(?P<namespace>NAMESPACE\s{1,80})?LAST SEEN\s{1,40}TYPE\s{1,40}REASON\s{1,80}OBJECT\s"
)
_AGE = r"(?:\d{1,5}[smhdy]){1,3}|<unknown>|<invalid>"
_ROW = re2_patterns.compile(
    rf"(?:\b(?P<namespace>[a-z0-9-]{{1,63}})\s{{1,80}})?(?:(?P<age>{_AGE})(?: \(x\d{{1,6}} over \w{{1,12}}\))?\s{{1,40}})?"
    r"\b(?P<type>Normal|Warning)\s{1,40}"
    r"(?P<reason>[A-Z]\w{1,127})\s{1,80}(?P<kind>[A-Za-z]{2,63})/(?P<name>[A-Za-z0-9][\w.-]{0,252})\s"
    r"(?:\s{0,80}(?:spec\.\S{1,120}\s{1,40})?kubelet, (?P<host>[A-Za-z0-9][\w.-]{0,252})\s)?"
)
_ONLY_AGE = re2_patterns.compile(_AGE)
_MAX_MESSAGE = 1024
_KINDS = {
    kind.lower(): kind
    for kind in (
        *(
            "Node",
            "NodeClaim",
            "Machine",
            "Pod",
            "Job",
            "JobSet",
            "TrainJob",
            "PyTorchJob",
            "MPIJob",
            "TFJob",
        ),
        *(
            "JAXJob",
            "XGBoostJob",
            "PaddleJob",
            "RayJob",
            "RayCluster",
            "LeaderWorkerSet",
            "Workload",
            "PodGroup",
        ),
        *("ReplicaSet", "StatefulSet", "DaemonSet"),
    )
}


def events(line: LogLine) -> Iterator[KubeEvent]:
    """The Events of a line's rows, without those that are older than an hour."""
    rows = [*islice(_ROW.finditer(line.text, line.start), MAX_HITS)]
    if not rows:
        return
    header = _HEADER.search(line.text, line.start)
    if header is not None and header.start() > rows[0].start():
        header = None
    # All rows of a table have the columns of its first one.
    spaced = _has_namespace(rows[0]) if header is None else header["namespace"] is not None
    in_table = reported(line, rows[0].start() if header is None else header.start())
    ends = [after.start() for _, after in pairwise(rows)]
    for row, end in zip(rows, [*ends, len(line.text)], strict=True):
        in_table = in_table or reported(line, row.start())
        kind = kind_of(row["kind"])
        age = row["age"] or (row["namespace"] if not spaced else None)
        if not in_table or kind is None or (age is not None and _is_past(age)):
            continue
        yield KubeEvent(
            row["reason"],
            line.text[row.end() : min(end, row.end() + _MAX_MESSAGE)].strip(),
            kind,
            row["name"],
            namespace=(row["namespace"] or "") if spaced else "",
            type=row["type"],
            host=row["host"],
        )


def kind_of(kind: str) -> str | None:
    """The kind as the API spells it, where kubectl prints it in lower case; None for one that is not known."""
    kind = _KINDS.get(kind.lower(), kind)
    return kind if kind[:1].isupper() else None


def _has_namespace(row: Match) -> bool:
    """Whether a row has a namespace before its age, or has one and no age."""
    named = row["namespace"]
    return named is not None and (row["age"] is not None or _ONLY_AGE.fullmatch(named) is None)


def _is_past(age: str) -> bool:
    return _ONLY_AGE.fullmatch(age) is not None and age[0] != "<" and RECENT.fullmatch(age) is None
