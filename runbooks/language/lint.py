"""What is valid in a runbook but surely a mistake: a runbook never chosen, a step never used, an unknown incident type."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from runbooks.language.approval_rules import unanswerable
from runbooks.language.cel_syntax import Conjunct, conjuncts, source_of
from runbooks.language.cel_types import check
from runbooks.language.conditions import INCIDENT, condition
from runbooks.language.loader import Loaded, RunbookLibrary
from runbooks.language.parameters import names_of
from runbooks.language.schema import Runbook, Step, all_needs, expressions
from runbooks.language.select import rank
from runbooks.language.values import Asks
from runbooks.language.yaml_source import inside, plain
from streams.config.settings import ResponderSettings
from streams.model.kinds import IncidentFamily
from streams.model.run import PlannedStep

Families = frozenset[str]

_REQUIRED = {"root_node": ("incident", "root", "node"), "root_job": ("incident", "root", "job")}
"""What a target requires of an incident, besides `match`."""


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One fault or warning. `place` is `file:line:column`."""

    place: str
    level: Literal["fault", "warning"]
    message: str

    @property
    def file(self) -> str:
        """The file it is in."""
        return self.place.rsplit(":", 2)[0]


def lint(
    library: RunbookLibrary,
    families: Collection[str],
    *,
    complete: bool = True,
    policy: ResponderSettings | None = None,
) -> tuple[LintFinding, ...]:
    """Every fault and every warning, by place.

    Args:
        complete: Whether the library has all runbooks of the installation.
        policy: The settings they are to be used with; without them approval groups are not checked.
    """
    faults = [LintFinding(*_parted(line)) for line in library.faults]
    faults += unanswered(library, policy) if policy is not None else ()
    known = frozenset(families)
    warnings = [found for loaded in library.loaded.values() for found in _about(loaded, library, known)]
    warnings += _not_included(library)
    if complete and not faults:
        warnings += [
            LintFinding("library:1:1", "warning", f"family {family} has no runbook of its own")
            for family in uncovered(library, known)
        ]
    return tuple(sorted([*faults, *warnings], key=_reading_order))


def unanswered(library: RunbookLibrary, policy: ResponderSettings) -> tuple[LintFinding, ...]:
    """Approvals that nobody could give with these settings: of an unknown group, or of more people than it has."""
    found = []
    for loaded in library.loaded.values():
        for number, step in enumerate(loaded.runbook.steps):
            if isinstance(asks := step.approval, Asks) and (why := unanswerable(_asking(step, asks), policy)):
                key = "group" if asks.group not in ("", *policy.approval_groups) else "quorum"
                place = loaded.place("steps", number, "approval", key)
                found.append(LintFinding(place, "fault", f"steps.{step.id}.approval: {why}"))
    return tuple(sorted(found, key=_reading_order))


def families_of(match: str, families: Families) -> Families:
    """The families that a condition can hold for, by those of its parts that depend on the family alone."""
    left = families
    for _, taken in _parts(match, families):
        left = left if taken is None else left & taken
    return left


def _asking(step: Step, asks: Asks) -> PlannedStep:
    """As much of the planned step as its approval depends on."""
    return PlannedStep(
        step.id, step.action, None, {}, True, approval=True, approval_group=asks.group, quorum=asks.quorum
    )


def _about(loaded: Loaded, library: RunbookLibrary, families: Families) -> Iterator[LintFinding]:
    runbook = loaded.runbook
    taken = families_of(runbook.match, families)
    escalated_to = {one.runbook.escalation.to for one in library.loaded.values() if one.runbook.escalation}
    # An escalation step is started by another runbook, and need not match anything itself.
    if runbook.id not in escalated_to and (why := _unreached(runbook, taken, library, families)):
        yield LintFinding(loaded.place("match"), "warning", f"{runbook.id} is never chosen: {why}")
    for number, step in enumerate(runbook.steps):
        if why := _idle(step, runbook, taken, families):
            key = "when" if step.when is not None else "id"
            what = f"step {step.id} is never used: {why}"
            yield LintFinding(loaded.place("steps", number, key), "warning", what)
    yield from _names(loaded, families)


def _unreached(runbook: Runbook, taken: Families, library: RunbookLibrary, families: Families) -> str:
    """Why a runbook is surely never chosen; empty when it may be."""
    if not taken:
        return "it matches no family"
    for other in sorted((one.runbook for one in library.loaded.values()), key=rank):
        if rank(other) < rank(runbook) and _covers(other, runbook, families):
            return f"whatever it matches, {other.id} matches too and is chosen first"
    return ""


