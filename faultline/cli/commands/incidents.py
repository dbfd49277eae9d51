"""`faultline incidents`: lists and shows incidents, and sends an operator's decision about one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultline.cli.arguments import Finite
from faultline.cli.completion import incident_argument
from faultline.cli.groups import Group, examples
from faultline.cli.output import output_option, show, table
from faultline.cli.send_options import send_options
from streams.model.clock import moment
from streams.model.conversation import Verb
from streams.model.errors import BadInput, ConfigError

if TYPE_CHECKING:
    from faultline.cli.send_options import SendOptions
    from faultline.live_view.overview import Overview
    from faultline.runtime.settings import Settings
    from runbooks.engine.containment import PendingRepair
    from streams.model.conversation import Command, TimelineEntry
    from streams.model.incident import Incident
    from streams.model.run import Run


@click.group(
    "incidents",
    cls=Group,
    default="list",
    epilog=examples(
        ("faultline incidents", "open ones, and what each waits for"),
        ("faultline incidents show inc-5d55", "one, with its timeline"),
        ('faultline incidents approve inc-5d55 --reason "seen, go on"', "go on"),
    ),
)
def command() -> None:
    """List, show and act on incidents. Without a subcommand: list open incidents."""


@command.command(
    "list",
    epilog=examples(
        "faultline incidents list",
        ("faultline incidents list --all -o json | jq -r .id", "the ids of all, also resolved ones"),
    ),
)
@click.option("--all", "everything", is_flag=True, help="Include resolved incidents.")
@output_option
@click.pass_obj
def list_incidents(config: Path | None, everything: bool, output: str) -> None:
    """One line per incident: open first, then contained (a node is still cordoned, pending repair)."""
    from faultline.cli.reach import settings_to_reach
    from streams.model.codec import encode_plain

    shown = asyncio.run(_overview(settings_to_reach(config), everything=everything))
    records = ({**encode_plain(one.incident), **_derived(one)} for one in shown)
    show(output, records, lambda: _show_list(shown, everything=everything))


async def _overview(settings: Settings, *, everything: bool) -> list[Overview]:
    from faultline.cli.incident_overview import read_overview
    from faultline.cli.reach import require_ours
    from faultline.cli.read_topics import read_control

    await require_ours(settings.kafka, settings.cluster)
    try:
        await read_control(settings.kafka, settings.cluster)
    except ConfigError as error:
        click.echo(f"not known what the kill switch, freezes and breaker hold back: {error}", err=True)
    return await read_overview(settings.kafka, everything=everything)


def _show_list(shown: Sequence[Overview], *, everything: bool) -> None:
    from faultline.cli.incident_overview import counts

    rows = (
        (
            one.incident.id, one.standing, one.incident.severity.value, one.incident.family, one.incident.root,
            len(one.incident.jobs), moment(one.incident.fault_at), one.waits_for, one.incident.title,
        )
        for one in shown
    )  # fmt: skip
    headings = ("id", "state", "severity", "family", "root", "jobs", "fault at", "waits for", "title")
    table(
        headings,
        rows,
        empty="no incident" if everything else "no open incident (--all includes resolved ones)",
    )
    if shown:
        click.echo(f"\n{', '.join(counts(shown))}")


def _derived(one: Overview) -> dict[str, Any]:
    """Fields of an incident that are derived from its runs and nodes, for scripts."""
    from runbooks.engine.containment import plain_of

    return {
        "standing": one.standing,
        "waits_for": one.waits_for,
        "owed": [plain_of(repair) for repair in one.repairs],
    }


@command.command(
    "show",
    epilog=examples(
        "faultline incidents show inc-5d55",
        "faultline incidents show inc-5d55 -o yaml",
    ),
)
@incident_argument
@output_option
@click.pass_obj
def show_incident(config: Path | None, incident_id: str, output: str) -> None:
    """Details of one incident: root cause, actions, timeline, pending repairs."""
    from faultline.cli.reach import settings_to_reach

    asyncio.run(_show(settings_to_reach(config), incident_id, output))


async def _show(settings: Settings, prefix: str, output: str) -> None:
    # Imported here: it loads every rule of the correlator, which no other command of this group needs.
    from faultline.cli.incident_overview import read_nodes
    from faultline.cli.read_topics import read_incident, read_runs, read_timeline
    from faultline.live_view.overview import Overview, tells_of_run
    from runbooks.engine.containment import pending_repairs
    from streams.model.codec import encode_plain

    incident = await read_incident(settings.kafka, prefix)
    runs, timeline, nodes = await asyncio.gather(
        read_runs(settings.kafka, incident),
        read_timeline(settings.kafka, incident),
        read_nodes(settings.kafka, incident.cluster),
    )
    one = Overview(incident, tuple(runs), pending_repairs(incident.id, runs, nodes), tells_of_run(timeline))
    values = {"runs": [encode_plain(r) for r in runs], "timeline": [encode_plain(t) for t in timeline]}
    record = {"incident": encode_plain(incident), **_derived(one), **values}
    show(output, [record], lambda: _show_one(one, runs, timeline))


def _show_one(one: Overview, runs: list[Run], timeline: Sequence[TimelineEntry]) -> None:
    from faultline.why.explanation import explain

    click.echo(explain(one.incident, runs, one.repairs))
    click.echo()
    for line in (*_pending_approvals(runs), *_pending_repairs(one.repairs)):
        click.echo(line)
    table(
        ("when", "who", "what"),
        ((moment(t.at), t.actor, t.text) for t in timeline),
        empty="nothing on the timeline yet",
    )


def _pending_repairs(repairs: Sequence[PendingRepair]) -> Iterator[str]:
    """The nodes that stay cordoned, and the command that returns each to service."""
    for one in repairs:
        since = f" since {moment(one.since)}" if one.since else ""
        yield f"Pending repair: {one.text}{since}"
        if one.ticket is not None and one.ticket.url:
            yield f"  {one.ticket.url}"
        yield f"  {one.way_out}   # once repaired"
        yield ""


def _pending_approvals(runs: list[Run]) -> Iterator[str]:
    """Each step that waits for approval: who may approve it, until when, and the command to run."""
    from faultline.chat.thread_messages import approve_line
    from runbooks.engine.approvals import wanted
    from streams.model.run import StepState

    for run in runs:
        for planned in run.plan.steps:
            record = run.step(planned.id)
            if record.state is StepState.AWAITING_APPROVAL:
                until = f" until {moment(record.deadline_at)}" if record.deadline_at else ""
                yield f"Waiting for approval{until}: {planned.action} {planned.target}"
                yield f"  needs approval from {wanted(record.demands) or 'one person'}"
                yield f"  {approve_line(run, planned)}"
                yield ""


_MINUTES: dict[Verb, float] = {Verb.SNOOZE: 10.0, Verb.SILENCE: 60.0}
"""How long each of them lasts where `--for` is not given."""

_DAY_MINUTES = 1440.0


def _decide(verb: Verb, help_text: str, example: str) -> None:
    """Add one subcommand that writes an operator's decision to the `commands` topic."""

    def decide_on(
        config: Path | None,
        incident_id: str,
        options: SendOptions,
        step: str | None = None,
        minutes: float | None = None,
        text: str = "",
    ) -> None:
        from faultline.cli.reach import settings_to_reach
        from faultline.cli.send_command import report_answer
        from streams.model.clock import utc_now

        until = utc_now() + timedelta(minutes=minutes) if minutes else None
        options = replace(options, reason=text or options.reason)
        sent, answers = asyncio.run(
            _decided(settings_to_reach(config), verb, incident_id, step, options, until)
        )
        report_answer(sent, answers, options)

    decorated = click.pass_obj(send_options(decide_on))
    if verb in (Verb.APPROVE, Verb.REJECT, Verb.ACK, Verb.STOP, Verb.RESOLVE):
        step_help = "Step to approve or reject (default: the pending one)."
        decorated = click.option("--step", default=None, help=step_help)(decorated)
    if verb in _MINUTES:
        decorated = click.option(
            "--for", "minutes", type=Finite(min=0, min_open=True, max=_DAY_MINUTES), default=_MINUTES[verb],
            show_default=True, help="Minutes.",
        )(decorated)  # fmt: skip
    if verb is Verb.NOTE:
        decorated = click.argument("text")(decorated)
    decorated = incident_argument(decorated)
    command.command(verb.value.replace("_", "-"), help=help_text, epilog=examples(example))(decorated)


