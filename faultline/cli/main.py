"""The `faultline` command: subcommands are loaded when called, so that `faultline --help` answers at once."""

from __future__ import annotations

import importlib.util
import logging
import os
import select
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from faultline.cli import terminal
from faultline.cli.groups import Group, examples
from streams.model.errors import FaultlineError, Unreachable

EXIT_NO = 1
EXIT_BAD_INPUT = 2
EXIT_UNREACHABLE = 3
EXIT_INTERRUPTED = 130
_LONGEST_LINE = 4000

EXIT_CODES = {
    0: "success",
    EXIT_NO: "no: refused, different, invalid, failed, or over a budget",
    EXIT_BAD_INPUT: "wrong usage, bad input or settings",
    EXIT_UNREACHABLE: "Kafka or the API server is unreachable, or no responder answered",
    EXIT_INTERRUPTED: "interrupted by Ctrl-C",
}
"""What others script against."""

COMMANDS = {
    "capacity": "list what waits for GPUs, since when, and the GPUs each pool has left",
    "capture": "take a piece of production out of Kafka, to replay it elsewhere",
    "catalog": "lint and test the detector's rows, and those of a site",
    "completion": "print a shell's completion script",
    "config": "check the settings, and the files they name",
    "dead-letters": "list and group records that could not be read, write them back after a fix, delete them",
    "demo": "run five fault scenarios on an embedded cluster, from log line to resumed job",
    "detect": "read log lines and print the signals in them",
    "digest": "report the last days: incidents, times, GPU-hours, repeat offenders, what waited for people",
    "doctor": "look for what is wrong with Faultline itself: broker, groups, rights, tokens, clocks, shippers, switches",
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
    "runbook": "lint, plan, test and diff runbooks; start one by hand, take up a run that ended, replay one",
    "report": "report one incident: what happened, why, what was done, what it cost, what to change",
    "rollout": "show how far runbooks go in each pool, and put a pool back to observing",
    "rules": "lint and test the tables of correlation, and those of a site",
    "run": "start one process: detector, inventory, correlator, responder, chat, notifier, gateway or archive",
    "runs": "list runs, show one, follow it step by step until it ends",
    "scenario": "lint scenarios of the simulation, and try whether they can be played",
    "shadow": "compare what shadow-mode runs would have done with what operators did",
    "simulate": "generate a capture of a simulated cluster with injected faults, plus its ground truth",
    "support": "write a bundle for whoever helps: versions, findings, lags, the latest incidents; names replaced",
    "topics": "create, alter or compare the Kafka topics",
    "whatif": "decide a capture again with an edit, and show what differs, with why (read-only)",
    "why-not": "explain why a node was not cordoned, a job not resumed, or no incident opened",
}

NEEDS_SANDBOX = {
    "demo": ("sandbox", "confluent_kafka", "kmock"),
    "scenario": ("sandbox",),
    "simulate": ("sandbox",),
}
"""Packages a command needs that the production image leaves out: the sandbox, and what only it uses (extra `demo`)."""


