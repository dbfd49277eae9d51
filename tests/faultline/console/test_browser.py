"""The console in a real browser: what happens is seen without a reload, a decision is made by hand, and everybody can read it.

`python -m tests.faultline.console.test_browser` takes the pictures of the documentation anew.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from streams.model.conversation import Verb
from streams.model.incident import IncidentState
from tests.faultline.console.chromium import Tab, chromium
from tests.faultline.console.scenes import EAST, NOW, Night, bad_night, hostile, incident, many, node
from tests.faultline.console.served import ADA, served

pytestmark = pytest.mark.browser

PICTURES = Path(__file__).parents[3] / "docs" / "pictures"
IS_LIVE = "document.getElementById('live').dataset.state === 'on'"
LARGEST_PICTURE = 150 * 1024


@asynccontextmanager
async def looking_at(night: Night, folder: Path) -> AsyncIterator[tuple[Tab, str]]:
    """A browser at the console, with Ada in front of it."""
    async with served(night) as base, chromium(folder, ADA) as tab:
        await tab.looks()
        yield tab, base


def pages(night: Night) -> dict[str, str]:
    """Every kind of page, by name."""
    by_title = {one.incident.title: one.incident.id for one in night.view.overviews(everything=True)}
    return {
        "overview": "/",
        "incident": f"/incidents/{by_title['GPU fell off the bus on gpu-17']}",
        "contained": f"/incidents/{by_title['GPU fell off the bus on gpu-09']}",
        "fleet": "/fleet",
        "runbooks": "/runbooks",
        "search": "/search?q=gpu-1",
        "missing": "/incidents/inc-nothing",
    }


async def test_an_incident_is_seen_to_happen_is_approved_and_its_effect_is_seen(tmp_path: Path) -> None:
    night = Night()
    night.view.ready = True
    about = incident(state=IncidentState.AWAITING_HUMAN)
    async with looking_at(night, tmp_path) as (tab, base):
        await tab.go(f"{base}/")
        await tab.until(IS_LIVE)
        await tab.js("window.same = true")
        assert "All is quiet" in await tab.js("document.body.innerText")

        night.open(about)
        await tab.until("document.querySelector('.list') && document.title.startsWith('(1)')")
        assert await tab.js("document.getElementById('said').textContent") == "1 open, 1 wait for a person"
        assert await tab.js("window.same"), "the page was reloaded"

        await tab.click_through(".list a")
        await tab.until(IS_LIVE)
        await tab.js("window.same = true")
        night.tell(about.id, "person.note", "the vendor knows this one", "Bo")
        await tab.until("document.getElementById('log').innerText.includes('the vendor knows this one')")

        await tab.click_through("button[value=approve]")
        answer = await tab.js("document.querySelector('.answer').innerText")
        assert "Approve: accepted" in answer
        assert night.commands[0].verb is Verb.APPROVE
        assert await tab.js("!document.querySelector('button[value=approve]')")

        await tab.until(IS_LIVE)
        await tab.js("window.same = true")
        assert await tab.js("document.querySelectorAll('.steps .is-done').length") == 1
        night.goes_on(about)
        await tab.until("document.querySelectorAll('.steps .is-done').length >= 4")
        await tab.until("document.getElementById('head').innerText.includes('mitigating')")
        assert await tab.js("window.same"), "the page was reloaded"
        assert not tab.problems


async def test_what_somebody_types_stays_and_they_are_told_when_the_question_changes(tmp_path: Path) -> None:
    night = Night()
    about = incident(state=IncidentState.AWAITING_HUMAN)
    play = night.open(about)
    async with looking_at(night, tmp_path) as (tab, base):
        await tab.go(f"{base}/incidents/{about.id}")
        await tab.until(IS_LIVE)
        await tab.js("document.getElementById('why-1').focus()")
        await tab.call("Input.insertText", text="looks like riser 2")
        night.tell(about.id, "observed.node", "somebody else works on gpu-17")
        await tab.until("document.getElementById('log').innerText.includes('somebody else works')")
        assert not await tab.js("document.querySelector('.stale') !== null")

        changed = replace(
            play.run, plan=replace(play.run.plan, digest="f" * 32), revision=play.run.revision + 1
        )
        night.view.take_run(changed.id, changed)
        await tab.until("document.querySelector('.decide.stale') !== null")
        assert await tab.js("document.getElementById('why-1').value") == "looks like riser 2"
        assert await tab.js("document.activeElement.id") == "why-1"


async def test_a_lost_connection_is_shown_and_comes_back_by_itself(tmp_path: Path) -> None:
    night = bad_night()
    async with chromium(tmp_path, ADA) as tab:
        async with served(night) as base:
            await tab.go(f"{base}/")
            await tab.until(IS_LIVE)
        await tab.until("document.getElementById('live').dataset.state === 'wait'")
        async with served(night, port=int(base.rpartition(":")[2])):
            await tab.until(IS_LIVE)


async def test_a_tab_in_the_background_holds_no_connection_and_is_up_to_date_when_it_is_seen(
    tmp_path: Path,
) -> None:
    night = Night()
    async with looking_at(night, tmp_path) as (tab, base):
        await tab.go(f"{base}/")
        await tab.until(IS_LIVE)
        await seen(tab, False)
        await tab.until("document.getElementById('live').textContent === 'in the background'")
        night.open(incident(state=IncidentState.AWAITING_HUMAN))
        await seen(tab, True)
        await tab.until("document.querySelector('.list') !== null")
        await tab.until(IS_LIVE)
        assert [address.removeprefix(base) for address in tab.requests].count("/changes?") == 2


async def seen(tab: Tab, visible: bool) -> None:
    """What a browser does when another tab is chosen, or this one."""
    hidden = "false" if visible else "true"
    await tab.js(
        f"Object.defineProperty(document, 'hidden', {{value: {hidden}, configurable: true}});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )


async def test_without_javascript_everything_can_be_read_and_decided(tmp_path: Path) -> None:
    night = bad_night()
    async with looking_at(night, tmp_path) as (tab, base):
        await tab.call("Emulation.setScriptExecutionDisabled", value=True)
        for path in pages(night).values():
            await tab.go(base + path)
            assert await tab.js("document.querySelector('main h1').innerText")
            assert await tab.js("document.getElementById('live').innerText") == "not live"
        await tab.go(base + pages(night)["incident"])
        await tab.click_through("button[value=approve]")
        assert "Approve: accepted" in await tab.js("document.querySelector('.answer').innerText")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_axe_finds_nothing_serious_on_any_page(tmp_path: Path, dark: bool) -> None:
    night = bad_night()
    async with looking_at(night, tmp_path) as (tab, base):
        for width in (1360, 390):
            await tab.looks(dark=dark, width=width)
            for name, path in pages(night).items():
                await tab.go(base + path)
                await tab.until(IS_LIVE)
                assert await tab.faults() == [], f"{name} at {width}"
                assert await tab.js("document.documentElement.scrollWidth <= innerWidth"), (
                    f"{name} at {width} is too wide"
                )


async def test_headings_are_in_order_and_the_keyboard_starts_at_the_content(tmp_path: Path) -> None:
    night = bad_night()
    async with looking_at(night, tmp_path) as (tab, base):
        for name, path in pages(night).items():
            await tab.go(base + path)
            levels = await tab.js("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])")
            assert levels[0] == 1, name
            assert all(after - before <= 1 for before, after in pairwise(levels)), name
        for kind in ("keyDown", "keyUp"):
            await tab.call(
                "Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9
            )
        assert await tab.js("document.activeElement.className") == "skip"
        assert await tab.js("getComputedStyle(document.activeElement).outlineStyle") != "none"


async def test_hostile_text_runs_nothing_loads_nothing_and_breaks_no_page(tmp_path: Path) -> None:
    night = bad_night()
    about = hostile(night)
    async with looking_at(night, tmp_path) as (tab, base):
        await tab.looks(width=390)
        for path in (*pages(night).values(), f"/incidents/{about.id}", "/search?q=%3Cscript%3E"):
            await tab.go(base + path)
            await tab.until(IS_LIVE)
            assert await tab.js("document.title") != "owned"
            assert await tab.js("document.querySelectorAll('main script, main img').length") == 0
            assert await tab.js("document.documentElement.scrollWidth <= innerWidth"), path
        assert await tab.faults() == []
        assert {address for address in tab.requests if not address.startswith(base)} == set()
        # A page that is not there is the one thing that the browser itself complains about.
        assert [problem for problem in tab.problems if "404" not in problem] == []


async def test_a_thousand_nodes_and_incidents_are_a_page_that_stays_live(tmp_path: Path) -> None:
    night = Night()
    made = many(night, 1000, nodes=1000)
    async with looking_at(night, tmp_path) as (tab, base):
        await tab.go(f"{base}/")
        await tab.until(IS_LIVE)
        for about in made:
            night.view.take_incident(replace(about, revision=2, state=IncidentState.RESOLVED, closed_at=NOW))
        await tab.until("document.getElementById('tab-open').innerText.includes('Open 0')")
        await tab.go(f"{base}/fleet")
        await tab.until(IS_LIVE)
        night.view.take_fact(f"{EAST}/node/n-0007", replace(node(7, ready=False), name="n-0007"))
        assert await tab.js("document.querySelectorAll('.cell').length") <= 420


async def test_the_pictures_of_the_documentation_are_there_and_small(tmp_path: Path) -> None:
    await take_pictures(tmp_path)
    taken, kept = sizes(tmp_path), sizes(PICTURES)
    assert taken.keys() == kept.keys(), "python -m tests.faultline.console.test_browser takes them"
    assert max(kept.values()) <= LARGEST_PICTURE


def sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.glob("console-*.png")}


async def take_pictures(folder: Path) -> None:
    """A picture of each page in `folder`."""
    night = bad_night()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        async with looking_at(night, Path(profile)) as (tab, base):
            for name, dark, width, height in (
                ("overview", False, 1180, 560),
                ("incident", True, 1180, 640),
                ("fleet", False, 1180, 640),
                ("runbooks", False, 1180, 460),
                ("search", True, 1180, 400),
            ):
                await tab.looks(dark=dark, width=width, height=height)
                await tab.go(base + pages(night)[name])
                await tab.until(IS_LIVE)
                await tab.picture(folder / f"console-{name}.png")
            await tab.looks(dark=True, width=390, height=760)
            await tab.go(base + pages(night)["incident"])
            await tab.until(IS_LIVE)
            await tab.picture(folder / "console-phone.png")


if __name__ == "__main__":
    sys.exit(asyncio.run(take_pictures(PICTURES)))
