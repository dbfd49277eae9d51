"""What a person is shown before they start a run by hand, and how it is sent: dry run first, then their word."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import click
import orjson

from faultline.cli.follow_runs import followed
from faultline.cli.main import EXIT_NO
from faultline.cli.names import picked, unknown_name
from faultline.cli.output import record, table
from faultline.cli.read_topics import read_control, read_facts, read_incidents, read_runs_of
from faultline.cli.send_command import answers_to, command_session, is_refusal, report_answer
from faultline.cli.send_options import SendOptions
from faultline.replay.planned import Installation
from faultline.runtime.runbook_files import of_responder
from faultline.runtime.settings import Settings
from runbooks.engine.preview import Preview, Shown, Verdict
from runbooks.engine.run.by_hand import with_parameters
from streams.model.clock import utc_now
from streams.model.codec import encode_plain
from streams.model.conversation import Command, TimelineEntry
from streams.model.errors import BadInput, Unreachable
from streams.model.incident import Incident
from streams.model.run import Run

EVIDENCE = "collect_evidence"


@dataclass(frozen=True, slots=True)
class Known:
    """What the topics hold of a cluster now."""

    preview: Preview
    incidents: Mapping[str, Incident]
    runs: Mapping[str, Run]

    def incident(self, given: str) -> Incident:
        """The incident whose id begins so. Raises BadInput when there is not exactly one."""
        see = "`faultline incidents list --all` lists them"
        return picked(self.incidents, given, what="incident", prefix="inc-", see=see)

    def run(self, given: str) -> Run:
        """The run whose id begins so. Raises BadInput when there is not exactly one."""
        return picked(self.runs, given, what="run", prefix="run-", see="`faultline runs --all` lists them")


def actions_of(settings: Settings) -> frozenset[str]:
    """The actions that the responder of these settings carries out, as far as a plan depends on them."""
    offered = Installation.of(settings).actions
    return offered | {EVIDENCE} if settings.evidence.hooks and not settings.slurm.alone else offered


async def known(settings: Settings) -> Known:
    """Read everything that a plan depends on."""
    kafka, cluster = settings.kafka, settings.cluster
    facts, runs, control, incidents = await asyncio.gather(
        read_facts(kafka, cluster),
        read_runs_of(kafka, cluster),
        read_control(kafka, cluster),
        read_incidents(kafka),
    )
    preview = Preview(
        of_responder(settings.responder), settings.responder, actions_of(settings),
        cluster=cluster, facts=facts.values(), runs=runs, control=control,
    )  # fmt: skip
    mine = {name: one for name, one in incidents.items() if one.cluster == cluster}
    return Known(preview, mine, {run.id: run for run in runs})


def parameters(given: tuple[str, ...]) -> dict[str, Any]:
    """`NAME=VALUE` pairs: JSON values as JSON, anything else is text. Raises BadInput for any other text."""
    found: dict[str, Any] = {}
    for pair in given:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise BadInput(f"--param {pair}: expected NAME=VALUE")
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            value = text
        if not isinstance(value, str | int | float | bool):
            raise BadInput(f"--param {pair}: a text, a number, true or false")
        found[name] = value
    return found


def checked(known: Known, command: Command) -> None:
    """Raises BadInput for a runbook that is not known, or a parameter that does not fit it."""
    if command.runbook not in known.preview.runbooks:
        raise unknown_name("runbook", command.runbook, known.preview.runbooks)
    with_parameters(known.preview.runbooks[command.runbook], command.parameters)


def or_refused(shown: Callable[[], Shown]) -> Shown:
    """What is shown; where nothing can be started the reason is printed, and the answer is no (exit code 1)."""
    try:
        return shown()
    except BadInput as error:
        click.echo(f"faultline: nothing is started: {error}", err=True)
        raise SystemExit(EXIT_NO) from error


def send(
    settings: Settings,
    command: Command,
    shown: Callable[[Known, Command], tuple[Command, Shown]],
    options: SendOptions,
    *,
    yes: bool,
    follow: bool,
) -> None:
    """Show what the command would do, ask, send it, and report the answer.

    Exits with 1 when the answer is no, by the person or by the responder, and with 2 where nobody can be asked.
    """
    asyncio.run(_send(settings, command, shown, options, yes=yes, follow=follow))


async def _send(
    settings: Settings,
    command: Command,
    shown: Callable[[Known, Command], tuple[Command, Shown]],
    options: SendOptions,
    *,
    yes: bool,
    follow: bool,
) -> None:
    command, dry_run = shown(await known(settings), command)
    _print(dry_run, options.output)
    if dry_run.refused:
        click.echo(f"faultline: nothing is started: {dry_run.refused}", err=True)
        raise SystemExit(EXIT_NO)
    _ask(yes)
    # As of now: a person may have read the plan for longer than a command counts as fresh.
    command = replace(command, digest=dry_run.digest, seen=dry_run.seen, at=utc_now())
    async with command_session(settings.kafka, command.cluster) as session:
        await session.send(command)
        answers = await session.answers(answers_to(command), options.wait_s)
        run = await _run_of(session.answers, command, answers, options.wait_s)
    report_answer(command, answers, options, **({"run": run} if run else {}))
    if run and options.output == "table":
        click.echo(f"{run}: `faultline runs follow {run}` follows it")
    if follow and not run:
        raise Unreachable("the run has not begun yet; `faultline runs` lists it once it has")
    if follow:
        code = await followed(settings.kafka, command.cluster, run=run, output=options.output)
        raise SystemExit(code)


async def _run_of(
    answers_of: Callable[..., Any], command: Command, answers: list[TimelineEntry], wait_s: float
) -> str:
    """The run that was started; one on a node begins once its incident is open. Empty when none is known in time."""
    if not answers or any(map(is_refusal, answers)):
        return ""

    def names_run(entry: TimelineEntry) -> bool:
        return answers_to(command)(entry) and "run" in entry.attributes

    found: list[TimelineEntry] = await answers_of(names_run, wait_s)
    return str(found[0].attributes["run"]) if found else ""


def _ask(yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadInput(
            "--yes: this starts a run, and there is no terminal to ask on; check the plan above and add --yes"
        )
    if not click.confirm("Start it?", err=True):
        click.echo("nothing is started", err=True)
        raise SystemExit(EXIT_NO)


def _print(shown: Shown, output: str) -> None:
    if output != "table":
        for one in _records(shown):
            record(output, one)
        return
    plan = shown.plan
    about = f"{shown.incident.id}  {shown.incident.title}" if shown.incident.id else shown.incident.title
    click.echo(
        f"{about}\n{plan.runbook} revision {plan.runbook_revision}, mode {plan.mode}, digest {shown.digest}\n"
    )
    rows = (
        (
            s.id,
            s.action + (" *" if s.destructive else ""),
            s.target or "",
            ", ".join(s.needs),
            f"{s.deadline_s:g} s",
            s.on_failure,
        )
        for s in plan.steps
    )
    table(
        ("step", "action", "target", "needs", "deadline", "on failure"), rows, empty="the plan has no steps"
    )
    for line in (*plan.left_out, *plan.would_evict, *shown.remarks):
        click.echo(f"- {line}")
    passes = [one.guardrail for one in shown.verdicts if one.verdict == "passes"]
    objections = [(v.guardrail, v.verdict, v.step, v.reason) for v in shown.verdicts if v.verdict != "passes"]
    click.echo()
    table(("guardrail", "now", "step", "why"), objections, empty="no guardrail objects")
    if objections:
        click.echo(f"{len(passes)} other guardrails do not object")
    click.echo()


def _records(shown: Shown) -> Iterator[dict[str, Any]]:
    head = encode_plain(shown.plan)
    head.update(
        record="plan",
        incident=shown.incident.id,
        digest=shown.digest,
        refused=shown.refused,
        remarks=list(shown.remarks),
    )
    yield head
    yield from ({"record": "guardrail", **_plain(verdict)} for verdict in shown.verdicts)


def _plain(verdict: Verdict) -> dict[str, str]:
    return {
        "guardrail": verdict.guardrail,
        "verdict": verdict.verdict,
        "step": verdict.step,
        "reason": verdict.reason,
    }
