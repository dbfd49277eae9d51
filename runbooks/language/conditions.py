"""CEL over an incident and a runbook's parameters: compiled once at load, evaluated without side effects, bounded in size.

A condition on a fact that the incident does not have is false, not an error: runbooks match on facts that only some families
have. A computed value that uses such a fact is an error: nothing could take its place.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, get_args

from celpy import celtypes
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError

from runbooks.language.cel_syntax import cel, conjuncts, parse, source_of
from runbooks.language.cel_types import FACTS, INTEGER, NUMBER, TEXT, YES_NO, listing, one_of, record
from runbooks.language.job_history import UNKNOWN_HISTORY, JobHistory
from streams.model.entity import EntityKind
from streams.model.incident import Audience, Certainty, Incident, IncidentState
from streams.model.signal import Attribute, Severity

MAX_TEXT = 500
"""The longest text that an expression may return."""

INCIDENT = record(
    family=TEXT,
    severity=one_of(*Severity),
    severity_rank=INTEGER,
    certainty=one_of(*Certainty),
    audience=one_of(*Audience),
    state=one_of(*IncidentState),
    cluster=TEXT,
    root=record(
        kind=one_of(*get_args(EntityKind)),
        **dict.fromkeys(("node", "gpu", "nic", "switch", "port", "job", "rack", "storage", "part"), TEXT),
    ),
    **dict.fromkeys(("jobs", "nodes", "gpus", "ranks", "flaps"), INTEGER),
    moves_s=listing(NUMBER),
    diagnosable=YES_NO,
    facts=FACTS,
)
"""The type of what `facts_of` returns, for the check at load."""

_CACHED = 256
"""Results that a condition caches: it is evaluated for each revision of each incident, and seldom for new facts."""
_MISSING = ("missing",)
_COMPARED = re.compile(r'\s*incident((?:\.[A-Za-z_]\w*){1,2})\s*([=!]=)\s*"([^"\\\n]*)"\s*')
_NAMED = re.compile(r"\bincident((?:\.[A-Za-z_]\w*)*)")

Plain = str | int | float | bool


_UNANSWERED = (CELEvalError, TypeError, ArithmeticError, LookupError, AttributeError)
"""What evaluation raises where the incident is not as the expression expects; a TypeError for a macro on what is no list, an
ArithmeticError for infinity converted to an integer. None of it may stop the responder."""


class CelCondition:
    """One compiled condition.

    The parts between its outermost `&&` are evaluated first, each with a cache that all runbooks with the same part share: most
    runbooks are ruled out by the family. One false part makes the whole false, whatever the others are.
    """

    def __init__(self, source: str) -> None:
        """Compile. Raises CelFault that says what is wrong with the source, and where."""
        self.tree = parse(source)
        self._program = cel().program(self.tree)
        self.source = source
        parts = [source_of(part.tree, source) for part in conjuncts(self.tree)]
        self._parts = parts if len(parts) > 1 else []
        self._reads = _names_in(source)
        self._compared = _compared_text(source)
        self._answers: OrderedDict[str, bool | None] = OrderedDict()

    def holds(self, facts: Mapping[str, Any], parameters: Mapping[str, Plain] | None = None) -> bool:
        """Whether it is true for `facts_of(incident)`. A missing fact makes it false.

        Raises:
            ValueError: when the condition is no yes or no (a fault of the runbook).
        """
        certain = bool(self._parts)
        for part in self._parts:
            holds = condition(part)._part_holds(facts, parameters or {})
            if holds is False:
                return False
            certain = certain and holds is True
        return certain or self._answer(facts, parameters or {}) is True

    def _part_holds(self, facts: Mapping[str, Any], parameters: Mapping[str, Plain]) -> bool | None:
        """As `holds`; None where it is neither true nor false: what that means, only the whole condition can tell."""
        try:
            return self._answer(facts, parameters)
        except ValueError:
            return None

    def _answer(self, facts: Mapping[str, Any], parameters: Mapping[str, Plain]) -> bool | None:
        """The whole condition, evaluated or cached; None where it cannot be evaluated. Raises ValueError as `holds` does."""
        if self._compared is not None and (holds := _compare(facts, *self._compared)) is not None:
            return holds
        key = repr((sorted(parameters.items()), [_looked_up(facts, path) for path in self._reads]))
        if key in self._answers:
            self._answers.move_to_end(key)
            return self._answers[key]
        answer = self._answers[key] = self._evaluated(facts, parameters)
        if len(self._answers) > _CACHED:
            self._answers.popitem(last=False)
        return answer

    def value(self, facts: Mapping[str, Any], parameters: Mapping[str, Plain]) -> Plain:
        """The result as a plain value.

        Raises:
            ValueError: it uses what the incident does not have, cannot be evaluated, or returns no plain value.
        """
        try:
            found = self._program.evaluate(_names(facts, parameters))
        except _UNANSWERED as error:
            raise ValueError(f"{self.source!r} cannot be worked out: {error.args[0]}") from error
        plain = _plain_of(found)
        if plain is None:
            raise ValueError(f"{self.source!r} gives {type(found).__name__}, not a plain value")
        if isinstance(plain, float) and not math.isfinite(plain):
            raise ValueError(f"{self.source!r} gives {plain}, which is no number to go by")
        if isinstance(plain, str) and len(plain) > MAX_TEXT:
            raise ValueError(f"{self.source!r} gives {len(plain)} characters, at most {MAX_TEXT} are taken")
        return plain

    def _evaluated(self, facts: Mapping[str, Any], parameters: Mapping[str, Plain]) -> bool | None:
        try:
            value = self._program.evaluate(_names(facts, parameters))
        except _UNANSWERED:
            return None
        if not isinstance(value, celtypes.BoolType):
            raise ValueError(f"{self.source!r} gives {type(value).__name__}, not true or false")
        return bool(value)


@lru_cache(maxsize=1024)
def condition(source: str) -> CelCondition:
    """The compiled form of an expression. Raises CelFault when it is not accepted."""
    return CelCondition(source)


def _names(facts: Mapping[str, Any], parameters: Mapping[str, Plain]) -> dict[str, Any]:
    return {"incident": json_to_cel(dict(facts)), "parameters": json_to_cel(dict(parameters))}


def _plain_of(value: object) -> Plain | None:
    """A value of CEL as a plain one. Sums and products of CEL numbers come back as Python numbers."""
    match value:
        case celtypes.BoolType():
            return bool(value)
        case bool() | int() if not isinstance(value, celtypes.UintType):
            return int(value)
        case float():
            return float(value)
        case str():
            return str(value)
    return None


def _names_in(source: str) -> tuple[tuple[str, ...], ...]:
    """The parts of an incident that a condition can depend on, as paths of at most two names; the empty path is all of it.

    A name in a text literal counts too: that only makes the answer depend on more.
    """
    paths = {tuple(match.group(1).split(".")[1:3]) for match in _NAMED.finditer(source)}
    return ((),) if () in paths else tuple(sorted(paths))


def _compared_text(source: str) -> tuple[tuple[str, ...], str, bool] | None:
    """What a plain comparison compares: a path, a text, and whether they have to be equal. None for any other expression.

    Nearly all runbooks compare the family and the node; each new node would otherwise be evaluated anew.
    """
    found = _COMPARED.fullmatch(source)
    return (tuple(found[1].split(".")[1:]), found[3], found[2] == "==") if found else None


def _compare(facts: Mapping[str, Any], path: tuple[str, ...], text: str, equal: bool) -> bool | None:
    """Whether the comparison holds; None where there is no text at the path, which only CEL can judge."""
    value: Any = facts
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return (value == text) is equal if isinstance(value, str) else None


def _looked_up(facts: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """The value at a path; `_MISSING` where there is none. A name after a plain value is a method of it."""
    value: Any = facts
    for name in path:
        if not isinstance(value, Mapping):
            return value
        if name not in value:
            return _MISSING
        value = value[name]
    return value


def facts_of(incident: Incident, history: JobHistory = UNKNOWN_HISTORY) -> dict[str, Any]:
    """The incident as conditions see it: plain values, `root` with empty text for what is not known, `facts` as they are."""
    root = incident.root
    return {
        "family": incident.family,
        "severity": str(incident.severity),
        "severity_rank": incident.severity.rank,
        "certainty": str(incident.certainty),
        "audience": str(Audience.OWNER if incident.for_owner else Audience.ON_CALL),
        "state": str(incident.state),
        "cluster": incident.cluster,
        "root": {
            "kind": root.kind,
            "node": root.node or "",
            "gpu": root.gpu.key if root.gpu else "",
            "nic": root.nic or "",
            "switch": root.switch or "",
            "port": root.port or "",
            "job": root.job.key if root.job else "",
            "rack": root.rack or "",
            "storage": root.storage or "",
            "part": str(root.part) if root.part else "",
        },
        "jobs": len(incident.jobs),
        "nodes": len(incident.nodes),
        "gpus": incident.impact.gpus,
        "ranks": incident.impact.ranks,
        "flaps": incident.flaps,
        "moves_s": list(history.most_moved),
        "diagnosable": history.diagnosable,
        "facts": {name: _plain(value) for name, value in incident.facts.items()},
    }


def _plain(value: Attribute) -> Any:
    """A fact as CEL can hold it. Facts come from log lines: a number beyond 64 bits becomes text."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, int) and abs(value) >= 2**63 else value
