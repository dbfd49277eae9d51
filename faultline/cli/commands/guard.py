"""`faultline guard`: shows and changes cluster-wide safety controls, and shows how much of each limit is used."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultline.cli.arguments import Finite
from faultline.cli.groups import Group, examples
from faultline.cli.output import output_option, show, table
from faultline.cli.send_options import send_options
from streams.model.clock import moment, parse_rfc3339, rfc3339, utc_now
from streams.model.conversation import Verb
from streams.model.errors import BadInput, Unreachable

if TYPE_CHECKING:
    from faultline.cli.send_options import SendOptions
    from faultline.runtime.settings import Settings
    from runbooks.engine.guardrails.limits import LimitUsage
    from streams.config.settings import ClosedTime, ResponderSettings
    from streams.inventory.cluster_view import ClusterView
    from streams.model.control import Control, Freeze
    from streams.model.conversation import Command, TimelineEntry


MOST_MINUTES = 366 * 24 * 60.0
"""The longest freeze with an end: one year. A longer one has no end and is thawed by command."""


@click.group(
    "guard",
    cls=Group,
    default="status",
    epilog=examples(
        ("faultline guard", "what is in force, and how much of each limit is used"),
        ('faultline guard kill --reason "storage is down"', "start nothing destructive"),
    ),
)
def command() -> None:
    """Safety controls and limits in force. Without a subcommand: same as `status`."""


@command.command(
    "status",
    epilog=examples(
        "faultline guard status",
        ("faultline guard status -o json | jq .kill_switch.on", "for scripts"),
    ),
)
@output_option
@click.pass_obj
def status(config: Path | None, output: str) -> None:
    """Safety controls in force in this cluster, set by settings or command, and how much of each limit is used."""
    from faultline.cli.reach import reached

    settings, is_whole = reached(config)
    control, used, view = asyncio.run(_read(settings))
    if not is_whole:
        show(output, [_commanded(settings, control)], lambda: _show_commanded(settings, control))
        return
    show(
        output,
        [_as_json(settings, control, used, utc_now())],
        lambda: _show_status(settings, control, used, view),
    )


def _commanded(settings: Settings, control: Control) -> dict[str, Any]:
    """What commands have set; null for what settings that cannot be read may say."""
    known = _as_json(settings, control, (), utc_now())
    switch = known["kill_switch"] | {"on": True if control.kill_switch else None, "by_setting": None}
    return known | {"mode": None, "closed_times": None, "limits": None, "kill_switch": switch}


def _show_commanded(settings: Settings, control: Control) -> None:
    rows = [("mode, limits, switches and times of settings", "not known", "")]
    by_command = _switches(settings.responder, control, utc_now())
    if control.kill_switch is None:  # then no row may say that it is off
        rows.append(("kill switch", "not set by command; by the settings: not known", ""))
        by_command = [row for row in by_command if row[0] != "kill switch"]
    table(("control", "value", "set by"), [*rows, *by_command], empty="")
    _show_changes(control)


def _show_status(
    settings: Settings, control: Control, used: tuple[LimitUsage, ...], view: ClusterView
) -> None:
    from faultline.cli.commands.rollout import stages

    stage_rows = [
        ("rollout", f"pool {row['pool']}: {row['stage']}, {row['acts_on']}", row["note"] or row["by"])
        for row in stages(view, settings.responder, control, utc_now())
        if settings.responder.rollout or control.rolled_back
    ]
    rows = [
        ("mode", settings.responder.mode.value, "responder.mode"),
        *_switches(settings.responder, control, utc_now()),
    ]
    rows += [
        (b.name, f"{b.used} of {b.allowed}" + (f" ({b.detail})" if b.detail else ""), b.setting) for b in used
    ]
    rows += stage_rows
    table(("control", "value", "set by"), rows, empty="")
    _show_changes(control)


def _show_changes(control: Control) -> None:
    if control.changes:
        click.echo()
        changes = ((moment(c.at), c.actor, c.text) for c in reversed(control.changes[-10:]))
        table(("when", "who", "change"), changes, empty="")


def _change(verb: Verb, help_text: str, example: str) -> None:
    """Add one subcommand that sends a cluster-wide command."""

    @command.command(verb.value, help=help_text, epilog=examples(example))
    @send_options
    @click.pass_obj
    def change(config: Path | None, options: SendOptions) -> None:
        from faultline.cli.reach import settings_to_reach

        _send(settings_to_reach(config), verb, options)


_change(
    Verb.KILL,
    "Engage the kill switch: no destructive step is started, including in runs already in progress.",
    'faultline guard kill --reason "storage is down"',
)
_change(
    Verb.UNKILL,
    "Release the kill switch if a command engaged it (not the settings); approvers only.",
    'faultline guard unkill --reason "storage is back"',
)
_change(
    Verb.RESET,
    "Reset the tripped circuit breaker; approvers only. Stale approvals are requested again.",
    'faultline guard reset --reason "the switch was rebooted on purpose"',
)


_scope_option = click.option(
    "--scope", default="", help="pool:NAME or namespace:NAME; default: the whole cluster."
)


@command.command(
    "freeze",
    epilog=examples(
        ('faultline guard freeze --for 90 --reason "switch upgrade"', "the cluster, 90 minutes"),
        ("faultline guard freeze --scope pool:h100 --until 2026-03-01T06:00:00Z", "one pool"),
    ),
)
@_scope_option
@click.option("--force", is_flag=True, help="Accept a pool or namespace that is not (yet) in the inventory.")
@click.option("--until", default=None, help="End of the freeze, RFC 3339 (2026-03-01T06:00:00Z).")
@click.option(
    "--for",
    "minutes",
    type=Finite(min=0, min_open=True, max=MOST_MINUTES),
    help="Duration of the freeze in minutes, instead of --until.",
)
@send_options
@click.pass_obj
def freeze(
    config: Path | None,
    scope: str,
    force: bool,
    until: str | None,
    minutes: float | None,
    options: SendOptions,
) -> None:
    """Start no destructive step in the cluster, a pool or a namespace until the freeze ends.

    A pool or namespace that is not in the inventory is rejected with exit code 2: a typo would freeze nothing.
    """
    from faultline.cli.freeze_scopes import check_shape
    from faultline.cli.reach import settings_to_reach
    from faultline.cli.send_command import command_of, report_answer

    check_shape(scope)
    if until and minutes:
        raise BadInput("--until and --for are mutually exclusive")
    end = parse_rfc3339(until) if until else utc_now() + timedelta(minutes=minutes) if minutes else None
    settings = settings_to_reach(config)
    sent = command_of(Verb.FREEZE, settings.cluster, options, scope=scope, until=end)
    answers = asyncio.run(_frozen(settings, sent, options.wait_s, check=bool(scope) and not force))
    report_answer(sent, answers, options)


async def _frozen(settings: Settings, sent: Command, wait_s: float, *, check: bool) -> list[TimelineEntry]:
    """The answers to a freeze. A scope that the inventory does not know is refused, by an inventory that is read in time: a
    large one, or one that cannot be read, holds no freeze up.

    Raises:
        BadInput: the inventory does not know the scope; the freeze is sent where it was read too late.
    """
    from faultline.cli.send_command import LOOK_FIRST_S, decide

    checking = asyncio.create_task(_check_scope(settings, sent.scope) if check else asyncio.sleep(0))
    try:
        await asyncio.wait({checking}, timeout=LOOK_FIRST_S)
        if checking.done():
            checking.result()
        answers = await decide(settings.kafka, sent, wait_s)
        await asyncio.wait({checking}, timeout=wait_s)
        if checking.done():
            checking.result()
        else:
            click.echo(
                f"not checked whether the inventory knows {sent.scope}: it was not read in time", err=True
            )
        return answers
    finally:
        checking.cancel()


async def _check_scope(settings: Settings, scope: str) -> None:
    from aiokafka.errors import KafkaError

    from faultline.cli.freeze_scopes import check_known
    from faultline.cli.read_topics import read_facts
    from streams.kafka.plain_errors import plain

    try:
        facts = await read_facts(settings.kafka, settings.cluster)
    except (KafkaError, Unreachable) as error:
        click.echo(f"not checked whether the inventory knows {scope}: {plain(error)}", err=True)
        return
    check_known(scope, facts.values(), settings.cluster)


@command.command(
    "thaw",
    epilog=examples(
        "faultline guard thaw",
        "faultline guard thaw --scope pool:h100 --reason done",
    ),
)
@_scope_option
@send_options
@click.pass_obj
def thaw(config: Path | None, scope: str, options: SendOptions) -> None:
    """End a freeze that was started by command; approvers only."""
    from faultline.cli.freeze_scopes import check_shape
    from faultline.cli.reach import settings_to_reach

    check_shape(scope)
    _send(settings_to_reach(config), Verb.THAW, options, scope=scope)


def _send(settings: Settings, verb: Verb, options: SendOptions, **more: Any) -> None:
    from faultline.cli.send_command import command_of, decide, report_answer

    sent = command_of(verb, settings.cluster, options, **more)
    report_answer(sent, asyncio.run(decide(settings.kafka, sent, options.wait_s)), options)


async def _read(settings: Settings) -> tuple[Control, tuple[LimitUsage, ...], ClusterView]:
    from faultline.cli.reach import require_ours
    from faultline.cli.read_topics import read_control, read_facts, read_runs_of
    from runbooks.engine.guardrails.limits import limit_usage
    from streams.inventory.cluster_view import ClusterView

    await require_ours(settings.kafka, settings.cluster)
    view = ClusterView(settings.cluster)
    for fact in (await read_facts(settings.kafka, settings.cluster)).values():
        view.put(fact)
    runs = await read_runs_of(settings.kafka, settings.cluster)
    control = await read_control(settings.kafka, settings.cluster)
    return control, limit_usage(view, runs, settings.responder, utc_now()), view


def _switches(policy: ResponderSettings, control: Control, now: datetime) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    if policy.kill_switch:
        rows.append(("kill switch", "ON", "responder.kill_switch"))
    if control.kill_switch is not None:
        rows.append(
            ("kill switch", f"ON{_with_reason(control.kill_switch.reason)}", control.kill_switch.actor)
        )
    if not rows:
        rows.append(("kill switch", "off", ""))
    for freeze in control.freezes:
        rows.append(("freeze", f"{freeze.scope or 'the whole cluster'}{_end(freeze, now)}", freeze.actor))
    windows = _windows(policy, now)
    rows += [
        (one.kind, f"{one.name} until {moment(over)}", "responder.closed_times") for one, over in windows
    ]
    if not windows and all(freeze.has_ended(now) for freeze in control.freezes):
        rows.append(("freeze", "none now", ""))
    trip = control.breaker
    rows.append(("breaker", f"TRIPPED by {trip.rule}: {trip.reason}" if trip else "ok (closed)", ""))
    if control.config is not None:
        rows.append(
            ("config", f"{control.config.version} since {moment(control.config.since)}", "the responder")
        )
    return rows


def _end(freeze: Freeze, now: datetime) -> str:
    if freeze.until is not None and freeze.has_ended(now):
        return (
            f": ended at {moment(freeze.until)}, holds nothing back; the responder takes it out once it runs"
        )
    return f"{f' until {moment(freeze.until)}' if freeze.until else ''}{_with_reason(freeze.reason)}"


def _windows(policy: ResponderSettings, now: datetime) -> list[tuple[ClosedTime, datetime]]:
    """The closed times of the settings that are in force now, each with its end."""
    return [(window, end) for window in policy.closed_times if (end := window.until(now)) is not None]


def _with_reason(reason: str) -> str:
    return f": {reason}" if reason else ""


def _as_json(
    settings: Settings, control: Control, used: tuple[LimitUsage, ...], now: datetime
) -> dict[str, Any]:
    switch, trip, policy = control.kill_switch, control.breaker, settings.responder
    return {
        "cluster": settings.cluster,
        "mode": policy.mode.value,
        "config": {
            "version": control.config.version if control.config else "",
            "since": rfc3339(control.config.since) if control.config else "",
        },
        "kill_switch": {
            "on": policy.kill_switch or switch is not None,
            "by_setting": policy.kill_switch,
            "by": switch.actor if switch else "",
            "at": rfc3339(switch.at) if switch else "",
            "reason": switch.reason if switch else "",
        },
        "freezes": [
            {
                "scope": f.scope, "by": f.actor, "at": rfc3339(f.at), "reason": f.reason,
                "until": rfc3339(f.until) if f.until else "", "in_force": not f.has_ended(now),
            }
            for f in control.freezes
        ],
        "closed_times": [
            {"name": window.name, "kind": window.kind, "until": rfc3339(end)}
            for window, end in _windows(policy, now)
        ],
        "breaker": {
            "tripped": trip is not None,
            "rule": trip.rule if trip else "",
            "at": rfc3339(trip.at) if trip else "",
            "reason": trip.reason if trip else "",
        },
        "limits": [
            {"name": b.name, "used": b.used, "allowed": b.allowed, "detail": b.detail, "setting": b.setting}
            for b in used
        ],
    }  # fmt: skip
