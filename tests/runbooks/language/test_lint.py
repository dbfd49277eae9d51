"""What surely was not meant: runbooks never taken, steps and parameters never used, families with no runbook."""

from __future__ import annotations

import re

import pytest

from runbooks.language.lint import families_of, lint
from runbooks.language.loader import library_of
from streams.config.settings import ResponderSettings
from streams.model.run import Mode
from tests.runbooks.language.test_includes_and_overrides import FILES, fragment, step

FAMILIES = ("gpu_off_bus", "gpu_fault", "hang", "unknown")
ASK = "{id: ask, action: ask, target: incident}"


def book(name: str, match: str, *steps: str, priority: int = 0, more: str = "") -> str:
    listed = "\n".join(f"  - {one}" for one in steps or (ASK,))
    return (
        f"id: {name}\nrevision: 1\nowner: t\nmode: auto\ndescription: to test with\n"
        f"match: {match}\npriority: {priority}\n{more}steps:\n{listed}\n"
    )


def warnings(*texts: str) -> list[str]:
    library = library_of((f"f{i}.yaml", text) for i, text in enumerate(texts))
    assert library.faults == []
    return [f"{found.place}: {found.message}" for found in lint(library, FAMILIES, complete=False)]


OFF_BUS = 'incident.family == "gpu_off_bus"'

NEVER = {
    "the same with a higher priority": (book("a", OFF_BUS, priority=5), book("b", OFF_BUS)),
    "a catch-all with a higher priority": (book("a", "'true'", priority=5), book("b", OFF_BUS + " && incident.jobs > 1")),
    "a wider list of families": (
        book("a", "incident.family in ['gpu_off_bus', 'hang']", priority=5), book("b", OFF_BUS + " && incident.jobs > 1")),
    "a prefix of families": (book("a", "incident.family.startsWith('gpu_')", priority=5), book("b", OFF_BUS)),
    "the same in another order": (
        book("a", f"incident.jobs>1 && {OFF_BUS}"), book("b", f"({OFF_BUS}) && incident.jobs > 1")),
    "a target that the other names too": (
        book("a", OFF_BUS, "{id: c, action: cordon_node, target: root_node}", priority=5),
        book("b", f'{OFF_BUS} && incident.root.node != ""')),
}  # fmt: skip


@pytest.mark.parametrize("name", NEVER)
def test_a_runbook_behind_one_that_matches_all_the_same_is_never_taken(name: str) -> None:
    found = warnings(*NEVER[name])
    assert found == ["f1.yaml:6:8: b is never chosen: whatever it matches, a matches too and is chosen first"]


REACHED = {
    "a more specific one": (book("a", OFF_BUS), book("b", OFF_BUS + " && incident.jobs > 1")),
    "a narrower one before it": (book("a", OFF_BUS + " && incident.jobs > 1", priority=5), book("b", OFF_BUS)),
    "another family": (book("a", OFF_BUS, priority=5), book("b", "incident.family == 'hang'")),
    "one that needs a node": (
        book("a", OFF_BUS, "{id: c, action: cordon_node, target: root_node}", priority=5), book("b", OFF_BUS)),
    "one that only might match": (book("a", f"{OFF_BUS} || incident.jobs > 1", priority=5), book("b", "incident.jobs > 1")),
}  # fmt: skip


@pytest.mark.parametrize("name", REACHED)
def test_nothing_is_called_unreachable_that_can_be_reached(name: str) -> None:
    assert warnings(*REACHED[name]) == []


def test_what_contradicts_itself_is_never_taken() -> None:
    twice = book("a", f"{OFF_BUS} && incident.family == 'hang'")
    assert warnings(twice) == ["f0.yaml:6:8: a is never chosen: it matches no family"]
    assert warnings(book("a", "'false'")) == ["f0.yaml:6:8: a is never chosen: it matches no family"]


def test_a_rung_of_a_ladder_need_not_match_anything() -> None:
    below = book("a", OFF_BUS, more="escalation: {to: b}\n")
    assert warnings(below, book("b", "'false'")) == []


def test_a_step_that_no_incident_of_the_runbook_can_want_is_named() -> None:
    text = book(
        "a", OFF_BUS,
        "{id: one, action: ask, target: incident, when: \"incident.family == 'hang'\"}",
        "{id: two, action: ask, target: incident, when: 'false'}",
        "{id: three, action: ask, target: incident, when: incident.jobs > 1}",
        "{id: four, action: resume_job, target: jobs}",
    )  # fmt: skip
    assert [line.split(": ", 1)[1] for line in warnings(text)] == [
        "step one is never used: its condition is for families that the runbook does not match",
        "step two is never used: its condition is always false",
        "step four is never used: it needs no suspend_job, and only a job that this run suspended is resumed",
    ]


def test_names_that_lead_nowhere_are_told_at_their_place() -> None:
    text = book(
        "a",
        "incident.family in ['gpu_off_bus', 'hnag']",
        more="parameters:\n  idle: {type: number, default: 1}\n",
    )
    assert warnings(text, fragment("lonely", step("s"))) == [
        "f0.yaml:6:43: there is no family 'hnag'",
        "f0.yaml:9:9: parameter idle is never used",
        "f1.yaml:1:1: fragment lonely is never included",
    ]


def test_a_family_that_only_the_last_resort_takes_is_told_when_all_runbooks_are_there() -> None:
    library = library_of({"a.yaml": book("a", OFF_BUS), "b.yaml": book("z", "'true'")}.items())
    told = [found.message for found in lint(library, FAMILIES)]
    assert told == [f"family {name} has no runbook of its own" for name in ("gpu_fault", "hang")]


