"""Which jobs of Slurm hold GPUs of a host, as the label `hpc_job` of its metrics says (dcgm-exporter's directory of jobs).

A prolog writes the number of a job into the files of its GPUs and an epilog takes it out. A GPU that several jobs share has a
series for each, or all numbers in one label. Reported when a host's metrics begin to bear a job, when they no longer do, and
every few hours while they do. What is remembered is a row for each host: which GPUs of it a job has is only counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from streams.detect.finding import Finding, Stream
from streams.detect.matching import re2_patterns
from streams.detect.metrics.dcgm_gauges import gpu_of
from streams.detect.metrics.rule_rows import JobLabels, sheet
from streams.detect.rule_state import Key, Row, RuleTable
from streams.model.clock import from_millis
from streams.model.entity import SLURM_JOB, JobRef
from streams.model.kinds import SignalKind
from streams.model.record import Sample
from streams.model.signal import LABELLED, Severity, SignalState

_MAX_HOSTS = 20_000
_MAX_JOBS = 64
"""Jobs of one host at a time."""
_BITS = 48
_NUMBER = re2_patterns.compile(r"^[1-9]\d{0,9}(?:_\d{1,7})?$")
_NOTHING: Final[Iterator[Finding]] = iter(())


class _Held(NamedTuple):
    """A job on a host. Times in milliseconds; 0 for never."""

    job: str
    since: int
    last: int
    told: int
    """When it was reported last."""
    missed: int
    """The first sample after a long time without it, as long as none bears it."""
    gpus: int
    """Bits of the GPUs that bore it before it was reported."""


_WIDTH = len(_Held._fields)
_LAST, _TOLD, _MISSED = (_Held._fields.index(name) for name in ("last", "told", "missed"))


def jobs_of_host(sample: Sample, stream: Stream, key: Key, at: int) -> Iterator[Finding]:
    """What a sample of a GPU shows about the jobs on its host: those that its metrics begin to bear, or no longer do.

    Args:
        sample: Of one of the metrics that every GPU has.
        stream: Where it comes from.
        key: Its cluster and host.
        at: When it was taken, milliseconds.
    """
    label, hosts = sample.labels.get("hpc_job"), stream.rule_state.table("metrics.gpu_jobs", _MAX_HOSTS)
    row = hosts.get(key)
    if row is None:
        # As with every sample of a cluster without Slurm, and of a host that rests.
        return _read(sample, stream, hosts, key, at) if label and _jobs(label) else _NOTHING
    place = _place_if_settled(row, label, at, sheet().job_labels, stream.spread)
    if place is None:
        return _read(sample, stream, hosts, key, at)
    if place >= 0:
        hosts[key] = (*row[: place + _LAST], at, *row[place + _LAST + 1 :])
    return _NOTHING


def _read(sample: Sample, stream: Stream, hosts: RuleTable, key: Key, at: int) -> Iterator[Finding]:
    row, waits = hosts.get(key, ()), sheet().job_labels
    known = [_Held(*row[i : i + _WIDTH]) for i in range(0, len(row), _WIDTH)]  # type: ignore[arg-type]
    borne = _jobs(sample.labels.get("hpc_job") or "")
    found: list[Finding] = []
    after: list[_Held] = []
    for held in known:
        one: _Held | None = held
        if held.job in borne:
            one = _seen(held, sample, at, waits, found)
        elif at - held.last >= waits.gone * stream.spread:
            one = _missed(held, sample, at, waits, found)
        if one is not None:
            after.append(one)
    names = {held.job for held in known}
    new = [_Held(job, at, at, 0, 0, _bit(sample)) for job in borne if job not in names]
    after += new[: _MAX_JOBS - len(after)]
    if after != known:
        if after:
            hosts[key] = tuple(value for held in after for value in held)
        else:
            del hosts[key]
    return iter(found)


def _place_if_settled(row: Row, label: str | None, at: int, waits: JobLabels, spread: int) -> int | None:
    """Where a row has the only job of a label whose time is to be written down, -1 where nothing is; None for whatever is news.

    Nearly no sample is, so no more is looked at than that takes.
    """
    place, is_known = -1, not label
    for i in range(0, len(row), _WIDTH):
        past = at - row[i + _LAST]  # type: ignore[operator]
        if row[i] == label:
            told = row[i + _TOLD]
            if not told or row[i + _MISSED] or at - told >= waits.again:  # type: ignore[operator]
                return None
            is_known = True
            if past >= waits.lasts:
                place = i
        elif past >= waits.gone * spread:
            return None
    return place if is_known else None


def _seen(held: _Held, sample: Sample, at: int, waits: JobLabels, found: list[Finding]) -> _Held:
    """The job once more in a sample."""
    if not held.told:
        held = held._replace(since=min(held.since, at), gpus=held.gpus | _bit(sample))
    # Only now and then: between two reports nothing depends on it by the second.
    if held.missed or at - held.last >= waits.lasts or not held.told:
        held = held._replace(last=max(held.last, at), missed=0)
    if held.told == 0 and held.last - held.since >= waits.lasts:
        found.append(_finding(held, sample, held.since))
        return held._replace(told=held.last)
    if held.told and at - held.told >= waits.again:
        found.append(_finding(held, sample, at))
        return held._replace(told=at)
    return held


def _missed(held: _Held, sample: Sample, at: int, waits: JobLabels, found: list[Finding]) -> _Held | None:
    """The job after a long time without it; None when it has left the host."""
    if not held.missed:
        return held._replace(missed=at)
    if at - held.missed < waits.lasts:
        return held
    if held.told:
        found.append(_finding(held, sample, held.last, SignalState.CLEARED))
    return None


def _finding(held: _Held, sample: Sample, at: int, state: SignalState = SignalState.FIRING) -> Finding:
    return Finding(
        SignalKind.JOB_ALLOCATION,
        Severity.INFO,
        {"subtype": LABELLED, "job": held.job, "gpus": held.gpus.bit_count()},
        state,
        node=sample.node,
        job=JobRef(SLURM_JOB, "", held.job),
        at=from_millis(at),
    )


@lru_cache(4096)
def _jobs(label: str) -> tuple[str, ...]:
    """The jobs in a label, each once; an empty one and `0` stand for none."""
    named: Iterable[str] = (name.strip() for name in label.split(","))
    return tuple(dict.fromkeys(name for name in named if _NUMBER.search(name)))[:_MAX_JOBS]


def _bit(sample: Sample) -> int:
    index = gpu_of(sample).index
    return 1 << (index % _BITS) if index is not None else 1
