"""The report of an incident: what it says of a known story, and that it invents nothing. Nothing from outside is markup in it.

`python -m tests.faultline.report.test_incident_report` writes `golden/` anew; what changed is read.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from faultline.cli.commands.report import written
from faultline.cli.incident_documents import IncidentDocuments
from faultline.report.advice import Topic
from faultline.report.cost import Basis
from faultline.report.incident_report import IncidentReport, report_of
from streams.model.incident import Certainty, Impact, IncidentState
from streams.model.run import EffectRecord, EffectState, Mode, RunOutcome, RunState, StepState
from tests.faultline.report.scenes import (
    CLUSTER,
    FAULT,
    NODE,
    SCENES,
    Scene,
    at,
    healed,
    hostile,
    incident,
    large,
    line,
    node,
    run,
    slept_on,
    step,
)

GOLDEN = Path(__file__).with_name("golden")
PAGES = [(name, kind) for name in ("healed", "slept-on") for kind in ("md", "html", "json")]


def documents(scene: Scene) -> IncidentDocuments:
    return IncidentDocuments(scene.incident, scene.runs, scene.timeline, scene.nodes, scene.now)


def page(scene: Scene, kind: str) -> str:
    return written(documents(scene), kind, scene.now)


def report(scene: Scene) -> IncidentReport:
    return report_of(scene.incident, scene.runs, scene.timeline, scene.nodes, scene.now)


def topics(scene: Scene) -> list[Topic]:
    return [one.topic for one in report(scene).advice]


@pytest.mark.parametrize(("name", "kind"), PAGES)
def test_a_page_is_the_one_that_was_read(name: str, kind: str) -> None:
    assert page(SCENES[name](), kind) == (GOLDEN / f"{name}.{kind}").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["md", "html", "json"])
@pytest.mark.parametrize("name", SCENES)
def test_documents_in_another_order_give_the_same_page(name: str, kind: str) -> None:
    scene = SCENES[name]()
    turned = replace(
        scene,
        runs=scene.runs[::-1],
        incident=replace(scene.incident, proofs=scene.incident.proofs[::-1]),
        nodes=dict(reversed(list(scene.nodes.items()))),
    )
    assert page(turned, kind) == page(scene, kind)


class Reader(HTMLParser):
    """Collects the tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]


@pytest.mark.parametrize("name", SCENES)
def test_a_page_runs_nothing_and_loads_nothing(name: str) -> None:
    text = page(SCENES[name](), "html")
    reader = Reader()
    reader.feed(text)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & set(reader.tags)
    names = {attribute for attribute, _ in reader.attributes}
    assert not [
        attribute for attribute in names if attribute.startswith("on") or attribute in ("src", "style")
    ]
    addresses = [value for attribute, value in reader.attributes if attribute == "href"]
    assert all(re.match(r"#list-\d|https://jira\.example\.test/", address) for address in addresses)
    assert "url(" not in text
    assert "@import" not in text
    assert text.count("default-src 'none'") == 1


def test_hostile_text_is_text_in_markdown() -> None:
    text = page(hostile(), "md")
    outside = re.sub(r"(`{3,})text\n.*?\n\1", "", text, flags=re.DOTALL)
    assert not re.search(r"(?<!\\)<", outside)
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "](" not in re.sub(r"\\\]", "", outside)
    assert len(text) < 60_000


@pytest.mark.parametrize("fence", ["```", "`````\nend", "~~~"])
def test_a_raw_line_cannot_leave_its_block(fence: str) -> None:
    scene = healed()
    proof = scene.incident.proofs[0]
    evil = replace(proof, evidence=(replace(proof.evidence[0], text=f"{fence}\n# owned\n{fence}"),))
    text = page(replace(scene, incident=replace(scene.incident, proofs=(evil,))), "md")
    opened = re.search(r"^(`+)text$", text, re.MULTILINE)
    assert opened is not None
    body = text[opened.end() :]
    closed = re.search(rf"^{opened[1]}$", body, re.MULTILINE)
    assert closed is not None
    assert "# owned" in body[: closed.start()]
    assert "\n# owned" not in body[closed.end() :]


def test_a_ticket_becomes_a_link_only_where_its_address_is_plain() -> None:
    scene = healed()
    (one,) = scene.runs
    assert "[done: GPU-61](<https://jira.example.test/browse/GPU-61>)" in page(scene, "md")
    record = one.steps[0]
    assert record.effect is not None
    for url in ("javascript:alert(1)", "https://x/>)[a](b", ""):
        effect = replace(record.effect, result={"ticket": "GPU-61", "url": url})
        bad = replace(scene, runs=(replace(one, steps=(replace(record, effect=effect), *one.steps[1:])),))
        assert "done: GPU-61 |" in page(bad, "md")
        assert "href" not in page(bad, "html")


