"""The `faultline` command: subcommands are loaded when called, so that `faultline --help` answers at once.

Exit codes others script against: 0 success, 1 negative result, 2 wrong usage or bad input, 3 a dependency is unreachable.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path
from typing import NoReturn

import click

from streams.model.errors import FaultlineError, Unreachable

EXIT_NO = 1
EXIT_BAD_INPUT = 2
EXIT_UNREACHABLE = 3

COMMANDS = {
    "capacity": "list what waits for GPUs, since when, and the GPUs each pool has left",
    "config": "check the settings and print them",
    "demo": "run five fault scenarios on an embedded cluster, from log line to resumed job",
    "detect": "read log lines and print the signals in them",
    "digest": "report the last days: incidents, times, GPU-hours, repeat offenders, what waited for people",
    "drill": "play a synthetic GPU fault through the pipeline, in shadow mode, and follow it hop by hop",
    "explain": "explain how the root cause and the actions of an incident were decided",
    "guard": "show and change cluster-wide safety controls: kill switch, freezes, circuit breaker, limits",
    "incidents": "list, show, acknowledge, approve, reject, stop and resolve incidents",
    "jobs": "list what runs, and what could be done for it if one of its nodes failed",
    "maintenance": "plan work on nodes: close and empty them, keep their alarms quiet, and give them back",
    "mcp": "serve read-only tools for language models, over standard input and output",
    "nodes": "list cordoned nodes, and return one to service",
    "preflight": "run the diagnostics on idle nodes, before they join or a large job starts",
    "replay": "replay a capture offline and print the decisions (read-only)",
    "runbook": "lint runbooks, show their plans, run their test cases, diff two versions",
    "report": "report one incident: what happened, why, what was done, what it cost, what to change",
    "rollout": "show how far runbooks go in each pool, and put a pool back to observing",
    "run": "start one process: detector, inventory, correlator, responder, chat, notifier or gateway",
    "shadow": "compare what shadow-mode runs would have done with what operators did",
    "simulate": "generate a capture of a simulated cluster with injected faults, plus its ground truth",
    "topics": "create, alter or compare the Kafka topics",
}

NEEDS_SANDBOX = {"demo": ("sandbox", "confluent_kafka", "kmock"), "simulate": ("sandbox",)}
"""Packages a command needs that the production image leaves out: the sandbox, and what only it uses (extra `demo`)."""


class LazyGroup(click.Group):
    """A group whose commands live in `faultline.cli.commands.NAME` and are imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every name in `COMMANDS`."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of the command; each defines `command`."""
        if cmd_name not in COMMANDS:
            return None
        for package in NEEDS_SANDBOX.get(cmd_name, ()):
            if importlib.util.find_spec(package) is None:
                raise click.UsageError(
                    f"'faultline {cmd_name}' needs the package '{package}', which this installation leaves out. "
                    "Run it from a checkout ('make demo'), or install 'faultline[demo]' there."
                )
        module = importlib.import_module(f"faultline.cli.commands.{cmd_name}")
        found: click.Command = module.command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="faultline")
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Settings file (default: $FAULTLINE_CONFIG).",
)
@click.pass_context
def cli(ctx: click.Context, config: Path | None) -> None:
    """Incident automation for GPU clusters: from a log line to a cordoned node, a ticket, a thread and a resumed job."""
    ctx.obj = config


def main() -> NoReturn:
    """Run the command line. A `FaultlineError` becomes one line on stderr and its exit code."""
    # Where nothing sets logging up (`run` does), the last-resort handler of Python would print what libraries log; what matters
    # of it is in our own error.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        code = 130
    except click.ClickException as error:
        error.show()
        code = EXIT_BAD_INPUT
    except FaultlineError as error:
        click.echo(f"faultline: {error}", err=True)
        code = EXIT_UNREACHABLE if isinstance(error, Unreachable) else EXIT_BAD_INPUT
    except BrokenPipeError:
        sys.stderr.close()
        code = 0
    except Exception as error:
        if (why := _why_kafka_failed(error)) is None:
            raise
        click.echo(f"faultline: Kafka: {why}", err=True)
        code = EXIT_UNREACHABLE
    sys.exit(code if isinstance(code, int) else 0)


def _why_kafka_failed(error: Exception) -> str | None:
    """The reason in plain words, where it is an error of the Kafka client. One that was never loaded raised nothing."""
    loaded = sys.modules.get("aiokafka.errors")
    if loaded is None or not isinstance(error, loaded.KafkaError):
        return None
    from streams.kafka.plain_errors import plain

    return plain(error)
