"""The hooks over HTTP: who is let in, what is bounded, and what comes of a delivery."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from faultline.gateway.app import build_app
from faultline.gateway.hooks import HOOKS
from faultline.gateway.server import served as serve_app
from streams.model.conversation import TimelineEntry
from streams.model.errors import ConfigError
from streams.model.incident import IncidentState
from streams.model.run import EffectRecord, EffectState, StepState, Target
from tests.connectors.chat import thread_documents
from tests.faultline.gateway import deliveries, serving
from tests.faultline.gateway.serving import INCIDENT, NEXT_SECRET, NEXT_TOKEN, NOW, Served, bearer, settings

pytestmark = pytest.mark.embedded

Signer = Callable[[bytes], dict[str, str]]


def sent(document: Any) -> bytes:
    return orjson.dumps(document)


# -- who is let in

GOOD: dict[str, tuple[Any, Signer]] = {
    "alertmanager": (deliveries.alert_group(), lambda _: bearer()),
    "alertmanager, rotated": (deliveries.alert_group(), lambda _: bearer(NEXT_TOKEN)),
    "alertmanager, login": (deliveries.alert_group(), lambda _: serving.basic()),
    "events": (deliveries.cloudevent(), serving.standard),
    "events, rotated": (deliveries.cloudevent(), lambda body: serving.standard(body, secret=NEXT_SECRET)),
    "events, token": (deliveries.cloudevent(), lambda _: bearer()),
    "pagerduty": (deliveries.pagerduty(), serving.pagerduty),
    "pagerduty, both": (
        deliveries.pagerduty(),
        lambda body: serving.pagerduty(body, "some older secret", NEXT_SECRET),
    ),
    "jira": (deliveries.jira_closed(), serving.jira),
    "servicenow": (deliveries.servicenow(), serving.standard),
    "servicenow, token": (deliveries.servicenow(), lambda _: bearer()),
}


@pytest.mark.parametrize("case", GOOD)
async def test_who_proves_itself_is_let_in(case: str) -> None:
    document, sign = GOOD[case]
    body = sent(document)
    async with serving.serving() as served:
        status, text = await served.post(f"/hooks/{case.split(',')[0]}", body, **sign(body))
        assert status == 200, text
        assert len(served.records.values) + len(served.decisions.commands) == 1


FORGED: dict[str, Signer] = {
    "nothing": lambda _: {},
    "a wrong token": lambda _: bearer("another token of theirs"),
    "a wrong login": lambda _: serving.basic(password="another password"),
    "another secret": lambda body: (
        serving.standard(body, secret="another secret here")
        | serving.pagerduty(body, "another secret here")
        | serving.jira(body, "another secret here")
    ),
    "another body": lambda body: (
        serving.standard(body + b" ") | serving.pagerduty(body + b" ") | serving.jira(body + b" ")
    ),
}


@pytest.mark.parametrize("name", HOOKS)
@pytest.mark.parametrize("case", FORGED)
async def test_a_forged_delivery_is_refused_and_nothing_is_done(name: str, case: str) -> None:
    body = sent(next(document for key, (document, _) in GOOD.items() if key.startswith(name)))
    async with serving.serving() as served:
        answer = await served.answer(f"/hooks/{name}", body, **FORGED[case](body))
        assert answer.status == 401
        assert "WWW-Authenticate" in answer.headers
        assert (served.records.values, served.decisions.commands) == ([], [])


@pytest.mark.parametrize("minutes", [-10, 10])
async def test_a_signature_from_a_clock_ten_minutes_off_is_refused_with_the_reason(minutes: int) -> None:
    body = sent(deliveries.cloudevent())
    async with serving.serving(off_s=60.0 * minutes) as served:
        status, text = await served.post("/hooks/events", body, **serving.standard(body))
        assert status == 403
        assert "600 s" in text
        assert served.records.values == []
        # A token proves the sender without a clock.
        assert (await served.post("/hooks/events", body, **bearer()))[0] == 200


@pytest.mark.parametrize("minutes", [-10, 10])
@pytest.mark.parametrize("case", ["pagerduty", "jira", "servicenow, token"])
async def test_a_decision_from_a_clock_ten_minutes_off_counts(case: str, minutes: int) -> None:
    document, sign = GOOD[case]
    async with serving.serving(off_s=60.0 * minutes) as served:
        body = sent(document)
        assert (await served.post(f"/hooks/{case.split(',')[0]}", body, **sign(body)))[0] == 200
        assert len(served.decisions.commands) == 1


@pytest.mark.parametrize("case", ["pagerduty", "jira", "servicenow, token"])
async def test_a_decision_from_yesterday_does_not_count(case: str) -> None:
    document, sign = GOOD[case]
    async with serving.serving(off_s=86_400) as served:
        body = sent(document)
        assert (await served.post(f"/hooks/{case.split(',')[0]}", body, **sign(body)))[0] == 403
        assert served.decisions.commands == []


async def test_a_hook_without_a_secret_is_not_there() -> None:
    async with serving.serving(settings(jira={})) as served:
        body = sent(deliveries.jira_closed())
        assert (await served.post("/hooks/jira", body, **serving.jira(body)))[0] == 404
        assert (await served.post("/hooks/alertmanager", b"{}"))[0] == 401


@pytest.mark.parametrize(
    "path", ["/", "/hooks", "/hooks/", "/hooks/other", "/hooks/jira/x", "/hooks/%00", "/hooks/jira%2f"]
)
async def test_an_unknown_path_is_not_found(path: str) -> None:
    async with serving.serving() as served:
        assert (await served.post(path, b"{}", **bearer()))[0] == 404


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "PROPFIND"])
async def test_another_method_is_not_allowed(method: str) -> None:
    async with (
        serving.serving() as served,
        served.client.request(method, served.url + "/hooks/events", headers=bearer()) as answer,
    ):
        assert answer.status == 405


async def test_an_address_that_fails_too_often_is_not_looked_at() -> None:
    async with serving.serving(settings(failures_per_minute=3)) as served:
        body = sent(deliveries.jira_closed())
        found = [await served.post("/hooks/jira", body, **serving.jira(b"other")) for _ in range(4)]
        assert [status for status, _ in found] == [401, 401, 401, 429]
        # It may be behind the same proxy as the true one: a right token is in the head, and costs nothing to see.
        assert (await served.post("/hooks/events", sent(deliveries.cloudevent()), **bearer()))[0] == 200


async def test_a_delivery_beyond_the_rate_is_asked_to_come_again() -> None:
    async with serving.serving(settings(requests_at_once=2, requests_per_s=0.01)) as served:
        body = sent(deliveries.alert_group())
        found = [await served.answer("/hooks/alertmanager", body, **bearer()) for _ in range(3)]
        # Alertmanager gives up after a 429: only a 5xx makes it send again.
        assert [answer.status for answer in found] == [200, 200, 503]
        assert 1 <= int(found[-1].headers["Retry-After"]) <= 100
        assert len(served.records.values) == 2


async def test_no_secret_is_logged_or_answered() -> None:
    with capture_logs() as lines:
        async with serving.serving() as served:
            answers = []
            for name, (document, sign) in GOOD.items():
                body = sent(document)
                answers.append(await served.post(f"/hooks/{name.split(',')[0]}", body, **sign(body)))
                answers.append(await served.post(f"/hooks/{name.split(',')[0]}", body, **sign(body + b"x")))
                answers.append(
                    await served.post(f"/hooks/{name.split(',')[0]}", body, **bearer("not the token of ours"))
                )
    told = repr(lines) + repr(answers)
    for secret in (
        serving.TOKEN,
        NEXT_TOKEN,
        serving.SECRET,
        NEXT_SECRET,
        serving.PASSWORD,
        "not the token of ours",
    ):
        assert secret not in told
    assert "401" in told


# -- what is bounded


async def test_a_body_that_says_it_is_too_long_is_refused_unread() -> None:
    async with serving.serving(settings(max_body_bytes=1024)) as served:
        status, text = await served.post("/hooks/events", b"[" + b" " * 2000 + b"]", **bearer())
        assert (status, served.records.values) == (413, [])
        assert "1024" in text


async def test_a_body_that_goes_on_and_on_is_cut_off_while_reading() -> None:
    async with serving.serving(settings(max_body_bytes=1024)) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(
            b"POST /hooks/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer " + serving.TOKEN.encode() + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        # No end of the body is ever sent: the answer comes because of its length, and then the connection ends.
        for _ in range(4):
            writer.write(b"200\r\n" + b" " * 0x200 + b"\r\n")
            await writer.drain()
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        assert b" 413 " in head.splitlines()[0]
        assert b"connection: close" in head.lower()
        await asyncio.wait_for(reader.read(), 20)
        writer.close()


async def test_a_slow_body_is_cut_off() -> None:
    async with serving.serving(settings(body_timeout_s=0.1)) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(
            b"POST /hooks/events HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer " + serving.TOKEN.encode() + b"\r\n\r\n{"
        )
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        assert b" 408 " in head.splitlines()[0]
        writer.close()


async def test_a_silent_connection_is_closed() -> None:
    async with serving.serving(settings(head_timeout_s=0.1)) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"POST /hooks/events HTTP/1.1\r\nHost: x\r\n")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(reader.readexactly(1), 20)
        writer.close()


async def test_a_connection_beyond_the_limit_is_closed_while_requests_are_in_progress_on_all_others() -> None:
    async with serving.serving(settings(max_connections=1)) as served:
        body = sent(deliveries.cloudevent())
        busy, sender = await asyncio.open_connection("127.0.0.1", served.port)
        sender.write(
            b"POST /hooks/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/cloudevents+json\r\n"
            b"Expect: 100-continue\r\nAuthorization: Bearer " + serving.TOKEN.encode() + b"\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body)
        )
        # The request has begun once its body is asked for.
        assert b" 100 " in await asyncio.wait_for(busy.readuntil(b"\r\n\r\n"), 20)
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(reader.readexactly(1), 20)
        writer.close()
        sender.write(body)
        assert b" 200 " in (await asyncio.wait_for(busy.readuntil(b"\r\n\r\n"), 20)).splitlines()[0]
        sender.close()


async def test_connections_on_which_nothing_happens_give_way_to_new_ones() -> None:
    async with serving.serving(settings(max_connections=3)) as served:
        held = []
        for _ in range(3):
            # A whole request, so that the limit for the first head is over, and then half a head that never ends.
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\n")
            assert b" 404 " in await asyncio.wait_for(reader.readuntil(b"\r\n"), 20)
            held.append((reader, writer))
        body = sent(deliveries.cloudevent())
        assert (await served.post("/hooks/events", body, **bearer()))[0] == 200
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            # The one that had waited longest has lost its place.
            await asyncio.wait_for(held[0][0].readuntil(b"never sent"), 20)
        for _, writer in held:
            writer.close()


async def test_every_answer_says_that_it_is_no_page() -> None:
    async with serving.serving() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n")
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)).decode().casefold()
        assert "content-security-policy: default-src 'none'" in head
        assert "x-content-type-options: nosniff" in head
        assert "server: faultline" in head
        writer.close()


async def test_a_sender_that_hangs_up_half_way_leaves_nothing() -> None:
    async with serving.serving() as served:
        _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(
            b"POST /hooks/events HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer " + serving.TOKEN.encode() + b"\r\n\r\n{"
        )
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert (await served.post("/hooks/events", sent(deliveries.cloudevent()), **bearer()))[0] == 200
        assert len(served.records.values) == 1


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "x"])
async def test_a_compressed_body_is_not_unpacked(coding: str) -> None:
    async with serving.serving() as served:
        assert (await served.post("/hooks/events", b"\x1f\x8b", Content_Encoding=coding, **bearer()))[
            0
        ] == 415


async def test_an_address_that_is_taken_is_named() -> None:
    async with serving.serving() as first:
        taken = settings(port=first.port)
        with pytest.raises(ConfigError, match=r"gateway\.port"):
            async with serve_app(build_app(first.parts), taken):
                pytest.fail("the port is taken")


# -- alerts and events


async def test_a_group_of_alerts_is_one_record_as_it_was_sent() -> None:
    body = sent(deliveries.alert_group(3))
    async with serving.serving() as served:
        assert (await served.post("/hooks/alertmanager", body, **bearer())) == (
            200,
            '{"ok": true, "text": "3 alerts"}',
        )
        assert [one.value for one in served.records.values] == [body]
        assert served.records.values[0].key == b'{}:{alertname="GpuXid"}'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        sent({"version": "4"}),
        sent(deliveries.alert_group(version="5")),
        sent(deliveries.alert_group(alerts=[7])),
        sent(deliveries.alert_group(alerts=[{"labels": 7}])),
        sent(deliveries.alert_group())[:-2],
        b'{"version": "4", "alerts": ' + b"[" * 2000 + b"]" * 2000 + b"}",
    ],
)
async def test_what_is_no_group_of_alerts_is_refused(body: bytes) -> None:
    async with serving.serving() as served:
        assert (await served.post("/hooks/alertmanager", body, **bearer()))[0] == 400
        assert served.records.values == []


EVENT = deliveries.cloudevent()
CE = {f"ce-{name}": EVENT[name] for name in ("specversion", "id", "type", "source", "subject", "time")}


@pytest.mark.parametrize(
    ("media", "body", "written"),
    [
        ("application/cloudevents+json", EVENT, [EVENT]),
        ("application/cloudevents+json; charset=utf-8", EVENT, [EVENT]),
        (
            "application/cloudevents-batch+json",
            [EVENT, {**EVENT, "id": "e-2"}],
            [EVENT, {**EVENT, "id": "e-2"}],
        ),
        ("application/cloudevents-batch+json", [], []),
        ("application/json", {"message": "one"}, [{"message": "one"}]),
        (
            "application/json",
            [{"message": "one"}, {"message": "two"}],
            [{"message": "one"}, {"message": "two"}],
        ),
        ("application/vnd.example+json", {"message": "one"}, [{"message": "one"}]),
    ],
)
async def test_events_are_records_of_their_own(media: str, body: Any, written: list[Any]) -> None:
    async with serving.serving() as served:
        status, text = await served.post("/hooks/events", body, Content_Type=media, **bearer())
        assert status == 200, text
        assert served.records.documents == written


@pytest.mark.parametrize(
    ("media", "body", "data"),
    [
        ("application/json", b'{"message": "hot"}', {"data": {"message": "hot"}}),
        ("text/plain", "heiß".encode(), {"data": "heiß"}),
        ("application/octet-stream", b"\x00\xff", {"data_base64": "AP8="}),
    ],
)
async def test_an_event_in_binary_mode_is_written_in_structured_mode(
    media: str, body: bytes, data: dict[str, Any]
) -> None:
    async with serving.serving() as served:
        named = {**CE, "ce-partitionkey": "a%20b"}
        status, text = await served.post(
            "/hooks/events", body, **{"Content-Type": media}, **named, **bearer()
        )
        assert status == 200, text
        attributes = {
            name: EVENT[name] for name in ("specversion", "id", "type", "source", "subject", "time")
        }
        assert served.records.documents == [
            {**attributes, "partitionkey": "a b", "datacontenttype": media, **data}
        ]
        assert served.records.values[0].key == b"/racks/7/gpu-17"


async def test_a_signature_is_not_enough_for_attributes_in_headers() -> None:
    async with serving.serving() as served:
        body = b'{"message": "hot"}'
        status, text = await served.post("/hooks/events", body, **CE, **serving.standard(body))
        assert (status, served.records.values) == (403, [])
        assert "token" in text


@pytest.mark.parametrize(
    ("media", "body", "status"),
    [
        ("application/cloudevents+json", [EVENT], 400),
        ("application/cloudevents+json", {**EVENT, "id": ""}, 400),
        ("application/cloudevents+json", {**EVENT, "source": 7}, 400),
        ("application/cloudevents-batch+json", EVENT, 400),
        ("application/cloudevents-batch+json", [EVENT, 7], 400),
        ("application/json", 7, 400),
        ("application/json", [7], 400),
        ("application/json", b"\xff", 400),
        ("application/json", b'{"a": ' * 600 + b"1" + b"}" * 600, 400),
        ("application/json", [{}] * 10_001, 413),
        ("text/plain", b"hot", 415),
        ("application/x-www-form-urlencoded", b"a=b", 415),
        ("application/cloudevents+avro", b"x", 415),
    ],
)
async def test_a_malformed_event_is_refused_whole(media: str, body: Any, status: int) -> None:
    async with serving.serving() as served:
        assert (await served.post("/hooks/events", body, Content_Type=media, **bearer()))[0] == status
        assert served.records.values == []


async def test_a_signed_delivery_that_comes_again_is_not_written_again() -> None:
    async with serving.serving() as served:
        body = sent(EVENT)
        told = [await served.post("/hooks/events", body, **serving.standard(body)) for _ in range(2)]
        assert [status for status, _ in told] == [200, 200]
        assert "taken before" in told[1][1]
        assert len(served.records.values) == 1


async def test_a_signed_delivery_that_kafka_did_not_take_may_come_again() -> None:
    async with serving.serving() as served:
        body = sent(EVENT)
        served.records.away = True
        assert (await served.post("/hooks/events", body, **serving.standard(body)))[0] == 503
        served.records.away = False
        assert (await served.post("/hooks/events", body, **serving.standard(body)))[0] == 200
        assert len(served.records.values) == 1


@pytest.mark.parametrize("case", GOOD)
async def test_while_kafka_takes_nothing_senders_are_asked_to_come_again(case: str) -> None:
    document, sign = GOOD[case]
    async with serving.serving() as served:
        served.records.away = served.decisions.away = True
        body = sent(document)
        answer = await served.answer(f"/hooks/{case.split(',')[0]}", body, **sign(body))
        assert answer.status == 503
        assert int(answer.headers["Retry-After"]) >= 1


# -- decisions of people


async def told(served: Served, name: str, document: Any) -> str:
    body = sent(document)
    sign: dict[str, Signer] = {
        "pagerduty": serving.pagerduty,
        "jira": serving.jira,
        "servicenow": serving.standard,
    }
    status, text = await served.post(f"/hooks/{name}", body, **sign[name](body))
    assert status == 200, text
    return str(orjson.loads(text)["text"])


DECISIONS = [
    ("pagerduty", deliveries.pagerduty(), "ack", "Ann Smith (PANN)", ""),
    ("pagerduty", deliveries.pagerduty("incident.resolved"), "resolve", "Ann Smith (PANN)", ""),
    ("pagerduty", deliveries.pagerduty_note("riser is out"), "note", "Ann Smith (PANN)", "riser is out"),
    ("jira", deliveries.jira_closed(), "resolve", "Ann Smith (5b10a-ann)", "GPU-7 is Done"),
    (
        "jira",
        deliveries.jira_comment("riser is out", issue=deliveries.jira_issue("new")),
        "note",
        "Ann Smith (5b10a-ann)",
        "riser is out",
    ),
    ("servicenow", deliveries.servicenow(), "resolve", "Ann Smith (ann.smith)", "riser swapped"),
    ("servicenow", deliveries.servicenow("commented"), "note", "Ann Smith (ann.smith)", "riser swapped"),
]


@pytest.mark.parametrize(("name", "document", "verb", "actor", "reason"), DECISIONS)
async def test_a_decision_elsewhere_is_a_command(
    name: str, document: Any, verb: str, actor: str, reason: str
) -> None:
    async with serving.serving() as served:
        # PagerDuty tells of a note by its own id alone; which incident that is, an earlier event has told.
        await told(served, "pagerduty", deliveries.pagerduty("incident.triggered"))
        assert await told(served, name, document) == f"taken: {verb} {INCIDENT.id}"
        (command,) = served.decisions.commands
        assert (command.verb, command.actor, command.via, command.reason) == (verb, actor, name, reason)
        assert (command.incident, command.cluster, command.at) == (INCIDENT.id, INCIDENT.cluster, NOW)


@pytest.mark.parametrize("name", ["pagerduty", "jira", "servicenow"])
async def test_a_decision_is_heard_once_by_however_many_gateways(name: str) -> None:
    document = {
        "pagerduty": deliveries.pagerduty(),
        "jira": deliveries.jira_closed(),
        "servicenow": deliveries.servicenow(),
    }
    async with serving.serving() as first, serving.serving() as second:
        assert (await told(first, name, document[name])).startswith("taken: ")
        assert await told(first, name, document[name]) == "taken before"
        await told(second, name, document[name])
        (here,), (there,) = first.decisions.commands, second.decisions.commands
        assert here.id == there.id


async def test_a_decision_that_was_answered_is_not_sent_again_after_a_restart() -> None:
    async with serving.serving() as served:
        await told(served, "jira", deliveries.jira_closed())
        (command,) = served.decisions.commands
    async with serving.serving() as served:
        served.parts.view.take_entry(
            TimelineEntry(
                INCIDENT.id, "c1", NOW, "ann", "person.resolve", "resolved", {"command": command.id}
            ),
            1,
        )
        assert await told(served, "jira", deliveries.jira_closed()) == "taken before"
        assert served.decisions.commands == []


async def test_a_decision_that_kafka_did_not_take_may_come_again() -> None:
    async with serving.serving() as served:
        body = sent(deliveries.jira_closed())
        served.decisions.away = True
        assert (await served.post("/hooks/jira", body, **serving.jira(body)))[0] == 503
        served.decisions.away = False
        assert (await told(served, "jira", deliveries.jira_closed())).startswith("taken: ")


async def test_the_end_of_an_incident_is_not_echoed() -> None:
    async with serving.serving() as served:
        served.parts.view.take_incident(
            replace(INCIDENT, revision=2, state=IncidentState.RESOLVED, closed_at=NOW)
        )
        for name, document in (
            ("pagerduty", deliveries.pagerduty("incident.resolved")),
            ("jira", deliveries.jira_closed()),
            ("servicenow", deliveries.servicenow()),
        ):
            assert await told(served, name, document) == "ignored: the incident is over"
        assert served.decisions.commands == []


async def test_an_ack_of_a_part_is_one_of_the_whole_and_closing_a_part_is_not() -> None:
    whole = thread_documents.incident("c1", id="inc-" + "a" * 16)
    part = replace(INCIDENT, revision=2, state=IncidentState.MERGED, merged_into=whole.id, closed_at=NOW)
    async with serving.serving() as served:
        for one in (whole, part):
            served.parts.view.take_incident(one)
        assert await told(served, "pagerduty", deliveries.pagerduty()) == f"taken: ack {whole.id}"
        assert await told(served, "jira", deliveries.jira_closed()) == "ignored: the incident is over"
        # Documents that name each other are nobody's, and no reason to go round in circles.
        served.parts.view.take_incident(
            replace(whole, revision=2, state=IncidentState.MERGED, merged_into=part.id, closed_at=NOW)
        )
        assert "over" in await told(served, "pagerduty", deliveries.pagerduty(name="02EVENT"))


async def test_what_faultline_did_there_is_not_echoed() -> None:
    async with serving.serving() as served:
        for name, document in (
            ("pagerduty", deliveries.pagerduty(agent={"type": "service_reference", "id": "PSERV"})),
            ("jira", deliveries.jira_closed(user=deliveries.FAULTLINE)),
            ("jira", deliveries.jira_comment(author=deliveries.FAULTLINE)),
            ("servicenow", deliveries.servicenow(user_name="faultline.bot")),
        ):
            assert (await told(served, name, document)).startswith("ignored: ")
        assert served.decisions.commands == []


async def test_an_incident_of_another_installation_is_ignored() -> None:
    other = "inc-" + "0" * 16
    async with serving.serving() as served:
        issue = deliveries.jira_issue(labels=[f"faultline-{other}"])
        assert "no incident" in await told(served, "jira", deliveries.jira_closed(issue=issue))
        assert "no incident" in await told(served, "servicenow", deliveries.servicenow(correlation_id=None))
        found = deliveries.pagerduty()
        found["event"]["data"]["incident_key"] = "somebody else's key"
        assert "no incident" in await told(served, "pagerduty", found)
        assert served.decisions.commands == []


async def test_a_ticket_without_its_label_is_found_by_the_run_that_opened_it() -> None:
    run = thread_documents.run(INCIDENT, ticket=StepState.DONE)
    opened = EffectRecord(
        key="k",
        action="open_ticket",
        target=Target("Ticket", INCIDENT.id),
        state=EffectState.CONFIRMED,
        intended_at=NOW,
        lease_until=NOW,
        result={"ticket": "GPU-7"},
    )
    ticket = replace(run.steps[1], effect=opened)
    async with serving.serving() as served:
        served.parts.view.take_run(run.id, replace(run, steps=(run.steps[0], ticket)))
        issue = deliveries.jira_issue(labels=[])
        assert (await told(served, "jira", deliveries.jira_closed(issue=issue))).startswith("taken: ")


async def test_decisions_wait_until_everything_known_is_read() -> None:
    async with serving.serving(ready=False) as served:
        body = sent(deliveries.jira_closed())
        answer = await served.answer("/hooks/jira", body, **serving.jira(body))
        assert (answer.status, "Retry-After" in answer.headers) == (503, True)
        assert (await served.post("/hooks/alertmanager", sent(deliveries.alert_group()), **bearer()))[
            0
        ] == 200


async def test_what_people_write_is_passed_on_without_what_would_deceive() -> None:
    async with serving.serving() as served:
        ann = {**deliveries.USER, "summary": "Ann\u202e\x00\n(PBOSS)|Smith" + "x" * 500}
        await told(served, "pagerduty", deliveries.pagerduty(agent=ann))
        (command,) = served.decisions.commands
        assert command.actor.startswith("Ann  PBOSS  Smithx")
        assert command.actor.endswith("x (PANN)")
        assert command.actor.isprintable()
        assert len(command.actor) < 500


async def test_an_old_event_is_judged_by_when_it_happened() -> None:
    async with serving.serving() as served:
        body = sent(deliveries.jira_closed(at=NOW - timedelta(hours=7)))
        status, text = await served.post("/hooks/jira", body, **serving.jira(body))
        assert status == 403
        assert "25200 s behind" in text
