"""`faultline rollout`: how far runbooks go in each pool, and the way back with one command."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultline.cli.groups import Group, examples
from faultline.cli.output import output_option, show, table
from faultline.cli.send_options import send_options
from streams.model.clock import moment, rfc3339, utc_now
from streams.model.conversation import Verb

if TYPE_CHECKING:
    from faultline.cli.send_options import SendOptions
    from streams.config.settings import ResponderSettings
    from streams.inventory.cluster_view import ClusterView
    from streams.model.control import Control


@click.group(
    "rollout",
    cls=Group,
    default="list",
    epilog=examples(
        ("faultline rollout", "stages of all pools now"),
        ('faultline rollout observe h100 --reason "two healthy nodes"', "back at once"),
    ),
)
def command() -> None:
    """Stages of pools: observe, canary, act. Without a subcommand: same as `list`."""


@command.command(
    "list",
    epilog=examples(
        "faultline rollout list",
        "faultline rollout list -o yaml",
    ),
)
@output_option
@click.pass_obj
def list_stages(config: Path | None, output: str) -> None:
    """The stage of each pool now, until when it holds, and on which nodes runbooks act.

    A pool of responder.rollout that no node of the inventory is in is marked: a typo would leave the real one without a row.
    """
    from faultline.runtime.settings import load

    settings = load(config)
    view, control = asyncio.run(_read(settings.kafka, settings.cluster))
    rows = stages(view, settings.responder, control, utc_now())
    record = {"cluster": settings.cluster, "mode": settings.responder.mode.value, "pools": rows}
    show(output, [record], lambda: _show(rows))


def _show(rows: list[dict[str, Any]]) -> None:
    shown = [
        (r["pool"], r["stage"], r["acts_on"], moment_of(r["until"]), r["then"], r["note"] or r["by"])
        for r in rows
    ]
    table(("pool", "stage", "acts on", "until", "then", "set by"), shown, empty="no pools")


@command.command(
    "observe",
    epilog=examples(
        'faultline rollout observe h100 --reason "two healthy nodes"',
    ),
)
@click.argument("pool")
@click.option("--force", is_flag=True, help="Accept a pool that is not (yet) in the inventory.")
@send_options
@click.pass_obj
def observe(config: Path | None, pool: str, force: bool, options: SendOptions) -> None:
    """Put a pool back to stage observe at once, also for runs in progress; anyone who can write a command may.

    What gives something back goes on: jobs are resumed, and what was done can be undone.
    """
    _send(config, Verb.OBSERVE, pool, options, force=force)


@command.command(
    "lift",
    epilog=examples(
        'faultline rollout lift h100 --reason "fixed in 3.2"',
    ),
)
@click.argument("pool")
@send_options
@click.pass_obj
def lift(config: Path | None, pool: str, options: SendOptions) -> None:
    """End a rollback: the stage of responder.rollout holds again; approvers only."""
    _send(config, Verb.LIFT, pool, options, force=True)


def stages(
    view: ClusterView, policy: ResponderSettings, control: Control, now: datetime
) -> list[dict[str, Any]]:
    """One row for each pool of the inventory, of the settings and of the commands."""
    from runbooks.engine.guardrails.rollout import canaries
    from streams.config.rollout_settings import EVERY_POOL, PoolRollout, Stage

    sizes: dict[str, int] = {}
    for fact in view.nodes.values():
        if fact.pool is not None:
            sizes[fact.pool] = sizes.get(fact.pool, 0) + 1
    own = {row.pool: row for row in policy.rollout}
    backs = {one.pool: one for one in control.rolled_back}
    found = []
    for pool in sorted({*sizes, *own, *backs} - {EVERY_POOL}) + ([EVERY_POOL] if EVERY_POOL in own else []):
        row: PoolRollout | None = own.get(pool) or own.get(EVERY_POOL)
        back = backs.get(pool)
        stage = Stage.OBSERVE if back is not None else row.stage_at(now) if row is not None else Stage.ACT
        fell = row is not None and row.until is not None and now >= row.until
        acts_on = "no node" if stage is Stage.OBSERVE else "all nodes"
        if stage is Stage.CANARY and row is not None:
            acts_on = ", ".join(canaries(row, view)) or "no node fits canary_nodes"
        if back is not None:
            by = f"{back.actor}{f': {back.reason}' if back.reason else ''}"
        else:
            by = "responder.rollout" if row is not None else "responder.mode alone"
        note = "" if pool in sizes or pool == EVERY_POOL else "no node of the inventory is in this pool"
        if fell and back is None and row is not None and row.until is not None:
            note = note or f"stage {row.stage} ended {moment(row.until)}"
        lasts = row is not None and row.until is not None and not fell and back is None
        found.append(
            {
                "pool": pool, "stage": stage.value, "nodes": sizes.get(pool, 0), "acts_on": acts_on,
                "until": rfc3339(row.until) if lasts and row is not None and row.until is not None else "",
                "then": row.then.value if lasts and row is not None else "", "by": by, "note": note,
            }
        )  # fmt: skip
    return found


def moment_of(written: str) -> str:
    """A time of a row as people read it."""
    from streams.model.clock import parse_rfc3339

    return moment(parse_rfc3339(written)) if written else ""


async def _read(kafka: Any, cluster: str) -> tuple[ClusterView, Control]:
    from faultline.cli.read_topics import read_control, read_facts
    from streams.inventory.cluster_view import ClusterView

    view = ClusterView(cluster)
    for fact in (await read_facts(kafka, cluster)).values():
        view.put(fact)
    return view, await read_control(kafka, cluster)


def _send(config: Path | None, verb: Verb, pool: str, options: SendOptions, *, force: bool) -> None:
    from faultline.cli.freeze_scopes import check_known, check_shape
    from faultline.cli.read_topics import read_facts
    from faultline.cli.send_command import command_of, decide, report_answer
    from faultline.runtime.settings import load

    scope, settings = f"pool:{pool}", load(config)
    check_shape(scope)
    if not force:
        facts = asyncio.run(read_facts(settings.kafka, settings.cluster))
        check_known(scope, facts.values(), settings.cluster)
    sent = command_of(verb, settings.cluster, options, scope=scope)
    report_answer(sent, asyncio.run(decide(settings.kafka, sent, options.wait_s)), options)
