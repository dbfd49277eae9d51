"""CEL conditions over an incident: compiled once at load, evaluated without side effects, bounded in size.

CEL has no loops besides its macros over lists; those are bounded by forbidding to nest them. A condition that asks for a fact
the incident does not have is false, not an error: runbooks match on facts that only some families carry.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import celpy
from celpy import celtypes
from celpy.adapter import json_to_cel
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError

from streams.model.incident import Incident
from streams.model.signal import Attribute

MAX_SOURCE = 600
_REMEMBERED = 256
"""Answers that a condition keeps: it is asked at each revision of each incident, and seldom about anything new."""
_MISSING = ("missing",)
_NAMED = re.compile(r"\bincident((?:\.[A-Za-z_]\w*)*)")
_MACRO = re.compile(r"\.\s*(?:all|exists|exists_one|map|filter|reduce|min)\s*\(")
_CEL = celpy.Environment()


class Condition:
    """One compiled condition. Equal when the source is equal."""

    def __init__(self, source: str) -> None:
        """Compile. Raises ValueError that says what is wrong with the source."""
        if len(source) > MAX_SOURCE:
            raise ValueError(f"a condition of {len(source)} characters, at most {MAX_SOURCE} are taken")
        if len(_MACRO.findall(source)) > 1:
            raise ValueError("more than one macro over a list in one condition")
        try:
            self._program = _CEL.program(_CEL.compile(source))
        except CELParseError as error:
            raise ValueError(f"not CEL: {str(error).strip().splitlines()[0]}") from error
        self.source = source
        self._reads = _names_in(source)
        self._answers: OrderedDict[str, bool] = OrderedDict()

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """Whether it is true for `facts_of(incident)`. A missing fact makes it false.

        Raises:
            ValueError: when the condition is no yes or no (a fault of the runbook).
        """
        asked = repr([_looked_up(facts, path) for path in self._reads])
        if (known := self._answers.get(asked)) is not None:
            self._answers.move_to_end(asked)
            return known
        answer = self._answers[asked] = self._evaluated(facts)
        if len(self._answers) > _REMEMBERED:
            self._answers.popitem(last=False)
        return answer

    def _evaluated(self, facts: Mapping[str, Any]) -> bool:
        try:
            value = self._program.evaluate({"incident": json_to_cel(dict(facts))})
        except CELEvalError:
            return False
        if not isinstance(value, celtypes.BoolType):
            raise ValueError(f"{self.source!r} gives {type(value).__name__}, not true or false")
        return bool(value)


def _names_in(source: str) -> tuple[tuple[str, ...], ...]:
    """What of an incident a condition can depend on: paths of at most two names; the empty path is all of it.

    A name in a text literal counts too: that only makes the answer depend on more.
    """
    paths = {tuple(match.group(1).split(".")[1:3]) for match in _NAMED.finditer(source)}
    return ((),) if () in paths or not paths else tuple(sorted(paths))


def _looked_up(facts: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """The value at a path. What follows a value that holds no names is a method of it; what is missing is no value at all."""
    value: Any = facts
    for name in path:
        if not isinstance(value, Mapping):
            return value
        if name not in value:
            return _MISSING
        value = value[name]
    return value


def facts_of(incident: Incident) -> dict[str, Any]:
    """What conditions see: plain values, `root` with empty text for what is not known, `facts` as they are."""
    root = incident.root
    return {
        "family": incident.family,
        "severity": str(incident.severity),
        "severity_rank": incident.severity.rank,
        "certainty": str(incident.certainty),
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
        },
        "jobs": len(incident.jobs),
        "nodes": len(incident.nodes),
        "gpus": incident.impact.gpus,
        "ranks": incident.impact.ranks,
        "flaps": incident.flaps,
        "facts": {name: _plain(value) for name, value in incident.facts.items()},
    }


def _plain(value: Attribute) -> Any:
    """A fact as CEL can hold it. Facts come from log lines: a number beyond 64 bits stays readable, as text."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, int) and abs(value) >= 2**63 else value
