"""What a family finds in one observation, before it is given a cluster, a time and evidence."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from streams.detect.rule_state import Key, RuleState
from streams.model.entity import Gpu, JobRef, PodRef
from streams.model.record import NOTHING_MORE, LogLine
from streams.model.signal import Attribute, Severity, SignalState


class Finding(NamedTuple):
    """One thing that was said, and what was said about where. The line's own node and pod are added by the detector,
    where `pod` names no other.

    `node` is the node a line speaks of, where that is not the one that wrote it. `on_switch` turns the line's host into the
    switch. `text` is the part of the line that says it.
    """

    kind: str
    severity: Severity
    attributes: Mapping[str, Attribute] = NOTHING_MORE
    state: SignalState = SignalState.FIRING
    gpu: Gpu | None = None
    node: str | None = None
    nic: str | None = None
    port: str | None = None
    on_switch: bool = False
    rank: int | None = None
    pod: PodRef | None = None
    job: JobRef | None = None
    at: datetime | None = None
    text: str = ""


class Stream(NamedTuple):
    """Where an observation comes from: `lines` names the stream its lines come in, `rule_state` is what rules know of it."""

    cluster: str
    lines: str
    received_at: datetime
    rule_state: RuleState

    def source(self, line: LogLine) -> Key:
        """Who writes this line, as far as anybody knows: what is remembered of the lines before it goes by that."""
        return (self.cluster, line.node or self.lines, line.pod.key if line.pod else None, line.container)
