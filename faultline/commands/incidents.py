"""`faultline incidents`: what is going on, and a person's decision about it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from faultline.deciding import command_of, decide, decision_options, tell
from faultline.explaining import explain
from faultline.output import json_line, moment, output_option, table
from faultline.reading import pick, read_incidents, read_runs, read_timeline
from faultline.settings import Settings, load
from runbooks.approvals import wanted
from runbooks.thread_messages import approve_line
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
    """One line per incident, newest first."""
    found = asyncio.run(read_incidents(load(config).kafka)).values()
    shown = sorted(
        (i for i in found if everything or not i.state.is_over),
        key=lambda i: (i.opened_at, i.id),
        reverse=True,
    )
    if output == "json":
        for incident in shown:
            json_line(encode_plain(incident))
        return
    rows = (
        (i.id, i.state.value, i.severity.value, i.family, i.root, len(i.jobs), moment(i.fault_at), i.title)
        for i in shown
    )
    headings = ("id", "state", "severity", "family", "root", "jobs", "fault at", "title")
    table(
        headings,
        rows,
        empty="no incident" if everything else "no open incident (--all shows those that are over)",
    )


@command.command("show")
@click.argument("incident_id")
@output_option
@click.pass_obj
def show(config: Path | None, incident_id: str, output: str) -> None:
    """Everything about one incident: what it is, what was done, what was said."""
    asyncio.run(_show(load(config), incident_id, output))


async def _show(settings: Settings, prefix: str, output: str) -> None:
    incident = pick(await read_incidents(settings.kafka), prefix)
    runs = await read_runs(settings.kafka, incident)
    timeline = await read_timeline(settings.kafka, incident)
    if output == "json":
        values = {"runs": [encode_plain(r) for r in runs], "timeline": [encode_plain(t) for t in timeline]}
        json_line({"incident": encode_plain(incident), **values})
        return
    click.echo(explain(incident, runs))
    click.echo()
    for line in _questions(runs):
        click.echo(line)
    table(
        ("when", "who", "what"),
        ((moment(t.at), t.actor, t.text) for t in timeline),
        empty="nothing on the timeline yet",
    )


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
    incident = pick(await read_incidents(settings.kafka), prefix)
    plan_digest = None
    if verb in (Verb.APPROVE, Verb.REJECT):
        run, step = _awaiting(incident, await read_runs(settings.kafka, incident), step)
        plan_digest = run.plan.digest
    said = command_of(
        verb, incident.cluster, actor, incident=incident.id, reason=reason, step=step, digest=plan_digest
    )
    return said, await decide(settings.kafka, said, wait_s)


def _awaiting(incident: Incident, runs: list[Run], step: str | None) -> tuple[Run, str]:
    """The run and step that wait for a person.

    Raises:
        BadInput: when nothing waits, or more than one step does and none was named.
    """
    waits: Callable[[StepState], bool] = lambda state: state is StepState.AWAITING_APPROVAL  # noqa: E731
    waiting = [(run, s.id) for run in runs for s in run.steps if waits(s.state) and step in (None, s.id)]
    if not waiting:
        named = f"step {step}" if step else "no step"
        raise BadInput(f"{incident.id}: {named} {'is not waiting' if step else 'waits'} for approval")
    if len({step_id for _, step_id in waiting}) > 1:
        raise BadInput(f"{incident.id}: several steps wait, name one: {', '.join(s for _, s in waiting)}")
    return waiting[-1]
