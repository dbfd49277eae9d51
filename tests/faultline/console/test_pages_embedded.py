"""The pages as a reader without JavaScript gets them, over HTTP."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from yarl import URL

from streams.model.incident import IncidentState
from tests.faultline.console.scenes import (
    HOSTILE,
    NOW,
    SCRIPT,
    Night,
    asking,
    bad_night,
    before,
    hostile,
    incident,
    many,
)
from tests.faultline.console.served import Reader, reading, served

pytestmark = pytest.mark.embedded


@pytest.fixture(scope="module")
def night() -> Night:
    return bad_night()


@pytest.fixture
async def ada(night: Night) -> AsyncIterator[Reader]:
    async with served(night) as base, reading(base) as reader:
        yield reader


def path_of(night: Night, title: str) -> str:
    return next(
        f"/incidents/{one.incident.id}"
        for one in night.view.overviews(everything=True)
        if title in one.incident.title
    )


async def test_the_first_page_says_what_is_open_and_what_waits_for_whom(ada: Reader) -> None:
    page = await ada.get("/")
    assert page.status == 200
    for words in (
        "GPU fell off the bus on gpu-17",
        "approval of cordon_node gpu-17 by one person",
        "GPU 0000:9d:00 on gpu-17",
        "research/llm-pretrain",
        "40 GPUs idle",
        "Wait for a person 3",
        "Contained 1",
        "Frozen : pool:a100 gpu-east-1",
        "driver rollout",
    ):
        assert words in page.shown
    assert page.shown.index("approval of cordon_node") < page.shown.index("Thermal slowdown")
    assert "Uncorrectable ECC" not in page.shown


@pytest.mark.parametrize(
    ("query", "there", "not_there"),
    [
        ("state=waiting", "GPU fell off the bus on gpu-17", "Thermal slowdown"),
        ("state=over", "Uncorrectable ECC error on gpu-50", "GPU fell off the bus on gpu-17"),
        ("state=contained", "repair: gpu-09 stays cordoned", "GPU fell off the bus on gpu-17"),
        ("family=pfc_storm", "PFC storm", "Thermal slowdown"),
        ("cluster=elsewhere", "Nothing fits", "Thermal slowdown"),
        ("q=eval-nightly+mlx5_3", "Link of mlx5_3 flaps", "PFC storm"),
    ],
)
async def test_the_list_is_narrowed_by_state_family_cluster_and_words(
    ada: Reader, query: str, there: str, not_there: str
) -> None:
    listed = re.search(r'<div id="list".*', (await ada.get(f"/?{query}")).text, re.S)
    assert listed is not None
    assert there in listed[0]
    assert not_there not in listed[0]


async def test_an_incident_shows_why_this_culprit_the_lines_in_order_the_plan_and_its_verdicts(
    ada: Reader, night: Night
) -> None:
    page = await ada.get(path_of(night, "off the bus on gpu-17"))
    for words in (
        "XID 79 is the device's own word, before any rank failed",
        "it only waited for rank 20 on gpu-17",
        "keep new pods off the node destructive",
        "a guardrail asks a person: approval: mode approve",
        "Left to a person: reboot",
        "runbook gpu-off-bus takes it up",
        "May approve anybody",
        "Approves 3 destructive steps of this plan keep new pods off the node (Node gpu-17)",
    ):
        assert words in page.shown
    first, second, third = (
        page.text.index(line) for line in ("has fallen off the bus.", "Ch 00000008", "WorkNCCL")
    )
    assert first < second < third
    assert page.text.count("<svg") == 3  # timeline, place in the cluster, how it was decided
    assert 'title="raw.node-logs:2:4711"' in page.text


async def test_a_contained_incident_shows_its_repair_its_ticket_and_the_way_out(
    ada: Reader, night: Night
) -> None:
    page = await ada.get(path_of(night, "off the bus on gpu-09"))
    assert "gpu-09 stays cordoned for GPU-61" in page.shown
    assert "faultline nodes release gpu-09" in page.shown
    assert (
        '<a href="https://tickets.example.test/browse/GPU-61" rel="noreferrer noopener">GPU-61</a>'
        in page.text
    )


async def test_the_fleet_says_which_nodes_are_out_and_who_keeps_work_off_them(
    ada: Reader, night: Night
) -> None:
    page = await ada.get("/fleet")
    assert "25 of 512 GPUs out · 2 of 64 nodes cordoned · 1 not ready" in page.shown
    assert "a person (maintenance)" in page.shown
    assert "Faultline" in page.shown
    assert path_of(night, "off the bus on gpu-09") in page.text
    by_leaf = await ada.get("/fleet?by=leaf")
    assert "leaf-03 16 nodes" in by_leaf.shown


async def test_the_runbooks_are_shown_with_their_modes_and_how_they_ran(ada: Reader) -> None:
    page = await ada.get("/runbooks")
    assert re.search(r"gpu-off-bus r\d+ .* auto \d+ 2 2 running", page.shown)


@pytest.mark.parametrize("words", ["gpu-17", "xid 79", "llm-pretrain gpu_off_bus"])
async def test_a_search_finds_incidents_by_node_xid_job_and_family(ada: Reader, words: str) -> None:
    page = await ada.get(f"/search?q={words}")
    assert "GPU fell off the bus on gpu-17" in page.shown


async def test_a_search_for_a_ticket_or_an_id_finds_its_incident(ada: Reader, night: Night) -> None:
    assert "GPU fell off the bus on gpu-09" in (await ada.get("/search?q=gpu-61")).shown
    path = path_of(night, "off the bus on gpu-17")
    assert (await ada.get(f"/search?q={path.removeprefix('/incidents/')}")).path == path
    assert (await ada.get(path[:-6])).path == path


async def test_an_unknown_incident_is_a_page_that_says_so(ada: Reader) -> None:
    page = await ada.get("/incidents/inc-nothing")
    assert page.status == 404
    assert "is not known" in page.shown


async def test_every_answer_carries_a_strict_policy_and_is_kept_by_nobody(ada: Reader, night: Night) -> None:
    for path in (
        "/",
        "/fleet",
        "/runbooks",
        "/search?q=x",
        path_of(night, "gpu-17"),
        "/incidents/none",
        "/static/console.css",
    ):
        page = await ada.get(path)
        policy = page.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert page.headers["X-Content-Type-Options"] == "nosniff"
        assert page.headers["Referrer-Policy"] == "same-origin"
        assert ("no-store" in page.headers["Cache-Control"]) is not path.startswith("/static")
        # What the policy would stop must not be there: it would look broken to whoever reads it.
        assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=", page.text) or path.startswith(
            "/static"
        )
        assert not re.search(r'(src|href)="(https?:)?//(?!tickets)', page.text)


async def test_hostile_text_is_text_everywhere() -> None:
    night = bad_night()
    about = hostile(night)
    async with served(night) as base, reading(base) as ada:
        for path in (
            "/",
            "/?q=img",
            "/search?q=%3Cscript%3E",
            f"/incidents/{about.id}",
            "/fleet",
            "/?state=%3Cimg%3E",
        ):
            page = await ada.get(path)
            assert page.status == 200
            assert "<img src=x" not in page.text, path
            assert "<script>" not in page.text, path
            assert "\u202e" not in page.text
            assert "\x1b" not in page.text
            assert "javascript:" not in page.text
        shown = (await ada.get(f"/incidents/{about.id}")).shown
        assert HOSTILE in shown
        assert SCRIPT[:30] in shown


async def test_a_reason_of_five_megabytes_is_cut_before_it_reaches_a_page() -> None:
    night = Night()
    about = hostile(night)
    async with served(night) as base, reading(base) as ada:
        assert len((await ada.get(f"/incidents/{about.id}")).text) < 200_000
        assert len((await ada.get("/")).text) < 50_000


async def test_long_lists_come_in_pages() -> None:
    night = Night()
    many(night, 120, nodes=1000)
    async with served(night) as base, reading(base) as ada:
        first = await ada.get("/")
        assert first.text.count('<tr class="sev-') == 50
        assert "Page 1 of 3" in first.shown
        last = await ada.get("/?page=3")
        assert last.text.count('<tr class="sev-') == 20
        assert (await ada.get("/?page=999999999")).shown.count("Page 1 of 3") == 1
        fleet = await ada.get("/fleet")
        assert "of 1000 nodes" in fleet.shown
        assert fleet.text.count('<li class="cell') <= 400
        assert "Page 1 of 3" in fleet.shown


async def test_an_incident_of_a_thousand_nodes_names_the_first_and_counts_the_rest() -> None:
    night = Night()
    about = incident(nodes=tuple(f"n-{number:04}" for number in range(1000)))
    night.open(about)
    async with served(night) as base, reading(base) as ada:
        page = await ada.get(f"/incidents/{about.id}")
    assert "and 941 more nodes" in page.shown
    assert len(page.text) < 100_000


async def test_a_view_that_is_still_reading_says_that_it_may_be_old() -> None:
    night = Night()
    async with served(night) as base, reading(base) as ada:
        assert "what is shown may be old" in (await ada.get("/")).shown
        night.view.ready = True
        assert "what is shown may be old" not in (await ada.get("/")).shown


async def test_a_list_is_as_new_as_the_view() -> None:
    night = Night()
    about = asking(night)
    async with served(night) as base, reading(base) as ada:
        assert "Open 1" in (await ada.get("/")).shown
        night.view.take_incident(replace(about, state=IncidentState.RESOLVED, revision=5, closed_at=NOW))
        page = await ada.get("/")
        assert "Open 0" in page.shown
        night.view.forget(NOW + timedelta(days=30))
        assert "All 0" in (await ada.get("/")).shown


async def test_a_merged_incident_leads_to_the_other() -> None:
    night = Night()
    night.view.take_incident(
        incident(state=IncidentState.MERGED, merged_into="inc-other", closed_at=before(1))
    )
    name = night.view.overviews(everything=True)[0].incident.id
    async with served(night) as base, reading(base) as ada:
        assert 'href="/incidents/inc-other"' in (await ada.get(f"/incidents/{name}")).text


@pytest.mark.parametrize(
    "path",
    [
        "/incidents/%00",
        "/incidents/%ED%A0%80",
        "/incidents/" + "a" * 3000,
        "/incidents/..%2f..%2fetc",
        "/?page=-1&state=%00",
        "/?page=%D9%A3",
        "/?q=%ff%fe",
        "/?cluster=%00&family=%F0%9F%94%A5",
        "/fleet?by=uid&cluster=%00&page=x",
        "/search?q=" + "x" * 5000,
        "/static/..%2fapp.py",
        "/login/done?state=%ED%A0%80&code=%00",
        "/login?next=%ff",
    ],
)
async def test_an_address_that_makes_no_sense_is_no_fault_of_the_server(ada: Reader, path: str) -> None:
    async with ada.session.get(URL(ada.base + path, encoded=True)) as answer:
        assert answer.status < 500
        assert "app.py" not in await answer.text()


@pytest.mark.parametrize(
    "head",
    [
        b"X-Forwarded-User: \xff\xfe\r\n",
        b"X-Forwarded-User: ada\r\nX-Forwarded-Groups: \xff,,\xc3\xa4\r\n",
        b"X-Forwarded-User: ada\r\nCookie: faultline-form=\xff; faultline-session=\xff.\xff.\xff\r\n",
        b"X-Forwarded-User: ada\r\nHost: [\r\n",
        b"X-Forwarded-User: \x01\x02\r\n",
    ],
)
async def test_headers_that_make_no_sense_are_no_fault_of_the_server(ada: Reader, head: bytes) -> None:
    host = b"" if b"Host" in head else b"Host: 127.0.0.1\r\n"
    into, out = await asyncio.open_connection("127.0.0.1", int(ada.base.rpartition(":")[2]))
    out.write(b"GET / HTTP/1.1\r\nConnection: close\r\n" + host + head + b"\r\n")
    status = (await into.readline()).split()[1]
    out.close()
    assert status in (b"200", b"400", b"403")
