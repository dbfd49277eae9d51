"""Stories of a run in shadow and of what people did meanwhile: how they compare, and what the numbers say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from faultline.cli.commands.shadow import lines
from faultline.cli.since import since_of
from runbooks.engine.partition_state import PartitionState
from runbooks.engine.shadow_report import Agreement, ShadowReport, shadow_report
from streams.model.codec import decode, encode
from streams.model.conversation import TimelineEntry
from streams.model.entity import Entity
from streams.model.errors import BadInput
from streams.model.facts import Fact, JobFact
from streams.model.incident import Impact, Incident, IncidentState
from streams.model.run import Mode, Run
from tests.runbooks.scenes import ACTIONS, CLUSTER, JOB, LIBRARY, NOW, at, cluster, incident, policy

NODE = "node-03"
DAY = timedelta(days=1)


class Story:
    """A cluster in shadow, on which faults and people happen in the order of the test."""

    def __init__(self, **settings: Any) -> None:
        self.board = PartitionState(
            LIBRARY, policy(mode=Mode.SHADOW, **settings), frozenset(ACTIONS - {"open_ticket"})
        )
        self.timeline: list[TimelineEntry] = []
        self.incidents: dict[str, Incident] = {}
        view = cluster()
        facts: list[Fact] = [*view.nodes.values(), *view.pods.values(), *view.jobs.values()]
        for fact in facts:
            self.board.take_fact(fact.key, fact)

    def fault(self, seconds: float = 0, **changes: Any) -> Incident:
        impact = Impact(jobs=1, nodes=4, gpus=32, gpu_hours_per_hour=32.0)
        about = incident(
            fault_at=at(seconds), opened_at=at(seconds), updated_at=at(seconds), impact=impact,
            nodes=("node-02", NODE, "node-04", "node-05"), **changes,
        )  # fmt: skip
        self.revise(about, seconds)
        return about

    def revise(self, about: Incident, seconds: float) -> None:
        self.incidents[about.id] = about
        self.board.take_incident(about)
        self.turn(seconds)

    def person(self, minutes: float, name: str = NODE, **changes: Any) -> None:
        new = replace(self.board.view(CLUSTER).nodes[name], observed_at=at(minutes * 60), **changes)
        self.board.take_fact(new.key, new, at(minutes * 60))
        self.turn(minutes * 60)

    def job(self, minutes: float, **changes: Any) -> None:
        new = replace(JobFact(CLUSTER, JOB, at(minutes * 60)), **changes)
        self.board.take_fact(new.key, new, at(minutes * 60))
        self.turn(minutes * 60)

    def turn(self, seconds: float) -> None:
        self.board.advance(at(seconds))
        changes = self.board.collect()
        assert changes.calls == ()
        self.timeline += changes.timeline

    def report(self, until: timedelta = DAY, timeline: Iterable[TimelineEntry] | None = None) -> ShadowReport:
        runs = [decode(Run, encode(run)) for run in self.board.runs.values()]
        said = list(self.timeline if timeline is None else timeline)
        return shadow_report(runs, said, self.incidents, since=NOW - DAY, until=NOW + until)

    def one(self, until: timedelta = DAY) -> tuple[Agreement, float | None]:
        (compared,) = self.report(until).comparisons
        return compared.agreement, compared.later_s


def test_people_who_close_the_same_node_later_agree_and_the_time_between_is_what_auto_would_save() -> None:
    story = Story()
    story.fault()
    story.person(30, unschedulable=True)
    assert story.one() == (Agreement.SAME, 1800)
    summary = story.report().summary
    assert (summary.agreed, summary.judged, summary.agreed_share) == (1, 1, 1.0)
    assert (summary.minutes_saved, summary.gpu_hours_saved) == (30.0, 16.0)


def test_the_first_verdict_counts_and_not_what_it_became_once_a_person_had_taken_the_node() -> None:
    story = Story()
    about = story.fault()
    story.person(5, unschedulable=True, managed=False)
    story.revise(replace(about, revision=2, updated_at=at(400)), 400)
    (run,) = story.board.runs.values()
    assert run.step("cordon").verdict == "refused"
    (compared,) = story.report().comparisons
    assert (compared.agreement, compared.later_s) == (Agreement.SAME, 300)
    assert {w.verdict for w in compared.would if w.action == "cordon_node"} == {"would"}


def test_people_who_were_quicker_agree_and_save_nothing() -> None:
    story = Story()
    story.person(-2, unschedulable=True)
    story.fault(0)
    (compared,) = story.report().comparisons
    assert (compared.agreement, compared.later_s) == (Agreement.SAME, -120)
    assert story.report().summary.minutes_saved == 0
    assert story.report().missed == ()


def test_a_node_that_people_kept_in_service_is_named() -> None:
    story = Story()
    story.fault()
    assert story.one(until=timedelta(hours=3)) == (Agreement.EARLY, None)
    assert story.one() == (Agreement.NOTHING, None)
    summary = story.report().summary
    assert summary.kept_in_service == (NODE,)
    assert summary.agreed_share == 0.0


def test_people_who_act_on_another_node_of_the_same_job_disagree() -> None:
    story = Story()
    story.fault()
    story.person(10, name="node-04", unschedulable=True)
    assert story.one() == (Agreement.ELSEWHERE, None)
    assert story.report().summary.kept_in_service == (NODE,)


@pytest.mark.parametrize("what", ["reboot", "job"])
def test_people_who_do_something_else_about_it_disagree_in_the_means(what: str) -> None:
    story = Story()
    story.board.take_fact(
        f"{CLUSTER}/node/{NODE}", replace(story.board.view(CLUSTER).nodes[NODE], boot_id="a")
    )
    story.fault()
    if what == "reboot":
        story.person(10, boot_id="b")
    else:
        story.job(10, suspended=True)
    assert story.one() == (Agreement.ELSE, None)
    assert story.report().summary.kept_in_service == ()


def test_what_a_guardrail_would_have_refused_is_not_judged() -> None:
    story = Story()
    story.board.take_fact(
        f"{CLUSTER}/node/{NODE}", replace(story.board.view(CLUSTER).nodes[NODE], managed=False)
    )
    story.fault()
    story.person(10, unschedulable=True)
    (compared,) = story.report().comparisons
    assert compared.agreement is Agreement.REFUSED
    assert [act.act for act in compared.people] == ["node_cordoned"]
    assert story.report().summary.judged == 0
    assert story.report().summary.agreed_share is None


def test_a_runbook_that_would_only_ask_is_not_judged() -> None:
    story = Story()
    story.fault(family="unknown", root=Entity(CLUSTER, node=NODE))
    assert story.one() == (Agreement.ASKS, None)


def test_acts_on_nodes_without_any_incident_are_what_faultline_missed() -> None:
    story = Story()
    story.fault()
    story.person(20, name="node-12", unschedulable=True)
    story.person(40, name="node-12", unschedulable=False)
    story.person(50, name="node-13", maintenance=True, unschedulable=True)
    missed = story.report().missed
    assert [(m.node, m.planned, [a.act for a in m.acts]) for m in missed] == [
        ("node-12", False, ["node_cordoned"]),
        ("node-13", True, ["node_cordoned", "node_maintenance"]),
    ]
    summary = story.report().summary
    assert (summary.missed, summary.missed_unplanned) == (2, 1)


def test_a_repair_long_after_the_incident_is_no_answer_to_it() -> None:
    story = Story()
    about = story.fault()
    story.revise(replace(about, revision=2, state=IncidentState.RESOLVED, closed_at=at(600)), 600)
    story.person(9 * 60, unschedulable=True)
    assert story.one() == (Agreement.NOTHING, None)
    assert [m.node for m in story.report().missed] == [NODE]


def test_the_order_of_the_timeline_and_lines_told_to_several_incidents_change_nothing() -> None:
    story = Story()
    story.fault()
    story.person(30, unschedulable=True)
    twice = [*reversed(story.timeline), *(replace(e, incident="inc-other") for e in story.timeline)]
    assert story.report(timeline=twice) == story.report()


def test_the_report_tells_what_is_before_the_time_asked_for_of_nothing() -> None:
    story = Story()
    story.fault()
    made = shadow_report(
        list(story.board.runs.values()), story.timeline, story.incidents, since=at(1), until=NOW + DAY
    )
    assert made.comparisons == ()


def test_an_entry_that_is_not_ours_is_named() -> None:
    story = Story()
    story.timeline.append(
        TimelineEntry("", CLUSTER, NOW, "x", "observed.node_cordoned", "?", {"act": "node_cordoned"})
    )
    with pytest.raises(BadInput, match="lacks act, kind, name or at"):
        story.report()


def test_the_lines_for_scripts_are_a_run_each_a_missed_node_each_and_a_summary() -> None:
    story = Story()
    story.fault()
    story.person(30, unschedulable=True)
    story.person(35, name="node-12", unschedulable=True)
    run, missed, summary = lines(story.report())
    assert (run["record"], run["agreement"], run["later_s"], run["people"][0]["act"]) == (
        "run", "same", 1800.0, "node_cordoned",
    )  # fmt: skip
    assert {step["action"] for step in run["would"]} >= {
        "cordon_node",
        "suspend_job",
        "drain_node",
        "resume_job",
    }
    assert (missed["record"], missed["node"]) == ("missed", "node-12")
    assert (summary["record"], summary["agreed_share"], summary["by_agreement"]["same"]) == (
        "summary",
        1.0,
        1,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7d", NOW - timedelta(days=7)),
        ("90m", NOW - timedelta(minutes=90)),
        ("2026-02-28T00:00:00Z", NOW - timedelta(days=1, hours=12)),
    ],
)
def test_how_far_back(text: str, expected: object) -> None:
    assert since_of(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "7", "last week", "9" * 40 + "d"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--since"):
        since_of(text, NOW)
