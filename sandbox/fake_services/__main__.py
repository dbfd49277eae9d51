"""`python -m sandbox.fake_services`: the stand-ins as a program, for the compose file and for trying things out by hand."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

import click

from sandbox.fake_services.github import GitHubStandin
from sandbox.fake_services.gitlab import GitLabStandin
from sandbox.fake_services.jira import JiraStandin
from sandbox.fake_services.jira_data_center import JiraDataCenterStandin
from sandbox.fake_services.server import Standin
from sandbox.fake_services.servicenow import ServiceNowStandin
from sandbox.fake_services.slack import SlackStandin

TICKETS: dict[str, Callable[[], Standin]] = {
    "jira-dc": JiraDataCenterStandin,
    "servicenow": ServiceNowStandin,
    "github": GitHubStandin,
    "gitlab": GitLabStandin,
}


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--slack-port", default=8081, show_default=True, help="Port of the Slack stand-in; 0 takes a free one."
)
@click.option(
    "--jira-port", default=8082, show_default=True, help="Port of the Jira stand-in; 0 takes a free one."
)
@click.option("--slack-token", default="xoxb-standin", show_default=True)
@click.option("--channel", default="C0INCIDENTS", show_default=True)
@click.option("--jira-user", default="faultline@example.test", show_default=True)
@click.option("--jira-token", default="standin-token", show_default=True)
@click.option("--project", default="GPU", show_default=True)
@click.option("--search-lag", default=0.0, show_default=True, help="Seconds by which Jira's search lags.")
@click.option("--tickets", type=click.Choice(list(TICKETS)), help="Serve this ticket system, too.")
@click.option(
    "--tickets-port", default=8083, show_default=True, help="Port of that ticket system; 0 takes a free one."
)
def main(
    host: str,
    slack_port: int,
    jira_port: int,
    slack_token: str,
    channel: str,
    jira_user: str,
    jira_token: str,
    project: str,
    search_lag: float,
    tickets: str | None,
    tickets_port: int,
) -> None:
    """Serve stand-ins for Slack and Jira, and for one more ticket system, until SIGTERM or Ctrl-C."""
    slack = SlackStandin(token=slack_token, channels=(channel,))
    jira = JiraStandin(project=project, user=jira_user, token=jira_token, lag_s=search_lag)
    served: list[tuple[str, Standin, int]] = [("slack", slack, slack_port), ("jira", jira, jira_port)]
    if tickets is not None:
        served.append((tickets, TICKETS[tickets](), tickets_port))
    asyncio.run(_serve(served, host))


async def _serve(served: Sequence[tuple[str, Standin, int]], host: str) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with AsyncExitStack() as stack:
        for _, standin, port in served:
            await standin.start(host=host, port=port)
            stack.push_async_callback(standin.stop)
        for name, standin, _ in served:
            where = standin.base_url if isinstance(standin, SlackStandin) else standin.url
            print(f"{name} {where}", file=sys.stderr, flush=True)
        await ended.wait()


if __name__ == "__main__":
    main()
