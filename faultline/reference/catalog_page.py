"""The reference page of everything the detector knows by name. Part of `faultline.reference`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from faultline.reference.markdown import Row, code, table, text
from streams.correlate.policy.families import families
from streams.detect import dcgm_codes, managers
from streams.detect.alerts import sheet as alert_sheet
from streams.detect.catalog import load_catalog
from streams.detect.kube_events import sheet as kube_sheet
from streams.detect.matching.log_patterns import load_sheet, sheet_names
from streams.detect.metrics import MetricRow
from streams.detect.metrics import sheet as metric_sheet
from streams.detect.metrics.pause_counters import PauseSheet
from streams.detect.sel import sheet as sel_sheet
from streams.detect.subjects import sheet as subject_sheet
from streams.detect.sxid_catalog import catalog as sxids
from streams.detect.unknown_errors import sheet as unknown_sheet
from streams.detect.xid_catalog import XidCode, catalog


def catalog_page() -> Iterator[str]:
    """Everything the detector knows by name, and the families of incidents."""
    yield "# Catalog"
    yield ""
    yield "What is recognised (`streams/detect/catalog/`), and what it becomes (`streams/correlate/policy/families.yaml`)."
    yield "How to add a row: [detection](../detection.md)."
    yield ""
    yield from _coverage()
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
    yield from _sxids()
    yield from _dcgm()
    yield from _patterns()
    yield from _managers()
    yield from _unknown()
    yield from _kubernetes()
    yield from _management()
    yield from _alerts()
    yield from _pauses(load_catalog("pauses", PauseSheet))
    yield from _metrics()
    yield "## Families of incidents"
    yield ""
    yield "Of two on one place the higher rank names the incident. `at most` is the certainty that signals alone can give it."
    yield "`near` is what it explains only within minutes of its own evidence, `weak` what it explains when that is weak."
    yield "`stops a job`: whether hangs are laid to it as long as it is open, only near its evidence, or never."
    yield ""
    headings = ("family", "rank", "severity", "at most", "title", "explains on the same node", "near", "weak")
    kinds = [
        (
            code(name), f.rank, f.severity.value, f.cap.value, code(f.title), *(
                ", ".join(map(code, names)) for names in (f.explains, f.explains_near, f.explains_weak)
            ), f.stops,
        )
        for name, f in families().families.items()
    ]  # fmt: skip
    yield from table((*headings, "stops a job"), kinds)
    yield "### Which signal belongs where"
    yield ""
    yield "Of the rows of a kind the first that fits counts. A `cause` opens an incident, a `context` is shown beside one."
    yield "XIDs go by their code, NCCL's own reports, links and pause storms by procedure."
    yield ""
    signals = [
        (
            ", ".join(map(code, r.kinds)), ", ".join(map(code, sorted(r.subtypes))) or "any",
            ", ".join(sorted(r.severities)), "; ".join(f"{code(k)} {text(', '.join(v))}".strip() for k, v in r.where.items()),
            code(r.family), r.role, r.certainty.value if r.role == "cause" else "",
            f"{r.lasts_s:g} s" if r.lasts_s else "", text(r.says),
        )
        for r in families().signals
    ]  # fmt: skip
    yield from table(
        ("signal", "subtype", "severity", "with", "family", "part", "certainty", "lasts", "says"), signals
    )


def _sxids() -> Iterator[str]:
    yield "## SXid codes"
    yield ""
    yield "Of NVSwitches before Blackwell. The line's own `Fatal` or `Non-fatal` counts before the table."
    yield "Source: NVIDIA, Fabric Manager user guide."
    yield ""
    rows = [
        (
            ", ".join(map(str, row.codes)) or "any other",
            text(row.effect),
            code(row.action),
            row.severity.value,
        )
        for row in (*sxids().effects, sxids().unknown)
    ]
    yield from table(("codes", "effect", "action", "severity"), rows)
    units = [(f"{unit.first} to {unit.last}", code(unit.mnemonic)) for unit in sxids().units]
    yield from table(("codes", "part of the switch"), units)


def _dcgm() -> Iterator[str]:
    yield "## Codes of DCGM"
    yield ""
    yield "What agents hand on of DCGM's checks, by name or number. IMEX is a warning where NVLink reaches other machines."
    yield "Source: DCGM, dcgm\\_errors.h."
    yield ""
    rows = [
        (
            ", ".join(f"{code(name)} {number}" for name, number in row.codes.items()),
            code(row.kind),
            "info" if row.info else "warning",
        )
        for row in dcgm_codes.sheet().rows
    ]
    yield from table(("codes", "signal", "severity"), rows)


def _xid(row: XidCode, codes: str) -> Row:
    return (
        codes, code(row.mnemonic), code(row.action), code(row.investigatory), row.severity.value, code(row.family),
        "yes" if row.eval_154 else "", text(row.cause),
    )  # fmt: skip


def _kubernetes() -> Iterator[str]:
    yield "## Kubernetes Events"
    yield ""
    events = [
        (
            ", ".join(map(code, r.reasons)), ", ".join(r.objects), code(r.kind), code(r.subtype) if r.subtype else "",
            r.state.value, r.severity.value,
        )
        for r in kube_sheet().rows
    ]  # fmt: skip
    yield from table(("reasons", "of", "signal", "subtype", "state", "severity"), events)
    yield "## Conditions of nodes"
    yield ""
    yield "The first that is found in the name of the condition, in any case; a status that is not bad clears."
    yield ""
    conditions = [
        (code(r.type), ", ".join(r.bad), code(r.kind), code(r.subtype) if r.subtype else "", r.severity.value)
        for r in kube_sheet().conditions
    ]
    yield from table(("type (RE2)", "bad", "signal", "subtype", "severity"), conditions)


def _management() -> Iterator[str]:
    yield "## Management controllers"
    yield ""
    yield "Looked for in the sensor and the event of an entry of the log (SEL), in any case; the first counts."
    yield ""
    rules = [(code(r.matches), code(r.kind), code(r.subtype), r.severity.value) for r in sel_sheet().rules]
    yield from table(("entry (RE2)", "signal", "subtype", "severity"), rules)


def _alerts() -> Iterator[str]:
    yield "## Alerts"
    yield ""
    yield "Looked for in the alert's name in lower case without separators; the first counts. A rule may name its kind itself in"
    yield f"the label {code(alert_sheet().kind_label)}. Any other alert is `alert.unmapped`, info."
    yield ""
    rows = [
        (
            code(r.alert), ", ".join(f"{name}: {code(p)}" for name, p in r.where.items()), code(r.kind),
            code(r.subtype) if r.subtype else "", r.severity.value,
        )
        for r in alert_sheet().rows
    ]  # fmt: skip
    yield from table(("alert (RE2)", "labels", "signal", "subtype", "severity"), rows)


def _coverage() -> Iterator[str]:
    """How many wordings come from which source: a row counts for every source it names."""
    yield "## Coverage"
    yield ""
    yield "Wordings of log lines by sheet, and by the project or vendor whose source or documentation they are from. XID and SXid"
    yield "codes, Events, conditions, alerts and metrics are tables of their own below."
    yield ""
    sheets = {name: load_sheet(name).rows for name in sheet_names()}
    counted = [
        (code(name), len(rows), sum(len(r.samples) for r in rows), sum(len(r.look_alikes) for r in rows))
        for name, rows in sheets.items()
    ]
    total = ("all", *(sum(int(row[column]) for row in counted) for column in (1, 2, 3)))
    yield from table(("sheet", "rows", "samples", "look-alikes"), [*counted, total])
    sources = Counter(name for rows in sheets.values() for row in rows for name in _sources(row.source))
    yield from table(
        ("source", "rows"),
        [(text(name), count) for name, count in sorted(sources.items(), key=lambda p: (-p[1], p[0]))],
    )


def _sources(source: str) -> set[str]:
    """The projects and vendors that a row's source names."""
    named = source.lower()
    return {project for project in _PROJECTS if project.lower() in named} or {"others"}


