from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from faultline.replay.capture import Capture
from faultline.replay.detection import Clock, Detection
from faultline.replay.replay import From, Replayed, facts_of, replay_capture
from faultline.replay.topic_records import HeldRecords
from runbooks.language.loader import load
from streams.config.settings import ResponderSettings
from streams.kafka.topics import COMMANDS, CONTROLS, INCIDENTS, INVENTORY, RAW, RUNS, SIGNALS
from streams.model.codec import encode
from streams.model.control import Control, Switch
from streams.model.conversation import Command, Verb
from streams.model.entity import Entity
from streams.model.errors import BadInput
from streams.model.facts import FactRecord
from streams.model.incident import IncidentState
from streams.model.record import RawRecord
from streams.model.run import Mode
from streams.model.signal import Severity, Signal, SignalBatch, signal
from tests.faultline.replay.test_replay import NOON, capture, decided_once

LIBRARY = load()


def decided_of(one: Capture, **more: Any) -> Replayed:
    return replay_capture(one, runbooks=LIBRARY, **more)


def record(topic: str, offset: int, at: datetime, value: Any, key: str | None = None) -> RawRecord:
    return RawRecord(topic, 0, offset, at, key.encode() if key else None, encode(value))


def with_signals(one: Capture) -> Capture:
    """The capture with what a detector writes for it."""
    topics = {topic.name: HeldRecords(found) for topic in RAW if (found := one.records.get(topic.name))}
    lasts = [records.survey.last or 0 for records in topics.values()]
    last = NOON + timedelta(microseconds=max(lasts) - NOON.timestamp() * 1e6)
    batches = Detection(one.meta.cluster, Clock(NOON, last, last + timedelta(minutes=3)), topics).found()
    written = tuple(
        record(SIGNALS.name, number, batch.due, SignalBatch(one.meta.cluster, batch.signals))
        for number, batch in enumerate(batches)
    )
    return replace(one, records={**one.records, SIGNALS.name: written})


def only_signals(one: Capture) -> Capture:
    kept = {name: found for name, found in with_signals(one).records.items() if not name.startswith("raw.")}
    return replace(one, records=kept)


def adding(one: Capture, topic: str, *records: RawRecord) -> Capture:
    return replace(one, records={**one.records, topic: (*one.records.get(topic, ()), *records)})


def command(verb: Verb, incident: str = "", **more: Any) -> Command:
    at = NOON + timedelta(minutes=11, seconds=10)
    return Command(f"cmd-{verb}", incident, "east", verb, "ops@example.com", at, reason="seen it", **more)


def by_command(one: Capture, *commands: Command) -> Capture:
    return adding(
        one, COMMANDS.name, *(record(COMMANDS.name, n, given.at, given) for n, given in enumerate(commands))
    )


def report(kind: str, incident: str, minutes: float, run: str = "run-1", **more: str) -> Signal:
    at = NOON + timedelta(minutes=minutes)
    attributes = {"incident": incident, "run": run, **more}
    entity = Entity("east")
    return signal(kind, entity, severity=Severity.INFO, occurred_at=at, observed_at=at, attributes=attributes)


def reporting(one: Capture, *reports: Signal) -> Capture:
    """The capture with signals of the responder behind those of the detector."""
    made = with_signals(one)
    behind = len(made.records[SIGNALS.name])
    return adding(
        made,
        SIGNALS.name,
        *(
            record(SIGNALS.name, behind + n, told.observed_at, SignalBatch("east", (told,)))
            for n, told in enumerate(reports)
        ),
    )


def with_run(one: Capture, mode: Mode) -> Capture:
    """The capture with the run of its incident as a responder in this mode would have written it."""
    (run,) = decided_once().runs
    written = replace(run, plan=replace(run.plan, mode=mode))
    return adding(one, RUNS.name, record(RUNS.name, 0, run.created_at, written, key=run.id))


def the_incident(decided: Replayed) -> Any:
    (incident,) = decided.incidents.values()
    return incident


def test_recorded_signals_lead_to_the_same_decisions_as_the_lines_they_were_found_in() -> None:
    decided = decided_of(only_signals(capture()))
    assert decided.decision_hash == decided_once().decision_hash
    assert decided.signals == decided_once().signals


def test_raw_records_are_decided_from_where_there_are_both() -> None:
    made = with_signals(capture())
    one = replace(made, records={**made.records, SIGNALS.name: tuple(made.records[SIGNALS.name])[:3]})
    assert decided_of(one).signals == decided_once().signals
    assert decided_of(one, source=From.SIGNALS).signals == 3


def test_signals_that_a_killed_detector_wrote_again_count_once() -> None:
    one = only_signals(capture())
    again = [
        found._replace(offset=found.offset + 1000, timestamp=found.timestamp + timedelta(seconds=5))
        for found in one.records[SIGNALS.name]
    ]
    decided = decided_of(adding(one, SIGNALS.name, *again))
    assert decided.signals == decided_once().signals
    assert decided.decision_hash == decided_once().decision_hash


