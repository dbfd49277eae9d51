"""`faultline maintenance`: planned work of our own on nodes, by the same limits as for a fault."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultline.cli.groups import Group, examples
from faultline.cli.names import unknown_name
from faultline.cli.output import output_option, show, table
from faultline.cli.send_options import send_options
from streams.model.clock import moment, parse_rfc3339, rfc3339, utc_now
from streams.model.conversation import Verb
from streams.model.errors import BadInput

if TYPE_CHECKING:
    from faultline.cli.send_options import SendOptions
    from streams.model.facts import NodeFact
    from streams.model.incident import Incident
    from streams.model.run import Run

MOST_NODES = 2000
"""As many as one command takes."""
_MOST_NAMED = 10
_NO_NODES = "give nodes, a host list, a pattern or --pool"


@click.group(
    "maintenance",
    cls=Group,
    default="list",
    epilog=examples(
        ("faultline maintenance", "nodes under planned work"),
        ('faultline maintenance start gpu-07 --until 4h --reason "new GPU"', "close and empty one"),
    ),
)
def command() -> None:
    """Planned work on nodes. Without a subcommand: same as `list`."""


_nodes_argument = click.argument("nodes", nargs=-1)
_pool_option = click.option("--pool", default=None, help="All nodes of this pool.")


@command.command(
    "start",
    epilog=examples(
        'faultline maintenance start "gpu-[01-04]" --until 4h --reason "firmware 28.43"',
        'faultline maintenance start --pool h100 --until 2d --reason "new leaf switches"',
    ),
)
@_nodes_argument
@_pool_option
@click.option(
    "--until",
    required=True,
    help="End of the work: RFC 3339 with a zone (2026-03-01T06:00:00Z), or 90m, 4h, 2d.",
)
@send_options
@click.pass_obj
def start(
    config: Path | None, nodes: tuple[str, ...], pool: str | None, until: str, options: SendOptions
) -> None:
    """Close and empty nodes for planned work, or extend it; --reason is required.

    NODES are names, host lists (gpu-[001-016]) or patterns (gpu-0*). Guardrails and approvals are those of any run: nodes beyond
    responder.blast_radius wait until others are back. Jobs are moved through their own controllers. While it lasts, the nodes'
    alarms are silenced, and what goes wrong there is told as part of the work. At the end each node is validated and given back;
    one that is not Ready then is overdue and stays closed.
    """
    from faultline.runtime.settings import load

    if not options.reason.strip():
        raise BadInput("--reason: say what is done, people will ask")
    if not nodes and pool is None:
        raise BadInput(_NO_NODES)
    end = end_of(until, utc_now())
    settings = load(config)
    facts = asyncio.run(_nodes(settings.kafka, settings.cluster))
    _send(settings, Verb.MAINTENANCE, chosen(nodes, pool, facts), options, until=end)


@command.command(
    "stop",
    epilog=examples(
        "faultline maintenance stop gpu-07",
        "faultline maintenance stop --all --reason done",
    ),
)
@_nodes_argument
@_pool_option
@click.option("--all", "every", is_flag=True, help="All nodes under planned work.")
@send_options
@click.pass_obj
def stop(
    config: Path | None, nodes: tuple[str, ...], pool: str | None, every: bool, options: SendOptions
) -> None:
    """The work is done: validate the nodes and give them back; for whoever asked for it, and approvers.

    Of nodes that were not closed yet the request is withdrawn.
    """
    from faultline.runtime.settings import load

    if every and (nodes or pool is not None):
        raise BadInput("--all: all nodes under planned work; give no others")
    if not (every or nodes or pool is not None):
        raise BadInput(f"{_NO_NODES} or --all")
    settings = load(config)
    facts, incidents, _ = asyncio.run(_read(settings.kafka, settings.cluster))
    at_work = [row["node"] for row in rows(incidents, {}, utc_now())]
    wanted = at_work if every else chosen(nodes, pool, facts, also=at_work)
    if pool is not None and not every:
        wanted = [name for name in wanted if name in at_work] or wanted
    if not wanted:
        raise BadInput("no node is under planned work")
    _send(settings, Verb.MAINTENANCE_STOP, wanted, options)


@command.command(
    "list",
    epilog=examples(
        "faultline maintenance list",
    ),
)
@output_option
@click.pass_obj
def list_work(config: Path | None, output: str) -> None:
    """Nodes under planned work: since when, until when, by whom, why, and what it waits for. Overdue ones come first.

    Then the nodes that a cloud or an operator has announced to take, the next first, with their incidents.
    """
    from faultline.runtime.settings import load

    settings = load(config)
    facts, incidents, runs = asyncio.run(_read(settings.kafka, settings.cluster))
    found, coming = rows(incidents, runs, utc_now()), announced(facts, incidents, utc_now())
    told = {"cluster": settings.cluster, "nodes": found, "announced": coming}
    show(output, [told], lambda: _show(found, coming))


def _show(found: list[dict[str, Any]], coming: list[dict[str, Any]]) -> None:
    shown = [
        (
            r["node"], "OVERDUE" if r["overdue"] else r["state"], moment(parse_rfc3339(r["until"])), r["by"],
            r["reason"], r["waits_for"], r["incident"],
        )
        for r in found
    ]  # fmt: skip
    table(("node", "state", "until", "by", "reason", "now", "incident"), shown, empty="no planned work")
    if coming:
        click.echo()
        table(
            ("node", "announced for", "by", "it", "opens", "incident"),
            [
                (
                    r["node"], moment(parse_rfc3339(r["due"])), r["by"], "is gone" if r["ends"] == "gone" else "comes back",
                    moment(parse_rfc3339(r["opens"])) if r["opens"] else "", r["incident"],
                )
                for r in coming
            ],
            empty="",
        )  # fmt: skip


def end_of(text: str, now: datetime) -> datetime:
    """The end of the work: a time with a zone, or a length from now on.

    Raises:
        BadInput: for any other text.
    """
    units = {"m": 60, "h": 3600, "d": 86_400}
    number, unit = text[:-1], text[-1:]
    if unit in units and number.isascii() and number.isdecimal() and len(number) < 7:
        return now + timedelta(seconds=int(number) * units[unit])
    try:
        end = parse_rfc3339(text)
    except BadInput as error:
        raise BadInput(
            f"--until {text!r}: a time with a zone (2026-03-01T06:00:00Z), or 90m, 4h, 2d"
        ) from error
    if end <= now:
        raise BadInput(f"--until {text}: that is past")
    return end


def chosen(
    names: Sequence[str], pool: str | None, facts: Mapping[str, NodeFact], also: Collection[str] = ()
) -> list[str]:
    """The nodes that are meant, each once, in order. `also` are names that count although the inventory lacks them.

    Raises:
        BadInput: for a name, a pattern or a pool that fits no node: a typo would leave out the node that is worked on.
    """
    from streams.model.hostlists import hosts
    from streams.model.similar import suggestion

    known = {*facts, *also}
    found: dict[str, None] = {}
    unknown: list[str] = []
    for given in names:
        is_pattern = "*" in given or "?" in given
        for name in [given] if is_pattern else hosts(given):
            fits = sorted(one for one in known if fnmatchcase(one, name)) if is_pattern else [name]
            if not fits or (not is_pattern and name not in known):
                unknown.append(name)
            found |= dict.fromkeys(fits)
    if pool is not None:
        members = sorted(fact.name for fact in facts.values() if fact.pool == pool)
        if not members:
            raise unknown_name("pool", pool, {fact.pool for fact in facts.values() if fact.pool})
        found |= dict.fromkeys(members)
    if unknown:
        listed = ", ".join(unknown[:_MOST_NAMED]) + (" …" if len(unknown) > _MOST_NAMED else "")
        raise BadInput(f"no such node in the inventory: {listed}{suggestion(unknown[0], sorted(known))}")
    if not found:
        raise BadInput(_NO_NODES)
    if len(found) > MOST_NODES:
        raise BadInput(f"{len(found)} nodes; one request takes {MOST_NODES}")
    return list(found)


def rows(
    incidents: Mapping[str, Incident], runs: Mapping[str, Sequence[Run]], now: datetime
) -> list[dict[str, Any]]:
    """One row for each node under planned work, overdue ones first, then by the end of the work."""
    from runbooks.engine.maintenance import works
    from runbooks.engine.wait_reasons import held_by
    from streams.model.planned_work import work_of

    found = []
    for node, incident in works(incidents.values()).items():
        work = work_of(incident.facts)
        if work is None:
            continue
        latest = max(runs.get(incident.id, ()), key=lambda run: (run.created_at, run.id), default=None)
        found.append(
            {
                "node": node, "state": "ending" if work.over else "open", "since": rfc3339(incident.opened_at),
                "until": rfc3339(work.until), "by": work.by, "reason": work.reason, "request": work.request,
                "overdue": now >= work.until, "incident": incident.id,
                "waits_for": held_by(latest) if latest is not None else "",
            }
        )  # fmt: skip
    return sorted(found, key=lambda row: (not row["overdue"], row["until"], row["node"]))


def announced(
    facts: Mapping[str, NodeFact], incidents: Mapping[str, Incident], now: datetime
) -> list[dict[str, Any]]:
    """One row for each node that goes at a known time, by that time: as its object says, or an incident that is not over."""
    from streams.model.kinds import IncidentFamily
    from streams.model.node_notice import NODE_ENDS, deadline_in, opens_in

    found: dict[str, dict[str, Any]] = {}
    for fact in facts.values():
        notice = fact.notice
        if notice is not None and notice.not_before is not None and notice.not_before > now:
            ends = "gone" if notice.subtype == "termination" else "back"
            found[fact.name] = {
                "node": fact.name, "due": rfc3339(notice.not_before), "by": notice.by, "ends": ends, "opens": "", "incident": "",
            }  # fmt: skip
    for incident in incidents.values():
        due, opens, node = deadline_in(incident.facts), opens_in(incident.facts), incident.root.node
        if incident.family != IncidentFamily.PREEMPTION or incident.state.is_over or due is None or not node:
            continue
        row = found.setdefault(node, {"node": node, "by": ""})
        row |= {
            "due": rfc3339(due), "ends": str(incident.facts.get(NODE_ENDS, "")),
            "opens": rfc3339(opens) if opens is not None and opens > now else "", "incident": incident.id,
        }  # fmt: skip
    return sorted(found.values(), key=lambda row: (row["due"], row["node"]))


async def _nodes(kafka: Any, cluster: str) -> dict[str, NodeFact]:
    from faultline.cli.read_topics import read_facts
    from streams.model.facts import NodeFact

    facts = await read_facts(kafka, cluster)
    return {fact.name: fact for fact in facts.values() if isinstance(fact, NodeFact)}


async def _read(
    kafka: Any, cluster: str
) -> tuple[dict[str, NodeFact], dict[str, Incident], dict[str, list[Run]]]:
    from faultline.cli.read_topics import read_incidents, read_runs_of

    incidents = {n: i for n, i in (await read_incidents(kafka)).items() if i.cluster == cluster}
    runs: dict[str, list[Run]] = {}
    for run in await read_runs_of(kafka, cluster):
        runs.setdefault(run.incident, []).append(run)
    return await _nodes(kafka, cluster), incidents, runs


def _send(settings: Any, verb: Verb, nodes: Sequence[str], options: SendOptions, **more: Any) -> None:
    from faultline.cli.send_command import command_of, decide, report_answer

    sent = command_of(verb, settings.cluster, options, nodes=tuple(nodes), **more)
    report_answer(sent, asyncio.run(decide(settings.kafka, sent, options.wait_s)), options, nodes=list(nodes))
