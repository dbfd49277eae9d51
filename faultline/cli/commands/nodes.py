"""`faultline nodes`: lists cordoned nodes, and returns one to service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultline.cli.groups import Group, examples
from faultline.cli.main import EXIT_NO
from faultline.cli.output import output_option, show, table
from faultline.cli.send_options import send_options
from streams.model.clock import to_the_second

if TYPE_CHECKING:
    from faultline.cli.send_options import SendOptions
    from faultline.runtime.settings import Settings
    from streams.model.conversation import Command, TimelineEntry
    from streams.model.facts import Fact, NodeFact
    from streams.model.run import Run


@click.group(
    "nodes",
    cls=Group,
    default="list",
    epilog=examples(
        ("faultline nodes", "what is cordoned, by whom and why"),
        ('faultline nodes release gpu-07 --reason "new GPU"', "give it back"),
    ),
)
def command() -> None:
    """Cordoned nodes: by whom and for which incident. Without a subcommand: list them."""


@command.command(
    "list",
    epilog=examples(
        "faultline nodes list",
        ("faultline nodes list --all -o json", "every node, for scripts"),
    ),
)
@click.option("--all", "everything", is_flag=True, help="Include schedulable nodes.")
@output_option
@click.pass_obj
def list_nodes(config: Path | None, everything: bool, output: str) -> None:
    """One line per node that is cordoned or held by an incident."""
    from faultline.cli.reach import settings_to_reach

    facts, runs = asyncio.run(_read(settings_to_reach(config)))
    shown = [
        node
        for node in node_statuses(facts.values(), runs)
        if everything or node["closed"] or node["held_for"]
    ]
    show(output, shown, lambda: _show(shown, everything=everything))


def _show(shown: list[dict[str, Any]], *, everything: bool) -> None:
    table(
        ("node", "schedulable", "ready", "cordoned by", "held for", "since", "ticket", "run"),
        (
            (
                n["node"],
                "no" if n["closed"] else "yes",
                "yes" if n["ready"] else "no",
                n["by"],
                ", ".join(hold["incident"] for hold in n["held_for"]),
                ", ".join(hold["since"] for hold in n["held_for"]),
                ", ".join(hold["ticket"] for hold in n["held_for"] if hold["ticket"]),
                ", ".join(
                    f"{hold['run']} ({hold['outcome'] or hold['run_state']})"
                    if hold["run"]
                    else "not on record"
                    for hold in n["held_for"]
                ),
            )
            for n in shown
        ),
        empty="no nodes in the inventory"
        if everything
        else "no cordoned nodes (--all lists schedulable ones too)",
    )


@command.command(
    "release",
    epilog=examples(
        'faultline nodes release gpu-07 --reason "new GPU"',
        ("faultline nodes release gpu-07 --incident inc-5d55", "the hold of one incident"),
    ),
)
@click.argument("name")
@click.option(
    "--incident", "prefix", default="", help="Incident whose hold to release, if several hold the node."
)
@send_options
@click.pass_obj
def release(config: Path | None, name: str, prefix: str, options: SendOptions) -> None:
    """Return node NAME to service after its repair: uncordon it, unless an operator changed it since.

    A node held by several incidents stays cordoned until each of them has released it.
    """
    from faultline.cli.send_command import report_answer
    from faultline.runtime.settings import load

    sent, answers, undone = asyncio.run(_released(load(config), name, prefix, options))
    end = {"released": undone.event == "step.undone", "outcome": undone.text} if undone else {}
    report_answer(sent, answers, options, **end)
    if undone is None:
        late = f"still in progress after {options.wait_s:g} s; check with `faultline nodes list`"
        click.echo(late, err=True)
    elif options.output == "table":
        click.echo(undone.text)
    if undone is not None and undone.event != "step.undone":
        raise SystemExit(EXIT_NO)


def node_statuses(facts: Iterable[Fact], runs: list[Run]) -> Iterator[dict[str, Any]]:
    """Status of each node, by name. The keys are those of `--output json`."""
    from runbooks.engine.node_release import holds_of
    from streams.model.facts import NodeFact

    on_record = {run.incident for run in runs}
    for fact in sorted((f for f in facts if isinstance(f, NodeFact)), key=lambda f: f.name):
        holds = holds_of(runs, fact.name)
        # The node's own marks tell of a hold whose run was lost with its topic.
        lost = [incident for incident in fact.owners if incident not in on_record]
        yield {
            "node": fact.name,
            "cluster": fact.cluster,
            "closed": fact.unschedulable,
            "ready": fact.ready,
            "by": _cordoned_by(fact),
            "held_for": [
                {
                    "incident": hold.run.incident,
                    "run": hold.run.id,
                    "run_state": hold.run.state.value,
                    "outcome": hold.run.outcome,
                    "ticket": _ticket(hold.run.incident, runs),
                    "runbook": hold.run.plan.runbook,
                    "since": to_the_second(hold.since) if hold.since else "",
                }
                for hold in holds
            ]
            + [
                {
                    "incident": incident,
                    "run": "",
                    "run_state": "",
                    "outcome": "",
                    "ticket": "",
                    "runbook": "",
                    "since": "",
                }
                for incident in lost
            ],
            "marks": fact.owner_incident or "",
        }


def _ticket(incident: str, runs: list[Run]) -> str:
    from runbooks.engine.containment import ticket_of

    ticket = ticket_of(run for run in runs if run.incident == incident)
    return ticket.key if ticket is not None else ""


def _cordoned_by(fact: NodeFact) -> str:
    if fact.unschedulable:
        return "Faultline" if fact.owner_incident else "other (not Faultline)"
    return "uncordoned manually, Faultline annotations left behind" if fact.owner_incident else ""


async def _read(settings: Settings) -> tuple[dict[str, Fact], list[Run]]:
    from faultline.cli.reach import require_ours
    from faultline.cli.read_topics import read_facts, read_runs_of

    await require_ours(settings.kafka, settings.cluster)
    facts = await read_facts(settings.kafka, settings.cluster)
    return facts, await read_runs_of(settings.kafka, settings.cluster)


async def _released(
    settings: Settings, name: str, prefix: str, options: SendOptions
) -> tuple[Command, list[TimelineEntry], TimelineEntry | None]:
    from faultline.cli.read_topics import read_incident
    from faultline.cli.send_command import answers_to, command_of, command_session, is_refusal
    from runbooks.engine.node_release import SCOPE
    from streams.model.conversation import Verb

    incident = (await read_incident(settings.kafka, prefix)).id if prefix else ""
    sent = command_of(Verb.RELEASE, settings.cluster, options, incident=incident, scope=f"{SCOPE}{name}")
    async with command_session(settings.kafka, settings.cluster) as session:
        await session.send(sent)
        answers = await session.answers(answers_to(sent), options.wait_s)
        if not answers or is_refusal(answers[0]):
            return sent, answers, None
        ends = await session.answers(_end_of(answers[0]), options.wait_s)
        return sent, answers, ends[0] if ends else None


def _end_of(answer: TimelineEntry) -> Callable[[TimelineEntry], bool]:
    """Whether an entry reports the end of the undo that the answer announced."""
    about = (answer.attributes.get("run"), answer.attributes.get("step"))
    return lambda entry: (
        entry.event in ("step.undone", "step.not_undone")
        and (entry.attributes.get("run"), entry.attributes.get("step")) == about
    )
