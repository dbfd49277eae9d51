"""A request that waited for its connection until the lease was over does not leave any more."""

from __future__ import annotations

import pytest

from connectors.http import change, http_client
from sandbox.fake_services.jira import JiraStandin
from streams.model.errors import Fenced


class RunsOut:
    """A lease that holds when it is asked first, and not any more when the request is about to leave."""

    def __init__(self, checks: int) -> None:
        self.left = checks

    def check(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Fenced("the lease ran out")


@pytest.mark.parametrize("checks", [0, 1])
async def test_nothing_leaves_once_the_lease_is_over(checks: int) -> None:
    async with JiraStandin() as jira:
        client = http_client(jira.url, timeout_s=2, auth=(jira.user, jira.token))
        async with client:
            with pytest.raises(Fenced):
                await change(client, "POST", "rest/api/3/issue", lease=RunsOut(checks), json={"fields": {}})
        assert jira.requests == []
