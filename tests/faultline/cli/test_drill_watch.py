"""What a drill makes of what it reads: only what is its own, in whatever order, and at once when something is not safe."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from faultline.cli.commands.drill import lines, show_hops
from faultline.cli.drill import Played
from faultline.cli.drill_watch import (
    CLOSED,
    INCIDENT,
    MISSING,
    PLAN,
    RAW,
    RESPONDER,
    SIGNAL,
    THREAD,
    DrillWatch,
)
from streams.model.drill import PREFIX
from streams.model.entity import Entity
from streams.model.incident import Incident, IncidentState
from streams.model.run import EffectRecord, EffectState, Mode, Run, Target
from streams.model.signal import Severity, signal
from streams.model.thread import ROOT, Post, Thread
from tests.faultline.report.scenes import CLUSTER, FAULT, NODE, incident, run, step

HOST = f"{PREFIX}3f9a2c51d0"


def watch(*, thread: bool = False) -> DrillWatch:
    made = DrillWatch(HOST, thread)
    made.passed(RESPONDER, FAULT, "it says so")
    made.passed(RAW, FAULT, "raw.node-logs:0:1")
    return made


def about(**changes: object) -> Incident:
    made = incident(Entity(CLUSTER, node=HOST), nodes=(HOST,), state=IncidentState.OPEN, closed_at=None)
    return replace(made, **changes)  # type: ignore[arg-type]


def planned(of: Incident, mode: Mode = Mode.SHADOW) -> Run:
    return run(of, (step("cordon", "cordon_node", NODE, None, None),), mode=mode)


def test_hops_are_passed_by_what_is_of_this_drill_only() -> None:
    made = watch()
    for node in ("gpu-01", f"{PREFIX}other"):
        other = signal(
            "gpu.xid",
            Entity(CLUSTER, node=node),
            severity=Severity.ERROR,
            occurred_at=FAULT,
            observed_at=FAULT,
        )
        made.take_signal(other, FAULT)
        made.take_incident(about(root=Entity(CLUSTER, node=node), nodes=(node,)), FAULT)
    made.take(planned(about()), FAULT)
    assert made.missing == SIGNAL
    assert made.incident is None


def test_each_hop_counts_once_and_the_first_that_lacks_is_named() -> None:
    made = watch()
    made.take_incident(about(), FAULT)
    made.take_incident(about(revision=2), FAULT + timedelta(seconds=5))
    assert [hop.name for hop in made.hops] == [RESPONDER, RAW, INCIDENT]
    assert made.missing == SIGNAL, "a signal that was read late is still looked for"
    made.take(planned(about()), FAULT)
    assert PLAN in {hop.name for hop in made.hops}
    made.take_incident(about(revision=3, state=IncidentState.RESOLVED), FAULT)
    assert made.hops[-1].name == CLOSED


def test_a_run_that_is_read_before_its_incident_counts_once_that_is_known() -> None:
    made = watch()
    made.take(planned(about()), FAULT)
    made.take(planned(about(id="inc-other")), FAULT)
    assert PLAN not in {hop.name for hop in made.hops}
    made.take_incident(about(), FAULT + timedelta(seconds=1))
    assert made.hops[-1].name == PLAN
    unsafe = watch()
    unsafe.take(planned(about(), Mode.AUTO), FAULT)
    unsafe.take_incident(about(), FAULT)
    assert unsafe.unsafe


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.APPROVE])
def test_a_plan_that_is_not_in_shadow_mode_breaks_the_drill_off(mode: Mode) -> None:
    made = watch()
    made.take_incident(about(), FAULT)
    made.take(planned(about(), mode), FAULT)
    assert made.missing
    assert f"is in mode {mode.value}" in made.unsafe
    assert not Played(made, "").passed
    assert "it was stopped" in lines(Played(made, PLAN))[-1]["why"]


def test_a_shadow_run_that_has_an_effect_breaks_the_drill_off() -> None:
    made, shadow = watch(), planned(about())
    effect = EffectRecord("k", "cordon_node", NODE, EffectState.INTENDED, FAULT, FAULT)
    made.take_incident(about(), FAULT)
    made.take(replace(shadow, steps=(replace(shadow.steps[0], effect=effect),)), FAULT)
    assert made.unsafe


def test_a_thread_is_waited_for_only_where_there_is_a_chat() -> None:
    assert THREAD not in watch().wanted
    made = watch(thread=True)
    made.take_incident(about(), FAULT)
    effect = EffectRecord("k", "reply", Target("message", ROOT), EffectState.INTENDED, FAULT, FAULT)
    thread = Thread(about().id, CLUSTER, "C0INCIDENTS", FAULT, FAULT, posts=(Post(ROOT, effect),))
    made.take(thread, FAULT)
    assert THREAD not in {hop.name for hop in made.hops}, "it is only intended"
    standing = replace(thread, posts=(Post(ROOT, replace(effect, state=EffectState.CONFIRMED)),))
    made.take(standing, FAULT)
    assert made.hops[-1].name == THREAD


def test_a_drill_is_told_hop_by_hop_and_by_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    made = watch()
    made.take_incident(about(), FAULT + timedelta(seconds=2))
    show_hops(Played(made, SIGNAL, ("inc-1",)))
    told = capsys.readouterr().out
    assert "raw record  2026-03-03 03:04:12Z  0.0 s  raw.node-logs:0:1" in told
    assert "incident    2026-03-03 03:04:14Z  2.0 s" in told
    assert "closed what earlier drills had left open: inc-1" in told
    assert "failed at signal: no detector turned the record into a signal" in told
    show_hops(Played(made, ""))
    assert f"passed: {HOST} went through every hop, and its incident is closed" in capsys.readouterr().out


def test_every_hop_says_what_to_look_at() -> None:
    assert set(watch(thread=True).wanted) - {RAW} | {CLOSED} == set(MISSING)