_HELP: dict[Verb, tuple[str, str]] = {
    Verb.ACK: (
        "Acknowledge: you are working on it. Escalation stops, running automation continues.",
        "ack inc-5d55",
    ),
    Verb.APPROVE: (
        "Approve the pending step of the current plan.",
        'approve inc-5d55 --reason "seen, go on"',
    ),
    Verb.REJECT: (
        "Reject the pending step; the run is cancelled.",
        'reject inc-5d55 --reason "maintenance tonight"',
    ),
    Verb.STOP: ("Stop the run: no further step is started.", "stop inc-5d55"),
    Verb.RESOLVE: ("Resolve the incident.", 'resolve inc-5d55 --reason "reseated by hand"'),
    Verb.HAND_OVER: (
        "Take the incident over: its run stops, nothing it did is undone.",
        'hand-over inc-5d55 --reason "I drain it myself"',
    ),
    Verb.SNOOZE: (
        "Not now: destructive steps that have not begun wait.",
        'snooze inc-5d55 --for 30 --reason "a checkpoint is due"',
    ),
    Verb.SILENCE: (
        "No posts and pages about the incident for a while; decisions are still shown.",
        "silence inc-5d55 --for 120",
    ),
    Verb.NOTE: ("Add a line to the incident's timeline.", 'note inc-5d55 "the vendor is on site"'),
}
"""What each decision means, and an example."""
for _verb, (_text, _example) in _HELP.items():
    _decide(_verb, _text, f"faultline incidents {_example}")


