"""The shipped runbooks as a whole: which one is taken for what, what none of them may do, and how the ladder hangs together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from faultline.cli.main import cli
from runbooks.engine.run.plan import plan
from runbooks.language import loader
from runbooks.language.schema import DESTRUCTIVE, IF_OFFERED, NODE_WORK, ON_REQUEST, Runbook, Step
from runbooks.language.select import select
from streams.model.incident import Certainty
from streams.model.run import Mode
from tests.runbooks.language.library_cases import SAMPLES, Sample
from tests.runbooks.scenes import LIBRARY, cluster

BOOKS = {book.id: book for book in LIBRARY}
REPAIRS = ("reset_gpu", "reboot_node", "power_cycle_node")
WORK = (*REPAIRS, "await_work")
"""What is done to a node before it is validated: by us, or by whoever planned it."""
every_book = pytest.mark.parametrize("book", LIBRARY, ids=lambda book: book.id)


def behind(book: Runbook, step: Step) -> Iterator[Step]:
    """All steps that must be done before one."""
    known = {one.id: one for one in book.steps}
    for need in step.needs:
        yield known[need]
        yield from behind(book, known[need])


def test_every_runbook_has_its_sample() -> None:
    assert {sample.runbook for sample in SAMPLES} == BOOKS.keys()


def test_every_ticket_is_tried_for_the_week_that_operations_promises() -> None:
    week_s = 7 * 86_400
    deadlines = {step.deadline_s for book in LIBRARY for step in book.steps if step.action == "open_ticket"}
    assert deadlines == {week_s}
    operations = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
    assert "which is 7 days in the shipped runbooks" in operations


@pytest.mark.parametrize("sample", [s for s in SAMPLES if not s.escalated], ids=lambda s: s.runbook)
def test_the_sample_chooses_its_runbook_and_no_other(sample: Sample) -> None:
    choice = select(sample.incident, LIBRARY)
    assert choice.runbook is not None
    assert choice.runbook.id == sample.runbook, choice.why


@every_book
def test_what_ends_work_on_a_gpu_waits_for_a_person_and_for_an_empty_node(book: Runbook) -> None:
    for step in book.steps:
        if step.action in REPAIRS:
            assert step.approval
            assert step.on_failure == "escalate"
            before = {one.action for one in behind(book, step)}
            assert "cordon_node" in before
            assert "drain_node" in before or book.id == "row-remap-pending", (
                "there the pods end by themselves"
            )
            assert "suspend_job" not in before or "verify_job" in before, "the job runs elsewhere first"


@every_book
def test_a_node_comes_back_into_service_only_after_a_repair_and_its_validation(book: Runbook) -> None:
    given_back = [step for step in book.steps if step.action == "uncordon_node"]
    assert len(given_back) == sum(step.action in WORK for step in book.steps)
    for step in given_back:
        assert {"validate_node", *WORK} & {one.action for one in behind(book, step)} > {"validate_node"}


@pytest.mark.parametrize(
    "sample", [s for s in SAMPLES if s.runbook != "job-diagnosis"], ids=lambda s: s.runbook
)
@pytest.mark.parametrize(
    "offered", [frozenset(), frozenset({"validate_node"}), NODE_WORK - {"validate_node"}]
)
def test_where_a_part_of_the_repair_is_not_offered_the_node_stays_closed(
    sample: Sample, offered: frozenset[str]
) -> None:
    bound = plan(sample.incident, BOOKS[sample.runbook], cluster(), Mode.AUTO, offered)
    people_work = "await_work" in {step.action for step in bound.steps}
    assert ("uncordon_node" in {step.action for step in bound.steps}) is (
        people_work and "validate_node" in offered
    )
    assert {step.action for step in bound.steps} & NODE_WORK <= offered
    left = {line.partition(":")[0] for line in bound.left_out}
    assert left == {step.id for step in BOOKS[sample.runbook].steps} - {
        step.id.partition(":")[0] for step in bound.steps
    } - {
        step.id
        for step in BOOKS[sample.runbook].steps
        if step.target in ("unmovable_jobs", "victim_jobs")
        or step.action == "release_spare"  # there is no spare in that cluster
        or step.action in ON_REQUEST | IF_OFFERED  # no job there declares how, and no hook is set
        or (step.target in ("jobs", "root_node_jobs") and not sample.jobs)
    }


@every_book
def test_a_ladder_leads_up_and_ends(book: Runbook) -> None:
    seen, at = [book.id], book
    while at.escalation is not None:
        assert at.escalation.to in BOOKS
        at = BOOKS[at.escalation.to]
        assert at.id not in seen
        seen.append(at.id)
    assert len(seen) == 1 or at.id == "node-replace"
    assert book.match != "false" or any(b.escalation and b.escalation.to == book.id for b in LIBRARY)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.runbook)
def test_without_decisive_evidence_a_person_is_asked_before_anything_is_taken_away(sample: Sample) -> None:
    """`certainty` asks in any mode; besides, a runbook whose family never is decisive says so in its own mode."""
    book = BOOKS[sample.runbook]
    takes = {step.action for step in book.steps} & DESTRUCTIVE
    if takes and sample.certainty is not Certainty.DECISIVE and not sample.escalated:
        assert book.mode is Mode.APPROVE or book.id in ("gpu-quarantine",)


@every_book
def test_a_runbook_that_only_tells_ends_with_a_question(book: Runbook) -> None:
    if book.id == "straggler":
        return  # its job runs on, so nobody has anything to decide
    if not {step.action for step in book.steps} & DESTRUCTIVE:
        assert book.steps[-1].action == "ask"


def test_the_cases_that_ship_hold_and_there_is_one_for_every_runbook_an_incident_can_choose() -> None:
    result = CliRunner().invoke(cli, ["runbook", "test", "--output", "json"])
    assert result.exit_code == 0, result.output
    told = {path.name.removesuffix(".cases.yaml") for path in (loader.LIBRARY / "cases").iterdir()}
    assert told == {book.id for book in LIBRARY if book.match != "false"}


def test_what_a_fragment_has_is_spelled_out_nowhere_else() -> None:
    files = {path.name: yaml.safe_load(path.read_text()) for path in loader.yaml_files(loader.LIBRARY)}
    steps = {name: content["steps"] for name, content in files.items() if "steps" in content}
    shared = {
        name: [one for one in steps[name] if "include" not in one]
        for name, content in files.items()
        if "fragment" in content
    }
    assert shared
    twice = [
        f"{name} has all of {fragment} from step {start + 1} on"
        for fragment, mine in shared.items()
        for name, theirs in steps.items()
        for start in range(len(theirs) - len(mine) + 1)
        if name != fragment and mine and theirs[start : start + len(mine)] == mine
    ]
    assert twice == []