class LazyGroup(Group):
    """A group whose commands live in `faultline.cli.commands.NAME` and are imported on first use."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options of every command may stand anywhere: `faultline nodes list --no-pager`."""
        return super().parse_args(ctx, list(_global_options_first(args)))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. A reader of the output that has seen enough, as `head` has, is no error."""
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            if not _is_reader_gone():
                raise
            # Python flushes once more at its end, and would complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)

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
        module = importlib.import_module(f"faultline.cli.commands.{cmd_name.replace('-', '_')}")
        found: click.Command = module.command
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands and options, without importing any."""
        names = [
            CompletionItem(name, help=what) for name, what in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


_GLOBAL = ("--config", "--color", "--no-pager")


def _global_options_first(args: list[str]) -> Iterator[str]:
    """The arguments with the options of every command moved to the front, with their values."""
    end = args.index("--") if "--" in args else len(args)
    front: list[str] = []
    rest: list[str] = []
    left = iter(args[:end])
    for word in left:
        name = word.partition("=")[0]
        taken = front if name in _GLOBAL else rest
        taken.append(word)
        if name in _GLOBAL and name == word and name != "--no-pager":
            front += [value for value in [next(left, None)] if value is not None]
    yield from (*front, *rest, *args[end:])


def _is_reader_gone() -> bool:
    """Whether nobody reads stdout any more: the pipe that broke may have been one to a server."""
    watch = select.poll()
    watch.register(sys.stdout.fileno(), select.POLLOUT)
    return any(events & select.POLLERR for _, events in watch.poll(0))


_EPILOG = "\n\n".join(
    [
        examples(
            ("faultline incidents", "what is open, and what each waits for"),
            ("faultline explain inc-5d55", "why; a unique prefix of an id is enough"),
            ("faultline incidents -o json | jq .id", "one JSON object a line, for scripts"),
            ("faultline completion bash", "shell completion, and how to switch it on"),
        ),
        "\n".join(["\b", "Exit codes:", *(f"  {code:<5} {what}" for code, what in EXIT_CODES.items())]),
    ]
)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EPILOG)
@click.version_option(package_name="faultline")
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Settings file (default: $FAULTLINE_CONFIG).",
)
@click.option(
    "--color",
    type=click.Choice(terminal.COLORS),
    default="auto",
    help="Colours in the output (auto: on a terminal, unless $NO_COLOR is set).",
)
@click.option("--no-pager", is_flag=True, help="Do not page what is longer than the terminal ($PAGER).")
@click.pass_context
def cli(ctx: click.Context, config: Path | None, color: str, no_pager: bool) -> None:
    """Incident automation for GPU clusters: from a log line to a cordoned node, a ticket, a thread and a resumed job."""
    ctx.obj = config
    terminal.set_up(ctx, color, pager=not no_pager)


def main() -> NoReturn:
    """Run the command line. A `FaultlineError` becomes one line on stderr and its exit code."""
    # Where nothing sets logging up (`run` does), the last-resort handler of Python would print what libraries log; what matters
    # of it is in our own error.
    logging.getLogger().addHandler(logging.NullHandler())
    sys.excepthook = _print_traceback
    try:
        code = cli.main(prog_name="faultline", standalone_mode=False, complete_var="_FAULTLINE_COMPLETE")
    except click.exceptions.Abort:
        code = EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        code = EXIT_BAD_INPUT
    except FaultlineError as error:
        from faultline.why.tree import printable
        from streams.telemetry.redaction import clean

        # What was given, and what records hold, may stand in it.
        click.echo(
            "\n".join(printable(line, _LONGEST_LINE) for line in clean(f"faultline: {error}").split("\n")),
            err=True,
        )
        code = _exit_code(error) if isinstance(error, Unreachable) else EXIT_BAD_INPUT
    except Exception as error:
        if (why := _why_kafka_failed(error)) is None:
            raise
        click.echo(f"faultline: Kafka: {why}", err=True)
        code = _exit_code(error)
    sys.exit(code if isinstance(code, int) else 0)


def _print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What Python prints of an error that nobody expected, without the secrets that its text may quote."""
    from streams.telemetry.redaction import clean

    sys.stderr.write(clean("".join(traceback.format_exception(kind, error, trace))))


def _exit_code(error: Exception) -> int:
    """A right or login that Kafka refuses is a no: whoever waits for Kafka to come back would wait for good."""
    loaded = sys.modules.get("streams.kafka.plain_errors")
    return EXIT_NO if loaded is not None and loaded.is_denial(error) else EXIT_UNREACHABLE


def _why_kafka_failed(error: Exception) -> str | None:
    """The reason in plain words, where it is an error of the Kafka client. One that was never loaded raised nothing."""
    loaded = sys.modules.get("aiokafka.errors")
    if loaded is None or not isinstance(error, loaded.KafkaError):
        return None
    from streams.kafka.plain_errors import plain

    return plain(error)
