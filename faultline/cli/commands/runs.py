"""`faultline runs`: lists runs, shows one, and follows one until it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultline.cli.completion import incident_ids
from faultline.cli.groups import Group, examples
from faultline.cli.output import output_option, table
from faultline.cli.output import show as printed
from streams.model.clock import moment, rfc3339, utc_now

if TYPE_CHECKING:
    from faultline.runtime.settings import Settings
    from streams.model.run import Run

SHOWN = 50
"""Ended runs that are listed where nothing narrows them down."""


@click.group(
    "runs",
    cls=Group,
    default="list",
    epilog=examples(
        ("faultline runs", "those at work, then the latest that ended"),
        ("faultline runs show run-5d55", "one, step by step"),
    ),
)
def command() -> None:
    """Runs: what Faultline and people do, did, or would have done. Without a subcommand: same as `list`."""


@command.command(
    "list",
    epilog=examples(
        ("faultline runs", "those at work, then the latest that ended"),
        ("faultline runs --node gpu-017 --since 7d --all", "all that touched a node"),
        ("faultline runs --state failed --since 12h -o json", "what failed tonight"),
    ),
)
@click.option(
    "--incident", "incident_id", default="", shell_complete=incident_ids, help="Only runs of this incident."
)
@click.option("--node", default="", help="Only runs with a step on this node.")
@click.option("--job", default="", metavar="NAMESPACE/NAME", help="Only runs with a step on this job.")
@click.option(
    "--state", default="", help="Only runs in this state or with this outcome: running, failed, expired …"
)
@click.option(
    "--since", default="", metavar="TIME", help="Only runs that changed since: 90m, 12h, 7d, or RFC 3339."
)
@click.option("--all", "everything", is_flag=True, help=f"All that ended, not only the latest {SHOWN}.")
@output_option
@click.pass_obj
def list_runs(
    config: Path | None,
    incident_id: str,
    node: str,
    job: str,
    state: str,
    since: str,
    everything: bool,
    output: str,
) -> None:
    """One line per run: first those with work left, then the latest that ended."""
    from faultline.cli.names import require_known
    from faultline.cli.reach import settings_to_reach
    from faultline.cli.since import since_of
    from streams.model.run import RunOutcome, RunState

    require_known("state or outcome", state, {*filter(None, (*RunState, *RunOutcome))})
    from_ = since_of(since, utc_now()) if since else None
    wanted_incident = f"inc-{incident_id.removeprefix('inc-')}" if incident_id else ""
    runs = [
        run
        for run in asyncio.run(_runs(settings_to_reach(config)))
        if run.incident.startswith(wanted_incident)
        if not node or _acts_on(run, "Node", node)
        if not job or _acts_on(run, "", job)
        if state in ("", str(run.state), str(run.outcome))
        if from_ is None or run.updated_at >= from_
    ]
    live = [run for run in runs if run.has_work]
    ended = sorted((run for run in runs if not run.has_work), key=lambda run: run.updated_at, reverse=True)
    shown = [*live, *(ended if everything else ended[:SHOWN])]
    printed(output, map(row, shown), lambda: _table(shown, left=len(runs) - len(shown)))


@command.command(
    "show", epilog=examples(("faultline runs show run-9c41", "each step: state, effect, attempts, reason"))
)
@click.argument("run_id")
@output_option
@click.pass_obj
def show_run(config: Path | None, run_id: str, output: str) -> None:
    """One run: who started it and why, its steps with their effects, its approvals."""
    from faultline.cli.reach import settings_to_reach
    from streams.model.codec import encode_plain

    run = asyncio.run(_run(settings_to_reach(config), run_id))
    printed(output, [encode_plain(run)], lambda: _show(run))


@command.command(
    "follow",
    epilog=examples(
        ("faultline runs follow run-9c41", "until it ends; Ctrl-C leaves the run alone"),
        ("faultline runs follow --incident inc-3f2a", "all runs of an incident"),
        exits="0 it ended well, 1 it did not, 130 you stopped following",
    ),
)
@click.argument("run_id", required=False)
@click.option(
    "--incident", "incident_id", default="", shell_complete=incident_ids, help="All runs of this incident."
)
@output_option
@click.pass_obj
def follow(config: Path | None, run_id: str | None, incident_id: str, output: str) -> None:
    """Print each step as it changes, until the run ends."""
    from faultline.cli.follow_runs import followed
    from faultline.cli.reach import settings_to_reach
    from faultline.cli.read_topics import read_incident

    if bool(run_id) is bool(incident_id):
        raise click.UsageError("give either a run or --incident")
    settings = settings_to_reach(config)
    if run_id:
        run = asyncio.run(_run(settings, run_id))
        code = asyncio.run(followed(settings.kafka, settings.cluster, run=run.id, output=output))
    else:
        incident = asyncio.run(read_incident(settings.kafka, incident_id))
        code = asyncio.run(followed(settings.kafka, incident.cluster, incident=incident.id, output=output))
    raise SystemExit(code)


def row(run: Run) -> dict[str, Any]:
    """A run in one line, for scripts."""
    from runbooks.engine.wait_reasons import ending_reason, held_by

    done = sum(record.state.is_over for record in run.steps)
    return {
        "run": run.id, "incident": run.incident, "runbook": run.plan.runbook, "mode": str(run.plan.mode),
        "state": str(run.state), "outcome": str(run.outcome), "steps": len(run.steps), "finished_steps": done,
        "created_at": rfc3339(run.created_at), "updated_at": rfc3339(run.updated_at), "started_by": run.started_by,
        "continues": run.continues, "waits_for": held_by(run) if run.has_work else "", "reason": ending_reason(run),
        "title": run.title, "config": run.config or "",
    }  # fmt: skip


def _table(runs: Iterable[Run], *, left: int) -> None:
    rows = [
        (
            r["run"], r["outcome"] or r["state"], r["runbook"], f"{r['finished_steps']}/{r['steps']}", r["started_by"],
            moment_of(run), r["incident"], r["waits_for"] or r["reason"] or r["title"],
        )
        for run in runs
        for r in [row(run)]
    ]  # fmt: skip
    headings = ("run", "state", "runbook", "steps", "started by", "changed", "incident", "now")
    table(headings, rows, empty="no runs")
    if left:
        click.echo(f"\n{left} more that ended; --all lists them")


def moment_of(run: Run) -> str:
    """When it last changed."""
    return moment(run.updated_at)


def stands(run: Run) -> str:
    """State, outcome where it says more than the state, and reason."""
    words = ", ".join(dict.fromkeys(filter(None, (str(run.state), str(run.outcome)))))
    return f"{words}: {run.reason}" if run.reason else words


def _show(run: Run) -> None:
    by = f", started by {run.started_by}" if run.started_by else ""
    goes_on = f", takes up {run.continues}" if run.continues else ""
    click.echo(
        f"{run.id}  {run.plan.runbook} revision {run.plan.runbook_revision}, mode {run.plan.mode}{by}{goes_on}"
    )
    click.echo(f"{run.incident}  {run.title}")
    if run.config is not None:
        click.echo(f"planned with runbooks and settings of version {run.config}")
    click.echo(f"{stands(run)}; since {moment(run.created_at)}, changed {moment(run.updated_at)}\n")
    rows = []
    for planned in run.plan.steps:
        record = run.step(planned.id)
        effect, undo = record.effect, record.undo
        made = f"{effect.state} x{effect.attempts}" if effect is not None else ""
        made += f", undo {undo.state}" if undo is not None else ""
        took = record.finished_at - record.started_at if record.finished_at and record.started_at else None
        rows.append(
            (
                planned.id, record.state, made, f"{took.total_seconds():.0f} s" if took else "",
                record.carried_from, record.reason or (effect.reason if effect is not None else ""),
            )
        )  # fmt: skip
    table(("step", "state", "effect", "took", "from", "reason"), rows, empty="no steps")
    for given in run.approvals:
        verb = "approved" if given.approved else "rejected"
        click.echo(
            f"{given.actor} {verb} plan {given.digest[:8]} at {moment(given.at)}: {given.reason or 'no reason'}"
        )


def _acts_on(run: Run, kind: str, name: str) -> bool:
    targets = (step.target for step in run.plan.steps if step.target is not None)
    return any((not kind or t.kind == kind) and name in (t.name, f"{t.namespace}/{t.name}") for t in targets)


async def _runs(settings: Settings) -> list[Run]:
    from faultline.cli.reach import require_ours
    from faultline.cli.read_topics import read_runs_of

    await require_ours(settings.kafka, settings.cluster)
    return await read_runs_of(settings.kafka, settings.cluster)


async def _run(settings: Settings, given: str) -> Run:
    from faultline.cli.names import picked

    runs = {run.id: run for run in await _runs(settings)}
    return picked(runs, given, what="run", prefix="run-", see="`faultline runs --all` lists them")
