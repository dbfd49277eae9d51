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
from streams.model.message import some
from streams.model.run import Approval, Demand, PlannedStep, Run

MAX_PEOPLE = 12
"""Names of a group that a run document keeps to be shown; who may approve is always asked of the settings."""

_WITH_ID = re.compile(r".*\((?P<id>[^()\s]+)\)\Z", re.DOTALL)


def demands(planned: PlannedStep, run: Run, policy: ResponderSettings, now: datetime) -> tuple[Demand, ...]:
    """What it takes to approve the step, with those who have given their word for the present plan."""
    words = [word for word in run.approvals if word.approved and counts(word, run, policy, now)]
    # Whoever lets a step be taken has not thereby taken over what another step asks of a person.
    said = [word.actor for word in words if planned.action != "ask" or word.step == planned.id]
    return tuple(_heard(demand, said) for demand in rules(planned, policy))


def approved(planned: PlannedStep, run: Run, policy: ResponderSettings, now: datetime) -> bool:
    """Whether people have given all the words that the step takes."""
    return bool(run.approvals) and not any(demand.missing for demand in demands(planned, run, policy, now))


def counts(word: Approval, run: Run, policy: ResponderSettings, now: datetime) -> bool:
    """Whether a person's word is about this plan and fresh: what was held for long is asked about again before it begins."""
    fresh = run.admitted_at is not None or (now - word.at).total_seconds() <= policy.freshness_s
    return word.digest == run.plan.digest and fresh


def person(actor: str, people: Iterable[str] | None) -> str | None:
    """The member that the actor is, None for an outsider; without a group everybody is themselves.

    A member with several names has a `|` between them (`ada|U024BE7LH`), so that one person counts once however they speak. Of
    a chat's `name (id)` only the whole or the id names somebody: the name alone can be anybody's choice.
    """
    with_id = _WITH_ID.match(actor)
    names = {actor, *([with_id["id"]] if with_id else [])}
    if people is None:
        return with_id["id"] if with_id else actor
    return next((member for member in people if names & {name.strip() for name in member.split("|")}), None)


def may_decide(actor: str, steps: Iterable[PlannedStep], policy: ResponderSettings) -> bool:
    """Whether the actor's word counts for one of the steps."""
    return any(person(actor, demand.people) is not None for step in steps for demand in rules(step, policy))


def may_relax_controls(actor: str, policy: ResponderSettings) -> bool:
    """Whether somebody may take back what keeps the cluster safe: whoever may approve anything at all."""
    people = {*policy.approvers, *(name for group in policy.approval_groups.values() for name in group)}
    return not people or person(actor, people) is not None


def has_already_approved(
    actor: str, steps: Iterable[PlannedStep], run: Run, policy: ResponderSettings, now: datetime
) -> bool:
    """Whether the actor's word is in already wherever it counts: the same person twice is one."""
    wanting = [
        demand
        for step in steps
        for demand in demands(step, run, policy, now)
        if person(actor, demand.people) is not None
    ]
    return bool(wanting) and all(person(actor, demand.people) in demand.given for demand in wanting)


def wanted(asked: Sequence[Demand]) -> str:
    """Who may approve and how many of them are missing, as half a sentence; empty when nobody is."""
    return " and ".join(_wanted(demand) for demand in asked if demand.missing)


def who(demand: Demand) -> str:
    """Whom a demand is made of, for people."""
    if demand.people is None:
        return "anybody"
    if not demand.people:
        return f"{demand.group} (nobody is in it here)"
    names = some((member.split("|")[0].strip() for member in demand.people), 6)
    return f"{demand.group} ({names})"


def shown(asked: Iterable[Demand]) -> tuple[Demand, ...]:
    """The demands as a run document keeps them: with a bounded number of names."""
    return tuple(
        replace(demand, people=demand.people[:MAX_PEOPLE] if demand.people is not None else None)
        for demand in asked
    )


def _heard(demand: Demand, said: Iterable[str]) -> Demand:
    found = [member for actor in said if (member := person(actor, demand.people)) is not None]
    return replace(demand, given=tuple(dict.fromkeys(found)))


def _wanted(demand: Demand) -> str:
    count = "one" if demand.missing == 1 else str(demand.missing)
    more = " more" if demand.given else ""
    of = (
        "person"
        if demand.missing == 1 and demand.people is None
        else "people"
        if demand.people is None
        else ""
    )
    given = f", {some((g.split('|')[0] for g in demand.given), 4)} having approved" if demand.given else ""
    return f"{count}{more} {of or f'of {who(demand)}'}{given}"
