"""Each rule of the mixed soak finds what it is there for, and says nothing of a good end; slopes are what they are."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from streams.model.incident import Incident
from streams.model.run import Run, RunState
from tests.soak.mixed.evidence import OURS, Evidence
from tests.soak.mixed.ledger import ASKED, Ledger, Struck
from tests.soak.mixed.load import Report
from tests.soak.mixed.rules import growing, violations
from tests.soak.mixed.watch import Sample, slope
from tests.testbed.audit import Write

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def write(resource: str, name: str, spec: dict[str, Any]) -> Write:
    return Write(f"{OURS}responder", "", "patch", resource, "", "", name, 200, {"spec": spec}, NOW)


def incident(node: str, family: str) -> Incident:
    said = SimpleNamespace(root=SimpleNamespace(node=node), merged_into=None, family=family, state="open")
    return cast(Incident, said)


def run(state: str, *, has_work: bool) -> Run:
    plan = SimpleNamespace(runbook="gpu-off-bus")
    said = SimpleNamespace(id="run-1", plan=plan, state=RunState(state), has_work=has_work)
    return cast(Run, said)


def good_end() -> Evidence:
    """Two nodes broken, one of them with a job; a third about which a person is asked; one that a person had closed."""
    struck = [
        Struck("bad-1", "gpu_off_bus", 1.0, records=1),
        Struck("work-2", "gpu_off_bus", 2.0, "long-0", records=2),
        Struck("bad-10", ASKED, 3.0, closes=False, records=1),
    ]
    e = Evidence(Ledger(struck, ["well-0"], ["foreign-0"], ["long-0"]), Report())
    e.load.records.update({"raw.node-logs": 100})
    e.load.said.update({"well-0 43": 5})
    e.load.broken, e.load.over = 1, True
    e.written, e.dead = 104, 1
    e.said.update({"well-0 43": 5})
    e.writes = [write("nodes", node, {"unschedulable": True}) for node in ("bad-1", "work-2")]
    e.writes += [write("jobs", "long-0", {"suspend": turned}) for turned in (True, False)]
    e.cordoned = {"bad-1", "work-2", "foreign-0"}
    e.tickets = [((f"key-{n}",), f"{s.node} is broken") for n, s in enumerate(struck)]
    e.roots = [(f"key-{n}", f"{s.node} is broken") for n, s in enumerate(struck)]
    e.silences = ["instance=~bad-1", "instance=~work-2"]
    e.incidents = [incident(s.node, s.family) for s in struck]
    e.runs = [run("succeeded", has_work=False), run("awaiting_approval", has_work=True)]
    e.live = e.ready = {"chat": 200}
    return e


def test_a_good_end_violates_nothing() -> None:
    assert violations(good_end()) == []


CASES: dict[str, tuple[Callable[[Evidence], object], str]] = {
    "a record is lost": (lambda e: setattr(e, "written", 102), "102 records are there"),
    "a record is doubled": (lambda e: setattr(e, "written", 105), "105 records are there"),
    "a delivery failed": (lambda e: e.load.failed.append("late"), "1 deliveries failed"),
    "not all is read": (lambda e: setattr(e, "lag", 3), "3 records are not read"),
    "deleted unread": (lambda e: setattr(e, "begins_before_commit", False), "deleted before they were read"),
    "no dead letter": (lambda e: setattr(e, "dead", 0), "0 are dead letters"),
    "not counted": (lambda e: e.said.update({"well-0 43": -1}), "counted 4 times"),
    "open": (lambda e: e.cordoned.discard("bad-1"), "bad-1 is broken and open"),
    "closed twice": (lambda e: e.writes.append(e.writes[0]), "bad-1 was closed 2 times"),
    "a healthy one closed": (
        lambda e: e.writes.append(write("nodes", "well-0", {"unschedulable": True})),
        "well-0 was closed, and nothing",
    ),
    "closed without being asked": (lambda e: e.cordoned.add("bad-10"), "bad-10 is closed, and nothing"),
    "a person's undone": (lambda e: e.cordoned.discard("foreign-0"), "foreign-0 was closed by a person"),
    "opened": (
        lambda e: e.writes.append(write("nodes", "foreign-0", {"unschedulable": None})),
        "opened foreign-0",
    ),
    "a job turned twice": (lambda e: e.writes.append(e.writes[2]), "long-0 was struck 1 times"),
    "another's job turned": (
        lambda e: e.writes.append(write("jobs", "other", {"suspend": True})),
        "other was turned",
    ),
    "a job left stopped": (lambda e: e.suspended.add("long-0"), "long-0 is still stopped"),
    "two tickets of a key": (lambda e: e.tickets.append((("key-0",), "")), "2 tickets bear the key key-0"),
    "two roots of a key": (lambda e: e.roots.append(("key-0", "")), "2 root messages bear the key key-0"),
    "two pages of a key": (lambda e: e.pages.update({"page-1": 2}), "2 pages bear the key page-1"),
    "no ticket": (lambda e: e.tickets.pop(), "bad-10 has 0 tickets"),
    "in no thread": (lambda e: e.roots.pop(0), "bad-1 is in no thread"),
    "silenced twice": (lambda e: e.silences.append("bad-1"), "bad-1 has 2 silences"),
    "two incidents": (lambda e: e.incidents.append(e.incidents[0]), "bad-1 has 2 incidents"),
    "not ready": (lambda e: setattr(e, "ready", {"chat": 503}), "chat does not say that it is ready"),
    "stuck": (lambda e: e.runs.append(run("running", has_work=True)), "is running and has work"),
    "failed": (lambda e: e.runs.append(run("failed", has_work=False)), "run-1 (gpu-off-bus) failed"),
}


@pytest.mark.parametrize(("spoil", "said"), CASES.values(), ids=CASES)
def test_each_rule_finds_what_it_is_there_for(spoil: Callable[[Evidence], object], said: str) -> None:
    end = good_end()
    spoil(end)
    assert any(said in one for one in violations(end)), violations(end)


def lives(mb_per_h: float, *, of_s: float = 600.0, noise_mb: float = 0.5) -> list[Sample]:
    """Two lives of a process, each with a level of its own."""
    r = random.Random(1)
    return [
        Sample(at, "chat", pid, age, 80 + 10 * pid + age * mb_per_h / 3600 + r.gauss(0, noise_mb), 30, 5)
        for pid in (1, 2)
        for age in [5.0 * n for n in range(int(of_s / 5))]
        for at in [age + (pid - 1) * of_s]
    ]


@pytest.mark.parametrize("mb_per_h", [0.0, 30.0, 600.0])
def test_the_slope_is_that_of_each_life_and_not_of_their_levels(mb_per_h: float) -> None:
    found = slope(lives(mb_per_h))
    assert found is not None
    assert found.low <= mb_per_h <= found.high
    assert found.high - found.low < 20


def test_too_little_to_tell_is_no_slope() -> None:
    assert slope(lives(0.0, of_s=90)) is None


def test_what_grows_is_told() -> None:
    rows = lives(600.0)
    assert growing({"chat": rows}, {"chat": slope(rows)}, 1800)
    flat = lives(0.0)
    assert growing({"chat": flat}, {"chat": slope(flat)}, 1800) == []
    more = [Sample(s.at_s, s.label, s.pid, s.age_s, s.rss_mb, 30 + int(s.at_s / 10), 5) for s in flat]
    assert any("descriptors" in one for one in growing({"chat": more}, {"chat": slope(more)}, 1800))