_PROJECTS = (
    "Linux", "open-gpu-kernel-modules", "DCGM", "nvidia-smi", "NVML", "fabric manager", "IMEX", "NCCL", "CUDA",
    "libnvidia-container", "k8s-device-plugin", "gpu-operator", "NVIDIA Resiliency Extension", "NVSentinel", "GPUd",
    "Sichek", "Node Health Check", "node-problem-detector", "EKS", "Kubernetes", "containerd", "systemd", "Slurm",
    "PyTorch", "JAX", "XLA", "DeepSpeed", "Megatron", "Ray", "Open MPI", "MPICH", "PMIx", "UCX", "libfabric", "Gloo",
    "aws-ofi-nccl", "Amazon", "aws-node-termination-handler", "Google Cloud", "Azure", "Oracle", "SONiC", "Arista",
    "Cisco", "Junos", "Cumulus", "NVUE", "MLNX-OS", "OpenSM", "UFM", "infiniband-diags", "iproute2", "Lustre",
    "Storage Scale", "Weka", "BeeGFS", "mdadm", "smartmontools", "rasdaemon", "mcelog", "earlyoom",
)  # fmt: skip


def _unknown() -> Iterator[str]:
    yield "## Authors whose unknown errors are kept"
    yield ""
    yield "An error of these that names a device or a node, in words of no row, is a signal, info, of what it speaks of."
    yield ""
    sheet = unknown_sheet()
    rows = [(text(one.author), "the kernel", code(one.opens)) for one in sheet.kernel]
    rows += [
        (text(one.author), "programs", ", ".join(map(code, (*one.names, *one.containers))))
        for one in sheet.programs
    ]
    rows += [(text(one.author), "shape", code(one.opens)) for one in sheet.shapes]
    yield from table(("author", "known by", "as"), rows)
    yield "## What unknown errors speak of"
    yield ""
    yield "The first row that fits gives an unknown error or a weak sign its kind and subtype, and the mark `by_subject`."
    yield "It stays information, and the correlator reads it as `unknown`."
    yield "Rows without words are what those authors speak of otherwise."
    yield ""
    subjects = [
        (
            code(r.kind),
            code(r.subtype),
            code(r.speaks) if r.speaks else "",
            text(r.about or ""),
            ", ".join(r.of) or "all",
        )
        for r in subject_sheet().rows
    ]
    yield from table(("signal", "subtype", "words (RE2)", "and names a", "authors and areas"), subjects)


