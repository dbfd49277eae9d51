"""Whether a job has become slower than it was itself: the steps that its log counts, by the clock.

Steps are counted over windows; a window's pace is compared with the usual one, a running mean of the windows before. Evaluations,
checkpoints and restarts make a window or two slow, so it must stay slow for `_LASTS_MS`. A pod's own log is its measure: ranks of
one job print the same steps.
"""

from __future__ import annotations

from typing import NamedTuple

from streams.detect.finding import Finding, Stream
from streams.model.clock import not_ahead, to_millis
from streams.model.entity import PodRef
from streams.model.kinds import SignalKind
from streams.model.record import LogLine
from streams.model.signal import Attribute, Severity, SignalState

SLOW = "slow"
"""The subtype of such a `job.stalled`."""

_WINDOW_MS = 300_000
_LASTS_MS = 900_000
"""Three windows: an evaluation takes minutes, a checkpoint one."""
_PAUSE_MS = 1_800_000
"""A log that says nothing for longer begins anew; its usual pace stays."""
_WINDOWS = 6
"""So many windows make a usual pace: half an hour at least, so that a warm-up is none."""
_BELOW, _AGAIN = 0.75, 0.88
"""Shares of the usual pace: slow below the first, well again from the second on. Batches of other lengths cost a tenth."""
_WEIGHT = 0.2
_MAX_PODS = 20_000


class _Pace(NamedTuple):
    """A row. Times in milliseconds, paces in steps a second."""

    since: int
    """When the window began, and with which step."""
    step: int
    last: int
    last_step: int
    usual: float = 0.0
    windows: int = 0
    slow_since: int = 0
    told: int = 0


def pace(pod: PodRef, step: int, line: LogLine, stream: Stream) -> Finding | None:
    """What a step that a pod logs says of its pace: that it has become slow, or is well again; None where it says no news."""
    table, key = stream.rule_state.table("job.pace", _MAX_PODS), (pod.namespace, pod.name)
    at = to_millis(not_ahead(line.at, stream.received_at))
    known = table.get(key)
    before = _Pace(*known) if known is not None else None  # type: ignore[arg-type]
    if before is None:
        table[key] = tuple(_Pace(at, step, at, step))
        return None
    if at <= before.last:
        return None  # late, or the same moment again
    if step <= before.last_step or at - before.last > _PAUSE_MS:
        table[key] = tuple(before._replace(since=at, step=step, last=at, last_step=step, slow_since=0))
        return None
    if at - before.since < _WINDOW_MS:
        table[key] = tuple(before._replace(last=at, last_step=step))
        return None
    after, state = _judged(before, at, step)
    table[key] = tuple(after)
    if state is None:
        return None
    rate = (step - before.step) * 1000 / (at - before.since)
    attributes: dict[str, Attribute] = {"subtype": SLOW, "percent": round(100 * rate / before.usual)}
    if state is SignalState.FIRING:
        attributes["elapsed_ms"] = at - after.slow_since
    severity = Severity.WARNING if state is SignalState.FIRING else Severity.INFO
    return Finding(SignalKind.JOB_STALLED, severity, attributes, state=state, text=line.text)


def _judged(before: _Pace, at: int, step: int) -> tuple[_Pace, SignalState | None]:
    """The row after a window, and what changed."""
    rate = (step - before.step) * 1000 / (at - before.since)
    after = before._replace(since=at, step=step, last=at, last_step=step)
    if before.windows >= _WINDOWS and rate < (_AGAIN if before.told else _BELOW) * before.usual:
        slow_since = before.slow_since or before.since
        lasts = not before.told and at - slow_since >= _LASTS_MS
        after = after._replace(slow_since=slow_since, told=int(before.told or lasts))
        return after, SignalState.FIRING if lasts else None
    usual = rate if not before.windows else before.usual + _WEIGHT * (rate - before.usual)
    after = after._replace(usual=usual, windows=min(before.windows + 1, _WINDOWS), slow_since=0, told=0)
    return after, SignalState.CLEARED if before.told else None
