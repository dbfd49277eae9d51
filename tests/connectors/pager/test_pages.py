"""What pagers are sent, and what they are not sent again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from connectors.base import Absent, AlreadyDone, Connector, Done, NoLease, Refused, Retry
from connectors.pager.grafana import GrafanaAnnotations
from connectors.pager.jsm import JsmOperations
from connectors.pager.page import page_of
from sandbox.fake_services.grafana import GrafanaStandin
from sandbox.fake_services.jsm import JsmStandin
from sandbox.fake_services.pagerduty import MAX_BYTES, PagerDutyStandin
from streams.model.errors import Permanent
from streams.model.signal import Attribute
from tests.connectors.pager.effects import INCIDENT, effect, page, secret, sink
from tests.connectors.pager.test_pager_contract import jsm, pagerduty

pytestmark = pytest.mark.embedded

KEY = f"{INCIDENT}-1"
LEASE = NoLease()


@pytest.fixture
async def pager() -> AsyncIterator[PagerDutyStandin]:
    async with PagerDutyStandin() as standin:
        yield standin


async def test_an_event_says_what_who_and_where_to_look(pager: PagerDutyStandin) -> None:
    connector = pagerduty(pager.url)
    await connector.apply(effect("page", "a", page()), LEASE)
    await connector.close()
    (made,) = pager.incidents
    assert made.event["dedup_key"] == KEY
    assert made.event["links"] == [{"href": "https://faultline.example.test/incidents/1", "text": "Console"}]
    assert made.event["client_url"] == "https://faultline.example.test/incidents/1"
    assert made.payload == {
        "summary": "GPU fell off the bus on gpu-17",
        "source": "gpu-17",
        "severity": "critical",
        "component": "gpu 0000:1b:00",
        "group": "c1",
        "class": "gpu_off_bus",
        "custom_details": {"Culprit": "gpu-17", "Jobs": "PyTorchJob research/llm-70b"},
    }


async def test_whatever_comes_in_an_event_fits(pager: PagerDutyStandin) -> None:
    details = {f"detail {n}": "\U0001f525" * 8_000 for n in range(60)}
    links = [["javascript:alert(1)", "no"], ["https://faultline.example.test/x", "yes"]]
    huge = page(details=json.dumps(details), links=json.dumps(links), source="n" * 5_000)
    connector = pagerduty(pager.url)
    made = effect("page", "a", huge, summary="line one\nline two \u202e\x1b[31m" + "x" * 5_000)
    assert isinstance(await connector.apply(made, LEASE), Done)
    await connector.close()
    event = pager.incidents[0].event
    assert len(json.dumps(event, ensure_ascii=False).encode()) < MAX_BYTES
    summary = event["payload"]["summary"]
    assert len(summary) <= 1024
    assert "\n" not in summary
    assert "\u202e" not in summary
    assert "\x1b" not in summary
    assert [link["href"] for link in event["links"]] == ["https://faultline.example.test/x"]


async def test_what_a_person_resolved_is_not_triggered_again(pager: PagerDutyStandin) -> None:
    connector = pagerduty(pager.url)
    await connector.apply(effect("page", "a", page()), LEASE)
    pager.incidents[0].status = "resolved"
    assert isinstance(await connector.apply(effect("page", "a", page()), LEASE), AlreadyDone)
    more = effect("update_page", "a", page())
    assert isinstance(await connector.apply(more, LEASE), Refused)
    assert isinstance(await connector.lookup(more), Refused)
    await connector.close()
    assert len(pager.incidents) == 1


async def test_without_the_rest_api_the_same_key_wakes_nobody_twice_and_no_update_is_sent(
    pager: PagerDutyStandin,
) -> None:
    connector = pagerduty(pager.url, token=None)
    await connector.apply(effect("page", "a", page()), LEASE)
    assert isinstance(await connector.lookup(effect("page", "a", page())), Absent)
    await connector.apply(effect("page", "a", page()), LEASE)
    await connector.apply(effect("update_page", "a", page()), LEASE)
    await connector.apply(effect("update_page", "a", page("resolved")), LEASE)
    await connector.close()
    assert [one.log for one in pager.incidents] == [["trigger", "trigger", "resolve"]]


async def test_an_event_that_was_taken_and_is_not_there_yet_is_waited_for(pager: PagerDutyStandin) -> None:
    pager.lag_s = 0.15
    connector = pagerduty(pager.url, more={"lag_s": 0.3})
    await connector.apply(effect("page", "a", page()), LEASE)
    assert isinstance(await connector.lookup(effect("page", "a", page())), AlreadyDone)
    await connector.close()


async def test_more_events_than_allowed_are_held_back_here_and_there(pager: PagerDutyStandin) -> None:
    pager.per_minute = 3
    ours, theirs = pagerduty(pager.url, more={"calls_per_minute": 6}), pagerduty(pager.url)
    here = [await ours.apply(effect("page", f"{n}", page(key=f"k{n}")), LEASE) for n in range(3)]
    assert [type(one) for one in here] == [Done, Done, Done]
    refused = await theirs.apply(effect("page", "x", page(key="kx")), LEASE)
    assert isinstance(refused, Retry)
    assert refused.asked
    pager.per_minute = 1_000
    slow = [await ours.apply(effect("page", f"{n}", page(key=f"k{n}")), LEASE) for n in range(3, 13)]
    assert isinstance(slow[-1], Retry)
    await ours.close()
    await theirs.close()


@pytest.mark.parametrize(
    "broken", [{"state": "shouted"}, {"dedup_key": ""}, {"details": "{"}, {"message": "{}"}]
)
def test_an_effect_without_a_page_is_an_error_and_not_half_a_page(broken: dict[str, str]) -> None:
    made = effect("page", "a", page())
    with pytest.raises(Permanent):
        page_of(replace(made, params={**made.params, **broken}))


async def test_an_alert_is_acknowledged_in_the_name_of_who_did_it_and_closed_once() -> None:
    async with JsmStandin() as server:
        connector = jsm(server.url, opsgenie=False)
        await connector.apply(effect("page", "a", page()), LEASE)
        await connector.apply(effect("update_page", "a", page("acknowledged", actor="alice")), LEASE)
        await connector.apply(effect("update_page", "a", page("resolved")), LEASE)
        again = await connector.apply(effect("update_page", "a", page("resolved")), LEASE)
        late = await connector.apply(effect("update_page", "a", page()), LEASE)
        await connector.close()
        (alert,) = server.alerts
        acknowledged = server.calls("acknowledge")[0].body
    assert alert.log == ["create", "acknowledge", "close"]
    assert (alert.body["priority"], alert.body["alias"]) == ("P1", KEY)
    assert acknowledged["user"] == "alice"
    assert isinstance(again, AlreadyDone)
    assert isinstance(late, Refused)


async def test_a_long_page_fits_an_alert() -> None:
    async with JsmStandin(opsgenie=True) as server:
        connector = jsm(server.url, opsgenie=True)
        details = json.dumps({f"detail {n}": "x" * 8_000 for n in range(40)})
        outcome = await connector.apply(effect("page", "a", page(details=details), summary="s" * 900), LEASE)
        await connector.close()
    assert isinstance(outcome, Done)


class Pager:
    """A pager of either kind that may lose what it has taken, and what it holds of our key."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.server = PagerDutyStandin() if kind == "pagerduty" else JsmStandin(opsgenie=kind == "opsgenie")

    def connector(self) -> Connector:
        if self.kind == "pagerduty":
            return pagerduty(self.server.url)
        return jsm(self.server.url, opsgenie=self.kind == "opsgenie")

    def held(self) -> list[str]:
        """The states of what has our key."""
        return [one.status for one in self.server.of(KEY)]

    def end(self) -> None:
        """A person resolves it there."""
        (one,) = self.server.of(KEY)
        one.status = "resolved" if self.kind == "pagerduty" else "closed"