def test_a_damaged_record_of_signals_is_counted_and_skipped() -> None:
    one = only_signals(capture())
    bad = RawRecord(SIGNALS.name, 1, 0, NOON + timedelta(minutes=1), None, b"{")
    decided = decided_of(adding(one, SIGNALS.name, bad))
    assert decided.dead_letters == 1
    assert decided.decision_hash == decided_once().decision_hash


def test_a_source_that_the_capture_lacks_is_refused() -> None:
    with pytest.raises(BadInput, match="no signals"):
        decided_of(capture(), source=From.SIGNALS)
    with pytest.raises(BadInput, match="no raw records"):
        decided_of(only_signals(capture()), source=From.RAW)


def test_an_inventory_that_was_there_before_the_capture_begins_is_known() -> None:
    one = capture()
    facts = tuple(
        RawRecord(INVENTORY.name, 0, n, NOON - timedelta(days=3), key.encode(), encode(FactRecord(fact)))
        for n, (_, key, fact) in enumerate(facts_of(one))
        if fact is not None
    )
    decided = decided_of(replace(one, kube_changes=(), state={INVENTORY.name: facts}))
    assert the_incident(decided).jobs == the_incident(decided_once()).jobs
    assert [(a.action, a.target, a.verdict) for a in decided.actions] == [
        (a.action, a.target, a.verdict) for a in decided_once().actions
    ]


def test_an_incident_that_was_over_before_is_not_the_one_that_comes_now() -> None:
    found = the_incident(decided_once())
    over_at = NOON - timedelta(hours=5)
    earlier = replace(found, state=IncidentState.RESOLVED, closed_at=over_at, updated_at=over_at)
    state = {INCIDENTS.name: (record(INCIDENTS.name, 0, over_at, earlier, key=earlier.id),)}
    again = the_incident(decided_of(replace(capture(), state=state)))
    assert (found.incarnation, again.incarnation) == (1, 2)
    assert again.id != found.id
    assert (again.family, again.root, again.jobs) == (found.family, found.root, found.jobs)


def test_an_incident_that_a_person_resolved_is_resolved_in_the_replay() -> None:
    name = the_incident(decided_once()).id
    assert the_incident(decided_once()).state is not IncidentState.RESOLVED
    decided = decided_of(by_command(capture(), command(Verb.RESOLVE, name)))
    assert the_incident(decided).state is IncidentState.RESOLVED


def test_a_kill_switch_that_was_on_refuses_the_same_steps_in_the_replay() -> None:
    switched = replace(
        Control("east"), revision=1, kill_switch=Switch("ops@example.com", NOON, "storage maintenance")
    )
    one = adding(capture(), CONTROLS.name, record(CONTROLS.name, 0, NOON, switched, key="east"))
    verdicts = {a.verdict for a in decided_of(one).actions if a.action == "cordon_node"}
    assert verdicts == {"refused"}
    before = replace(capture(), state={CONTROLS.name: one.records[CONTROLS.name]})
    assert {a.verdict for a in decided_of(before).actions if a.action == "cordon_node"} == {"refused"}


def test_without_recorded_controls_the_command_that_engaged_it_counts() -> None:
    kill = replace(command(Verb.KILL), at=NOON)
    decided = decided_of(by_command(capture(), kill))
    assert {a.verdict for a in decided.actions if a.action == "cordon_node"} == {"refused"}


def test_what_a_run_that_was_carried_out_reported_ends_its_incident_in_the_replay() -> None:
    name = the_incident(decided_once()).id
    one = with_run(
        reporting(
            capture(),
            report("run.started", name, 11.1),
            report("run.finished", name, 12.5, outcome="succeeded", reason="the job trains again"),
        ),
        Mode.AUTO,
    )
    for source in From:
        assert the_incident(decided_of(one, source=source)).state is IncidentState.RESOLVED


def test_a_run_in_shadow_mode_is_reported_by_the_replays_own_responder_alone() -> None:
    name = the_incident(decided_once()).id
    told = report("run.finished", name, 12.5, outcome="succeeded", reason="made up")
    one = with_run(reporting(capture(), told), Mode.SHADOW)
    for source in From:
        decided = decided_of(one, source=source)
        assert decided.decision_hash == decided_once().decision_hash


def test_a_replay_until_a_time_knows_nothing_of_what_came_later() -> None:
    opened = the_incident(decided_once()).opened_at
    assert not decided_of(capture(), until=opened - timedelta(seconds=2)).incidents
    stopped = decided_of(capture(), until=opened + timedelta(seconds=1))
    assert set(stopped.incidents) == set(decided_once().incidents)


def test_what_the_installation_has_connectors_for_decides_its_plans() -> None:
    settings = ResponderSettings()
    without = decided_of(capture(), responder=settings, actions=frozenset({"cordon_node"}))
    assert {a.action for a in without.actions} < {a.action for a in decided_once().actions}
