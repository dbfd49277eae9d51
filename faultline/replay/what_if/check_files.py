"""A what-if as files that checks are read from: JUnit XML, and SARIF 2.1.0 for code scanning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import PurePath
from typing import Any
from xml.etree import ElementTree

import orjson

from faultline.replay.difference import Aspect, Difference, Pair
from faultline.replay.what_if.budget import KEYS, Exceeded
from faultline.replay.what_if.figures import headline
from faultline.replay.what_if.result import WhatIf
from streams.model.message import plain

MAX_TEXT = 2000
MAX_RESULTS = 5_000
"""What code scanning shows of one run."""
_PLANS = (Aspect.VERDICT, Aspect.ACTION, Aspect.INCIDENT)
_ASPECTS: dict[str, tuple[Aspect, ...]] = {
    "incidents": (Aspect.INCIDENT,),
    "culprits": (Aspect.CULPRIT,),
    "certainties": (Aspect.CERTAINTY,),
    "impacts": (Aspect.IMPACT,),
    "runbooks": (Aspect.RUNBOOK,),
    "modes": (Aspect.MODE,),
    "steps": (Aspect.STEP,),
    "verdicts": (Aspect.VERDICT,),
    "actions": _PLANS,
    "approvals": _PLANS,
    "cordons": _PLANS,
    "tickets": (Aspect.TICKET,),
    "pages": (Aspect.PAGE,),
    "gpu_hours": (Aspect.GPU_HOURS,),
}
"""What a budget is about, for the incidents that are blamed when it is exceeded."""
_MEANS = {
    Aspect.INCIDENT: "the incident comes, goes, or becomes part of another",
    Aspect.CULPRIT: "another root cause",
    Aspect.CERTAINTY: "another certainty or severity",
    Aspect.IMPACT: "other jobs or nodes are hit",
    Aspect.RUNBOOK: "another runbook",
    Aspect.MODE: "the runbook may go further, or less far",
    Aspect.VERDICT: "another verdict of the guardrails",
    Aspect.ACTION: "an action more or less",
    Aspect.STEP: "a step is done otherwise",
    Aspect.TICKET: "a ticket more or less",
    Aspect.PAGE: "somebody is woken, or is not",
    Aspect.GPU_HOURS: "other GPU-hours",
}


def junit(found: WhatIf, over: Sequence[Exceeded] = (), *, fail_all: bool = False) -> str:
    """A test case for each budget that is exceeded and for each incident, as GitLab and others read them.

    An incident fails where a budget is exceeded by what differs about it, or with `fail_all` where anything does.
    """
    blamed = set(Aspect) if fail_all else {aspect for one in over for aspect in _ASPECTS[one.key]}
    suite = ElementTree.Element("testsuite", name=_text(f"faultline whatif {found.source}"))
    for one in over:
        case = ElementTree.SubElement(
            suite, "testcase", classname="budget", name=f"{one.key}: {KEYS[one.key]}"
        )
        ElementTree.SubElement(case, "failure", message=_text(str(one)))
    failures = len(over)
    for pair in found.pairs:
        named = {
            "classname": pair.either.family,
            "name": _text(f"{pair.either.incident} {pair.either.title}"),
        }
        case = ElementTree.SubElement(suite, "testcase", named)
        if not pair.differences:
            continue
        text = "\n".join(_line(one) for one in pair.differences)
        if any(one.aspect in blamed for one in pair.differences):
            failures += 1
            failure = ElementTree.SubElement(case, "failure", message=f"{len(pair.differences)} differences")
            failure.text = text
        else:
            ElementTree.SubElement(case, "system-out").text = text
    suite.attrib |= {"tests": str(len(suite)), "failures": str(failures), "errors": "0"}
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def sarif(found: WhatIf, over: Sequence[Exceeded] = (), *, fail_all: bool = False) -> str:
    """A result for each difference, at the edited file; an error where its budget is exceeded, else a note."""
    blamed = set(Aspect) if fail_all else {aspect for one in over for aspect in _ASPECTS[one.key]}
    results = [
        _result(found, pair, one, "error" if one.aspect in blamed else "note")
        for pair in found.differing
        for one in pair.differences
    ]
    rules = [
        {"id": _rule(aspect), "name": aspect.value, "shortDescription": {"text": _MEANS[aspect]}}
        for aspect in Aspect
    ]
    run = {
        "tool": {"driver": {"name": "faultline whatif", "version": version("faultline"), "rules": rules}},
        "results": results[:MAX_RESULTS],
        "properties": {"summary": headline(found), "overBudget": list(map(str, over))},
    }
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def _result(found: WhatIf, pair: Pair, one: Difference, level: str) -> dict[str, Any]:
    incident = pair.either.incident
    location: dict[str, Any] = {"logicalLocations": [{"name": incident, "kind": "incident"}]}
    if uri := next(_files(found, one), ""):
        location["physicalLocation"] = {"artifactLocation": {"uri": uri}, "region": {"startLine": 1}}
    return {
        "ruleId": _rule(one.aspect),
        "ruleIndex": list(Aspect).index(one.aspect),
        "level": level,
        "message": {"text": _text(f"{pair.either.title} ({incident}): {_line(one)}")},
        "locations": [location],
        "partialFingerprints": {"faultlineWhatIf/v1": _text(f"{incident} {one.aspect} {one.what}")},
    }


def _files(found: WhatIf, one: Difference) -> Iterator[str]:
    """The edited files that a difference comes from, relative where they are."""
    for edit in found.edits:
        if edit.file and str(edit) in one.causes:
            yield PurePath(edit.file).as_posix()


def _rule(aspect: Aspect) -> str:
    return f"whatif/{aspect.value.replace('_', '-')}"


def _line(one: Difference) -> str:
    sides = " → ".join(
        f"{text or 'none'}{f' ({why})' if why and why != text else ''}"
        for text, why in ((one.before, one.why_before), (one.after, one.why_after))
    )
    causes = f"; edit: {'; '.join(one.causes)}" if one.causes else ""
    return _text(f"{one.what}: {sides}{causes}")


def _text(text: str) -> str:
    return plain(text, MAX_TEXT)