@pytest.mark.parametrize("kind", ["pagerduty", "jsm", "opsgenie"])
async def test_of_a_page_that_was_taken_a_check_says_whether_it_came_to_be(kind: str) -> None:
    pager = Pager(kind)
    async with pager.server:
        connector = pager.connector()
        pager.server.lose = 1
        lost = await connector.apply(effect("page", "a", page()), LEASE)
        assert isinstance(lost, Done)
        assert lost.check_after_s > 0
        first = replace(effect("page", "a", page()), prior=lost.result)
        assert isinstance(await connector.lookup(first), Absent)
        made = await connector.apply(effect("page", "a", page()), LEASE)
        assert isinstance(made, Done)
        second = replace(first, prior=made.result)
        reads = len(pager.server.requests)
        assert isinstance(await connector.lookup(second), AlreadyDone)
        assert len(pager.server.requests) == reads + 1
        pager.end()
        assert isinstance(await connector.lookup(second), AlreadyDone)
        assert isinstance(await connector.apply(effect("page", "a", page()), LEASE), AlreadyDone)
        await connector.close()
    assert len(pager.held()) == 1


@pytest.mark.parametrize("kind", ["pagerduty", "jsm", "opsgenie"])
async def test_an_end_that_was_taken_and_came_to_nothing_is_found_out(kind: str) -> None:
    pager, ending = Pager(kind), effect("update_page", "a", page("resolved"))
    async with pager.server:
        connector = pager.connector()
        made = await connector.apply(effect("page", "a", page()), LEASE)
        assert isinstance(made, Done)
        ending = replace(ending, prior=made.result)
        pager.server.lose = 1
        lost = await connector.apply(ending, LEASE)
        assert isinstance(lost, Done)
        assert lost.check_after_s > 0
        assert isinstance(await connector.lookup(ending), Absent)
        assert isinstance(await connector.apply(ending, LEASE), Done)
        assert isinstance(await connector.lookup(ending), AlreadyDone)
        await connector.close()


