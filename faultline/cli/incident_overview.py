"""Overview of incidents: each with what it waits for and the nodes that stay cordoned for it.

The topics hold weeks of finished incidents. Records are decoded partially, and fully only where shown, so
that the list stays fast.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from aiokafka import ConsumerRecord

from faultline.cli.read_topics import latest, read_raw, readable, revisions_of
from faultline.live_view.overview import Overview, tells_of_run
from runbooks.engine.containment import may_still_hold, pending_repairs
from runbooks.engine.guardrails.cordoned_nodes import is_held
from runbooks.engine.run_summaries import PartialRun
from streams.config.settings import KafkaSettings
from streams.kafka.topics import INCIDENTS, INVENTORY, RUNS, TIMELINE
from streams.model.conversation import TimelineEntry
from streams.model.facts import FactRecord, NodeFact
from streams.model.incident import IncidentState
from streams.model.run import Mode, Run

Nodes = Mapping[str, Mapping[str, NodeFact]]
"""Nodes by cluster and name."""


async def read_overview(settings: KafkaSettings, *, everything: bool = False) -> list[Overview]:
    """Open incidents, then contained ones, then (`everything`) those over; each newest first."""
    # Thousands of documents are allocated and none is freed: garbage collection would only cost time.
    gc.disable()
    try:
        records = await read_raw(settings, INCIDENTS, RUNS, INVENTORY)
        return await _with_lost_runs(settings, overview_of(records, everything=everything))
    finally:
        gc.enable()


async def _with_lost_runs(settings: KafkaSettings, shown: Sequence[Overview]) -> list[Overview]:
    """With what the timeline tells of those that wait for a person without a run: it was lost, or no runbook applies. It is long,
    and read for nothing else.
    """
    doubtful = {
        one.incident.id
        for one in shown
        if not one.runs and one.incident.state is IncidentState.AWAITING_HUMAN
    }
    if not doubtful:
        return list(shown)
    records = (await read_raw(settings, TIMELINE))[TIMELINE.name]
    lines: dict[str, list[TimelineEntry]] = {}
    for record in records:
        key = (record.key or b"").decode(errors="replace")
        if key in doubtful and (entry := readable(TimelineEntry, record)) is not None:
            lines.setdefault(key, []).append(entry)
    return [replace(one, had_run=tells_of_run(lines.get(one.incident.id, ()))) for one in shown]


def overview_of(
    records: Mapping[str, Sequence[ConsumerRecord]], *, everything: bool = False
) -> list[Overview]:
    """As `read_overview`, of the records of the three topics by their names."""
    revisions = revisions_of(records[INCIDENTS.name])
    nodes = nodes_of(records[INVENTORY.name])
    open_ = {name for name, found in revisions.items() if not found[-1].summary.state.is_over}
    runs = runs_that_matter(records[RUNS.name], open_, nodes)
    held: dict[str, list[NodeFact]] = {}
    for fact in (fact for known in nodes.values() for fact in known.values()):
        for owner in fact.owners if is_held(fact) else ():
            held.setdefault(owner, []).append(fact)
    shown: list[Overview] = []
    for name, found in revisions.items():
        if not (everything or name in open_ or name in runs or name in held):
            continue
        if (incident := latest(found)) is None:
            continue
        mine, known = tuple(runs.get(name, ())), nodes.get(incident.cluster, {})
        overview = Overview(incident, mine, pending_repairs(name, mine, known, held.get(name, ())))
        if everything or overview.rank < 2:
            shown.append(overview)
    shown.sort(key=lambda one: (one.incident.opened_at, one.incident.id), reverse=True)
    return sorted(shown, key=lambda one: one.rank)


async def read_nodes(settings: KafkaSettings, cluster: str) -> Mapping[str, NodeFact]:
    """The nodes of a cluster by name, as inventory knows them now."""
    records = await read_raw(settings, INVENTORY, cluster=cluster)
    return nodes_of(records[INVENTORY.name]).get(cluster, {})


def nodes_of(records: Iterable[ConsumerRecord]) -> dict[str, dict[str, NodeFact]]:
    """The nodes of the inventory. Records of pods, jobs and links are skipped by their key, undecoded."""
    last: dict[bytes, ConsumerRecord] = {}
    for record in records:
        key = record.key or b""
        if key.split(b"/", 2)[1:2] == [b"node"]:
            last[key] = record
    found: dict[str, dict[str, NodeFact]] = {}
    for record in last.values():
        published = readable(FactRecord, record)
        if published is not None and isinstance(fact := published.fact, NodeFact):
            found.setdefault(fact.cluster, {})[fact.name] = fact
    return found


def runs_that_matter(
    records: Iterable[ConsumerRecord], open_: set[str], nodes: Nodes
) -> dict[str, list[Run]]:
    """The runs of open incidents, and of finished incidents those that have work left or may keep a node cordoned."""
    last = {record.key or b"": record for record in records}
    found: dict[str, list[Run]] = {}
    for record in last.values():
        partial = readable(PartialRun, record)
        if partial is None or not (
            partial.incident in open_ or partial.has_work or _may_hold(partial, nodes)
        ):
            continue
        if (run := readable(Run, record)) is not None:
            found.setdefault(run.incident, []).append(run)
    for runs in found.values():
        runs.sort(key=lambda run: (run.created_at, run.id))
    return found


def _may_hold(run: PartialRun, nodes: Nodes) -> bool:
    known = nodes.get(run.cluster, {})
    return run.plan.mode is not Mode.SHADOW and any(
        may_still_hold(known.get(name), since, known=bool(known)) for name, since in run.cordons
    )


def counts(shown: Sequence[Overview]) -> Iterator[str]:
    """The number of incidents of each rank, for the line under the list."""
    for rank, word in (
        (0, "open"),
        (1, "contained: a node stays cordoned until it is repaired"),
        (2, "over"),
    ):
        if number := sum(one.rank == rank for one in shown):
            yield f"{number} {word}"