def _managers() -> Iterator[str]:
    yield "## Managers of fabrics"
    yield ""
    yield "What these say of links and switches is about the ports that the line names, never about the host that they run on."
    yield ""
    yield ", ".join(map(code, managers.sheet().programs))
    yield ""


def _patterns() -> Iterator[str]:
    """One table per sheet of wordings, whichever there are."""
    for name in sheet_names():
        yield f"## Log patterns: {name}"
        yield ""
        rows = [
            (code(r.id), code(r.kind), r.state.value, r.severity.value, code(r.opens), text(r.source))
            for r in load_sheet(name).rows
        ]
        yield from table(("row", "signal", "state", "severity", "opens with (RE2)", "source"), rows)


def _pauses(sheet: PauseSheet) -> Iterator[str]:
    yield "## Pause counters"
    yield ""
    yield f"They become `fabric.pfc_storm`, {sheet.severity.value}. `duration` is the share of time paused; `frames` are per"
    yield "second, and used only where there is no duration."
    yield ""
    limits = {"duration": sheet.duration, "frames": sheet.frames, "events": sheet.events}
    rows = [
        (code(m.pattern), m.direction, m.measures, limit.fire, limit.clear, limit.intervals)
        for m in sheet.metrics
        for limit in (limits[m.measures],)
    ]
    yield from table(("metric (RE2)", "direction", "measures", "storm from", "over below", "intervals"), rows)


_MEASURES = {
    "value": "the value",
    "bits": "bits set",
    "increase": "an increase",
    "rate": "the rate",
    "share": "its share",
    "ratio": "the ratio",
    "zeros": "both zero",
    "baseline": "of its own usual value",
    "peers": "of the median of its job",
    "node": "all busy GPUs of a node, of what is usual for their model",
}


def _metrics() -> Iterator[str]:
    yield "## Metric rules"
    yield ""
    yield "Any spelling of a name counts, with or without `_total`. of a MIG GPU, `instance` is each part."
    yield ""
    rows = [
        (
            code(row.id),
            code(row.kind),
            code(row.attributes.get("subtype", "")),
            row.severity.value,
            row.entity,
            ", ".join(code(metric.name) for metric in (*row.metrics, *row.of)),
            _MEASURES[row.measure],
            _fires(row),
            _clears(row),
            text(row.source),
        )
        for row in metric_sheet().rows
    ]
    headings = (
        "row",
        "signal",
        "subtype",
        "severity",
        "of a",
        "metrics",
        "measured",
        "fires",
        "over",
        "source",
    )
    yield from table(headings, rows)


def _fires(row: MetricRow) -> str:
    limit = ", ".join(
        [
            *([f"from {row.above:g}"] if row.above is not None else []),
            *([f"down from {row.below:g}"] if row.below is not None else []),
            *row.bits.values(),
        ]
    )
    if row.measure == "rate":
        limit += f" in {_duration(row.per)}"
    held = f" for {_duration(row.for_)}" if row.for_ else ""
    return f"{limit or 'at once'}{held}"


def _clears(row: MetricRow) -> str:
    if row.measure == "increase":
        return f"after {_duration(row.quiet)} without" if row.quiet is not None else "each is news"
    if row.clear is None:
        return "when it is so no more"
    return f"{'below' if row.above is not None else 'above'} {row.clear:g}"


def _duration(milliseconds: int) -> str:
    seconds = milliseconds // 1000
    return f"{seconds // 60} min" if seconds % 60 == 0 else f"{seconds} s"
