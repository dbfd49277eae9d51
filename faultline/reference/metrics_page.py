"""`docs/reference/metrics.md`: every metric, from the table that the processes use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from faultline.reference.markdown import Row, code, table, text
from faultline.runtime.processes import PROCESSES
from streams.telemetry.metrics import FAMILIES
from streams.telemetry.registry import OTHER, Family, Label

_HEADINGS = ("metric", "type", "labels", "meaning")


def metrics_page() -> Iterator[str]:
    """The metrics of every process, then those of each."""
    yield "# Metrics"
    yield ""
    yield "Every process answers `/metrics` on the port of its probes (`http_port`): OpenMetrics where the `Accept` header asks"
    yield "for it, with exemplars, else Prometheus text. What to look at first is in"
    yield "[watching Faultline](../operations.md#watching-faultline)."
    yield ""
    yield "All labels are bounded: a value outside a table, or one more than a label takes, is shown as `other`. No label is a"
    yield "node, a pod, a job, an incident or a person. The cluster is a label of the scrape's target; a process that serves"
    yield "several clusters counts them together. `process_*` and `python_*` are those of the Prometheus client for Python."
    yield ""
    yield "## Every process"
    yield ""
    yield from table(_HEADINGS, _rows(family for family in FAMILIES if not family.processes))
    yield "## Several processes"
    yield ""
    shared = [family for family in FAMILIES if len(family.processes) > 1]
    yield from table((*_HEADINGS, "processes"), [(*_row(one), _processes(one)) for one in shared])
    for process, what in PROCESSES.items():
        own = [family for family in FAMILIES if family.processes == {process}]
        if own:
            yield f"## {process}"
            yield ""
            yield text(f"It {what}.")
            yield ""
            yield from table(_HEADINGS, _rows(own))
    yield "## Labels"
    yield ""
    yield from table(
        ("label", "meaning", "values"),
        [(code(label.name), text(label.meaning), _bounds(label)) for label in _labels()],
    )
    yield "## Buckets"
    yield ""
    yield from table(
        ("metric", "buckets, s"),
        [
            (code(family.exposed), ", ".join(f"{bound:g}" for bound in family.buckets))
            for family in FAMILIES
            if family.buckets
        ],
    )


def _rows(families: Iterable[Family]) -> list[Row]:
    return [_row(family) for family in families]


def _row(family: Family) -> Row:
    labels = ", ".join(code(label.name) for label in family.labels)
    return (code(family.exposed), family.kind, labels, text(family.help))


def _processes(family: Family) -> str:
    return ", ".join(process for process in PROCESSES if process in family.processes)


def _labels() -> list[Label]:
    """Each label once; of one name several where their bounds differ."""
    found = {(label.name, label.values, label.most): label for family in FAMILIES for label in family.labels}
    return sorted(found.values(), key=lambda label: label.name)


def _bounds(label: Label) -> str:
    if label.values:
        return ", ".join(code(value) for value in (*label.values, OTHER))
    return f"at most {label.most}, then {code(OTHER)}"
