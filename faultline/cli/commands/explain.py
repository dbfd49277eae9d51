"""`faultline explain ID`: one incident as a tree."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultline.cli.completion import incident_argument
from faultline.cli.groups import examples
from faultline.cli.output import output_option, show
from faultline.cli.trees import fold_options, show_tree

if TYPE_CHECKING:
    from faultline.runtime.settings import Settings
    from faultline.why.explanation import Known
    from runbooks.engine.containment import PendingRepair
    from streams.model.incident import Incident
    from streams.model.run import Run


@dataclass(frozen=True, slots=True)
class _Found:
    incident: Incident
    runs: Sequence[Run]
    repairs: Sequence[PendingRepair]
    known: Known


@click.command(
    "explain",
    epilog=examples(
        ("faultline explain inc-5d55", "the tree, folded to three levels"),
        ("faultline explain inc-5d55 --all", "all of it, however deep and long"),
        ("faultline explain inc-5d55 --svg decision.svg", "and as a picture, for a ticket"),
        ("faultline explain inc- --capture docs/examples/gpu-off-bus", "of a capture; needs no broker"),
        ("faultline explain inc-5d55 -o json | jq .tree", "the same tree for a program"),
    ),
)
@incident_argument
@click.option(
    "--capture",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Replay this capture and explain one of its incidents; needs no broker.",
)
@fold_options
@click.option(
    "--svg", type=click.Path(path_type=Path, dir_okay=False), help="Also write a picture of the decision."
)
@output_option
@click.pass_obj
def command(
    config: Path | None,
    incident_id: str,
    capture: Path | None,
    depth: int,
    everything: bool,
    svg: Path | None,
    output: str,
) -> None:
    """Explain how the root cause and the actions of an incident were decided.

    A tree: the root cause with its rule, the evidence with its raw lines, the victims and what joins them to the root, each
    rejected candidate with what would have convinced, the steps with their guardrails, and what is not known. A unique prefix of
    INCIDENT_ID is enough.
    """
    from faultline.cli.write_out import write_out
    from faultline.drawings import decision_svg, standalone
    from faultline.runtime.settings import load
    from faultline.why.explanation import document, explanation

    settings = load(config)
    found = (
        _from_capture(capture, settings, incident_id)
        if capture
        else asyncio.run(_live(settings, incident_id))
    )
    whole = (found.incident, found.runs, found.repairs, found.known)
    if svg is not None:
        write_out(standalone(decision_svg(found.incident, found.runs, found.known.nodes)), svg)
    show(
        output,
        (document(*whole) for _ in range(1)),
        lambda: show_tree(explanation(*whole), depth=depth, everything=everything),
    )


async def _live(settings: Settings, prefix: str) -> _Found:
    from faultline.cli.raw_records import read_lines
    from faultline.cli.read_topics import read_facts, read_incident, read_runs
    from faultline.why.explanation import Known
    from faultline.why.raw_lines import evidence_of
    from runbooks.engine.containment import pending_repairs
    from streams.model.facts import JobFact, NodeFact

    incident = await read_incident(settings.kafka, prefix)
    runs, facts, lines = await asyncio.gather(
        read_runs(settings.kafka, incident),
        read_facts(settings.kafka, incident.cluster),
        read_lines(settings.kafka, evidence_of(incident)),
    )
    nodes = {fact.name: fact for fact in facts.values() if isinstance(fact, NodeFact)}
    jobs = frozenset(fact.job.key for fact in facts.values() if isinstance(fact, JobFact))
    known = Known(nodes, jobs, lines, has_inventory=bool(facts))
    return _Found(incident, runs, pending_repairs(incident.id, runs, nodes), known)


def _from_capture(directory: Path, settings: Settings, prefix: str) -> _Found:
    from faultline.cli.left_out import tell_left_out
    from faultline.cli.names import listed
    from faultline.cli.read_topics import pick
    from faultline.replay.capture import read
    from faultline.replay.replay import replay_capture
    from faultline.why.explanation import Known
    from faultline.why.raw_lines import evidence_of, lines_in
    from faultline.why.silence import silent_sources
    from runbooks.engine.guardrails.review import ReviewLog
    from streams.correlate import Config

    reviews, capture = ReviewLog(), read(directory)
    decided = replay_capture(
        capture, responder=settings.responder, config=Config.of(settings.correlator), reviews=reviews
    )
    tell_left_out(capture)
    incident = pick(
        decided.incidents, prefix, see=f"{directory} has {listed(decided.incidents) or 'no incident'}"
    )
    assert decided.standing is not None
    view = decided.standing.responder.view(incident.cluster)
    asked = [incident.root.node] if incident.root.node is not None else []
    known = Known(
        view.nodes,
        frozenset(view.jobs),
        lines_in(capture.records, evidence_of(incident)),
        reviews,
        silent_sources(
            capture.records, asked, incident.nodes if incident.jobs else view.nodes, capture.meta.end
        ),
        has_inventory=bool(view.nodes),
    )
    return _Found(incident, [run for run in decided.runs if run.incident == incident.id], (), known)
