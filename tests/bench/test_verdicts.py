"""What a campaign is judged by: what was ever told counts, whatever became of it, and quiet runs have a figure of their own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bench.campaign import Campaign, Tally
from bench.verdicts import Verdict, names_job, same_job, verdict
from faultline.replay.capture import Capture, Meta
from faultline.replay.replay import Replayed
from sandbox.simulation.campaign import Simulated
from sandbox.simulation.truth import Fault, TrueRoot, Truth
from streams.model.entity import SLURM_JOB, Entity, JobRef
from streams.model.incident import Audience, Certainty, Incident, IncidentState, OtherWorkloads
from streams.model.signal import Severity

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
JOB = {"kind": "Job", "namespace": "ml", "name": "train"}
OTHER = {"kind": "Job", "namespace": "ml", "name": "other"}
FAULT = Fault(
    "fault-0001", "gpu_off_bus", NOON, NOON + timedelta(minutes=20), "gpu_off_bus", TrueRoot(node="gpu-1"),
    jobs=(JOB, OTHER), nodes=("gpu-1",), stopped=(JOB, OTHER), may_cordon=("gpu-1",),
)  # fmt: skip


def incident(name: str, node: str, state: IncidentState = IncidentState.OPEN) -> Incident:
    return Incident(
        name, "sim", "gpu_off_bus", Entity("sim", node=node), 1, 1, state, Severity.CRITICAL, Certainty.DECISIVE,
        "", "", NOON, NOON, NOON, jobs=(JobRef("Job", "ml", "train"),),
    )  # fmt: skip


def judged(*published: tuple[float, Incident], faults: tuple[Fault, ...] = (FAULT,)) -> Verdict:
    """The verdict of a day in which these revisions were published, each so many seconds after the fault."""
    decided = Replayed()
    for after_s, revision in published:
        decided.incidents[revision.id] = revision
        decided.publications[revision.id].add(revision, NOON + timedelta(seconds=after_s))
    meta = Meta("sim", NOON, NOON + timedelta(days=2))
    return verdict(Simulated(Capture(meta, {}, (), ""), Truth(list(faults)), "onprem"), decided, "a scenario")


def figures(*verdicts: Verdict) -> dict[str, object]:
    tally = Tally()
    for each in verdicts:
        tally.add(each)
    return dict(tally.figures())


def test_an_incident_that_was_merged_was_told_all_the_same() -> None:
    echo = incident("b", "gpu-2")
    found = judged(
        (3, incident("a", "gpu-1")),
        (1, echo),
        (9, replace(echo, state=IncidentState.MERGED, merged_into="a")),
    )
    assert found.count_right
    assert (found.found, found.told, found.revisions) == (1, 2, 3)
    assert figures(found)["precision"] == 0.5


def test_what_was_only_ever_suppressed_was_not_told() -> None:
    quiet = incident("b", "gpu-2", IncidentState.SUPPRESSED)
    assert judged((3, incident("a", "gpu-1")), (5, quiet)).told == 1
    ended = replace(quiet, state=IncidentState.RESOLVED)
    assert judged((3, incident("a", "gpu-1")), (5, quiet), (9, ended)).told == 1
    assert judged((3, incident("a", "gpu-1")), (9, ended)).told == 2


def test_what_only_a_jobs_owner_has_to_know_is_found_and_calls_nobody() -> None:
    owners = replace(incident("a", "gpu-1"), audience=Audience.OWNER)
    found = judged((3, owners), (4, replace(owners, id="b", root=Entity("sim", node="gpu-2"))))
    assert (found.top1, found.told, found.found) == (1, 0, 0)
    assert not [miss for miss in found.misses if "belongs to no fault" in miss.what]


def test_how_late_an_incident_was_counts_from_the_fault_to_the_first_revision_that_was_shown() -> None:
    shown = incident("a", "gpu-1")
    found = judged((2, replace(shown, state=IncidentState.SUPPRESSED)), (40, shown), (90, shown))
    assert found.late_s == (40,)
    assert figures(found)["late_s"] == {"median": 40, "p90": 40}


def test_a_stopped_job_is_right_where_its_faults_incident_names_it() -> None:
    found = judged((3, incident("a", "gpu-1")))
    assert (found.jobs, found.jobs_right) == (2, 1)
    assert any("other" in miss.expected for miss in found.misses)


@pytest.mark.parametrize("kind", ["Slurm", "SlurmJob"])
def test_a_job_of_slurm_goes_by_its_number_whatever_cluster_of_slurm_it_is_of(kind: str) -> None:
    true = {"kind": kind, "namespace": "prod", "name": "4242"}
    assert same_job(JobRef(SLURM_JOB, "", "4242"), true)
    assert not same_job(JobRef(SLURM_JOB, "", "4243"), true)


def test_incidents_of_days_without_a_fault_count_by_the_day_and_not_against_precision() -> None:
    quiet = judged((3, incident("c", "gpu-3")), faults=())
    both = figures(judged((3, incident("a", "gpu-1"))), quiet)
    assert both["quiet_incidents_per_day"] == 0.5
    assert both["precision"] == 1


def test_a_run_counts_for_its_scenario_and_for_the_whole() -> None:
    campaign = Campaign()
    campaign.add("one", judged((3, incident("a", "gpu-1"))))
    campaign.add("two", None)
    assert campaign.left_out == 1
    assert campaign.kinds["one"].top1 == campaign.total.top1 == 1
    assert campaign.false_by == Counter()


@pytest.mark.parametrize("name", ["precision", "jobs_right", "quiet_incidents_per_day"])
def test_a_figure_of_nothing_is_none(name: str) -> None:
    assert Tally().figures()[name] is None


@pytest.mark.parametrize(
    ("kind", "name", "true", "named"),
    [
        ("Job", "build-7", {"kind": "Job", "name": "build-7"}, True),
        ("Pod", "build-7-x2v5k", {"kind": "Job", "name": "build-7"}, True),
        ("Pod", "chat-7d9f8b6c5d-x2v5k", {"kind": "Deployment", "name": "chat"}, True),
        ("Pod", "build-7-x2v5k", {"kind": "Job", "name": "bu"}, False),
        ("Job", "build-77", {"kind": "Job", "name": "build-7"}, False),
        ("Pod", "build-7-x2v5k", {"kind": "Job", "name": "build-7", "namespace": "ml"}, False),
    ],
)
def test_what_else_an_incident_keeps_from_starting_is_named_by_it(
    kind: str, name: str, true: dict[str, str], named: bool
) -> None:
    others = OtherWorkloads(9, (JobRef(kind, "ci", name),))
    found = replace(incident("a", "gpu-1"), other_workloads=others)
    assert names_job(found, {"namespace": "ci", **true}) is named
