"""`faultline incidents`: what is going on, and a person's decision about it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from faultline.chat.thread_messages import approve_line
from faultline.cli.incident_overview import Overview, counts, read_nodes, read_overview
from faultline.cli.output import json_line, output_option, table
from faultline.cli.read_topics import read_incident, read_runs, read_timeline
from faultline.cli.send_command import command_of, decide, decision_options, tell
from faultline.runtime.settings import Settings, load
from runbooks.engine.approvals import wanted
from runbooks.engine.containment import PendingRepair, owed, plain_of
from streams.model.clock import moment
from streams.model.codec import encode_plain
from streams.model.conversation import Command, TimelineEntry, Verb
from streams.model.errors import BadInput
from streams.model.incident import Incident
from streams.model.run import Run, StepState


@click.group("incidents", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """List, show and decide incidents. Without a subcommand: list those not over."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_incidents)


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that are over.")
@output_option
@click.pass_obj
def list_incidents(config: Path | None, everything: bool, output: str) -> None:
    """One line per incident: the open ones first, then those of which a node stays closed until its repair."""
    shown = asyncio.run(read_overview(load(config).kafka, everything=everything))
    if output == "json":
        for one in shown:
            json_line({**encode_plain(one.incident), **_standing(one)})
        return
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
        empty="no incident" if everything else "no open incident (--all shows those that are over)",
    )
    if shown:
        click.echo(f"\n{', '.join(counts(shown))}")


def _standing(one: Overview) -> dict[str, Any]:
    """What is known of an incident beyond its document, for scripts."""
    return {
        "standing": one.standing,
        "waits_for": one.waits_for,
        "owed": [plain_of(owing) for owing in one.owing],
    }


@command.command("show")
@click.argument("incident_id")
@output_option
@click.pass_obj
def show(config: Path | None, incident_id: str, output: str) -> None:
    """Everything about one incident: what it is, what was done, what was said, what is owed."""
    asyncio.run(_show(load(config), incident_id, output))


async def _show(settings: Settings, prefix: str, output: str) -> None:
    # It knows every rule of the correlator, which no other command here needs.
    from faultline.replay.explain import explain

    incident = await read_incident(settings.kafka, prefix)
    runs, timeline, nodes = await asyncio.gather(
        read_runs(settings.kafka, incident),
        read_timeline(settings.kafka, incident),
        read_nodes(settings.kafka, incident.cluster),
    )
    one = Overview(incident, tuple(runs), owed(incident.id, runs, nodes))
    if output == "json":
        values = {"runs": [encode_plain(r) for r in runs], "timeline": [encode_plain(t) for t in timeline]}
        json_line({"incident": encode_plain(incident), **_standing(one), **values})
        return
    click.echo(explain(incident, runs, one.owing))
    click.echo()
    for line in (*_questions(runs), *_debts(one.owing)):
        click.echo(line)
    table(
        ("when", "who", "what"),
        ((moment(t.at), t.actor, t.text) for t in timeline),
        empty="nothing on the timeline yet",
    )


def _debts(owing: Sequence[PendingRepair]) -> Iterator[str]:
    """The nodes that stay closed, and what ends that."""
    for one in owing:
        since = f" since {moment(one.since)}" if one.since else ""
        yield f"PendingRepair: {one.text}{since}"
        if one.ticket is not None and one.ticket.url:
            yield f"  {one.ticket.url}"
        yield f"  {one.way_out}   # after its repair"
        yield ""


def _questions(runs: list[Run]) -> Iterator[str]:
    """What waits for a person, who that may be, until when, and the line to type."""
    for run in runs:
        for planned in run.plan.steps:
            record = run.step(planned.id)
            if record.state is StepState.AWAITING_APPROVAL:
                until = f" until {moment(record.deadline_at)}" if record.deadline_at else ""
                yield f"Waits for approval{until}: {planned.action} {planned.target}"
                yield f"  it takes {wanted(record.demands) or 'one person'}"
                yield f"  {approve_line(run, planned)}"
                yield ""


def _decide(verb: Verb, help_text: str) -> None:
    """Add one subcommand that writes a decision to the `commands` topic."""

    @command.command(verb.value, help=help_text)
    @click.argument("incident_id")
    @click.option("--step", default=None, help="The step to approve or reject (default: the one that waits).")
    @decision_options
    @click.pass_obj
    def decide_on(
        config: Path | None,
        incident_id: str,
        reason: str,
        actor: str | None,
        step: str | None,
        wait_s: float,
        output: str,
    ) -> None:
        said, answers = asyncio.run(_decided(load(config), verb, incident_id, actor, step, reason, wait_s))
        tell(said, answers, wait_s, output)


_HELP: dict[Verb, str] = {
    Verb.ACK: "Say that you are on it: escalation stops, automation goes on.",
    Verb.APPROVE: "Approve the step that waits, exactly as its plan stands now.",
    Verb.REJECT: "Reject the step that waits; the run ends there.",
    Verb.STOP: "Stop the run: nothing further is begun.",
    Verb.RESOLVE: "Close the incident.",
}
for _verb, _text in _HELP.items():
    _decide(_verb, _text)


async def _decided(
    settings: Settings,
    verb: Verb,
    prefix: str,
    actor: str | None,
    step: str | None,
    reason: str,
    wait_s: float,
) -> tuple[Command, list[TimelineEntry]]:
    incident = await read_incident(settings.kafka, prefix)
    plan_digest = None
    if verb in (Verb.APPROVE, Verb.REJECT):
        run, step = _asked(incident, await read_runs(settings.kafka, incident), step)
        plan_digest = run.plan.digest
    said = command_of(
        verb, incident.cluster, actor, incident=incident.id, reason=reason, step=step, digest=plan_digest
    )
    return said, await decide(settings.kafka, said, wait_s)


def _asked(incident: Incident, runs: list[Run], step: str | None) -> tuple[Run, str | None]:
    """The run and step that wait for a person, or the last run that somebody has decided on: who comes late is told by whom.

    Raises:
        BadInput: when nothing waits or did, or more than one step does and none was named.
    """
    waits: Callable[[StepState], bool] = lambda state: state is StepState.AWAITING_APPROVAL  # noqa: E731
    waiting = [(run, s.id) for run in runs for s in run.steps if waits(s.state) and step in (None, s.id)]
    if not waiting:
        # The responder says who was first and when, and keeps on the timeline that this word came too.
        decided = [run for run in runs if any(word.digest == run.plan.digest for word in run.approvals)]
        if decided:
            return decided[-1], step
        named = f"step {step}" if step else "no step"
        raise BadInput(f"{incident.id}: {named} {'is not waiting' if step else 'waits'} for approval")
    if len({step_id for _, step_id in waiting}) > 1:
        raise BadInput(f"{incident.id}: several steps wait, name one: {', '.join(s for _, s in waiting)}")
    return waiting[-1]
