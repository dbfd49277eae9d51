"""What is wrong or hardly meant in the tables of correlation: families, policy, and the other tables beside the rules."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from string import Formatter
from typing import Any

from faultline.lint.table_source import TableSource, source_of
from runbooks.engine.case_result import CaseResult
from runbooks.language.lint import LintFinding
from streams.config.settings import CorrelatorSettings
from streams.config.table_overlay import ROOTS, unknown_files
from streams.correlate.job_rules.connection_votes import VoteTable
from streams.correlate.job_rules.service_policy import ServicePolicy
from streams.correlate.node_rules.node_death import DeathPolicy
from streams.correlate.node_rules.node_outages import OutagePolicy
from streams.correlate.node_rules.part_policy import PartPolicy
from streams.correlate.policy.config import Config
from streams.correlate.policy.families import Families, SignalRule
from streams.correlate.policy.link_parts import Parts
from streams.correlate.policy.policy import Policy
from streams.correlate.sightings import Sighting
from streams.correlate.state.node_work import WorkPolicy
from streams.model.clock import from_millis
from streams.model.entity import Entity
from streams.model.kinds import IncidentFamily
from streams.model.signal import Severity

CORRELATE = ROOTS[1]
FAMILIES, POLICY = "policy/families", "policy/policy"

_KINDS: Mapping[str, Any] = {
    FAMILIES: Families,
    POLICY: Policy,
    "policy/link_parts": Parts,
    "policy/rules": dict[str, str],
    "job_rules/connection_votes": VoteTable,
    "job_rules/services": ServicePolicy,
    "node_rules/node_death": DeathPolicy,
    "node_rules/node_outages": OutagePolicy,
    "node_rules/shared_parts": PartPolicy,
    "state/node_work": WorkPolicy,
}
"""What a table has to be, by its name."""


_FAMILY_NAMES = frozenset(family.value for family in IncidentFamily)


def tables(folder: Path | None) -> tuple[dict[str, TableSource], list[LintFinding]]:
    """Every table of correlation by its name (`policy/families`), with what `folder` lays over it; and what cannot be read."""
    found: dict[str, TableSource] = {}
    faults: list[LintFinding] = []
    if folder is not None:
        unknown = (line.split(": ", 1) for line in unknown_files(folder))
        faults += [LintFinding(f"{place}:1:1", "fault", what) for place, what in unknown]
    for table in sorted(CORRELATE.rglob("*.yaml")):
        relative = table.relative_to(CORRELATE)
        own = folder / relative if folder is not None and (folder / relative).is_file() else None
        source, unreadable = source_of(table, own)
        faults += unreadable
        if source is not None:
            found[relative.with_suffix("").as_posix()] = source
    return found, faults


def value_faults(name: str, source: TableSource) -> Iterator[LintFinding]:
    """The values of a table that do not fit: with one of them nothing can be correlated."""
    return source.faults(_KINDS[name]) if name in _KINDS else iter(())


def lint_rules(
    found: Mapping[str, TableSource], settings: CorrelatorSettings, uncovered: Collection[str]
) -> list[LintFinding]:
    """Every fault and warning. `uncovered` are families that no runbook of their own handles."""
    findings = [fault for name, source in found.items() for fault in value_faults(name, source)]
    if findings or not {FAMILIES, POLICY} <= found.keys():
        return findings
    families = Families.model_validate(found[FAMILIES].content)
    policy = Policy.model_validate(found[POLICY].content)
    findings += _signal_rules(found[FAMILIES], families)
    findings += _family_rows(found[FAMILIES], families, uncovered)
    findings += _severities(found[POLICY], policy)
    findings += _windows(found[FAMILIES], found[POLICY], families, policy, Config.of(settings))
    return findings


def _signal_rules(source: TableSource, families: Families) -> Iterator[LintFinding]:
    """Rows behind others that take all they could match, and words that cannot be filled in."""
    earlier: list[SignalRule] = []
    for number, rule in enumerate(families.signals):
        for kind in rule.kinds:
            for subtype in sorted(rule.subtypes) or [""]:
                wanted = rule.severities or frozenset(Severity)
                if wanted <= _taken(earlier, kind, subtype):
                    what = f"{kind} {subtype}".rstrip()
                    message = f"it is never reached for {what}: rows before it take every one"
                    yield LintFinding(source.place("signals", number), "fault", message)
        if (unknown := _unknown_words(rule.says)) is not None:
            message = f"{{{unknown}}} cannot be filled in: braces hold one name"
            yield LintFinding(source.place("signals", number, "says"), "fault", message)
        earlier.append(rule)


def _taken(earlier: list[SignalRule], kind: str, subtype: str) -> frozenset[Severity]:
    """The severities of which rows before take every signal of a kind and subtype; of no subtype where that is empty."""
    found: set[Severity] = set()
    for rule in earlier:
        if kind in rule.kinds and not rule.where and (not rule.subtypes or subtype in rule.subtypes):
            found |= rule.severities or frozenset(Severity)
    return frozenset(found)


def _unknown_words(text: str) -> str | None:
    """The first thing in braces that is no plain name."""
    try:
        for _, name, form, conversion in Formatter().parse(text):
            if name is not None and (form or conversion or not name.isidentifier()):
                return name
    except ValueError as error:
        return str(error)
    return None


def _family_rows(
    source: TableSource, families: Families, uncovered: Collection[str]
) -> Iterator[LintFinding]:
    for name, row in families.families.items():
        place = source.place("families", name)
        for at, other in enumerate(row.explains):
            if families[other].rank >= row.rank:
                message = (
                    f"{name} explains {other}, which ranks as high or higher: it would name the incident"
                )
                yield LintFinding(source.place("families", name, "explains", at), "fault", message)
        for key in ("title", "reason", "with_ranks"):
            if (unknown := _unknown_words(getattr(row, key))) is not None:
                message = f"{{{unknown}}} cannot be filled in: braces hold one name"
                yield LintFinding(source.place("families", name, key), "fault", message)
        if name in uncovered:
            yield LintFinding(place, "warning", f"no runbook of its own handles the family {name}")
    for missing in sorted(_FAMILY_NAMES - families.families.keys()):
        yield LintFinding(source.place("families"), "fault", f"the family {missing} has no row")
    ranks: dict[int, str] = {}
    for name, row in families.families.items():
        if (other := ranks.setdefault(row.rank, name)) != name:
            message = f"{name} and {other} have the same rank: which of them names an incident is left to their names"
            yield LintFinding(source.place("families", name, "rank"), "warning", message)


def _severities(source: TableSource, policy: Policy) -> Iterator[LintFinding]:
    """Rows that an earlier one takes whole."""
    for number, row in enumerate(policy.severity):
        for earlier in policy.severity[:number]:
            wider = earlier.jobs is None or (row.jobs is not None and row.jobs <= earlier.jobs)
            if row.families <= earlier.families and row.gpus >= earlier.gpus and wider:
                message = "it is never reached: a row before it fits every incident that it fits"
                yield LintFinding(source.place("severity", number), "fault", message)
                break


def _windows(
    families_source: TableSource,
    policy_source: TableSource,
    families: Families,
    policy: Policy,
    config: Config,
) -> Iterator[LintFinding]:
    """Waits that outlast what they wait for, as the settings keep it."""
    kept_s = config.retention.total_seconds()
    for number, rule in enumerate(families.signals):
        for key in ("lasts_s", "hold_s", "alone_s"):
            if (seconds := getattr(rule, key)) >= kept_s:
                message = f"{key} of {seconds:g} s outlasts what is kept (correlator.retention_minutes: {kept_s:g} s)"
                yield LintFinding(families_source.place("signals", number, key), "fault", message)
    waits: tuple[tuple[tuple[str, ...], float, str, float], ...] = (
        (("starts", "apart_s"), policy.starts.apart_s, "starts.patience_s", policy.starts.patience_s),
        (
            ("starts", "patience_s"),
            policy.starts.patience_s,
            "what is kept (correlator.retention_minutes)",
            kept_s,
        ),
        (("bursts", "silence_s"), policy.bursts.silence_s, "bursts.sticky_s", policy.bursts.sticky_s),
        (
            ("own_failures", "retry_s"),
            policy.own_failures.retry_s,
            "what is kept (correlator.retention_minutes)",
            kept_s,
        ),
    )
    for path, seconds, what, limit in waits:
        if seconds >= limit:
            message = f"{'.'.join(path)} of {seconds:g} s is not shorter than {what}: {limit:g} s"
            yield LintFinding(policy_source.place(*path), "fault", message)


def rule_cases(families: Families) -> Iterator[CaseResult]:
    """For each row of signals: what it describes falls under it, and is told in words that can be filled in."""
    for number, rule in enumerate(families.signals):
        for kind in rule.kinds:
            for subtype in sorted(rule.subtypes) or [""]:
                name = f"signals {number}: {kind} {subtype}".rstrip()
                yield CaseResult(name, tuple(_case(families, rule, kind, subtype)))


def _case(families: Families, rule: SignalRule, kind: str, subtype: str) -> Iterator[str]:
    seen = [_sighting(rule, kind, subtype, severity) for severity in sorted(rule.severities or Severity)]
    fitting = next((one for one in seen if families.rule(one) is rule), None)
    if fitting is None:
        fallen = families.rule(seen[0])
        yield f"falls under {fallen.says!r} of the family {fallen.family}" if fallen else "falls under no row"
        return
    if families.family_of(fitting) != rule.family:
        yield f"is of the family {families.family_of(fitting)} instead of {rule.family}"
    text = families.says(fitting)
    if not text or re.search(r"[{}]", text):
        yield f"is told as {text!r}"


def _sighting(rule: SignalRule, kind: str, subtype: str, severity: Severity) -> Sighting:
    at = from_millis(0)
    attributes: dict[str, Any] = {"subtype": subtype} if subtype else {}
    attributes |= {name: values[0] if values else "yes" for name, values in rule.where.items()}
    return Sighting("case", kind, Entity("case", node="n1"), at, at, at, severity, True, attributes)
