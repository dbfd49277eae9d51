"""What people do in PagerDuty, Jira and ServiceNow, and what it asks for here. Pure."""

from __future__ import annotations

from typing import Any

import pytest

from faultline.gateway.hooks import jira, pagerduty, servicenow
from faultline.gateway.hooks.person_actions import Ignored, PersonAction, command_id, incident_in, labelled
from streams.model.conversation import Verb
from tests.faultline.gateway import deliveries
from tests.faultline.gateway.deliveries import ANN, FAULTLINE
from tests.faultline.gateway.serving import INCIDENT

ANN_THERE = ("Ann Smith", "PANN")
SERVICE = {"type": "service_reference", "id": "PSERV", "summary": "GPU cluster"}
ADF = {
    "type": "doc",
    "version": 1,
    "content": [
        {
            "type": "paragraph",
            "content": [
                {"type": "mention", "attrs": {"id": "1", "text": "@bo"}},
                {"type": "text", "text": " riser is out"},
                {"type": "hardBreak"},
                {"type": "text", "text": "next: slot 4"},
            ],
        },
        {
            "type": "paragraph",
            "content": [{"type": "inlineCard", "attrs": {"url": "https://kb.example.test/7"}}],
        },
    ],
}


def verb_of(action: PersonAction | Ignored) -> str:
    return action.verb if isinstance(action, PersonAction) else action.why


@pytest.mark.parametrize(
    ("event", "verb"),
    [
        (deliveries.pagerduty(), "ack"),
        (deliveries.pagerduty("incident.resolved"), "resolve"),
        (deliveries.pagerduty_note(), "note"),
        (deliveries.pagerduty("incident.triggered"), "incident.triggered is no decision"),
        (deliveries.pagerduty("incident.unacknowledged"), "incident.unacknowledged is no decision"),
        (deliveries.pagerduty("pagey.ping"), "pagey.ping is no decision"),
        (deliveries.pagerduty(agent=SERVICE), "no person did it"),
        (deliveries.pagerduty(agent=None), "no person did it"),
        (deliveries.pagerduty(agent={"type": "user_reference"}), "no person did it"),
        (deliveries.pagerduty(agent={**deliveries.USER, "id": "PBOT"}), "Faultline did it"),
        (deliveries.pagerduty(data=None), "it has no id"),
        (deliveries.pagerduty(id=None), "it has no id"),
        (deliveries.pagerduty(event_type=["x"]), "an event without a type is no decision"),
    ],
)
def test_what_a_person_does_in_pagerduty(event: dict[str, Any], verb: str) -> None:
    action = pagerduty.read_event(event["event"], "PBOT")
    assert verb_of(action) == verb
    if isinstance(action, PersonAction):
        assert (action.person, action.person_id) == ANN_THERE


def test_a_note_in_pagerduty_says_what_it_says_there() -> None:
    action = pagerduty.read_event(deliveries.pagerduty_note("riser is out")["event"], "")
    assert isinstance(action, PersonAction)
    assert (action.text, action.act) == ("riser is out", "QINCIDENT1/note/PNOTE1")


@pytest.mark.parametrize(
    ("event", "verb"),
    [
        (deliveries.jira_closed(), "resolve"),
        (
            deliveries.jira_closed(user={"name": "ann", "key": "JIRAUSER1", "displayName": "Ann Smith"}),
            "resolve",
        ),
        (deliveries.jira_comment(), "note"),
        (
            deliveries.jira_comment(
                webhookEvent="jira:issue_updated", issue_event_type_name="issue_commented"
            ),
            "note",
        ),
        (deliveries.jira_closed(user=FAULTLINE), "Faultline did it"),
        (deliveries.jira_closed(user={"name": "account-of-faultline"}), "Faultline did it"),
        (deliveries.jira_closed(user={**ANN, "accountType": "app"}), "no person did it"),
        (deliveries.jira_closed(user={}), "no person did it"),
        (deliveries.jira_comment(author=FAULTLINE), "Faultline did it"),
        (deliveries.jira_comment("closed\nfaultline-0123456789abcdef0123456789abcdef"), "Faultline did it"),
        (deliveries.jira_comment("faultline-copy-of-GPU-3"), "Faultline did it"),
        (deliveries.jira_comment(comment=None), "no person did it"),
        (deliveries.jira_comment(comment={"author": ANN, "body": "no id"}), "it has no id"),
        (
            deliveries.jira_closed(issue=deliveries.jira_issue("indeterminate")),
            "issue_generic is no decision",
        ),
        (
            deliveries.jira_closed(changelog={"id": "1", "items": [{"field": "summary"}]}),
            "issue_generic is no decision",
        ),
        (deliveries.jira_closed(changelog="odd"), "issue_generic is no decision"),
        (deliveries.jira_closed(changelog={"items": [{"field": "status"}]}), "it has no id"),
        (deliveries.jira_comment(webhookEvent="comment_updated"), "comment_updated is no decision"),
        ({}, "an event without a type is no decision"),
    ],
)
def test_what_a_person_does_in_jira(event: dict[str, Any], verb: str) -> None:
    assert verb_of(jira.read_event(event, "account-of-faultline")) == verb


