"""Records that the version before wrote, one of each kind it reached, are read by this one.

They were taken from the topics of a whole installation (`stored/TOPIC.jsonl`, in the form of a capture): runs in every state,
incidents, threads, commands, the timeline, the correlator's rows and the detector's snapshots.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest

from streams.correlate.state.store import State
from streams.correlate.write_ahead import ClusterEngine, TableRows
from streams.detect.snapshot import Snapshot
from streams.kafka import topics
from streams.kafka.installation import Claim
from streams.model.codec import decode, encode
from streams.model.control import Control
from streams.model.conversation import Command, TimelineEntry
from streams.model.facts import FactRecord
from streams.model.incident import Incident
from streams.model.run import Run
from streams.model.signal import SignalBatch
from streams.model.thread import Thread

FOLDER = Path(__file__).parent / "stored"
DOCUMENTS: Mapping[str, Any] = {
    topics.INVENTORY.name: FactRecord,
    topics.SIGNALS.name: SignalBatch,
    topics.INCIDENTS.name: Incident,
    topics.RUNS.name: Run,
    topics.THREADS.name: Thread,
    topics.TIMELINE.name: TimelineEntry,
    topics.COMMANDS.name: Command,
    topics.CONTROLS.name: Control,
    topics.INSTALLATION.name: Claim,
}


@cache
def stored(topic: str) -> tuple[tuple[str, bytes], ...]:
    """Key and value of each record of a topic that has a value."""
    found = []
    for line in (FOLDER / f"{topic}.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        value = record["value"]
        if value is not None:
            raw = value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])
            found.append((record["key"], raw))
    return tuple(found)


@pytest.mark.parametrize("topic", DOCUMENTS)
def test_every_document_is_read_and_nothing_of_it_is_lost(topic: str) -> None:
    kind = DOCUMENTS[topic]
    assert stored(topic)
    for _, raw in stored(topic):
        document = decode(kind, raw)
        assert decode(kind, encode(document)) == document
        kept, was = json.loads(encode(document)), json.loads(raw)
        assert kept.keys() >= was.keys(), "a field of the version before has no name any more"


def test_the_correlators_rows_are_read_and_written_again_as_they_were() -> None:
    rows = {key.partition("\0")[2]: raw for key, raw in stored(topics.CHANGELOG.name)}
    state = State(dict(rows), "trial")
    read: dict[str, Any] = {"node": state.nodes, "pod": state.pods, "port": state.ports, "job": state.jobs}
    read |= {"run": state.runs, "incident": state.documents, "history": state.histories}
    assert {key.partition("/")[0] for key in rows} == read.keys() | {"seen", "step"}
    for key, raw in rows.items():
        kind, _, name = key.partition("/")
        if kind in read:
            # What was seen at a place is in the log of sightings, not in its row.
            was = json.loads(raw)
            if kind == "node":
                # Times of maintenance are kept with who worked there; what only said "maintenance" is read from the fact.
                was["work"] = was.pop("upkeep")
            if kind == "incident":
                # Incidents have named the checkpoints of their jobs since.
                was["incident"].setdefault("checkpoints", [])
            assert json.loads(encode(read[kind][name])) | {"seen": {}} == was | {"seen": {}}, key
    assert any(row.seen for row in state.nodes.values()), "the log of sightings was read"
    assert state.flush() == 0, "what is read is not written again"


def test_a_step_of_the_correlator_that_was_recorded_and_not_finished_is_finished() -> None:
    rows = {key.encode(): raw for key, raw in stored(topics.CHANGELOG.name)}
    held = ClusterEngine(TableRows(rows, "trial"), lambda rows: cast(Any, State(rows, "trial")))
    written, _ = held.recover()
    assert {key for key, _ in written} >= {
        b"trial\0pod/billing/job-d-1-pnlq5",
        b"trial\0job/Job/billing/job-d",
    }


def test_the_detectors_snapshots_are_read() -> None:
    snapshots: dict[str, Snapshot] = {}
    for key, raw in stored(topics.DETECTOR_STATE.name):
        topic, partition, _, _ = key.rsplit("/", 3)
        source = f"{topic}/{partition}"
        snapshots.setdefault(source, Snapshot(source)).load(raw)
    assert {source.rpartition("/")[0] for source in snapshots} == {
        "raw.node-logs",
        "raw.job-logs",
        "raw.fabric",
    }
    assert all(snapshot.rows for snapshot in snapshots.values())
