"""What a family finds in one observation, before cluster, time and evidence are added."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from streams.detect.rule_state import Key, RuleState
from streams.model.entity import Gpu, JobRef, PodRef
from streams.model.record import NOTHING_MORE, LogLine
from streams.model.signal import Attribute, Severity, SignalState

Attributes = dict[str, Attribute]
"""The attributes of a finding while they are gathered."""


class Finding(NamedTuple):
    """One thing an observation reports, and where. The detector adds the line's own node, and its pod unless `pod` names another.

    `node` is the node a line is about, where another one wrote it. With `on_switch` the line's host is the switch. With
    `of_others` it is about what it names alone, and has no place where it names none. `storage` is what it is about where no host
    is named. `text` is the part of the line that counts as evidence.
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
    of_others: bool = False
    rank: int | None = None
    pod: PodRef | None = None
    job: JobRef | None = None
    storage: str | None = None
    at: datetime | None = None
    text: str = ""


KEYLESS = "records.keyless"
"""The table of a partition that has a row as soon as a record without a key was read there, and there are other partitions."""


class Stream(NamedTuple):
    """Where an observation comes from: `lines` names its stream of lines, `rule_state` is what rules remember of that.

    `spread` is how many partitions share one series: those of the topic when a record has no key, else one.
    """

    cluster: str
    lines: str
    received_at: datetime
    rule_state: RuleState
    spread: int = 1

    @property
    def misses_lines(self) -> bool:
        """Whether lines of one host may lie in other partitions: those without a key do, also where others have one."""
        return self.spread > 1 or bool(self.rule_state.table(KEYLESS, 1))

    def source(self, line: LogLine) -> Key:
        """The writer of a line as far as it is known. What rules remember of earlier lines is kept under this key."""
        return (self.cluster, line.node or self.lines, line.pod.key if line.pod else None, line.container)
