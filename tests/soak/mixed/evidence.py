"""What a soak left behind, gathered from outside: records at the broker, the API server's audit log, what services received."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from aiokafka import TopicPartition

from streams.kafka import clients
from streams.kafka.dead_letters import why_buried
from streams.kafka.topics import DEAD_LETTERS, INCIDENTS, RAW, RUNS, SIGNALS
from streams.model.codec import decode
from streams.model.incident import Incident
from streams.model.run import Run
from streams.model.signal import SignalBatch
from tests.soak.mixed.ledger import NAMESPACE, Ledger
from tests.soak.mixed.load import Report
from tests.soak.mixed.site import Site
from tests.testbed.audit import Write

OURS = "system:serviceaccount:faultline:"


@dataclass(slots=True)
class Evidence:
    """Plain values, so that the rules about them can be tested on made-up ones."""

    ledger: Ledger
    load: Report
    writes: list[Write] = field(default_factory=list)
    """Of Faultline's users, that were taken (200, 201)."""
    cordoned: set[str] = field(default_factory=set)
    """Nodes that take no pods now."""
    suspended: set[str] = field(default_factory=set)
    """Jobs that are suspended now."""
    tickets: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    """Each ticket's labels and its text."""
    roots: list[tuple[str, str]] = field(default_factory=list)
    """Each root message's key and the text of its whole thread."""
    pages: Counter[str] = field(default_factory=Counter)
    """Incidents that were opened at the pager, by their key."""
    silences: list[str] = field(default_factory=list)
    """The matchers of each silence that holds now."""
    incidents: list[Incident] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    said: Counter[str] = field(default_factory=Counter)
    """Reports that signals tell of, by `node code`; a signal that was written twice is one."""
    written: int = 0
    """Records on the raw topics."""
    begins_before_commit: bool = True
    """No raw record was deleted before it was read."""
    lag: int = 0
    """Raw records behind the detectors' commits."""
    dead: int = 0
    """Different records in the dead letters."""
    live: dict[str, int] = field(default_factory=dict)
    ready: dict[str, int] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)


async def gather(site: Site, ledger: Ledger, load: Report, mark: int) -> Evidence:
    """All of it, as it is now."""
    found = Evidence(ledger, load)
    plane = site.control_plane
    writes = await asyncio.to_thread(plane.audit.writes, since=mark)
    found.writes = [w for w in writes if w.user.startswith(OURS) and w.code in (200, 201)]
    nodes = await asyncio.to_thread(plane.get, "nodes")
    found.cordoned = {n["metadata"]["name"] for n in nodes if n["spec"].get("unschedulable")}
    jobs = await asyncio.to_thread(plane.get, "jobs", "--namespace", NAMESPACE)
    found.suspended = {j["metadata"]["name"] for j in jobs if j["spec"].get("suspend")}
    found.tickets = [(tuple(i.labels), f"{i.summary} {i.fields}") for i in site.jira.issues]
    found.roots = [
        (
            str(root.key),
            " ".join([*root.lines, *(line for m in site.slack.thread(root.ts) for line in m.lines)]),
        )
        for root in site.slack.roots()
    ]
    found.pages = Counter(one.key for one in site.pagerduty.incidents)
    found.silences = [str(one["matchers"]) for one in site.alertmanager.live()]
    latest_runs: dict[str, Run] = {}
    for record in await site.records(RUNS):
        if record.value:
            run = decode(Run, record.value)
            latest_runs[run.id] = run
    found.runs = list(latest_runs.values())
    incidents: dict[str, Incident] = {}
    for record in await site.records(INCIDENTS):
        if record.value:
            incident = decode(Incident, record.value)
            if incident.id not in incidents or incidents[incident.id].revision <= incident.revision:
                incidents[incident.id] = incident
    found.incidents = list(incidents.values())
    signals: dict[str, tuple[str, int]] = {}
    for record in await site.records(SIGNALS):
        for signal in decode(SignalBatch, record.value).signals if record.value else ():
            if signal.kind == "gpu.xid" and signal.entity.node:
                signals[signal.id] = (f"{signal.entity.node} {signal.attributes.get('xid')}", signal.count)
    for key, count in signals.values():
        found.said[key] += count
    dead = set()
    for record in await site.records(DEAD_LETTERS):
        why = why_buried(record.headers)
        dead.add((why.topic, why.partition, why.offset))
    found.dead = len(dead)
    await _positions(site, found)
    found.live = await asyncio.to_thread(site.probe, "/live")
    found.ready = await asyncio.to_thread(site.probe, "/ready")
    found.ended = list(site.ended)
    return found


async def lag(site: Site) -> int:
    """How many raw records lie behind the detectors' commits."""
    found = Evidence(Ledger(), Report())
    await _positions(site, found)
    return found.lag


async def _positions(site: Site, found: Evidence) -> None:
    settings = site.kafka_settings
    wanted = [
        TopicPartition(clients.topic_name(settings, topic), number)
        for topic in RAW
        for number in range(settings.raw_partitions)
    ]
    reader = await clients.started(clients.consumer(settings, group=None), settings)
    try:
        begins, ends = await reader.beginning_offsets(wanted), await reader.end_offsets(wanted)
    finally:
        await reader.stop()
    commits = await clients.committed(settings, "detector", wanted)
    at: dict[Any, int] = {place: commits[place].offset if place in commits else 0 for place in wanted}
    found.written = sum(ends.values())
    found.lag = sum(ends[place] - at[place] for place in wanted)
    found.begins_before_commit = all(begins[place] <= at[place] for place in wanted)
