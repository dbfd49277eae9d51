"""Runs the samples of the catalog through the whole detector: each row finds its own, and leaves its look-alikes alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

import orjson

from runbooks.engine.case_result import CaseResult
from streams.detect import Detector, managers, subjects, sxid_catalog, xid_catalog
from streams.detect.kube_events import EventRow
from streams.detect.kube_events import sheet as kube_sheet
from streams.detect.matching.log_patterns import PatternRow, PatternSample, load_sheet, sheet_names
from streams.detect.metrics import MetricRow, MetricRules, sheet
from streams.detect.metrics.rule_rows import Story
from streams.detect.metrics.stories import said, samples
from streams.model.kinds import SignalKind
from streams.model.record import RawRecord
from streams.model.signal import BY_SUBJECT, Severity, Signal

_AT = datetime(2026, 11, 21, 7, 13, 20, tzinfo=UTC)
_BY_REGISTERS = frozenset({154, *range(144, 151)})
"""XIDs whose action is in the line itself, not in the row of the code."""


def catalog_cases() -> dict[str, Callable[[], Iterator[CaseResult]]]:
    """The cases of the catalog that is in force, by the name of their table. A table's cases run when they are asked for."""
    sheets = {f"lines/{name}": partial(_of_sheet, name) for name in sheet_names()}
    return {
        **sheets,
        "xid": _of_xids,
        "sxid": _of_sxids,
        "kube": _of_events,
        "metrics": _of_metrics,
        "managers": _of_managers,
        "subjects": _of_subjects,
    }


def _of_sheet(name: str) -> Iterator[CaseResult]:
    lines = load_sheet(name)
    for row in lines.rows:
        yield from _of_row(row, lines.written_by == "pod")


def _of_managers() -> Iterator[CaseResult]:
    for number, sample in enumerate(managers.sheet().samples):
        found = [
            {name: value for name, value in end._asdict().items() if value}
            for end in managers.ends_of(sample.text)
        ]
        wanted = list(sample.ends)
        yield CaseResult(f"sample {number}", () if found == wanted else (f"{found} instead of {wanted}",))


def _of_subjects() -> Iterator[CaseResult]:
    for row in subjects.sheet().rows:
        for number, sample in enumerate(row.samples):
            found = [(one.kind, one.attributes.get("subtype"), one.severity) for one in signals(sample)]
            wanted = (row.kind, row.subtype, Severity.INFO)
            differs = () if wanted in found else (f"{found} instead of {wanted}",)
            yield CaseResult(f"{row.id} sample {number}", differs)


def _of_row(row: PatternRow, is_of_pod: bool) -> Iterator[CaseResult]:
    for number, sample in enumerate(row.samples):
        found = signals(f"{sample.before}\n{sample.text}" if sample.before else sample.text, is_of_pod)
        if row.kind != SignalKind.FABRIC_NIC_NAMES:
            found = tuple(one for one in found if one.kind != SignalKind.FABRIC_NIC_NAMES)
        lacks = (
            [] if len(found) == (2 if sample.before else 1) else [f"{len(found)} signals in {sample.text!r}"]
        )
        if found:
            lacks += _differs(found[-1], row.kind, row.state, row.severity)
            lacks += lacking(found[-1], sample)
        yield CaseResult(f"{row.id} sample {number}", tuple(lacks))
    for number, text in enumerate(row.look_alikes):
        told = [str(one.kind) for one in firm(signals(text, is_of_pod))]
        yield CaseResult(f"{row.id} look-alike {number}", (f"{', '.join(told)} of {text!r}",) if told else ())


def _of_xids() -> Iterator[CaseResult]:
    catalog = xid_catalog.catalog()
    for number, sample in enumerate(catalog.samples):
        yield CaseResult(f"sample {number}", _one(sample, SignalKind.GPU_XID))
    for number, glued in enumerate(catalog.glued):
        codes = tuple(one.attributes.get("xid") for one in signals(glued.text))
        yield CaseResult(
            f"glued {number}", () if codes == glued.xids else (f"{codes} instead of {glued.xids}",)
        )
    for number, text in enumerate(catalog.look_alikes):
        yield CaseResult(f"look-alike {number}", _silent(text))
    for row in catalog.codes:
        for code in row.codes:
            found = signals(f"NVRM: Xid (PCI:0000:3b:00): {code}, {row.sample or 'no more is known'}")
            wanted: dict[str, object] = {"mnemonic": row.mnemonic, "family": row.family}
            if code not in _BY_REGISTERS:
                wanted |= {"action": row.action, "severity": row.severity}
            got: dict[str, object] = {}
            if len(found) == 1:
                told = {"severity": found[0].severity, **found[0].attributes}
                got = {name: told.get(name) for name in wanted}
            yield CaseResult(
                f"code {code}", () if got == wanted else (f"{got or len(found)} instead of {wanted}",)
            )


def _of_sxids() -> Iterator[CaseResult]:
    catalog = sxid_catalog.catalog()
    for number, sample in enumerate(catalog.samples):
        yield CaseResult(f"sample {number}", _one(sample, SignalKind.GPU_SXID))
    for number, text in enumerate(catalog.look_alikes):
        yield CaseResult(f"look-alike {number}", _silent(text))


