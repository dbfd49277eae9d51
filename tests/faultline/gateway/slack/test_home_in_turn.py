"""What a Home has to show at the same time: the newer is shown last, and what Slack does not take is shown later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, cast

import pytest

from faultline.gateway.slack import home
from faultline.gateway.slack.actions import Person
from faultline.gateway.slack.home import Homes
from faultline.gateway.slack.user_groups import UserGroups
from faultline.gateway.slack.web_api import WebApi
from faultline.live_view.view import LiveView
from streams.model.errors import Temporary
from tests.faultline.gateway.slack.test_home import shown

ADA = Person("U1", "ada")


class Slack:
    """Slack's side of Homes: the first request may be on its way until `arrives` is set; of the first `lost` no answer comes."""

    def __init__(self, *, lost: int = 0, takes_lost: bool = False) -> None:
        self.homes: dict[str, Mapping[str, Any]] = {}
        self.asked, self.lost, self.takes_lost = 0, lost, takes_lost
        self.on_its_way, self.arrives, self.published = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def user_groups(self) -> dict[str, frozenset[str]]:
        """Nobody is in any group."""
        return {}

    async def publish_home(self, user: str, view: Mapping[str, Any]) -> None:
        """Take a Home as it arrives."""
        self.asked += 1
        if self.asked == 1:
            self.on_its_way.set()
            await self.arrives.wait()
        if self.asked > self.lost or self.takes_lost:
            self.homes[user] = view
        if self.asked <= self.lost:
            raise Temporary("views.publish: no answer")
        self.published.set()


def homes_on(slack: Slack, view: LiveView | None = None) -> Homes:
    api = cast("WebApi", slack)
    return Homes(api, view or LiveView(), UserGroups(api))


async def until_it_waits(*works: Awaitable[Any]) -> None:
    """Let what has begun go on as far as it can without the test: it takes no more steps than these."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_an_answer_is_not_overwritten_by_a_home_that_was_on_its_way_before() -> None:
    slack = Slack()
    homes = homes_on(slack)
    opening = asyncio.create_task(homes.opened(ADA))
    await slack.on_its_way.wait()
    telling = asyncio.create_task(homes.tell(ADA, "refused: no"))
    await until_it_waits(opening, telling)
    slack.arrives.set()
    await asyncio.gather(opening, telling)
    assert shown(dict(slack.homes[ADA.id])).startswith("refused: no")


async def test_a_home_that_slack_does_not_take_is_published_although_nothing_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(home, "REFRESH_S", 0.0)
    slack = Slack(lost=1)
    slack.arrives.set()
    homes = homes_on(slack)
    fresh = asyncio.create_task(homes.keep_fresh())
    await until_it_waits(fresh)
    await homes.opened(ADA)
    async with asyncio.timeout(20):
        await slack.published.wait()
    fresh.cancel()
    assert ADA.id in slack.homes


async def test_what_slack_took_without_an_answer_is_replaced_also_by_what_was_there_before() -> None:
    view = LiveView()
    view.ready = True
    slack = Slack()
    slack.arrives.set()
    homes = homes_on(slack, view)
    await homes.tell(ADA, "first")
    slack.lost, slack.takes_lost = 2, True
    await homes.tell(ADA, "second")
    assert shown(dict(slack.homes[ADA.id])).startswith("second")
    await homes.tell(ADA, "first")
    assert shown(dict(slack.homes[ADA.id])).startswith("first")
