"""Decisions by form: what is sent, what is refused before it is sent, and what the person is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from aiokafka.errors import KafkaTimeoutError

from streams.config.settings import ResponderSettings
from streams.model.conversation import Verb
from streams.model.errors import Temporary, Unreachable
from streams.model.incident import Incident
from streams.model.run import Mode
from tests.faultline.console.scenes import Night, asking
from tests.faultline.console.served import ADA, Reader, reading, served

pytestmark = pytest.mark.embedded


@pytest.fixture
def night() -> Night:
    return Night()


@pytest.fixture
def about(night: Night) -> Incident:
    return asking(night)


@pytest.fixture
async def ada(night: Night, about: Incident) -> AsyncIterator[Reader]:
    async with served(night) as base, reading(base) as reader:
        yield reader


async def test_an_approval_names_the_person_their_groups_and_the_plan_that_was_shown(
    ada: Reader, night: Night, about: Incident
) -> None:
    page = await ada.decides(about.id, "approve", "seen, go on")
    (command,) = night.commands
    (run,) = night.view.runs(about.id)
    assert (command.verb, command.incident, command.cluster) == (Verb.APPROVE, about.id, about.cluster)
    assert (command.actor, command.via, command.reason) == (
        "Ada (ada@example.test)",
        "console",
        "seen, go on",
    )
    assert command.groups == ("oidc:sre", "oidc:gpu")
    assert command.digest == run.plan.digest
    assert page.path == f"/incidents/{about.id}"
    assert "Approve: accepted" in page.shown
    assert "Ada (ada@example.test) approved, by console: seen, go on" in page.shown


async def test_a_refusal_is_shown_with_its_reason(about: Incident, night: Night) -> None:
    night.policy = ResponderSettings(mode=Mode.APPROVE, approvers=("somebody@example.test",))
    async with served(night) as base, reading(base) as ada:
        page = await ada.decides(about.id, "approve")
    assert "Approve: refused" in page.shown
    assert "not accepted" in page.shown


async def test_without_an_answer_it_is_stored_and_the_page_shows_the_answer_once_there_is_one(
    ada: Reader, night: Night, about: Incident
) -> None:
    night.answers = False
    form = await ada.form(f"/incidents/{about.id}", "ack")
    async with ada.session.post(
        f"{ada.base}/incidents/{about.id}/decide", data=form, headers={"Origin": ada.base}
    ) as answer:
        address = answer.url
        assert "Acknowledge: stored, no answer yet" in await answer.text()
    night.tell(about.id, "person.ack", "acknowledged by Ada", command=night.commands[0].id)
    async with ada.session.get(address) as answer:
        assert "Acknowledge: accepted" in await answer.text()


async def test_the_answer_of_a_decision_cannot_be_made_up_by_a_link(ada: Reader, about: Incident) -> None:
    page = await ada.get(f"/incidents/{about.id}?told=cmd-1:approve&seal=00000000000000000000")
    assert "stored, no answer yet" not in page.shown
    assert page.status == 200


@pytest.mark.parametrize(
    ("button", "reason", "verb"),
    [
        ("reject", "the job ends in ten minutes", Verb.REJECT),
        ("ack", "", Verb.ACK),
        ("hand_over", "mine", Verb.HAND_OVER),
        ("snooze", "", Verb.SNOOZE),
        ("silence", "", Verb.SILENCE),
        ("stop", "", Verb.STOP),
        ("resolve", "replaced", Verb.RESOLVE),
        ("note", "vendor is informed", Verb.NOTE),
    ],
)
async def test_every_other_decision_is_a_button_too(
    ada: Reader, night: Night, about: Incident, button: str, reason: str, verb: Verb
) -> None:
    page = await ada.decides(about.id, button, reason)
    (command,) = night.commands
    assert (command.verb, command.reason) == (verb, reason)
    lasts = verb in (Verb.SNOOZE, Verb.SILENCE)
    assert command.until == (night.now + timedelta(minutes=30) if lasts else None)
    assert "accepted" in page.shown


async def test_who_has_acknowledged_it_is_on_the_page_and_in_the_list(ada: Reader, about: Incident) -> None:
    page = await ada.decides(about.id, "ack")
    assert "acknowledged by Ada (ada@example.test)" in page.shown.partition("Why this one")[0]
    assert "acknowledged by Ada (ada@example.test)" in (await ada.get("/")).shown
    await ada.decides(about.id, "hand_over", "mine now")
    assert "taken over by Ada (ada@example.test)" in (await ada.get("/")).shown


async def test_a_button_pressed_twice_is_one_command(ada: Reader, night: Night, about: Incident) -> None:
    form = await ada.form(f"/incidents/{about.id}", "approve")
    first = await ada.post(f"/incidents/{about.id}/decide", form)
    second = await ada.post(f"/incidents/{about.id}/decide", form)
    assert len(night.commands) == 1
    assert "accepted" in first.shown
    assert "accepted" in second.shown


async def test_a_form_from_an_hour_ago_is_bound_to_the_plan_it_showed(
    ada: Reader, night: Night, about: Incident
) -> None:
    form = {**await ada.form(f"/incidents/{about.id}", "approve"), "digest": "0" * 32}
    page = await ada.post(f"/incidents/{about.id}/decide", form)
    assert "refused" in page.shown
    assert "outdated plan" in page.shown


@pytest.mark.parametrize(
    ("changes", "headers", "status", "why"),
    [
        ({"token": ""}, {}, 403, "another session"),
        ({"token": "0" * 64}, {}, 403, "another session"),
        ({"token": "\u00e9"}, {}, 403, "another session"),
        ({}, {"Origin": "https://evil.example.test"}, 403, "another site"),
        ({}, {"Origin": "null"}, 403, "another site"),
        ({}, {"Origin": ""}, 403, "another site"),
        ({}, {"Sec-Fetch-Site": "cross-site"}, 403, "another site"),
        ({}, {"X-Forwarded-User": "eve@example.test"}, 403, "another session"),
        ({"verb": "reject"}, {}, 400, "why it is rejected"),
        ({"verb": "kill"}, {}, 400, "not decided here"),
        ({"verb": "dance"}, {}, 400, "names no decision"),
        ({"step": ""}, {}, 400, "names no plan"),
        ({"reason": "x" * 2_001}, {}, 400, "2000 are the most"),
        ({"reason": "x" * 5_000_000}, {}, 400, "too long"),
        ({"verb": "snooze", "minutes": "-5"}, {}, 400, "how long"),
        ({"verb": "silence", "minutes": "99999999999999999999"}, {}, 400, "how long"),
    ],
)
async def test_what_is_wrong_with_a_form_is_said_and_nothing_is_sent(
    ada: Reader,
    night: Night,
    about: Incident,
    changes: dict[str, str],
    headers: dict[str, str],
    status: int,
    why: str,
) -> None:
    form = {**await ada.form(f"/incidents/{about.id}", "approve"), **changes}
    page = await ada.post(f"/incidents/{about.id}/decide", form, **headers)
    assert page.status == status
    assert why in page.shown
    assert not night.commands


async def test_another_browser_of_the_same_person_cannot_use_the_form(
    ada: Reader, night: Night, about: Incident
) -> None:
    form = await ada.form(f"/incidents/{about.id}", "approve")
    async with reading(ada.base) as other:
        assert (await other.post(f"/incidents/{about.id}/decide", form)).status == 403
    assert not night.commands


async def test_something_else_than_a_form_is_refused(ada: Reader, about: Incident) -> None:
    url = f"{ada.base}/incidents/{about.id}/decide"
    async with ada.session.post(url, json={"verb": "approve"}, headers={"Origin": ada.base}) as answer:
        assert answer.status == 400


@pytest.mark.parametrize(
    "error", [Unreachable("broker-1:9092 does not answer"), Temporary("broker-1:9092"), KafkaTimeoutError()]
)
async def test_while_kafka_is_away_the_person_is_told_that_nothing_is_certain(
    ada: Reader, night: Night, about: Incident, error: Exception
) -> None:
    night.fails = error
    page = await ada.decides(about.id, "approve")
    assert page.status == 503
    assert "it is not known whether the decision was stored" in page.shown
    assert "broker-1" not in page.shown


async def test_the_same_press_again_after_kafka_was_away_keeps_its_id(
    ada: Reader, night: Night, about: Incident
) -> None:
    form = await ada.form(f"/incidents/{about.id}", "approve")
    night.fails = KafkaTimeoutError()
    await ada.post(f"/incidents/{about.id}/decide", form)
    night.fails = None
    page = await ada.post(f"/incidents/{about.id}/decide", form)
    assert "accepted" in page.shown
    first, second = night.tried
    assert first.id == second.id


async def test_a_display_name_cannot_pass_for_an_id(night: Night, about: Incident) -> None:
    eve = {
        **ADA,
        "X-Forwarded-User": "eve) (ada@example.test",
        "X-Forwarded-Preferred-Username": "Ada (ada@example.test)",
    }
    async with served(night) as base, reading(base, eve) as reader:
        await reader.decides(about.id, "ack")
    assert night.commands[0].actor == "Ada (ada@example.test) (eve___ada@example.test)"
