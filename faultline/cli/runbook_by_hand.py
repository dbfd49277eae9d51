"""`faultline runbook run`, `continue`, `redo` and `replay`: runs that people start, take up again and look back at."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultline.cli.completion import incident_ids, runbook_ids
from faultline.cli.groups import examples
from faultline.cli.output import output_option
from faultline.cli.send_options import send_options
from streams.model.conversation import Command, Verb
from streams.model.errors import BadInput

if TYPE_CHECKING:
    from faultline.cli.person_run import Known
    from faultline.cli.send_options import SendOptions
    from faultline.runtime.settings import Settings
    from runbooks.engine.preview import Shown

MINUTES = 60.0

_yes = click.option("--yes", is_flag=True, help="Start it without asking, e.g. in a script.")
_follow = click.option(
    "--follow", is_flag=True, help="Follow the run until it ends; exit code 1 unless it ended well."
)
_EXITS = "0 started, 1 refused or declined, 2 wrong usage or no terminal to ask on, 3 no responder answered"


@click.command(
    "run",
    epilog=examples(
        ("faultline runbook run gpu-reset --incident inc-3f2a", "shows the plan, asks, starts it"),
        (
            "faultline runbook run node-reboot --node gpu-017 --reason 'hangs in D state'",
            "no fault is needed",
        ),
        ("faultline runbook run gpu-reset --incident inc-3f2a --yes --follow", "for scripts"),
        exits=_EXITS,
    ),
)
@click.argument("runbook_id", shell_complete=runbook_ids)
@click.option(
    "--incident", "incident_id", default="", shell_complete=incident_ids, help="Run it for this incident."
)
@click.option("--node", default="", help="Run it on this node, as planned work of its own.")
@click.option("--param", multiple=True, metavar="NAME=VALUE", help="A parameter of the runbook.")
@click.option(
    "--for", "minutes", type=click.FloatRange(min=1, max=20160), default=MINUTES, show_default=True,
    help="With --node: minutes until when it may begin, and for how long a runbook that waits for work leaves the node.",
)  # fmt: skip
@_yes
@_follow
@send_options
@click.pass_obj
def run_command(
    config: Path | None, runbook_id: str, incident_id: str, node: str, param: tuple[str, ...], minutes: float,
    yes: bool, follow: bool, options: SendOptions,
) -> None:  # fmt: skip
    """Start a runbook for an incident or on a node, by the same guardrails, limits and approvals as any run.

    The plan is shown first, with what each guardrail says now. What is started is that plan: if anything differs by the time the
    responder reads the command, it starts nothing and says what. For approvers; starting it is one approval of the plan.
    """
    from faultline.cli.person_run import checked, or_refused, parameters, send
    from faultline.cli.send_command import command_of
    from faultline.runtime.settings import load
    from streams.model.clock import utc_now

    if bool(incident_id) is bool(node):
        raise click.UsageError("give either --incident or --node")
    settings = load(config)
    command = command_of(
        Verb.RUN, settings.cluster, options, runbook=runbook_id, parameters=parameters(param)
    )

    def shown(known: Known, command: Command) -> tuple[Command, Shown]:
        now = utc_now()
        checked(known, command)
        if incident_id:
            incident = known.incident(incident_id)
            command = replace(command, incident=incident.id)
            return command, or_refused(partial(known.preview.start, incident, command, now))
        about = [i.id for i in known.incidents.values() if i.root.node == node and not i.state.is_over]
        if about:
            raise BadInput(
                f"{node} has an open incident, {', '.join(sorted(about))}: name it with --incident"
            )
        command = replace(command, scope=f"node:{node}", until=now + timedelta(minutes=minutes))
        return command, or_refused(partial(known.preview.start_on_node, node, command, now))

    send(settings, command, shown, options, yes=yes, follow=follow)


@click.command(
    "continue",
    epilog=examples(
        ("faultline runbook continue run-9c41", "shows what stands and what is done again, asks, goes on"),
        ("faultline runbook continue run-9c41 --reason 'PDB fixed' --yes --follow", "for scripts"),
        exits=_EXITS,
    ),
)
@click.argument("run_id")
@_yes
@_follow
@send_options
@click.pass_obj
def continue_command(config: Path | None, run_id: str, yes: bool, follow: bool, options: SendOptions) -> None:
    """Take up a run that failed, expired or was stopped, from its first unfinished step, in a run that continues it.

    What stands is not done again; what later steps rely on is looked up first. Whatever somebody else took back ends the run.
    """
    _take_up(config, Verb.CONTINUE, run_id, "", options, yes=yes, follow=follow)


@click.command(
    "redo",
    epilog=examples(
        ("faultline runbook redo run-9c41 validate", "does the failed step again, and what waited for it"),
        exits=_EXITS,
    ),
)
@click.argument("run_id")
@click.argument("step")
@_yes
@_follow
@send_options
@click.pass_obj
def redo_command(
    config: Path | None, run_id: str, step: str, yes: bool, follow: bool, options: SendOptions
) -> None:
    """Do a failed STEP of a run again, and what waited for it. STEP may be cut to a unique beginning."""
    _take_up(config, Verb.REDO, run_id, step, options, yes=yes, follow=follow)


@click.command(
    "replay",
    epilog=examples(
        ("faultline runbook replay run-9c41", "what was called, answered, held and decided, and when"),
        ("faultline runbook replay run-9c41 --step", "one event at a time"),
        ("faultline runbook replay run-9c41 --capture captures/may-17", "from a capture"),
    ),
)
@click.argument("run_id")
@click.option(
    "--capture",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Read a capture instead of Kafka.",
)
@click.option("--step", "walk", is_flag=True, help="Show one event, and the next when a key is pressed.")
@output_option
@click.pass_obj
def replay_command(config: Path | None, run_id: str, capture: Path | None, walk: bool, output: str) -> None:
    """Show a past run step by step: its plan and why, each call and its answer, guardrails, approvals, waits.

    It reads what was recorded and calls nothing. Kafka forgets intermediate states of old runs; the timeline keeps its own time.
    """
    from faultline.cli.run_replay import replayed, shown

    shown(asyncio.run(replayed(_loaded(config), run_id, capture)), output, walk=walk)


def _take_up(
    config: Path | None, verb: Verb, run_id: str, step: str, options: SendOptions, *, yes: bool, follow: bool
) -> None:
    from faultline.cli.person_run import or_refused, send
    from faultline.cli.send_command import command_of
    from streams.model.clock import utc_now

    settings = _loaded(config)
    command = command_of(verb, settings.cluster, options)

    def shown(known: Known, command: Command) -> tuple[Command, Shown]:
        old = known.run(run_id)
        incident = known.incident(old.incident)
        name = _step_of([record.id for record in old.steps], step) if step else None
        command = replace(command, incident=incident.id, run=old.id, step=name)
        return command, or_refused(partial(known.preview.take_up, incident, old, command, utc_now()))

    send(settings, command, shown, options, yes=yes, follow=follow)


def _step_of(steps: list[str], given: str) -> str:
    from faultline.cli.names import picked

    return picked({name: name for name in steps}, given, what="step")


def _loaded(config: Path | None) -> Settings:
    from faultline.runtime.settings import load

    return load(config)