def test_one_comment_is_one_act_however_many_events_tell_of_it() -> None:
    told = [
        deliveries.jira_comment(),
        deliveries.jira_comment(webhookEvent="jira:issue_updated", issue_event_type_name="issue_commented"),
        deliveries.jira_comment(timestamp=1),
    ]
    acts = {action.act for event in told if isinstance(action := jira.read_event(event, ""), PersonAction)}
    assert acts == {"GPU-7/comment/10100"}


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("as it is", "as it is"),
        (ADF, "@bo riser is out\nnext: slot 4\nhttps://kb.example.test/7"),
        (None, ""),
        ({"type": "doc", "content": "odd"}, ""),
        ([1, {"type": "text", "text": "odd"}], ""),
    ],
)
def test_the_text_of_a_comment(body: Any, shown: str) -> None:
    assert jira.comment_text(body) == shown


def test_a_comment_nested_without_end_is_read_in_part() -> None:
    body: Any = {"type": "text", "text": "deep"}
    for _ in range(jira.MAX_NODES + 1):
        body = {"type": "paragraph", "content": [body]}
    assert "deep" not in jira.comment_text(body)


@pytest.mark.parametrize(
    ("event", "verb"),
    [
        (deliveries.servicenow(), "resolve"),
        (deliveries.servicenow("commented"), "note"),
        (deliveries.servicenow("opened"), "opened is no decision"),
        (deliveries.servicenow(user_name="faultline.bot"), "Faultline did it"),
        (deliveries.servicenow("commented", text="faultline-0123456789abcdef"), "Faultline did it"),
        (deliveries.servicenow(user_name=""), "no person did it"),
        (deliveries.servicenow(id=None), "it has no id"),
        (deliveries.servicenow(sys_id=None, number=None), "it has no id"),
    ],
)
def test_what_a_person_does_in_servicenow(event: dict[str, Any], verb: str) -> None:
    assert verb_of(servicenow.read_event(event, "faultline.bot")) == verb


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ((INCIDENT.id,), INCIDENT.id),
        ((f"faultline/{INCIDENT.id}",), INCIDENT.id),
        ((None, 7, f"[{INCIDENT.id}]"), INCIDENT.id),
        ((f"{INCIDENT.id}0",), None),
        (("inc-", "inc-XYZ", "inc-0123"), None),
        ((f"zinc-{'0' * 16}",), None),
    ],
)
def test_an_incident_is_found_by_its_whole_id(texts: tuple[object, ...], found: str | None) -> None:
    assert incident_in(*texts) == found


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (["gpu", deliveries.LABEL], INCIDENT.id),
        (["gpu", INCIDENT.id], None),
        (["faultline-0123456789abcdef", 7, None], None),
        (deliveries.LABEL, None),
        ({deliveries.LABEL: 1}, None),
        (None, None),
    ],
)
def test_a_label_names_the_incident(labels: object, found: str | None) -> None:
    assert labelled(labels) == found


def test_the_id_of_a_command_is_that_of_the_act() -> None:
    first = command_id("jira", "GPU-7/comment/1", Verb.ACK)
    assert first == command_id("jira", "GPU-7/comment/1", Verb.ACK)
    assert first.startswith("jira/GPU-7/")
    others = {
        command_id("jira", "GPU-7/comment/2", Verb.ACK),
        command_id("jira", "GPU-7/comment/1", Verb.RESOLVE),
        command_id("servicenow", "GPU-7/comment/1", Verb.ACK),
    }
    assert first not in others
    assert len(others) == 3
