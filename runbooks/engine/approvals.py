"""Who has approved what, and whose approvals count. Pure.

An approval is about one plan, the one whose digest was shown, and counts for every step of it that the person may decide. A
step goes on once all that it asks for (`approval_rules.py`) is met.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from runbooks.language.approval_rules import rules
from streams.config.settings import ResponderSettings
from streams.model.conversation import Command
from streams.model.message import some
from streams.model.run import Approval, Demand, PlannedStep, Run, StepRecord

MAX_PEOPLE = 12
"""Names of a group that a run document keeps to be shown; the settings alone decide who may approve."""

BLAST_RADIUS, WINDOW = "blast radius", "window"
"""Rules of how much is acted on at once."""

_WITH_ID = re.compile(r".*\((?P<id>[^()\s]+)\)\Z", re.DOTALL)


def demands(planned: PlannedStep, run: Run, policy: ResponderSettings, now: datetime) -> tuple[Demand, ...]:
    """What the step needs to be approved, with those who have approved the present plan."""
    valid = [given for given in run.approvals if given.approved and counts(given, run, policy, now)]
    # Approving a step of the plan does not take over what its `ask` steps ask of a person.
    actors = [given.actor for given in valid if planned.action != "ask" or given.step == planned.id]
    return tuple(_given_by(demand, actors) for demand in rules(planned, policy))


def approved(planned: PlannedStep, run: Run, policy: ResponderSettings, now: datetime) -> bool:
    """Whether the step has all the approvals that it needs."""
    return bool(run.approvals) and not any(demand.missing for demand in demands(planned, run, policy, now))


def counts(approval: Approval, run: Run, policy: ResponderSettings, now: datetime) -> bool:
    """Whether an approval is for this plan and fresh: a step held for long needs a new one before the run starts to act."""
    fresh = run.admitted_at is not None or (now - approval.at).total_seconds() <= policy.freshness_s
    return approval.digest == run.plan.digest and fresh


def about(run: Run, rule: str) -> Run:
    """The run with only those approvals that count for a guardrail: a limit is lifted only by who was told of it."""
    if rule not in (BLAST_RADIUS, WINDOW):
        return run
    return replace(run, approvals=tuple(one for one in run.approvals if one.rule == rule or not one.approved))


def asked_by(planned: PlannedStep, record: StepRecord) -> str:
    """The guardrail that a step's question is about; empty for a question of the runbook's own."""
    return "" if planned.action == "ask" else record.reason.partition(": ")[0]


def person(actor: str, people: Iterable[str] | None) -> str | None:
    """The group member that the actor is, None for an outsider; without a group the actor's own id or name.

    A member's aliases are separated by `|` (`ada|U024BE7LH`), so that one person counts once under any of them. Of a chat's
    `name (id)` only the whole or the id identifies somebody: a display name can be chosen freely.
    """
    with_id = _WITH_ID.match(actor)
    names = {actor, *([with_id["id"]] if with_id else [])}
    if people is None:
        return with_id["id"] if with_id else actor
    return next((member for member in people if names & {name.strip() for name in member.split("|")}), None)


def may_decide(actor: str, steps: Iterable[PlannedStep], policy: ResponderSettings) -> bool:
    """Whether an approval by the actor counts for one of the steps."""
    return any(person(actor, demand.people) is not None for step in steps for demand in rules(step, policy))


def may_relax_controls(actor: str, policy: ResponderSettings) -> bool:
    """Whether the actor may unkill, thaw or reset the breaker: whoever may approve anything at all."""
    people = {*policy.approvers, *(name for group in policy.approval_groups.values() for name in group)}
    return not people or person(actor, people) is not None


def has_already_approved(actor: str, asked: Iterable[Demand]) -> bool:
    """Whether the actor has approved already wherever it counts: nobody counts twice."""
    open_to = [demand for demand in asked if person(actor, demand.people) is not None]
    return bool(open_to) and all(person(actor, demand.people) in demand.given for demand in open_to)


def wanted(asked: Sequence[Demand]) -> str:
    """How many approvals are missing and from whom, as part of a sentence; empty when none are."""
    return " and ".join(_wanted(demand) for demand in asked if demand.missing)


def who(demand: Demand) -> str:
    """Whose approval is needed, as text."""
    if demand.people is None:
        return "anybody"
    if not demand.people:
        return f"{demand.group} (nobody is in it here)"
    names = some((member.split("|")[0].strip() for member in demand.people), 6)
    return f"{demand.group} ({names})"


def shown(asked: Iterable[Demand]) -> tuple[Demand, ...]:
    """The demands as a run document keeps them, with a limited number of names."""
    return tuple(
        replace(demand, people=demand.people[:MAX_PEOPLE] if demand.people is not None else None)
        for demand in asked
    )


def stale(command: Command, policy: ResponderSettings, now: datetime) -> str:
    """Why a command is too old to relax or approve anything; empty when it is fresh."""
    age_s = (now - command.at).total_seconds()
    if age_s <= policy.freshness_s:
        return ""
    return f"it was given {age_s:.0f} s ago, at most {policy.freshness_s:.0f} s count as fresh"


def _given_by(demand: Demand, actors: Iterable[str]) -> Demand:
    found = [member for actor in actors if (member := person(actor, demand.people)) is not None]
    return replace(demand, given=tuple(dict.fromkeys(found)))


def _wanted(demand: Demand) -> str:
    count = "one" if demand.missing == 1 else str(demand.missing)
    more = " more" if demand.given else ""
    anybody = "person" if demand.missing == 1 else "people"
    whom = anybody if demand.people is None else f"of {who(demand)}"
    given = f", {some((g.split('|')[0] for g in demand.given), 4)} having approved" if demand.given else ""
    return f"{count}{more} {whom}{given}"
