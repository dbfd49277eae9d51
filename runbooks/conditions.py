"""CEL conditions over an incident: compiled once at load, evaluated without side effects, bounded in size.

CEL has no loops besides its macros over lists; those are bounded by forbidding to nest them. A condition that asks for a fact
the incident does not have is false, not an error: runbooks match on facts that only some families carry.
"""

from __future__ import annotations

import re
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

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """Whether it is true for `facts_of(incident)`. A missing fact makes it false.

        Raises:
            ValueError: when the condition is no yes or no (a fault of the runbook).
        """
        try:
            value = self._program.evaluate({"incident": json_to_cel(dict(facts))})
        except CELEvalError:
            return False
        if not isinstance(value, celtypes.BoolType):
            raise ValueError(f"{self.source!r} gives {type(value).__name__}, not true or false")
        return bool(value)


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
