"""The stages that came with switches, windows, protected nodes and places: what each stops, its numbers, and what lifts it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from runbooks.engine.guardrails import STAGES, GuardContext, RulingKind, judge
from streams.config.settings import Cap, ClosedTime, Protection, ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.inventory.names import NodeLabels, names
from streams.inventory.nodes import node_fact
from streams.model.clock import parse_rfc3339
from streams.model.control import Control, Freeze, Switch, Trip
from streams.model.incident import Certainty
from streams.model.run import Approval, EffectState, Mode, StepState
from tests.runbooks.engine.test_guardrails import after, case, closed, confirmed, with_node
from tests.runbooks.scenes import CLUSTER, JOB, NOW, at, cluster, incident, policy, radius


def control(**changes: Any) -> Control:
    return replace(Control(CLUSTER), **changes)


def held_to(looked_at: GuardContext, **changes: Any) -> GuardContext:
    return replace(looked_at, control=control(**changes))


def placed(**places: str) -> ClusterView:
    """The cluster with the nodes 0 to 7 in one place of each kind and the others in another."""
    view = cluster()
    for i, fact in enumerate(list(view.nodes.values())):
        view.put(replace(fact, **{kind: name if i < 8 else f"other-{kind}" for kind, name in places.items()}))  # type: ignore[arg-type]
    return view


def pool(size: int, **changes: Any) -> ClusterView:
    """The cluster with a pool `a100` of so many nodes, the faulty one among them."""
    view = cluster()
    for i in range(size):
        name = f"node-{3 + i:02}"
        view.put(replace(view.nodes[name], pool="a100", **(changes if i else {})))
    return view


def during(**window: Any) -> ResponderSettings:
    return policy(closed_times=(ClosedTime(name="release", **window),))


ONCE = {"start": at(-60), "end": at(60)}
NIGHTLY = {"cron": "30 11 * * *", "duration_s": 3600}
KEEP = Protection()

CASES: dict[str, tuple[GuardContext, RulingKind | None, str, tuple[str, ...]]] = {
    "a thrown switch": (
        held_to(case(), kill_switch=Switch("ada", at(-5), "odd readings")),
        RulingKind.HOLD,
        "kill switch",
        ("ada", "2026-03-01T11:59:55Z", "odd readings", "unkill"),
    ),
    "a thrown switch lets a job go on": (
        held_to(
            case("resume_job"), kill_switch=Switch("ada", at(-5)), breaker=Trip("failures", NOW, "3 runs")
        ),
        None,
        "",
        (),
    ),
    "a breaker that has tripped": (
        held_to(case(), breaker=Trip("mass faults", at(-9), "9 of 16 nodes")),
        RulingKind.HOLD,
        "breaker",
        ("mass faults", "9 of 16 nodes", "reset"),
    ),
    "a freeze of the cluster": (
        held_to(case(), freezes=(Freeze("", "ada", at(-5), "audit", at(60)),)),
        RulingKind.HOLD,
        "freeze",
        ("ada", "audit", "2026-03-01T12:01:00Z", "thaw"),
    ),
    "a freeze that has run out": (
        held_to(case(), freezes=(Freeze("", "ada", at(-5), "", at(0)),)),
        None,
        "",
        (),
    ),
    "a freeze of the job's namespace": (
        held_to(case(), freezes=(Freeze("namespace:research", "ada", at(-5)),)),
        RulingKind.HOLD,
        "freeze",
        ("namespace:research",),
    ),
    "a freeze of another namespace": (
        held_to(case(), freezes=(Freeze("namespace:billing", "ada", at(-5)),)),
        None,
        "",
        (),
    ),
    "a freeze of the node's pool": (
        held_to(case(view=pool(3)), freezes=(Freeze("pool:a100", "ada", at(-5)),)),
        RulingKind.HOLD,
        "freeze",
        ("pool:a100",),
    ),
    "a freeze of another pool": (
        held_to(case(view=pool(3)), freezes=(Freeze("pool:h100", "ada", at(-5)),)),
        None,
        "",
        (),
    ),
    "a window in the settings": (
        case(settings=during(**ONCE)),
        RulingKind.HOLD,
        "freeze",
        ("release", "2026-03-01T12:01:00Z", "responder.closed_times"),
    ),
    "a window that comes again": (
        case(settings=during(**NIGHTLY, kind="maintenance")),
        RulingKind.HOLD,
        "maintenance window",
        ("release", "2026-03-01T12:30:00Z"),
    ),
    "a window holds a run that is under way, too": (
        after("drain_node", settings=during(**ONCE), admitted_at=at(-70)),
        RulingKind.HOLD,
        "freeze",
        ("release",),
    ),
    "a window that is over": (case(settings=during(start=at(-60), end=NOW)), None, "", ()),
    "a window of another cluster": (case(settings=during(**ONCE, clusters=("east",))), None, "", ()),
    "a window of this pool and another namespace": (
        case(settings=during(**ONCE, pools=("a100",), namespaces=("billing",)), view=pool(3)),
        None,
        "",
        (),
    ),
    "the mode was tamed to shadow": (
        replace(case(), policy=policy(mode=Mode.SHADOW)),
        RulingKind.HOLD,
        "mode",
        ("responder.mode is shadow", "planned in auto"),
    ),
    "the mode was tamed to approve": (
        replace(case(), policy=policy(mode=Mode.APPROVE)),
        RulingKind.ASK,
        "mode",
        ("responder.mode is approve", "planned in auto"),
    ),
    "a protected label": (
        case(view=with_node("node-03", protected_by="tier=gold")),
        RulingKind.REFUSE,
        "protected node",
        ("node-03", "tier=gold", "inventory.protected_labels"),
    ),
    "a protected name": (
        case(settings=policy(protect=Protection(nodes=("login-*", "node-0[1-3]")))),
        RulingKind.REFUSE,
        "protected node",
        ("node-03", "node-0[1-3]", "responder.protect.nodes"),
    ),
    "the last node of a pool": (
        case(view=pool(1)),
        RulingKind.ASK,
        "pool floor",
        ("0 of 1 GPU nodes of pool a100", "1 are required", "keep_per_pool 1"),
    ),
    "the last node of a pool that takes work": (
        case(view=pool(3, unschedulable=True)),
        RulingKind.ASK,
        "pool floor",
        ("0 of 3 GPU nodes of pool a100", "1 are required"),
    ),
    "a pool with one more": (case(view=pool(2)), None, "", ()),
    "a pool whose last node does not take work anyway": (
        case(view=with_node("node-03", pool="a100", ready=False)),
        None,
        "",
        (),
    ),
    "a pool that keeps a share": (
        case(view=pool(4), settings=policy(protect=Protection(keep_pool_share=0.8))),
        RulingKind.ASK,
        "pool floor",
        ("3 of 4 GPU nodes", "4 are required", "keep_pool_share 0.8"),
    ),
    "a job that finds room": (case(settings=policy(protect=Protection(keep_job_share=1.0))), None, "", ()),
    "a job that finds none": (
        case(view=pool(4), settings=policy(protect=Protection(keep_job_share=1.0))),
        None,
        "",
        (),
    ),
    "a rack": (
        case(
            view=placed(rack="r1"),
            settings=radius(max_share=1.0, per_rack=Cap(max_nodes=1)),
            others=(closed("node-07", placed(rack="r1")),),
        ),
        RulingKind.ASK,
        "blast radius",
        (
            "1 of 8 nodes of rack r1",
            "adds 1",
            "limit 1",
            "max_nodes 1",
            "responder.blast_radius.per_rack",
        ),
    ),
    "another rack": (
        case(
            view=placed(rack="r1"),
            settings=radius(max_share=1.0, per_rack=Cap(max_nodes=1)),
            others=(closed("node-09", placed(rack="r1")),),
        ),
        None,
        "",
        (),
    ),
    "a share of a pool": (
        case(
            view=placed(pool="a100"),
            settings=radius(max_share=1.0, per_pool=Cap(max_share=0.25)),
            others=(closed("node-06", placed()), closed("node-07", placed())),
        ),
        RulingKind.ASK,
        "blast radius",
        ("2 of 8 nodes of pool a100", "limit 2", "max_share 0.25", "responder.blast_radius.per_pool"),
    ),
    "no node of a leaf": (
        case(view=placed(leaf="l1"), settings=radius(per_leaf=Cap(max_share=0.0))),
        RulingKind.HOLD,
        "blast radius",
        ("0 of 8 nodes of leaf l1", "limit 0"),
    ),
    "a job": (
        case(
            settings=radius(max_share=1.0, per_job=Cap(max_nodes=1)), others=(closed("node-04", cluster()),)
        ),
        RulingKind.ASK,
        "blast radius",
        ("1 of 4 nodes of job PyTorchJob/research/llm", "limit 1", "responder.blast_radius.per_job"),
    ),
    "an earlier step that nobody has confirmed": (
        case("drain_node", admitted_at=NOW),
        RulingKind.HOLD,
        "earlier step",
        ("cordon (cordon_node Node node-03), which is pending, not confirmed",),
    ),
    "nobody is asked to approve what is held anyway": (
        held_to(case(about=incident(certainty=Certainty.WEAK)), kill_switch=Switch("ada", NOW)),
        RulingKind.HOLD,
        "kill switch",
        (),
    ),
    "what ends a run is not hidden by what holds it": (
        held_to(case(view=with_node("node-03", managed=False)), kill_switch=Switch("ada", NOW)),
        RulingKind.REFUSE,
        "opt-out",
        (),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_stage(name: str) -> None:
    looked_at, kind, rule, said = CASES[name]
    ruling = judge(looked_at)
    assert (ruling.kind if ruling else None, ruling.rule if ruling else "") == (kind, rule), ruling
    if ruling:
        assert ruling.clears
    for words in said:
        assert words in str(ruling)


def test_the_order_of_the_stages_is_the_policy() -> None:
    assert [stage.__name__ for stage in STAGES] == [
        "kill_switch", "breaker", "closed_time", "frozen", "rollout", "team_ceiling", "snoozed", "not_yet", "work_is_over",
        "mode", "freshness", "old_evidence", "known_node",
        "opted_out", "reopened",
        "foreign_cordon", "protected_node", "pool_floor", "job_floor", "blast_radius", "blast_radius_of_places", "window",
            "team_quota",
        "one_run_per_target", "confirmed_before", "retry_budget", "certainty", "approval",
    ]  # fmt: skip


def test_a_job_that_finds_no_room_is_asked_about() -> None:
    view = pool(4)
    for i in (0, 1, *range(7, 16)):
        view.put(replace(view.nodes[f"node-{i:02}"], unschedulable=True))
    view.put(replace(view.nodes["node-02"], unschedulable=True))
    ruling = judge(case(view=view, settings=policy(protect=Protection(keep_job_share=1.0))))
    assert ruling is not None
    assert ruling.rule == "job floor"
    assert f"{JOB.key} runs on 4 nodes, 3 are free for it, 4 are required" in ruling.reason
    assert judge(case(view=view, settings=policy(protect=Protection(keep_job_share=0.75)))) is None
    for pod in [p for p in view.pods.values() if p.node == "node-06"]:
        view.put(replace(pod, gpus=8))
    ruling = judge(case(view=view, settings=policy(protect=Protection(keep_job_share=0.75))))
    assert ruling is not None
    assert "2 are free for it, 3 are required" in ruling.reason


def test_what_a_revision_adds_to_a_run_that_was_let_in_has_to_pass_the_limits() -> None:
    looked_at = case("suspend_job", settings=radius(max_per_window=3))
    run = confirmed(looked_at.run, "cordon_node")
    whole = tuple(replace(r, admitted_at=at(-60)) for r in run.steps)
    assert judge(replace(looked_at, run=replace(run, steps=whole, admitted_at=at(-60)))) is None
    added = tuple(replace(r, admitted_at=None if r.id.startswith("suspend") else at(-60)) for r in run.steps)
    tight = replace(
        looked_at, policy=radius(max_per_window=2), run=replace(run, steps=added, admitted_at=at(-60))
    )
    ruling = judge(tight)
    assert ruling is not None
    assert (ruling.kind, ruling.rule) == (RulingKind.ASK, "window")
    assert "2 destructive steps in 3600 s, this run adds 1, limit 2" in ruling.reason


def test_a_step_that_was_let_in_counts_until_it_begins_and_then_for_a_window() -> None:
    """Let in an hour ago and begun a minute ago: it is of the last minute."""
    other = closed("node-09", cluster(), confirmed=-60)
    other = replace(
        other,
        admitted_at=at(-4000),
        steps=tuple(
            replace(r, admitted_at=at(-4000), started_at=at(-70) if r.effect else None) for r in other.steps
        ),
    )
    view = with_node("node-09", observed_at=at(-1))
    ruling = judge(case(others=(other,), view=view, settings=radius(max_per_window=3)))
    assert ruling is not None
    assert "first at 2026-03-01T12:58:50Z" in ruling.clears
    running = replace(other, state=replace(other).state.RUNNING)
    tight = radius(max_share=1.0, max_per_window=4)
    ruling = judge(case(about=incident(jobs=()), others=(running,), view=view, settings=tight))
    assert ruling is not None
    wanted = [s for s in running.plan.steps if s.destructive]
    assert f"{len(wanted)} destructive steps in 3600 s" in ruling.reason


def test_a_step_under_way_that_has_stood_still_for_long_needs_a_fresh_word() -> None:
    """A drain that a kill switch held for hours is not simply gone on with."""
    old = incident(updated_at=at(-9000), opened_at=at(-9000))
    run = confirmed(case("drain_node", about=old, admitted_at=at(-8000)).run, "cordon_node", "suspend_job")
    steps = []
    for record in run.steps:
        row = record.effect
        early = row and replace(row, intended_at=at(-8000), confirmed_at=at(-8000))
        steps.append(replace(record, effect=early, started_at=at(-8000) if row else None))
    view = with_node("node-03", unschedulable=True, owner_incident=old.id)
    looked_at = replace(
        case("drain_node", about=old, view=view), run=replace(run, steps=tuple(steps), admitted_at=at(-8000))
    )
    for begun in (False, True):
        ruling = judge(looked_at, started=begun)
        assert ruling is not None
        assert (ruling.kind, ruling.rule) == (RulingKind.ASK, "freshness")
        assert "2026-03-01T09:46:40Z" in ruling.reason
    word = Approval("drain", True, "ada", at(-7000), looked_at.run.plan.digest)
    stale = replace(looked_at, run=replace(looked_at.run, approvals=(word,)))
    assert judge(stale) is not None
    fresh = replace(looked_at, run=replace(looked_at.run, approvals=(replace(word, at=at(-10)),)))
    assert judge(fresh) is None


def test_being_looked_at_again_and_again_is_no_news() -> None:
    old = incident(updated_at=at(-9000), opened_at=at(-9000))
    looked_at = case(about=old)
    busy = replace(looked_at, run=replace(looked_at.run, admitted_at=at(-8000), updated_at=at(-1)))
    ruling = judge(busy)
    assert ruling is not None
    assert ruling.rule == "freshness"


def test_a_node_that_its_own_run_has_given_back_is_not_closed_any_more() -> None:
    other = closed("node-09", cluster())
    cordon = next(s for s in other.plan.steps if s.action == "cordon_node")
    opened = replace(cordon, id="open", action="uncordon_node", destructive=False)
    row = replace(other.step(cordon.id).effect, state=EffectState.CONFIRMED)  # type: ignore[type-var]
    record = replace(other.step(cordon.id), id="open", effect=row, state=StepState.DONE)
    given = replace(
        other, plan=replace(other.plan, steps=(*other.plan.steps, opened)), steps=(*other.steps, record)
    )
    assert judge(case(others=(other,))) is not None
    assert judge(case(others=(given,))) is None


@pytest.mark.parametrize(
    ("source", "tz", "now", "within_h", "expected"),
    [
        ("0 22 * * fri", "UTC", "2026-03-07T03:00:00Z", 60, "2026-03-06T22:00:00Z"),
        ("0 22 * * 5", "Europe/Berlin", "2026-03-07T03:00:00Z", 60, "2026-03-06T21:00:00Z"),
        ("*/15 8-10 * * mon-fri", "UTC", "2026-03-02T10:50:00Z", 1, "2026-03-02T10:45:00Z"),
        ("0 0 1 jan,jul *", "UTC", "2026-03-02T10:50:00Z", 24, None),
        ("0 0 13 * fri", "UTC", "2026-03-06T01:00:00Z", 2, "2026-03-06T00:00:00Z"),
        ("0 0 * * 7", "UTC", "2026-03-01T12:00:00Z", 24, "2026-03-01T00:00:00Z"),
        ("59 23 31 12 *", "UTC", "2026-01-01T00:10:00Z", 1, "2025-12-31T23:59:00Z"),
        # Clocks go forward at 02:00 on 29 March: 02:30 comes as 03:30; they go back on 25 October, 02:30 twice.
        ("30 2 * * *", "Europe/Berlin", "2026-03-29T02:00:00Z", 2, "2026-03-29T01:30:00Z"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T02:00:00Z", 3, "2026-10-25T00:30:00Z"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", 3, "2026-10-25T00:30:00Z"),
    ],
)
def test_a_window_begins_when_the_wall_clock_says(
    source: str, tz: str, now: str, within_h: int, expected: str | None
) -> None:
    window = ClosedTime(name="w", cron=source, duration_s=within_h * 3600 + 1, tz=tz)
    until = window.until(parse_rfc3339(now))
    began: datetime | None = parse_rfc3339(expected) if expected else None
    assert (until - began).total_seconds() == within_h * 3600 + 1 if until and began else until is began


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"start": at(0)}, "either start and end"),
        ({**ONCE, **NIGHTLY}, "either start and end"),
        ({"start": at(0), "end": at(0)}, "not after its start"),
        ({"cron": "0 25 * * *", "duration_s": 60}, "'0 25 * * *': bad hour"),
        ({"cron": "0 22 * *", "duration_s": 60}, "has 4 fields"),
        ({"cron": "0 9-8 * * *", "duration_s": 60}, "'0 9-8 * * *': bad hour"),
        ({"cron": "*/0 * * * *", "duration_s": 60}, "'*/0 * * * *': bad minute"),
        ({"cron": "* 0 22 * * *", "duration_s": 60}, "has 6 fields"),
        ({"cron": "0 0 31 2 *", "duration_s": 60}, "bad day-of-month"),
        ({"cron": "0 0 * * *", "duration_s": 60, "tz": "Mars/Base"}, "no time zone 'Mars/Base'"),
        ({"cron": "0 0 * * *", "duration_s": 60, "tz": "../../etc/passwd"}, "no time zone"),
    ],
)
def test_a_window_that_makes_no_sense_is_refused_with_its_name(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=r"release|fields|bad|zone") as error:
        ClosedTime(name="release", **wrong)
    assert says in str(error.value)


def test_a_protected_label_is_known_from_the_node() -> None:
    node = {"kind": "Node", "metadata": {"name": "n1", "labels": {"tier": "gold", "spare": ""}}}
    for labels, expected in (
        (("tier=gold",), "tier=gold"),
        (("tier=tin", "spare"), "spare"),
        (("tier=tin",), None),
        ((), None),
    ):
        where = names().node_labels.after(NodeLabels(protected=labels))
        assert node_fact(CLUSTER, node, NOW, where).protected_by == expected
