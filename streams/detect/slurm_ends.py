"""Small jobs of Slurm that end badly within minutes of their start, by the node on which they did.

The controller logs where a job starts and how it ends, and only whoever reads both sees that one node ends whatever it is given.
So the two are put together here. A job that ends so is reported at its node, with what the controller knows of the others: how
many jobs ended so on other nodes since the first did on this one, and when the latest job was started elsewhere that goes well.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from streams.detect.finding import Attributes, Finding, Stream
from streams.detect.rule_state import RuleTable
from streams.model.clock import to_millis
from streams.model.kinds import SignalKind
from streams.model.record import LogLine
from streams.model.signal import Attribute, Severity, SignalState

SUBTYPE = "slurm_early_end"
EARLY_S = 180
"""A job that ran for longer was not ended by what keeps jobs from starting."""

_MISSING = "missing from batch node"
_EARLY_MS = EARLY_S * 1000
_APART_MS = 3_600_000
"""Ends that are farther apart are not one series."""
_PROVEN_MS = 30_000
"""A job runs well elsewhere when it has outlived, twice over, what it took the one that ended here, and this at least."""
_MAX_JOBS, _MAX_HOSTS, _MAX_LOOKED_AT = 20_000, 20_000, 4_096
_ASKED_FOR = frozenset({130, 137, 143})
"""Exit codes of a shell whose program was interrupted, killed or asked to end."""
_ASKED_BY = frozenset({2, 9, 15})
_FAILED = frozenset({"FAILED"})


class _Started(NamedTuple):
    """A job that was started: on one host, in a partition, at a time in ms. `ended` is whether it ended, and well."""

    host: str
    partition: str
    at: int
    array: str
    ended: bool = False


def started(job: str, attributes: Attributes, line: LogLine, stream: Stream) -> None:
    """Note a job that the controller starts on one host; what a person allocates to themselves names no partition.

    What tools list of running jobs begins nothing: it is asked for at any time.
    """
    hosts, partition = str(attributes.get("hosts", "")), _partition(attributes)
    if not partition or "JobState=" in line.text or "," in hosts or "[" in hosts:
        return
    row = _Started(hosts, partition, _now(line, stream), _array(job))
    _jobs(stream)[(stream.cluster, job)] = tuple(row)


def asked(job: str, stream: Stream) -> None:
    """Forget a job whose end somebody asked for, or whose time is up."""
    _jobs(stream).pop((stream.cluster, job), None)


def ended(job: str, attributes: Attributes, line: LogLine, stream: Stream) -> Iterator[Finding]:
    """What the end of a job says of its node: that it ended badly and early, or that jobs do well there again."""
    row = _jobs(stream).pop((stream.cluster, job), None)
    if row is None:
        return
    mine, now = _Started(*row), _now(line, stream)  # type: ignore[arg-type]
    host, ran = mine.host, now - mine.at
    series, key = stream.rule_state.table("slurm.ending_hosts", _MAX_HOSTS), (stream.cluster, host)
    first, last = map(_number, series.get(key, (0, 0)))
    status = attributes.get("status")
    if status == 0 or ran > _EARLY_MS:
        well = stream.rule_state.table("slurm.well", _MAX_HOSTS)
        well[key] = tuple(mine._replace(ended=True))
        if series.pop(key, None) is not None:
            yield _finding(host, {}, line, SignalState.CLEARED)
        return
    if ran < 0 or not _is_bad(attributes, line):
        return
    if now - last > _APART_MS:
        first = mine.at
    series[key] = (first, now)
    said: dict[str, Attribute] = {
        "job_id": int(job.partition("_")[0]),
        "ran_s": ran // 1000,
        "others": _others(mine, first, stream),
    }
    _ends(stream)[(stream.cluster, job)] = (host, now, mine.array)
    if "_" in job:
        said["array_task"] = job
    yield _finding(host, said | _elsewhere(mine, now, ran, stream), line)


def _others(mine: _Started, since: int, stream: Stream) -> int:
    """How many jobs ended so on other hosts since then, an array counted once."""
    return len(
        {
            array or job
            for (cluster, job), (host, at, array) in islice(reversed(_ends(stream).items()), _MAX_LOOKED_AT)
            if cluster == stream.cluster and host != mine.host and _number(at) >= since
        }
    )


def _elsewhere(mine: _Started, now: int, ran: int, stream: Stream) -> Attributes:
    """When the latest job of the partition was started on another host that goes well, and one of the same array, if any."""
    proven = now - max(2 * ran, _PROVEN_MS)
    rows = (
        _Started(*row)  # type: ignore[arg-type]
        for name, limit in (("slurm.jobs", _MAX_JOBS), ("slurm.well", _MAX_HOSTS))
        for (cluster, _), row in islice(
            reversed(stream.rule_state.table(name, limit).items()), _MAX_LOOKED_AT
        )
        if cluster == stream.cluster
    )
    well = [
        one
        for one in rows
        if one.host != mine.host and one.partition == mine.partition and (one.ended or one.at <= proven)
    ]
    said: Attributes = {}
    if well:
        said["elsewhere_s"] = (now - max(one.at for one in well)) // 1000
    if alike := [one.at for one in well if mine.array and one.array == mine.array]:
        said["array_elsewhere_s"] = (now - max(alike)) // 1000
    return said


def _is_bad(attributes: Attributes, line: LogLine) -> bool:
    """Whether it failed by itself: nobody asked for that, and it did not use up its own memory."""
    status, signal = attributes.get("status"), attributes.get("signal")
    if isinstance(status, int):
        return status > 0 and status not in _ASKED_FOR
    if isinstance(signal, int):
        return signal not in _ASKED_BY
    state = attributes.get("state")
    return state in _FAILED or _MISSING in line.text


def _finding(
    host: str, attributes: Attributes, line: LogLine, state: SignalState = SignalState.FIRING
) -> Finding:
    said = {"subtype": SUBTYPE, **attributes}
    return Finding(SignalKind.NODE_CONDITION, Severity.INFO, said, state, node=host, text=line.text)


def _partition(attributes: Attributes) -> str:
    return str(attributes.get("partition") or attributes.get("partition2") or "")


def _array(job: str) -> str:
    array, task, _ = job.partition("_")
    return array if task else ""


def _jobs(stream: Stream) -> RuleTable:
    return stream.rule_state.table("slurm.jobs", _MAX_JOBS)


def _ends(stream: Stream) -> RuleTable:
    return stream.rule_state.table("slurm.ends", _MAX_LOOKED_AT)


def _now(line: LogLine, stream: Stream) -> int:
    return to_millis(line.at or stream.received_at)


def _number(value: object) -> int:
    return int(value) if isinstance(value, (int, float)) else 0