def _of_events() -> Iterator[CaseResult]:
    return (_of_event(row) for row in kube_sheet().rows if not row.ends)


def _of_event(row: EventRow) -> CaseResult:
    object_ = row.objects[0].replace("*", "")
    found = [
        one
        for one in signals(_event(object_, row.reasons[0], row.sample))
        if ((one.kind, one.attributes.get("subtype")) in _beside()) == row.beside
    ]
    differences = [] if len(found) == 1 else [f"{len(found)} signals"]
    if found:
        differences += _differs(found[0], row.kind, row.state, row.severity)
    if signals(_event("ConfigMap", row.reasons[0], row.sample)):
        differences.append("the same words about a ConfigMap are a signal")
    return CaseResult(f"{row.reasons[0]} {row.subtype}".rstrip(), tuple(differences))


@cache
def _beside() -> frozenset[tuple[str, str]]:
    """Kinds and subtypes of what stands beside what another row says."""
    return frozenset((str(row.kind), row.subtype) for row in kube_sheet().rows if row.beside)


def _event(kind: str, reason: str, message: str) -> bytes:
    about = {
        "kind": kind,
        "name": "thing-07",
        "uid": "u-07",
        **({} if kind == "Node" else {"namespace": "ml"}),
    }
    event = {"reason": reason, "message": message, "type": "Warning", "involvedObject": about}
    event |= {"metadata": {"name": "e1", "creationTimestamp": "2026-11-21T07:13:00Z"}, "clusterName": ""}
    return orjson.dumps({**event, "source": {"component": "kubelet", "host": "gpu-3"}})


def _of_metrics() -> Iterator[CaseResult]:
    rules = MetricRules()
    for row in sheet().rows:
        yield from _of_metric(rules, row)


def _of_metric(rules: MetricRules, row: MetricRow) -> Iterator[CaseResult]:
    for number, story in enumerate(row.stories):
        yield CaseResult(f"{row.id} story {number}", tuple(_of_story(rules, row, story)))
    for story in row.look_alikes:
        told = said(rules, samples(row, story))
        yield CaseResult(f"{row.id} look-alike: {story.why}", (f"{len(told)} findings",) if told else ())


def _of_story(rules: MetricRules, row: MetricRow, story: Story) -> Iterator[str]:
    told = said(rules, samples(row, story))
    got = [(str(one.finding.state), one.after) for one in told]
    wanted = [(str(one.state), one.after) for one in story.expect]
    if got != wanted:
        yield f"{got} instead of {wanted}"
        return
    for one, expected in zip(told, story.expect, strict=True):
        yield from _attributes(one.finding.attributes, {**row.attributes, **expected.attributes})


def signals(text: str | bytes, is_of_pod: bool = False) -> tuple[Signal, ...]:
    """What a detector that remembers nothing finds in a line. Lines of pods come as shippers wrap them: progress counts there."""
    value = text.encode() if isinstance(text, str) else text
    if is_of_pod:
        pod = {"pod_name": "llm-0", "namespace_name": "ml", "host": "gpu-1"}
        value = orjson.dumps({"@timestamp": 1795245200.5, "log": f"{text!s}\n", "kubernetes": pod})
    detector = _detector()
    detector.set_rule_states({})
    return detector.detect(RawRecord("raw.node-logs", 0, 0, _AT, None, value)).signals


@cache
def _detector() -> Detector:
    return Detector("c1")


def firm(found: tuple[Signal, ...]) -> list[Signal]:
    """The signals without weak signs, that a host has GPUs and a NIC names: those are context, and may stand beside anything."""
    return [
        one
        for one in found
        if one.kind not in (SignalKind.NODE_GPUS, SignalKind.FABRIC_NIC_NAMES)
        and (one.kind != SignalKind.UNKNOWN or "subtype" not in one.attributes)
        and one.attributes.get(BY_SUBJECT) != "sign"
    ]


def lacking(signal: Signal, sample: PatternSample) -> list[str]:
    """The fields that a sample expects and its signal has not."""
    mig = signal.entity.gpu.mig if signal.entity.gpu else None
    wanted = {
        name: tuple(value) if isinstance(value, list) else value for name, value in sample.expect.items()
    }
    return list(_attributes({**signal.attributes, "mig": mig}, wanted))


def _attributes(got: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    for name, value in wanted.items():
        if got.get(name) != value:
            yield f"{name} is {got.get(name)!r} instead of {value!r}"


def _differs(signal: Signal, *wanted: str) -> Iterator[str]:
    got = (signal.kind, signal.state, signal.severity)
    if got != wanted:
        yield f"{', '.join(got)} instead of {', '.join(wanted)}"


def _one(sample: PatternSample, kind: SignalKind) -> tuple[str, ...]:
    found = signals(sample.text)
    if [one.kind for one in found] != [kind]:
        return (f"{[str(one.kind) for one in found]} instead of one {kind}",)
    return tuple(lacking(found[0], sample))


def _silent(text: str) -> tuple[str, ...]:
    found = [*signals(text), *signals(text, is_of_pod=True)]
    return (f"{found[0].kind} of {text!r}",) if found else ()
