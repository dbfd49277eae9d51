"""Who has approved what, and whose approvals count. Pure.

An approval is about one plan, the one whose digest was shown, and counts for every step of it that the person may decide. A
step goes on once all that it asks for (`approval_rules.py`) is met.

A member of a group may itself be a group of another system (`slack:S0123ABC`, `oidc:sre`): then everybody counts of whom the
system that proved the identity says so. A quorum always counts people. Somebody who is in a Slack group and, under another id, in
a group of the login must not count as two: approvals that reached us through different systems count together only where the
settings say that they are of different people.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from runbooks.language.approval_rules import rules
from streams.config.settings import ResponderSettings
from streams.model.conversation import Command, is_group
from streams.model.message import some
from streams.model.run import Approval, Demand, PlannedStep, Run, StepRecord

MAX_PEOPLE = 12
"""Names of a group that a run document keeps to be shown; the settings alone decide who may approve."""

BLAST_RADIUS, WINDOW = "blast radius", "window"
"""Rules of how much is acted on at once."""
TEAM, TEAM_QUOTA = "team", "team quota"
"""Rules of the teams whose jobs a step touches."""
LIMITS = frozenset({BLAST_RADIUS, WINDOW, TEAM_QUOTA})
"""Rules that only who was told of them can lift."""

_WITH_ID = re.compile(r".*\((?P<id>[^()\s]+)\)\Z", re.DOTALL)


class Speaker(Protocol):
    """Who gives a command or gave an approval, as the system it came through knows the person."""

    @property
    def actor(self) -> str:
        """`name (id)`, or a name."""

    @property
    def via(self) -> str:
        """The system."""

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of that system that the person is in."""


@dataclass(frozen=True, slots=True)
class _Approver:
    """Somebody whose approval counts: as which member, and whether the settings name the person."""

    shown: str
    identity: str
    via: str
    by_group: bool
    has_aliases: bool

    def may_be(self, other: _Approver) -> bool:
        """Whether the two may be one person under two ids."""
        if self.identity == other.identity:
            return True
        unsure = (self.by_group or other.by_group) and self.via != other.via
        return unsure and not (self.has_aliases or other.has_aliases)


def demands(planned: PlannedStep, run: Run, policy: ResponderSettings, now: datetime) -> tuple[Demand, ...]:
    """What the step needs to be approved, with those who have approved the present plan."""
    valid = [given for given in run.approvals if given.approved and counts(given, run, policy, now)]
    # Approving a step of the plan does not take over what its `ask` steps ask of a person.
    speakers = [given for given in valid if planned.action != "ask" or given.step == planned.id]
    return tuple(_given_by(demand, speakers, policy) for demand in rules(planned, policy))


def approved(planned: PlannedStep, run: Run, policy: ResponderSettings, now: datetime) -> bool:
    """Whether the step has all the approvals that it needs."""
    return bool(run.approvals) and not any(demand.missing for demand in demands(planned, run, policy, now))


def counts(approval: Approval, run: Run, policy: ResponderSettings, now: datetime) -> bool:
    """Whether an approval is for this plan and fresh: a step held for long needs a new one before the run starts to act."""
    fresh = run.admitted_at is not None or (now - approval.at).total_seconds() <= policy.freshness_s
    return approval.digest == run.plan.digest and fresh


def about(run: Run, rule: str) -> Run:
    """The run with only those approvals that count for a guardrail: a limit is lifted only by who was told of it."""
    if rule not in LIMITS:
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
    if people is None:
        return _id_of(actor)
    # Somebody who calls himself by the name of a group is not everybody in it.
    names = {name for name in (actor, _id_of(actor)) if not is_group(name)}
    return next((member for member in people if names & {name.strip() for name in member.split("|")}), None)


def may_decide(speaker: Speaker, steps: Iterable[PlannedStep], policy: ResponderSettings) -> bool:
    """Whether an approval by the speaker counts for one of the steps."""
    return any(
        _approver(speaker, demand.people, policy) is not None
        for step in steps
        for demand in rules(step, policy)
    )


def may_relax_controls(speaker: Speaker, policy: ResponderSettings) -> bool:
    """Whether the speaker may unkill, thaw or reset the breaker: whoever may approve anything at all."""
    people = _everybody(policy)
    return not people or _approver(speaker, people, policy) is not None


def is_open_to(demand: Demand, actor: str, groups: Iterable[str]) -> bool:
    """Whether a person could still meet the demand, as far as a run document tells: it keeps no more than `MAX_PEOPLE` names."""
    if not demand.missing or any(_id_of(given) == _id_of(actor) for given in demand.given):
        return False
    member = person(actor, demand.people)
    by_group = any(is_group(name) and name in demand.people for name in groups) if demand.people else False
    return (member is not None and member not in demand.given) or by_group


def counted_already(speaker: Speaker, run: Run, policy: ResponderSettings) -> str:
    """Why one more approval by the speaker adds nothing, as the end of a sentence that begins with the name; empty if it may."""
    valid = [given for given in run.approvals if given.approved and given.digest == run.plan.digest]
    mine = _identity(speaker.actor, policy)[0]
    if any(_identity(given.actor, policy)[0] == mine for given in valid):
        return "has already approved"
    if any(given.via != speaker.via for given in valid):
        return (
            "may be one of those who approved through another system and counts once with them "
            "until responder.people lists the ids that each has"
        )
    return ""


def known_groups(speaker: Speaker, policy: ResponderSettings) -> tuple[str, ...]:
    """The speaker's groups that the settings name: an approval keeps no others."""
    named = _everybody(policy)
    return tuple(sorted({group for group in speaker.groups if is_group(group) and group in named}))


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


def _given_by(demand: Demand, speakers: Iterable[Speaker], policy: ResponderSettings) -> Demand:
    counted: list[_Approver] = []
    for speaker in speakers:
        approver = _approver(speaker, demand.people, policy)
        if approver is not None and not any(map(approver.may_be, counted)):
            counted.append(approver)
    return replace(demand, given=tuple(approver.shown for approver in counted))


def _approver(speaker: Speaker, people: Iterable[str] | None, policy: ResponderSettings) -> _Approver | None:
    """As whom the speaker approves, None for an outsider: by name where the settings name the person, else through a group."""
    people = None if people is None else tuple(people)
    member = person(speaker.actor, people)
    by_group = member is None
    if member is None:
        if not any(group in speaker.groups for group in people or () if is_group(group)):
            return None
        member = speaker.actor
    identity, has_aliases = _identity(speaker.actor, policy)
    return _Approver(member, identity, speaker.via, by_group, has_aliases)


def _identity(actor: str, policy: ResponderSettings) -> tuple[str, bool]:
    """What one person is counted under in all groups, and whether the settings list the person's aliases."""
    aliases = person(actor, (name for name in (*policy.people, *_everybody(policy)) if "|" in name))
    return aliases or _id_of(actor), aliases is not None


def _everybody(policy: ResponderSettings) -> tuple[str, ...]:
    groups = policy.approval_groups.values()
    return tuple(dict.fromkeys((*policy.approvers, *(name for group in groups for name in group))))


def _id_of(actor: str) -> str:
    with_id = _WITH_ID.match(actor)
    return with_id["id"] if with_id else actor


def _wanted(demand: Demand) -> str:
    count = "one" if demand.missing == 1 else str(demand.missing)
    more = " more" if demand.given else ""
    anybody = "person" if demand.missing == 1 else "people"
    whom = anybody if demand.people is None else f"of {who(demand)}"
    given = f", {some((g.split('|')[0] for g in demand.given), 4)} having approved" if demand.given else ""
    return f"{count}{more} {whom}{given}"