def test_faults_come_with_their_places_and_keep_the_rest_from_being_judged() -> None:
    files = FILES | {"site.yaml": FILES["site.yaml"].replace("drain:", "drian:")}
    (fault,) = lint(library_of(files.items()), FAMILIES)
    assert (fault.place, fault.level, fault.file) == ("site.yaml:9:3", "fault", "site.yaml")


def test_families_are_read_from_conditions_on_the_family_alone() -> None:
    known = frozenset(FAMILIES)
    assert families_of("incident.jobs > 1", known) == known
    assert families_of("incident.family.startsWith('gpu_') && incident.jobs > 1", known) == {
        "gpu_off_bus",
        "gpu_fault",
    }
    assert families_of("!(incident.family == 'hang') && incident.family != 'unknown'", known) == {
        "gpu_off_bus",
        "gpu_fault",
    }


GROUPS = ResponderSettings.model_validate({"approval_groups": {"oncall": ["ada", "bob"], "leads": ["eve"]}})
NONE = ResponderSettings(mode=Mode.APPROVE)
UNANSWERED = {
    "a group that is not there": (
        GROUPS, "{group: network}", "f0.yaml:9:75: steps.close.approval: there is no approval group network, so the step "
        "cannot be approved: known are leads, oncall; name one of them, or set responder.approval_groups.network"),
    "no group at all": (
        NONE, "{group: network}", "f0.yaml:9:75: steps.close.approval: there is no approval group network, so the step "
        "cannot be approved: known are none; name one of them, or set responder.approval_groups.network"),
    "more people than the group has": (
        GROUPS, "{group: leads, quorum: 2}", "f0.yaml:9:90: steps.close.approval: 2 people of leads are required, and it has 1: "
        "lower the quorum, or add people to it"),
    "more people than all groups have": (
        GROUPS, "{quorum: 4}", "f0.yaml:9:76: steps.close.approval: 4 people of an approval group are required, and it has 3: "
        "lower the quorum, or add people to it"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNANSWERED)
def test_an_approval_that_nobody_could_give_is_a_fault_at_its_place(name: str) -> None:
    policy, asks, told = UNANSWERED[name]
    text = book("a", OFF_BUS, f"{{id: close, action: cordon_node, target: root_node, approval: {asks}}}")
    library = library_of({"f0.yaml": text}.items())
    (found,) = lint(library, FAMILIES, policy=policy)
    assert (found.level, f"{found.place}: {found.message}") == ("fault", told)
    assert [found.level for found in lint(library, FAMILIES, complete=False)] == []


@pytest.mark.parametrize(
    "asks", ["{group: oncall, quorum: 2}", "{group: leads}", "{quorum: 3}", "true", "false"]
)
def test_an_approval_that_somebody_can_give_is_none(asks: str) -> None:
    text = book("a", OFF_BUS, f"{{id: close, action: cordon_node, target: root_node, approval: {asks}}}")
    assert lint(library_of({"f0.yaml": text}.items()), FAMILIES, complete=False, policy=GROUPS) == ()
    if "group" not in asks:
        assert lint(library_of({"f0.yaml": text}.items()), FAMILIES, complete=False, policy=NONE) == ()


def faults(*lines: str, head: str = 'match: incident.family == "hang"') -> list[str]:
    listed = "\n".join(f"  - {line}" for line in lines)
    text = f"id: a\nrevision: 1\nowner: t\nmode: auto\ndescription: to test with\n{head}\nsteps:\n{listed}\n"
    return [re.split(r": (?:'|must be )", fault)[0] for fault in library_of([("f", text)]).faults]


def test_a_wrong_action_is_one_fault_with_the_one_that_was_meant() -> None:
    text = book("a", OFF_BUS, "{id: close, action: cordn_node, target: root_node}")
    (fault,) = library_of([("f", text)]).faults
    assert fault == "f:9:25: steps.0.action: 'cordn_node' is not a known value; did you mean cordon_node?"


def test_faults_of_match_steps_and_their_order_are_told_together_with_those_of_single_keys() -> None:
    told = faults(
        "{id: close, action: cordn_node, target: root_node}",
        "{id: tell, action: notify, target: incident, needs: [nowhere], when: incident.nosuch > 1}",
        "{id: stop, action: suspend_job, target: jobs}",
        "{id: stop, action: notify, target: incident, on_failure: escalate, params: {loud: true}}",
        head="match: incident.famly == 'hang'\npriority: many",
    )
    assert [line.split(": ")[1] for line in told] == [
        "priority",
        "steps.0.action",
        "steps.1.needs",
        "steps.2.needs",
        "steps.3.id",
        "steps.3.on_failure",
        "match",
        "steps.1.when",
        "steps.3.params.loud",
    ]


def test_what_may_only_follow_from_another_fault_is_not_told() -> None:
    parameters = (
        "match: incident.family == 'hang'\nparameters:\n  tries: {type: integr, default: 1}\n"
        "  worst: {type: integer, default: 9, max: 3}"
    )
    assert faults(
        "{id: close, action: cordn_node, target: root_node}",
        "{id: drain, action: drain_node, target: root_node, needs: [close], when: parameters.tries > 1}",
        "{id: ask, action: ask, target: incident, when: parameters.worst > 1}",
        head=parameters,
    ) == [
        "f:8:17: parameters.tries.type",
        "f:9:35: parameters.worst.default: 9 is above 3",
        "f:11:25: steps.0.action",
    ]
    (nameless,) = faults(
        "{id: 7, action: cordon_node, target: root_node}",
        "{id: drain, action: drain_node, target: root_node, needs: [close]}",
    )
    assert nameless == "f:8:10: steps.0.id"
