"""`faultline shadow report`: compares what shadow-mode runs would have done with what operators did."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultline.cli.arguments import Finite
from faultline.cli.groups import Group, examples
from faultline.cli.output import output_option, show, table
from faultline.cli.since import since_of
from runbooks.engine.shadow_report import WINDOW
from streams.model.clock import moment, rfc3339, utc_now

if TYPE_CHECKING:
    from faultline.runtime.settings import Settings
    from runbooks.engine.shadow_report import Comparison, OperatorAction, ShadowReport, ShadowSummary
    from streams.model.run import Target


@click.group(
    "shadow",
    cls=Group,
    epilog=examples(
        ("faultline shadow report --since 30d", "how often would it have done what people did?"),
    ),
)
def command() -> None:
    """Shadow-mode runs: they decide everything and change nothing."""


@command.command(
    "report",
    epilog=examples(
        "faultline shadow report --since 30d",
        ("faultline shadow report --capture docs/examples/gpu-off-bus", "of a replay"),
    ),
)
@click.option(
    "--since", default="7d", show_default=True, help="How far back: 90m, 12h, 7d, or a time (RFC 3339)."
)
@click.option(
    "--window", "minutes", type=Finite(min=1, max=60 * 24 * 31), default=WINDOW.total_seconds() / 60, show_default=True,
    help="Minutes after the decision in which operator actions are matched to it.",
)  # fmt: skip
@click.option(
    "--capture",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Replay this capture in shadow mode and report on it; needs no broker. --since is ignored.",
)
@output_option
@click.pass_obj
def report(config: Path | None, since: str, minutes: float, capture: Path | None, output: str) -> None:
    """What each shadow-mode run would have done, what operators did to the same nodes and jobs, and whether they agree.

    Operator actions are derived from changes of nodes and jobs, which do not say who made them.
    """
    from faultline.runtime.settings import load

    settings, window = load(config), timedelta(minutes=minutes)
    if capture is not None:
        made = _of_capture(settings, capture, window)
    else:
        now = utc_now()
        made = asyncio.run(_live(settings, since_of(since, now), now, window))
    show(output, lines(made), lambda: _show(made))


async def _live(settings: Settings, since: datetime, now: datetime, window: timedelta) -> ShadowReport:
    from faultline.cli.read_topics import read_incidents, read_runs_of, read_timeline_of
    from runbooks.engine.shadow_report import shadow_report

    incidents = {
        i.id: i for i in (await read_incidents(settings.kafka)).values() if i.cluster == settings.cluster
    }
    runs = await read_runs_of(settings.kafka, settings.cluster)
    timeline = await read_timeline_of(settings.kafka, settings.cluster)
    return shadow_report(runs, timeline, incidents, since=since, until=now, window=window)


def _of_capture(settings: Settings, capture: Path, window: timedelta) -> ShadowReport:
    from faultline.cli.left_out import tell_left_out
    from faultline.replay.capture import read
    from faultline.replay.replay import AFTERMATH, replay_capture
    from runbooks.engine.shadow_report import shadow_report
    from streams.correlate import Config

    taken = read(capture)
    decided = replay_capture(taken, responder=settings.responder, config=Config.of(settings.correlator))
    tell_left_out(taken)
    return shadow_report(
        decided.runs,
        decided.timeline,
        decided.incidents,
        since=taken.meta.begin,
        until=max([taken.meta.end, *(run.updated_at for run in decided.runs)]) + AFTERMATH,
        window=window,
    )


def lines(made: ShadowReport) -> Iterator[dict[str, Any]]:
    """The report in the shape of `--output json`: a `run` each, a `missed` each, last the `summary`."""
    for compared in made.comparisons:
        yield _run_line(compared)
    for missed in made.missed:
        yield {
            "record": "missed", "node": missed.node, "planned": missed.planned,
            "people": [_seen(act) for act in missed.acts],
        }  # fmt: skip
    yield {
        "record": "summary",
        "since": rfc3339(made.since),
        "until": rfc3339(made.until),
        **_numbers(made.summary),
    }


def _run_line(compared: Comparison) -> dict[str, Any]:
    run = compared.run
    return {
        "record": "run",
        "run": run.id,
        "incident": run.incident,
        "title": compared.title,
        "root": compared.root,
        "runbook": run.plan.runbook,
        "at": rfc3339(run.created_at),
        "agreement": compared.agreement.name.lower(),
        "later_s": compared.later_s,
        "gpu_hours": round(compared.gpu_hours, 3),
        "would": [
            {
                "step": w.step, "action": w.action, "target": _target(w.target), "verdict": w.verdict,
                "reason": w.reason, "at": rfc3339(w.at),
            }
            for w in compared.would
        ],
        "people": [_seen(act) for act in compared.people],
    }  # fmt: skip


def _seen(act: OperatorAction) -> dict[str, Any]:
    return {"act": act.act, "target": _target(act.target), "at": rfc3339(act.at), "detail": act.detail}


def _target(target: Target | None) -> dict[str, str]:
    if target is None:
        return {}
    names = {"kind": target.kind, "namespace": target.namespace, "name": target.name}
    return {name: value for name, value in names.items() if value}


def _numbers(summary: ShadowSummary) -> dict[str, Any]:
    share, middle = summary.agreed_share, summary.minutes_saved_median
    return {
        "runs": summary.runs,
        "by_agreement": dict(summary.by_agreement),
        "judged": summary.judged,
        "agreed": summary.agreed,
        "agreed_share": None if share is None else round(share, 4),
        "minutes_saved": round(summary.minutes_saved, 2),
        "minutes_saved_median": None if middle is None else round(middle, 2),
        "gpu_hours_saved": round(summary.gpu_hours_saved, 3),
        "kept_in_service": list(summary.kept_in_service),
        "missed": summary.missed,
        "missed_unplanned": summary.missed_unplanned,
    }


def _show(made: ShadowReport) -> None:
    table(
        ("decided", "incident", "runbook", "would do", "operators did", "verdict"),
        (
            (
                moment(c.run.created_at),
                f"{c.run.incident}\n{c.title}",
                c.run.plan.runbook,
                "\n".join(f"{w.action} {w.target or ''}: {w.verdict.replace('_', ' ')}" for w in c.would),
                "\n".join(f"{moment(a.at)} {a.act} {a.target}" for a in c.people) or "nothing",
                c.agreement.value + _later(c),
            )
            for c in made.comparisons
        ),
        empty="no shadow-mode runs in this time",
    )
    if made.missed:
        click.echo("\nOperators acted on these nodes, and no incident named them:")
        table(
            ("node", "operators did", ""),
            (
                (
                    m.node,
                    "\n".join(f"{moment(a.at)} {a.act}" for a in m.acts),
                    "maintenance" if m.planned else "",
                )
                for m in made.missed
            ),
            empty="",
        )
    click.echo()
    click.echo("\n".join(_told(made.summary)))


def _later(compared: Comparison) -> str:
    if compared.later_s is None:
        return ""
    minutes = compared.later_s / 60
    return f", {minutes:.0f} min later" if minutes >= 0 else f", {-minutes:.0f} min earlier"


def _told(summary: ShadowSummary) -> Iterator[str]:
    rest = summary.runs - summary.judged
    yield f"{summary.runs} shadow-mode runs; {rest} of them not comparable (refused, approval only, or too recent)"
    if summary.agreed_share is not None:
        yield f"operators did the same in {summary.agreed} of {summary.judged} ({summary.agreed_share:.0%})"
    if summary.minutes_saved_median is not None:
        yield (
            f"acting at once would have saved {summary.minutes_saved:.0f} minutes (median "
            f"{summary.minutes_saved_median:.0f}) and {summary.gpu_hours_saved:.1f} GPU-hours"
        )
    kept = ", ".join(summary.kept_in_service)
    yield f"nodes it would have cordoned and operators kept in service: {kept or 'none'}"
    planned = summary.missed - summary.missed_unplanned
    yield f"nodes operators acted on without an incident: {summary.missed_unplanned}, and {planned} in maintenance"
