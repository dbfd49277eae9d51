"""What `sinfo`, `scontrol show node` and `squeue` print: nodes that do not answer Slurm's controller, and where its jobs run.

`gpu*  up  infinite  2  down*  gpu-[017-018]`, `Not responding  slurm  2026-11-21T07:12:13  gpu-017`, `NodeName=gpu-017 …` and
`State=DOWN+NOT_RESPONDING`, in one line or in the next. The star marks a node that does not answer now; `down` or `drain` without
it may be a decision of last month and says nothing. Source: Slurm, sinfo(1) and scontrol(1), node state codes.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice

from streams.detect.finding import Finding, Stream
from streams.detect.matching import re2_patterns
from streams.detect.matching.quotation_filter import reported
from streams.detect.slurm import MAX_NODES, hosts_in
from streams.ingest import timestamps
from streams.model.clock import to_millis
from streams.model.entity import SLURM_JOB, JobRef
from streams.model.kinds import SignalKind
from streams.model.record import LogLine
from streams.model.signal import Attribute, Severity

_HOSTS = r"[A-Za-z][\w.,\[\]-]{0,400}"
_PARTITION_ROW = re2_patterns.compile(
    rf"^\s{{0,8}}[\w.-]{{1,64}}\*?\s{{1,32}}(?:up|down|drain|inact)\s{{1,24}}(?:infinite|[\d:-]{{4,16}})\s{{1,24}}\d{{1,6}}\s{{1,24}}"
    rf"[a-z]{{3,16}}\*\s{{1,24}}(?P<nodes>{_HOSTS})\s{{0,8}}$"
)
_NODE_ROW = re2_patterns.compile(
    r"^\s{0,8}(?P<nodes>[A-Za-z][\w.-]{0,252})\s{1,64}\d{1,6}\s{1,24}[\w.-]{1,64}\*?\s{1,24}[a-z]{3,16}\*\s{1,24}\d{1,6}\s{1,24}"
    r"\d{1,4}:\d{1,4}:\d{1,4}\s"
)
_REASON_ROW = re2_patterns.compile(
    rf"^\s{{0,8}}Not responding\s{{1,24}}[\w.@-]{{1,64}}\s{{1,24}}(?P<since>\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d)"
    rf"\s{{1,24}}(?P<nodes>{_HOSTS})\s{{0,8}}$"
)
_SHOWN = re2_patterns.compile(r"^\s{0,8}NodeName=(?P<node>[A-Za-z][\w.-]{0,252})(?:\s|$)")
_STATE = re2_patterns.compile(r"(?:^|\s)State=(?:[A-Z_+]{2,64}\*|[A-Z_+]{0,64}NOT_RESPONDING)(?:[+\s]|$)")

_JOB_ROW = re2_patterns.compile(
    rf"^\s{{0,18}}(?P<job>\d{{1,10}}(?:_\d{{1,7}})?)(?:\+(?P<component>\d{{1,4}}))?\s{{1,24}}\S{{1,64}}\s{{1,24}}(?P<name>\S{{1,64}})\s{{1,24}}\S{{1,64}}\s{{1,24}}"
    rf"(?:R|RUNNING)\s{{1,24}}(?:\d{{1,4}}-)?[\d:]{{4,8}}\s{{1,24}}(?:\S{{1,24}}\s{{1,24}})?\d{{1,6}}\s{{1,24}}(?P<hosts>{_HOSTS})\s{{0,8}}$"
)
_JOB_FIELDS = re2_patterns.compile(
    rf"^\s{{0,8}}(?P<job>\d{{1,10}}(?:_\d{{1,7}})?)(?:\+(?P<component>\d{{1,4}}))?\|(?P<name>[^|\n]{{0,128}})\|[^\n]{{0,300}}?(?:^|\|)(?:R|RUNNING)\|(?:[^|\n]{{0,64}}\|){{0,4}}?"
    rf"(?P<hosts>{_HOSTS})(?:\|[^\n]{{0,200}})?$"
)
_GPUS = re2_patterns.compile(r"gpu(?::[\w.-]{1,32})?[:=](?P<gpus>\d{1,3})\b")

_RECENT = timedelta(hours=1)
_APART_MS = 120_000
_MAX_SOURCES = 20_000


class SlurmTables:
    """Reads rows of these tables. Remembers the node that `scontrol` shows until its state comes."""

    hints = (
        rb"[a-z]\* +[A-Za-z\d]",
        rb"Not responding +\S+ +\d{4}-",
        rb"NodeName=[A-Za-z]",
        rb" State=[A-Z_+]*(?:\*|NOT_RESPONDING)",
        rb"\|R(?:UNNING)?\|",
        rb" R(?:UNNING)? +(?:\d+-)?[\d:]+ +",
    )

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """One finding for each node that does not answer, or for the job that runs."""
        if not reported(line, line.start):
            return
        if (job := _JOB_FIELDS.search(line.message) or _JOB_ROW.search(line.message)) is not None:
            yield _running(job, line)
            return
        for pattern in (_PARTITION_ROW, _NODE_ROW, _REASON_ROW):
            if (row := pattern.search(line.message)) is not None:
                yield from _listed(row, line, stream)
                return
        yield from _shown(line, stream)


def _running(row: re2_patterns.Match, line: LogLine) -> Finding:
    attributes: dict[str, Attribute] = {
        "subtype": "running",
        "hosts": str(row["hosts"]),
        "name": str(row["name"]),
    }
    if (number := str(row["job"])).isdigit():
        attributes["job_id"] = int(number)
    if (component := row["component"]) is not None:
        attributes["component"] = int(component)
    if (gpus := _GPUS.search(line.message)) is not None:
        attributes["gpus"] = int(gpus["gpus"])
    job = JobRef(SLURM_JOB, "", number)
    return Finding(SignalKind.JOB_ALLOCATION, Severity.INFO, attributes, job=job, text=line.text)


def _listed(row: re2_patterns.Match, line: LogLine, stream: Stream) -> Iterator[Finding]:
    since = row.groupdict().get("since")
    at = timestamps.iso(since) if since else None
    if at is not None and abs((line.at or stream.received_at) - at) > _RECENT:
        return  # the reason outlives the trouble by months
    for node in islice(hosts_in(row["nodes"]), MAX_NODES):
        yield _silent(node, at, line)


def _shown(line: LogLine, stream: Stream) -> Iterator[Finding]:
    table = stream.rule_state.table("slurm.shown", _MAX_SOURCES)
    key, now = stream.source(line), to_millis(line.at or stream.received_at)
    if (shown := _SHOWN.search(line.message)) is not None:
        table[key] = (shown["node"], now)
    node, seen = table.get(key, (None, 0))
    if (
        isinstance(node, str)
        and abs(now - int(seen or 0)) <= _APART_MS
        and _STATE.search(line.message) is not None
    ):
        yield _silent(node, None, line)


def _silent(node: str, at: datetime | None, line: LogLine) -> Finding:
    attributes = {"subtype": "slurm_down", "reason": "not responding"}
    return Finding(SignalKind.NODE_CONDITION, Severity.ERROR, attributes, node=node, at=at, text=line.text)