async def test_where_nobody_may_look_no_check_is_asked_for(pager: PagerDutyStandin) -> None:
    blind = pagerduty(pager.url, token=None)
    outcome = await blind.apply(effect("page", "a", page()), LEASE)
    await blind.close()
    assert isinstance(outcome, Done)
    assert outcome.check_after_s == 0
    async with JsmStandin() as server:
        url = f"{server.url}/jsm/ops/integration"
        only_key = JsmOperations(sink("jsm", url, key=secret("standin-key")))
        outcome = await only_key.apply(effect("page", "a", page()), LEASE)
        await only_key.close()
    assert isinstance(outcome, Done)
    assert outcome.check_after_s == 0


@pytest.mark.parametrize("opsgenie", [True, False])
async def test_markup_in_a_log_line_is_text_in_every_part_of_an_alert(opsgenie: bool) -> None:
    bad = '<script>alert(1)</script><img src=x onerror=a()><a href="https://example.test">x</a> NVRM: Xid'
    details = json.dumps({bad: bad, "Evidence": bad})
    params = page(details=details, source=bad, links=json.dumps([["https://faultline.example.test/1", bad]]))
    params["class"] = params["group"] = bad
    async with JsmStandin(opsgenie=opsgenie) as server:
        connector = jsm(server.url, opsgenie=opsgenie)
        await connector.apply(effect("page", "a", params, summary=bad), LEASE)
        taken = page("acknowledged", actor=bad)
        await connector.apply(effect("update_page", "a", taken, summary=bad), LEASE)
        await connector.close()
        sent = [json.dumps(one.body, ensure_ascii=False) for one in server.requests if one.body]
    assert len(sent) == 2
    assert not any("<" in one or ">" in one for one in sent)
    assert "‹script›alert(1)‹/script›" in sent[0]
    assert "NVRM: Xid" in sent[0]
    assert "https://faultline.example.test/1" in sent[0]


@pytest.mark.parametrize("summary", ["", " \n\t ", "\x00\x1b\u202e \x07", "\u200b\u2060"])
@pytest.mark.parametrize("kind", ["pagerduty", "jsm", "opsgenie"])
async def test_a_page_without_visible_words_wakes_somebody_all_the_same(kind: str, summary: str) -> None:
    pager = Pager(kind)
    params = page(incident=INCIDENT, source="\x00 ")
    async with pager.server:
        connector = pager.connector()
        outcome = await connector.apply(effect("page", "a", params, summary=summary), LEASE)
        await connector.close()
    assert isinstance(outcome, Done)
    assert page_of(effect("page", "a", params, summary=summary)).summary == f"gpu_off_bus in c1: {INCIDENT}"


async def test_an_annotation_never_made_is_not_one_that_a_person_deleted() -> None:
    params: dict[str, Attribute] = {
        "incident": INCIDENT,
        "time_ms": 1_700_000_000_000,
        "end_ms": 1_700_000_600_000,
    }
    update = effect("update_annotation", "e", params)
    async with GrafanaStandin() as server:
        connector = GrafanaAnnotations(sink("grafana", server.url, key=secret("standin-token")))
        assert isinstance(await connector.lookup(update), Absent)
        never = await connector.apply(update, LEASE)
        made = await connector.apply(effect("annotate", "e", params), LEASE)
        assert isinstance(made, Done)
        server.annotations.clear()
        deleted = replace(update, prior=made.result)
        outcomes = [await connector.lookup(deleted), await connector.apply(deleted, LEASE)]
        await connector.close()
    assert isinstance(never, Refused)
    assert "person" not in never.reason
    assert [str(getattr(one, "reason", "")) for one in outcomes] == [
        "a person has deleted the annotation"
    ] * 2