def test_the_json_has_its_names_and_says_null_for_what_is_not_known() -> None:
    told = json.loads(page(large(3), "json"))
    assert told["schema"] == 1
    assert list(told) == [
        "schema", "incident", "cluster", "as_of", "revision", "decision_hash", "title", "family", "severity",
        "certainty", "state", "merged_into", "flaps", "reason", "root", "root_key", "jobs", "nodes", "other_workloads", "impact",
        "noticed", "explanations", "clocks", "deeds", "waits", "cost", "advice", "plans", "evidence",
    ]  # fmt: skip
    assert [clock["name"] for clock in told["clocks"]] == [
        "fault", "noticed", "decided", "closed", "running", "first_step",
    ]  # fmt: skip
    assert told["clocks"][3] == {
        "name": "closed", "at": None, "after_fault_s": None, "after_previous_s": None,
        "unknown": "shadow mode: nothing was done, so nothing was followed",
    }  # fmt: skip
    assert told["cost"]["replayed"] is None
    assert told["as_of"] == "2026-03-03T03:14:12Z"


# -- clocks


def test_the_clocks_are_those_of_the_story() -> None:
    after = {clock.name: clock.after_fault_s for clock in report(healed()).clocks}
    assert after == {"fault": 0, "noticed": 6, "decided": 7, "closed": 8, "running": 171, "first_step": 212}


def test_a_job_that_never_reports_progress_has_no_first_step() -> None:
    scene = healed()
    silent = replace(scene, incident=replace(scene.incident, progress=()))
    last = report(silent).clocks[-1]
    assert (last.at, last.unknown) == (None, "its job reports no progress")
    assert report(silent).cost.basis is Basis.RUNNING


def test_a_step_that_failed_says_why_its_clock_stands_still() -> None:
    about = incident(progress=())
    steps = (
        step("cordon", "cordon_node", NODE, 7, 8),
        step("verify", "verify_job", NODE, 8, 900, StepState.FAILED, reason="pods stay pending"),
    )
    ended = run(about, steps, ended=900, state=RunState.FAILED, outcome=RunOutcome.FAILED)
    clocks = {clock.name: clock for clock in report(Scene(about, (ended,))).clocks}
    assert clocks["running"].unknown == "step failed: pods stay pending"
    assert clocks["first_step"].unknown == "no run waited for progress"


# -- cost


def test_gpu_hours_are_gpus_times_hours_without_progress_and_split() -> None:
    """A test vector: 32 GPUs stand still for 212 s, 8 of them on the faulty node; 115 s of it they wait to start again."""
    cost = report(healed()).cost
    assert cost.lost == pytest.approx(32 * 212 / 3600)
    assert cost.culprit == pytest.approx(8 * 212 / 3600)
    assert cost.victims == pytest.approx(24 * 212 / 3600)
    assert cost.queueing == pytest.approx(32 * 115 / 3600)
    assert cost.basis is Basis.FIRST_STEP


@pytest.mark.parametrize(
    ("changes", "basis", "lost"),
    [
        ({"state": IncidentState.OPEN, "closed_at": None}, Basis.NOW, 32 * 1200 / 3600),
        ({}, Basis.CLOSED, 32 * 262 / 3600),
        ({"impact": Impact(jobs=1)}, Basis.CLOSED, None),
        ({"impact": Impact(), "jobs": ()}, Basis.NOT_STOPPED, 0.0),
    ],
)
def test_what_ended_the_time_without_progress_is_said(
    changes: dict[str, Any], basis: Basis, lost: float | None
) -> None:
    cost = report(Scene(incident(progress=(), **changes))).cost
    assert cost.basis is basis
    assert cost.lost == (lost if lost is None else pytest.approx(lost))


def test_an_unknown_node_leaves_the_split_unknown_and_the_sum_known() -> None:
    cost = report(replace(healed(), nodes={})).cost
    assert cost.lost is not None
    assert (cost.culprit, cost.victims, cost.out_of_service) == (None, None, None)


def test_a_node_is_out_of_service_until_it_is_uncordoned_or_until_now() -> None:
    assert report(slept_on()).cost.out_of_service == pytest.approx(8 * (26092 - 8) / 3600)
    scene = healed()
    held = replace(
        scene,
        nodes={**scene.nodes, "gpu-03": node("gpu-03", owner_incident=scene.incident.id, unschedulable=True)},
    )
    assert report(held).cost.out_of_service == pytest.approx(8 * (1200 - 8) / 3600)
    assert report(scene).cost.out_of_service is None, "others opened it, at a time nobody wrote down"


# -- what was done


def test_what_was_done_names_automation_people_and_others() -> None:
    by = [deed.by for deed in report(slept_on()).deeds]
    assert by.count("ada (U024BE7LH) via slack") == 2
    assert by.count("not Faultline") == 1
    assert by.count("automation") == 7


