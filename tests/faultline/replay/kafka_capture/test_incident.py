"""What an incident needs is a small part of what there is, and decides it again."""

from __future__ import annotations

import zlib
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path

import orjson
import pytest

from faultline.replay.capture import Capture
from faultline.replay.kafka_capture.incident import Compared, NeededBy, compared, involved, span_of_incident
from faultline.replay.record_format import record_line
from faultline.replay.replay import replay_capture
from runbooks.language.loader import load
from sandbox.simulation.campaign import simulate
from sandbox.simulation.scenario import load as load_scenarios
from streams.kafka.topics import INCIDENTS, INVENTORY, RAW
from streams.model.codec import decode, encode
from streams.model.errors import BadInput
from streams.model.facts import FactRecord
from streams.model.incident import Incident
from streams.model.record import RawRecord
from tests.faultline.replay.kafka_capture.published import with_facts
from tests.tiers import sample

SCENARIOS = load_scenarios(Path(__file__).parents[4] / "bench" / "scenarios.yaml")
LIBRARY = load()


@cache
def production(scenario: str) -> tuple[Capture, dict[str, Incident]]:
    """All that the topics hold after a campaign, and the incidents in it."""
    made = simulate(SCENARIOS[scenario].sized(32), 1).capture
    topics: dict[str, list[RawRecord]] = {}
    for record in with_facts(made):
        topics.setdefault(record.topic, []).append(record)
    decided = replay_capture(Capture(made.meta, topics), runbooks=LIBRARY, processes=1)
    topics[INCIDENTS.name] = [
        RawRecord(INCIDENTS.name, 0, number, one.updated_at, one.id.encode(), encode(one))
        for number, one in enumerate(decided.incidents.values())
    ]
    return Capture(made.meta, topics), decided.incidents


def cut(whole: Capture, incident: Incident) -> Capture:
    """What a capture of the incident holds of it."""
    values = [record.value for record in whole.records[INVENTORY.name] if record.value]
    places = involved(incident, [decode(FactRecord, value).fact for value in values])
    begin, end = span_of_incident(incident, (), whole.meta.end)
    lead, needed = begin - timedelta(minutes=15), NeededBy(incident, (), places)
    topics = {
        topic: tuple(
            r for r in records if (topic == INVENTORY.name or lead <= r.timestamp < end) and needed(r)
        )
        for topic, records in whole.records.items()
    }
    meta = replace(whole.meta, begin=begin, end=end, warm_up=timedelta(minutes=15))
    state = {INVENTORY.name: tuple(r for r in topics[INVENTORY.name] if r.timestamp < lead)}
    topics[INVENTORY.name] = tuple(r for r in topics[INVENTORY.name] if r.timestamp >= lead)
    return Capture(meta, topics, state=state)


@pytest.mark.parametrize(
    "scenario",
    sample(
        (
            "gpu_off_bus",
            "nic_cable",
            "leaf_down",
            "silent_rank",
            "storage_nfs",
            "user_exception",
            "kubelet_dead",
        ),
        "gpu_off_bus",
        "nic_cable",
    ),
)
def test_what_an_incident_needs_decides_it_again(scenario: str) -> None:
    whole, incidents = production(scenario)
    assert incidents
    for incident in incidents.values():
        if incident.merged_into is not None:
            continue
        small = cut(whole, incident)
        decided = replay_capture(small, runbooks=LIBRARY, processes=1)
        found = compared(small, incident.id, decided)
        assert found.is_same, found
        assert size_of(small) < size_of(whole)


def size_of(capture: Capture) -> int:
    return sum(len(capture.records.get(topic.name, ())) for topic in RAW)


def test_an_incident_fits_into_a_ticket() -> None:
    whole, incidents = production("gpu_off_bus")
    for incident in incidents.values():
        small = cut(whole, incident)
        held = [*small.records.values(), *small.state.values()]
        assert len(zlib.compress(b"".join(record_line(r) for topic in held for r in topic))) < 100_000


def test_a_replay_that_decides_otherwise_is_not_the_same() -> None:
    whole, incidents = production("gpu_off_bus")
    incident = next(iter(incidents.values()))
    without = replace(whole, records={k: v for k, v in whole.records.items() if not k.startswith("raw.")})
    decided = replay_capture(without, runbooks=LIBRARY, processes=1)
    assert compared(whole, incident.id, decided) == Compared(
        {"root": str(incident.root), "family": incident.family, "certainty": incident.certainty.value}, {}
    )
    with pytest.raises(BadInput, match="holds no incident inc-0"):
        compared(whole, "inc-0", decided)


def test_records_of_other_nodes_are_left_out() -> None:
    _, incidents = production("gpu_off_bus")
    incident = next(iter(incidents.values()))
    needed = NeededBy(incident, (), involved(incident, ()))
    other = RawRecord(
        "raw.node-logs", 0, 10**9, incident.fault_at, None, orjson.dumps({"host": "other-1", "msg": "Xid 79"})
    )
    assert needed(other) is None
    mine = other._replace(value=orjson.dumps({"host": incident.nodes[0], "msg": "anything"}))
    assert needed(mine) is mine
    assert needed(mine._replace(timestamp=incident.fault_at - timedelta(hours=1))) is None