async def _decided(
    settings: Settings,
    verb: Verb,
    prefix: str,
    step: str | None,
    options: SendOptions,
    until: datetime | None = None,
) -> tuple[Command, list[TimelineEntry]]:
    from faultline.cli.reach import require_ours
    from faultline.cli.read_topics import read_incident, read_runs
    from faultline.cli.send_command import command_of, decide

    await require_ours(settings.kafka, settings.cluster)
    incident = await read_incident(settings.kafka, prefix)
    plan_digest = None
    if verb in (Verb.APPROVE, Verb.REJECT):
        run, step = _pending(incident, await read_runs(settings.kafka, incident), step)
        plan_digest = run.plan.digest
    sent = command_of(
        verb, incident.cluster, options, incident=incident.id, step=step, digest=plan_digest, until=until
    )
    return sent, await decide(settings.kafka, sent, options.wait_s)


def _pending(incident: Incident, runs: list[Run], step: str | None) -> tuple[Run, str | None]:
    """The run and step pending approval, or else the last run that was decided, so that a late caller learns who decided it.

    Raises:
        BadInput: when no step is or was pending, or several are and none was named.
    """
    from streams.model.run import StepState

    waiting = [
        (run, s.id)
        for run in runs
        for s in run.steps
        if s.state is StepState.AWAITING_APPROVAL and step in (None, s.id)
    ]
    if not waiting:
        # Sent anyway: the responder answers who was first and when, and records this attempt on the timeline.
        decided = [run for run in runs if any(one.digest == run.plan.digest for one in run.approvals)]
        if decided:
            return decided[-1], step
        named = f"step {step} is not" if step else "no step is"
        raise BadInput(f"{incident.id}: {named} pending approval")
    if len({step_id for _, step_id in waiting}) > 1:
        raise BadInput(
            f"{incident.id}: several steps are pending, choose one with --step: {', '.join(s for _, s in waiting)}"
        )
    return waiting[-1]
