"""`python -m sandbox.fake_services`: both stand-ins as a program, for the compose file and for trying things out by hand."""

from __future__ import annotations

import asyncio
import signal
import sys

import click

from sandbox.fake_services.jira import JiraStandin
from sandbox.fake_services.slack import SlackStandin


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
) -> None:
    """Serve stand-ins for Slack and Jira until SIGTERM or Ctrl-C."""
    slack = SlackStandin(token=slack_token, channels=(channel,))
    jira = JiraStandin(project=project, user=jira_user, token=jira_token, lag_s=search_lag)
    asyncio.run(_serve(slack, jira, host, slack_port, jira_port))


async def _serve(slack: SlackStandin, jira: JiraStandin, host: str, slack_port: int, jira_port: int) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    try:
        await slack.start(host=host, port=slack_port)
        await jira.start(host=host, port=jira_port)
        print(f"slack {slack.base_url}", file=sys.stderr)
        print(f"jira {jira.url}", file=sys.stderr, flush=True)
        await ended.wait()
    finally:
        await jira.stop()
        await slack.stop()


if __name__ == "__main__":
    main()
