"""An old record that is written back is as old as it is: an incident opens, and nothing is done about it unasked."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from runbooks.engine.guardrails import GuardContext, RulingKind, judge
from runbooks.engine.run.machine import begin
from runbooks.engine.run.plan import plan
from runbooks.language.select import select
from streams.correlate.engine import Engine
from streams.correlate.policy.config import Config
from streams.detect.detector import Detector
from streams.model.incident import Incident
from streams.model.record import RawRecord
from tests.runbooks.scenes import AUTO, CLUSTER, LIBRARY, NOW, cluster

TWO_DAYS = timedelta(days=2)
TIMELESS = b"NVRM: Xid (PCI:0000:1b:00): 79, pid=7, GPU has fallen off the bus."
"""A line without a time of its own: only its record's time tells how old it is."""


def incident_of(timestamp: datetime) -> Incident:
    """What opens now when a detector reads the line with this time of its record."""
    record = RawRecord("raw.node-logs", 0, 900, timestamp, b"node-03", TIMELESS)
    signals = Detector(CLUSTER).read(record).signals
    engine = Engine(CLUSTER, {}, Config())
    for fact in cluster().nodes.values():
        engine.on_fact(fact.key, replace(fact, observed_at=NOW - TWO_DAYS), NOW - TWO_DAYS)
    (incident,) = engine.on_signals(signals, NOW).incidents
    return incident


def ruling_on(incident: Incident) -> str | None:
    """What the guardrails say of its first cordon in automatic mode."""
    view = cluster()
    runbook = select(incident, LIBRARY).runbook
    assert runbook is not None
    run = begin(incident, plan(incident, runbook, view, AUTO.mode), NOW).run
    step = next(step for step in run.plan.steps if step.action == "cordon_node")
    ruling = judge(GuardContext(incident, run, step, view, (), AUTO, NOW))
    assert ruling is None or ruling.kind is RulingKind.ASK
    return ruling.rule if ruling else None


def test_a_fault_of_two_days_ago_that_is_written_back_asks_for_an_approval() -> None:
    """With the record's own time, which a retry keeps. With the time of now the same line is acted on."""
    assert ruling_on(incident_of(NOW - TWO_DAYS)) == "old evidence"
    assert ruling_on(incident_of(NOW)) is None
