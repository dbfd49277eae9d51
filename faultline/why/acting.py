"""Why nothing was done about an incident: which runbook would have matched, which step was held by what, who decided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from faultline.why.steps import run_branch
from faultline.why.tree import Branch, branch
from runbooks.engine.guardrails.review import ReviewLog
from runbooks.language.conditions import facts_of
from runbooks.language.schema import Runbook
from runbooks.language.select import Choice, select, unmet
from streams.config.settings import ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.model.clock import moment, to_the_second
from streams.model.control import Control
from streams.model.conversation import Command
from streams.model.facts import JobFact, NodeFact
from streams.model.incident import Incident
from streams.model.run import Mode, Run

NEAREST = 5
"""Runbooks that did not match of which it is told by what they missed; those that missed the least."""


def runbook_branches(incident: Incident, runbooks: Sequence[Runbook]) -> Iterator[Branch]:
    """The runbook that matches, and of the others those that missed the least, each with the parts of `match` that failed."""
    choice = select(incident, runbooks)
    text = choice.why if choice.runbook is not None else f"no runbook: {choice.why}"
    yield branch("runbook", text, runbook=choice.runbook.id if choice.runbook is not None else None)
    missed = sorted(_missed(incident, runbooks, choice), key=lambda one: (len(one[1]), one[0]))
    for name, parts in missed[:NEAREST]:
        yield branch(
            "missed",
            f"{name} did not match: {' and '.join(parts)} does not hold",
            runbook=name,
            unmet=list(parts),
        )


def _missed(
    incident: Incident, runbooks: Sequence[Runbook], choice: Choice
) -> Iterator[tuple[str, tuple[str, ...]]]:
    facts = facts_of(incident)
    for book in runbooks:
        if book is choice.runbook or book.match.strip() == "false":
            continue  # the latter is started by another runbook, or by hand
        try:
            parts = unmet(book.match, facts)
        except ValueError:
            continue  # `select` has reported it as invalid
        # What is for another family altogether missed nothing that anybody would wonder about.
        if parts and not any("family" in part for part in parts):
            yield book.id, parts


def incident_branch(
    incident: Incident,
    role: str,
    runs: Iterable[Run],
    runbooks: Sequence[Runbook],
    reviews: ReviewLog,
) -> Branch:
    """One incident that is about the subject, as which (`root` or `victim`), and what was done about it."""
    mine = list(runs)
    return branch(
        "incident",
        f"{incident.id}  {incident.title}  ({incident.state.value}, {incident.certainty.value}): {role}",
        (
            branch("cause", incident.reason),
            *runbook_branches(incident, runbooks),
            *(run_branch(run, reviews) for run in mine),
            None if mine else branch("no_run", "no run was planned for it"),
        ),
        id=incident.id,
        role=role,
    )


def standing_branches(
    fact: NodeFact | JobFact | None,
    view: ClusterView,
    control: Control,
    settings: ResponderSettings,
    at: datetime,
) -> Iterator[Branch]:
    """What holds back every action at the time `at`: the mode, switches, freezes, and what is said on the node or job itself."""
    if settings.mode is Mode.SHADOW:
        yield branch("mode", "responder.mode is shadow: everything is decided, and nothing is done")
    elif settings.mode is Mode.APPROVE:
        yield branch("mode", "responder.mode is approve: a person is asked before the first destructive step")
    if settings.kill_switch:
        yield branch("kill_switch", "responder.kill_switch is on")
    if control.kill_switch is not None:
        switch = control.kill_switch
        yield branch(
            "kill_switch",
            f"kill switch: {switch.actor} engaged it at {to_the_second(switch.at)}: {switch.reason}",
        )
    if control.breaker is not None:
        trip = control.breaker
        yield branch("breaker", f"breaker: tripped by {trip.rule} at {to_the_second(trip.at)}: {trip.reason}")
    for freeze in (one for one in control.freezes if not one.has_ended(at)):
        what = freeze.scope or "the cluster"
        yield branch(
            "freeze", f"freeze of {what} by {freeze.actor} since {to_the_second(freeze.at)}: {freeze.reason}"
        )
    for back in control.rolled_back:
        yield branch(
            "rollout",
            f"pool {back.pool} was put back to stage observe by {back.actor} at {to_the_second(back.at)}",
        )
    if fact is None:
        return
    if not fact.managed:
        yield branch(
            "opt_out", f"{fact.key.split('/', 2)[2]} has faultline.dev/managed=false: it is never touched"
        )
    if isinstance(fact, NodeFact):
        yield from _of_node(fact)
    elif fact.immovable:
        yield branch("immovable", f"it cannot be stopped and started again: {fact.immovable}")


def _of_node(fact: NodeFact) -> Iterator[Branch]:
    if fact.control_plane:
        yield branch("protected", "it is a control-plane node: it is never touched")
    if fact.protected_by is not None:
        yield branch("protected", f"it has the label {fact.protected_by}: it is never touched")
    if (work := fact.worked_on) is not None:
        since = f" since {moment(work.since)}" if work.since is not None else ""
        yield branch(
            "work", f"{work.by} works on it{since} ({work.mark}): what that does to it is left to them"
        )


def decision_branches(incidents: Iterable[Incident], commands: Iterable[Command]) -> Iterator[Branch]:
    """What people decided about these incidents."""
    names = {incident.id for incident in incidents}
    for command in commands:
        if command.incident in names:
            why = f": {command.reason}" if command.reason else ""
            yield branch(
                "decision",
                f"{moment(command.at)}  {command.actor} said {command.verb.value} to {command.incident}{why}",
                actor=command.actor,
                verb=command.verb.value,
                incident=command.incident,
            )
