"""Who is woken: a table of every family, so that a new one without a row fails."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from faultline.notify.paging import PageRow, Paging, paging
from faultline.notify.situations import Attention, Situation, Standing, standing_of
from faultline.notify.sources import is_an_act
from runbooks.engine.containment import PendingRepair
from streams.correlate import policy
from streams.model.clock import rfc3339
from streams.model.control import Control, Switch, Trip
from streams.model.incident import Certainty, Impact, Incident, IncidentState
from streams.model.kinds import IncidentFamily
from streams.model.node_notice import OPENS
from streams.model.run import Mode, Run, RunOutcome, RunState, StepState
from streams.model.signal import Severity
from tests.connectors.chat import thread_documents
from tests.faultline.notify.stories import NOW, act, asking, ended, incident

EXPIRY = timedelta(hours=4)
NOBODY = Attention()
SETTLED = (Situation.OVER, Situation.CONTAINED, Situation.SUPPRESSED, Situation.HANDLED, Situation.PERSON)

# Minutes until somebody is woken for an incident with decisive evidence that stopped a job, at the severity of its family in
# `families.yaml`; None: nobody. In this order: approval, held, failed, unattended, shadow where the sink asks for it.
TABLE: dict[str, tuple[float | None, float | None, float | None, float | None, float | None]] = {
    "gpu_off_bus": (10, 2, 1, 5, 5),
    "gpu_memory": (10, 2, 1, 5, 5),
    "gpu_nvlink": (10, 2, 1, 5, 5),
    "gpu_fault": (10, 2, 1, 5, 5),
    "pfc_storm": (10, 2, 1, 5, 5),
    "nodes_not_ready": (10, 2, 1, 5, 5),
    "shared_fault": (10, 2, 1, 5, 5),
    "fabric_fault": (10, 2, 1, 5, 5),
    "silent_node": (10, 2, 1, 5, 5),
    "power_cooling": (10, None, 1, 5, None),
    "storage_fault": (10, None, 1, 5, None),
    "host_fault": (None, None, 1, 5, None),
    "node_down": (None, None, 1, 5, None),
    "nic_link": (None, None, 1, 5, None),
    "hang": (30, None, 5, 15, None),
    "preemption": (None, None, None, None, None),
    "planned_work": (None, None, None, None, None),
    "platform_fault": (None, None, None, None, None),
    "application": (None, None, None, None, None),
    "straggler": (None, None, None, None, None),
    "unknown": (None, None, None, None, None),
}
COLUMNS = (Situation.APPROVAL, Situation.HELD, Situation.FAILED, Situation.UNATTENDED, Situation.SHADOW)
FAMILIES = yaml.safe_load((Path(policy.__file__).parent / "families.yaml").read_text())["families"]


def minutes(one: Incident, situation: Situation, *, shadow: bool = True) -> float | None:
    due = paging().due(one, Standing(situation, NOW), shadow=shadow)
    return None if due is None else (due - NOW).total_seconds() / 60


def of_family(family: str) -> Incident:
    return incident(family=family, severity=Severity(FAMILIES[family]["severity"]))


def test_every_family_that_incidents_have_is_in_the_table() -> None:
    assert set(TABLE) == set(FAMILIES) == set(IncidentFamily) == set(paging().families)


@pytest.mark.parametrize("family", TABLE)
def test_somebody_is_woken_for(family: str) -> None:
    one = of_family(family)
    assert tuple(minutes(one, situation) for situation in COLUMNS) == TABLE[family]


@pytest.mark.parametrize("family", TABLE)
def test_nobody_is_woken_for_what_is_handled_or_has_ended(family: str) -> None:
    assert [minutes(of_family(family), situation) for situation in SETTLED] == [None] * len(SETTLED)


@pytest.mark.parametrize("family", TABLE)
def test_nobody_is_woken_on_weak_evidence_or_for_a_plan_in_shadow_mode(family: str) -> None:
    weak = replace(of_family(family), certainty=Certainty.WEAK)
    assert [minutes(weak, situation) for situation in Situation] == [None] * len(Situation)
    assert minutes(of_family(family), Situation.SHADOW, shadow=False) is None


@pytest.mark.parametrize(
    "family", [f for f in TABLE if paging().families[IncidentFamily(f)].kind != "shared"]
)
def test_nobody_is_woken_where_no_job_stands_still_and_one_part_failed(family: str) -> None:
    idle = replace(of_family(family), impact=Impact())
    assert [minutes(idle, s) for s in (Situation.FAILED, Situation.UNATTENDED, Situation.SHADOW)] == [
        None
    ] * 3


def test_a_family_that_a_newer_version_writes_wakes_nobody() -> None:
    assert minutes(replace(incident(), family="quantum_flip"), Situation.FAILED) is None


def test_a_table_without_a_last_word_for_every_situation_is_refused() -> None:
    rows = tuple(row for row in paging().rows if row.situation is not Situation.HELD)
    with pytest.raises(ValueError, match="held"):
        Paging(families=paging().families, rows=rows)
    narrow = PageRow(situation=Situation.HELD, page="never", severity=Severity.ERROR, why="narrow")
    with pytest.raises(ValueError, match="held"):
        Paging(families=paging().families, rows=(*rows, narrow))


# -- which situation an incident is in


def standing(
    one: Incident, *runs: Run, control: Control | None = None, attention: Attention = NOBODY
) -> Standing:
    return standing_of(one, runs, (), control, attention, approval_expiry=EXPIRY)


KILLED = Control("c1", kill_switch=Switch("alice", NOW + timedelta(minutes=3)))
TRIPPED = Control("c1", breaker=Trip("failures", NOW + timedelta(minutes=3), "5 of 6 failed"))


def held(one: Incident) -> Run:
    run = thread_documents.run(one, cordon=StepState.BLOCKED)
    step = replace(run.steps[0], reason="kill switch: engaged by alice")
    return replace(run, steps=(step, *run.steps[1:]), created_at=NOW, updated_at=NOW)


def test_the_situations() -> None:
    one = incident()
    waiting = replace(one, state=IncidentState.AWAITING_HUMAN)
    running = thread_documents.run(one, cordon=StepState.RUNNING)
    shadow = thread_documents.run(one, Mode.SHADOW)
    overruled = replace(ended(one, RunOutcome.FAILED), overruled=True)
    cases: list[tuple[Situation, Standing]] = [
        (Situation.HANDLED, standing(one, running)),
        (Situation.APPROVAL, standing(one, asking(one))),
        (Situation.HELD, standing(one, held(one), control=KILLED)),
        (Situation.HELD, standing(one, held(one), control=TRIPPED)),
        (Situation.HANDLED, standing(one, held(one), control=Control("c1"))),
        (Situation.FAILED, standing(waiting, ended(one, RunOutcome.FAILED))),
        (Situation.FAILED, standing(waiting, ended(one, RunOutcome.EXPIRED))),
        (Situation.FAILED, standing(waiting, ended(one, RunOutcome.SUCCEEDED))),
        (
            Situation.HANDLED,
            standing(replace(one, state=IncidentState.VERIFYING), ended(one, RunOutcome.SUCCEEDED)),
        ),
        (Situation.PERSON, standing(waiting, ended(one, RunOutcome.REJECTED))),
        (Situation.PERSON, standing(waiting, ended(one, RunOutcome.HANDED_OVER))),
        (Situation.PERSON, standing(waiting, overruled)),
        (Situation.PERSON, standing(one, asking(one), attention=Attention("alice"))),
        (Situation.UNATTENDED, standing(one)),
        (Situation.SHADOW, standing(one, shadow)),
        (Situation.SUPPRESSED, standing(replace(one, state=IncidentState.SUPPRESSED))),
        (Situation.OVER, standing(replace(one, state=IncidentState.MERGED))),
    ]
    assert [found.situation for _, found in cases] == [expected for expected, _ in cases]


def test_a_node_that_stays_closed_makes_it_contained() -> None:
    over = replace(incident(), state=IncidentState.RESOLVED, closed_at=NOW)
    repairs = (PendingRepair("gpu-17", 8, NOW),)
    found = standing_of(over, (), repairs, None, Attention(), approval_expiry=EXPIRY)
    assert (found.situation, found.text) == (
        Situation.CONTAINED,
        "gpu-17 stays cordoned, without a repair ticket",
    )


def test_what_was_announced_days_before_is_unattended_only_since_it_is_told() -> None:
    """It was listed until then: whoever is paged at that moment had no chance to see it."""
    opens = NOW + timedelta(days=2)
    told = incident()
    ahead = replace(told, facts={**told.facts, OPENS: rfc3339(opens)})
    assert (standing(told).since, standing(ahead).since) == (told.opened_at, opens)


def test_an_approval_waits_since_it_was_asked_for() -> None:
    one = incident()
    asked = asking(one, NOW + timedelta(minutes=7))
    assert standing(one, replace(asked, created_at=NOW)).since == NOW + timedelta(minutes=7)
    # With a shorter deadline than the settings say it would be before the run began.
    short = asking(one, NOW, expiry_s=600)
    assert standing(one, short).since == NOW


def test_the_kill_switch_holds_a_run_only_since_it_was_engaged() -> None:
    one = incident()
    assert standing(one, held(one), control=KILLED).since == NOW + timedelta(minutes=3)


def test_the_latest_run_decides() -> None:
    one = replace(incident(), state=IncidentState.AWAITING_HUMAN)
    first = ended(one, RunOutcome.ESCALATED)
    second = replace(asking(one, NOW + timedelta(minutes=1)), id="run-2")
    assert standing(one, second, first).situation is Situation.APPROVAL
    assert (
        standing(one, first, replace(second, state=RunState.FAILED, outcome=RunOutcome.FAILED)).situation
        is Situation.FAILED
    )


def test_a_refused_acknowledgement_takes_nothing() -> None:
    one = incident()
    kept = {
        e: is_an_act(act(one, e))
        for e in ("person.ack", "person.ack_refused", "person.hand_over", "person.silence", "step.done")
    }
    assert [event for event, is_kept in kept.items() if is_kept] == [
        "person.ack",
        "person.hand_over",
        "person.silence",
    ]