def test_an_undone_step_is_told_with_its_undo() -> None:
    about = incident()
    planned, record = step("cordon", "cordon_node", NODE, 7, 8, destructive=True)
    assert record.effect is not None
    undo = EffectRecord("u", "cordon_node", NODE, EffectState.UNDONE, at(90), at(100), confirmed_at=at(91))
    scene = Scene(
        about, (run(about, [(planned, replace(record, undo=undo))]),), nodes={"gpu-03": node("gpu-03")}
    )
    told = report(scene).deeds
    assert [(deed.what, deed.result) for deed in told] == [
        ("cordon node gpu-03", "done"),
        ("undo: cordon node gpu-03", "undone"),
    ]
    assert report(scene).cost.out_of_service == pytest.approx(8 * 83 / 3600)


# -- what to change


def test_advice_is_only_given_where_the_data_shows_a_reason() -> None:
    quiet = replace(healed(), incident=incident(facts={}))
    assert topics(quiet) == []
    assert "Nothing: the data shows no reason to." in page(quiet, "md")


@pytest.mark.parametrize(
    ("scene", "topic", "words"),
    [
        (healed(), Topic.REPEAT_OFFENDER, "2 earlier incidents of this kind (2026-02-11, 2026-02-27)"),
        (slept_on(), Topic.SLOW_APPROVAL, "7 h 9 min for approval until ada (U024BE7LH) answered"),
        (large(40), Topic.SHADOW_MODE, "fabric-fault ran in shadow mode"),
        (Scene(incident(facts={"node_repeats": 1})), Topic.REPEAT_OFFENDER, "gpu-03 had 1 earlier incident of"),
        (
            Scene(incident(), timeline=(line(incident(), 8, "run.none", "manual action required: no runbook applies"),)),
            Topic.MISSING_RUNBOOK,
            "no runbook applies",
        ),
        (Scene(incident(proofs=())), Topic.MISSING_EVIDENCE, "no line of the cause itself"),
        (Scene(incident(certainty=Certainty.LIKELY)), Topic.MISSING_EVIDENCE, "the evidence was likely"),
        (
            Scene(incident(impact=Impact(jobs=1, gpus=8, gpu_hours_per_hour=8, timeout_s=600))),
            Topic.MISSING_EVIDENCE,
            "for 10 min only a collective's own timeout",
        ),
        (
            Scene(incident(evident_at=FAULT, evident_read_at=FAULT + timedelta(minutes=40))),
            Topic.LATE_EVIDENCE,
            "40 min old",
        ),
        (Scene(incident()), Topic.MISSING_INVENTORY, "knows none of its nodes"),
        (
            Scene(incident(), nodes={"gpu-03": node("gpu-03", leaf=None, rack=None)}),
            Topic.MISSING_INVENTORY,
            "has a leaf or a rack",
        ),
        (Scene(incident(flaps=3)), Topic.FLAPPING, "failed again 3 times"),
    ],
)  # fmt: skip
def test_advice_names_the_fact_that_gives_reason_for_it(scene: Scene, topic: Topic, words: str) -> None:
    assert any(one.topic is topic and words in one.text for one in report(scene).advice)


def test_a_failed_step_and_an_early_end_are_both_told() -> None:
    about = incident()
    steps = (step("drain", "drain_node", NODE, 7, 600, StepState.FAILED, reason="a PodDisruptionBudget"),)
    ended = run(about, steps, state=RunState.FAILED, outcome=RunOutcome.FAILED, reason="drain failed")
    found = {one.topic: one.text for one in report(Scene(about, (ended,))).advice}
    assert found[Topic.FAILED_STEP] == "drain_node Node gpu-03 failed: a PodDisruptionBudget"
    assert found[Topic.RUN_ENDED_EARLY] == "runbook gpu-off-bus failed: drain failed"


def test_a_decision_keeps_its_hash_until_it_is_another() -> None:
    scene = healed()
    later = replace(scene, incident=replace(scene.incident, revision=9, updated_at=at(900)))
    assert report(later).decision_hash == report(scene).decision_hash
    other = replace(scene, incident=replace(scene.incident, nodes=("gpu-03",)))
    assert report(other).decision_hash != report(scene).decision_hash


def test_a_finished_incident_is_reported_as_of_its_last_change() -> None:
    scene = healed()
    assert documents(scene).as_of == at(262)
    held = {"gpu-03": node("gpu-03", owner_incident=scene.incident.id)}
    assert documents(replace(scene, nodes=held)).as_of == scene.now, "a node out of service goes on costing"
    assert (
        documents(replace(scene, incident=replace(scene.incident, state=IncidentState.OPEN))).as_of
        == scene.now
    )


def test_a_shadow_run_is_told_as_what_would_have_been_done() -> None:
    scene = large(3)
    (one,) = scene.runs
    asked = replace(one, steps=tuple(replace(record, verdict="needs_approval") for record in one.steps))
    told = report(replace(scene, runs=(asked,))).deeds
    assert {deed.result for deed in told} == {"would need approval (shadow)"}
    assert one.plan.mode is Mode.SHADOW
    assert scene.incident.cluster == CLUSTER


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, kind in PAGES:
        (GOLDEN / f"{name}.{kind}").write_text(page(SCENES[name](), kind), encoding="utf-8")