def _covers(other: Runbook, runbook: Runbook, families: Families) -> bool:
    """Whether `other` surely matches every incident that `runbook` matches."""
    own = [conjunct for conjunct, _ in _parts(runbook.match, families)]
    keys = {conjunct.key for conjunct in own}
    taken = families_of(runbook.match, families)
    for conjunct, theirs in _parts(other.match, families):
        if conjunct.key not in keys and (theirs is None or not theirs >= taken):
            return False
    targets = {step.target for step in runbook.steps}
    for target, path in _REQUIRED.items():
        asked = any(step.target == target for step in other.steps)
        named = any(_requires(conjunct, runbook.match, path) for conjunct in own)
        if asked and target not in targets and not named:
            return False
    return True


@lru_cache(maxsize=1024)  # every runbook is compared with every other one
def _parts(match: str, families: Families) -> tuple[tuple[Conjunct, Families | None], ...]:
    """What a condition demands all at once, each with the families for which it holds (`_taken`)."""
    return tuple(
        (conjunct, _taken(conjunct, match, families)) for conjunct in conjuncts(condition(match).tree)
    )


def _taken(conjunct: Conjunct, match: str, families: Families) -> Families | None:
    """The families for which a condition on the family alone holds; None where it depends on anything else."""
    reads = check(conjunct.tree, {"incident": INCIDENT}).reads if conjunct.names else set()
    if conjunct.names - {"incident"} or reads - {("incident", "family")}:
        return None
    one = condition(source_of(conjunct.tree, match))
    return frozenset(family for family in families if one.holds({"family": family, "facts": {}}))


def _requires(conjunct: Conjunct, match: str, path: tuple[str, ...]) -> bool:
    text = source_of(conjunct.tree, match).replace(" ", "").replace("'", '"')
    return text == f'{".".join(path)}!=""'


def _idle(step: Step, runbook: Runbook, taken: Families, families: Families) -> str:
    """Why a step is never used; empty when it may be."""
    if step.when is not None:
        if not families_of(step.when, families):
            return "its condition is always false"
        if taken and not families_of(step.when, families) & taken:
            return "its condition is for families that the runbook does not match"
    by_id = {one.id: one for one in runbook.steps}
    needed = {by_id[name].action for name in all_needs(step, by_id)}
    if step.action == "resume_job" and "suspend_job" not in needed:
        return "it needs no suspend_job, and only a job that this run suspended is resumed"
    return ""


def _names(loaded: Loaded, families: Families) -> Iterator[LintFinding]:
    """Conditions on unknown families, and parameters that no expression reads."""
    read: set[tuple[str, ...]] = set()
    for path, source, _ in expressions(loaded.runbook):
        found = check(condition(source).tree, names_of(loaded.runbook.parameters))
        read |= found.reads
        for mention in found.mentions:
            if mention.path == ("incident", "family") and mention.word not in families:
                place = inside(loaded.node(*path), mention.line, mention.column)
                yield LintFinding(place, "warning", f"there is no family {mention.word!r}")
    for name in loaded.runbook.parameters:
        if ("parameters", name) not in read:
            yield LintFinding(loaded.place("parameters", name), "warning", f"parameter {name} is never used")


def _not_included(library: RunbookLibrary) -> Iterator[LintFinding]:
    used = {one.place.rsplit(":", 2)[0] for book in library.loaded.values() for one in book.foreign()}
    for name, root in library.fragments.items():
        if root.start_mark.name not in used:
            message = f"fragment {plain(root).get('fragment', name)} is never included"
            yield LintFinding(f"{root.start_mark.name}:1:1", "warning", message)


def uncovered(library: RunbookLibrary, families: Families) -> list[str]:
    """Families that only a runbook for all families matches."""
    covered = {
        family
        for one in library.loaded.values()
        if (taken := families_of(one.runbook.match, families)) != families
        for family in taken
    }
    return sorted(families - covered - {IncidentFamily.UNKNOWN})


def _reading_order(finding: LintFinding) -> tuple[str, list[int], str]:
    """By file, then line and column as numbers."""
    numbers = finding.place.rsplit(":", 2)[1:]
    return finding.file, [int(number) for number in numbers if number.isdecimal()], finding.message


def _parted(line: str) -> tuple[str, Literal["fault"], str]:
    """`file:line:column: what` as place, level and message."""
    head, _, message = line.partition(": ")
    return head, "fault", message
