"""What is wrong or hardly meant in files of scenarios, and whether each can be played and gives the same capture twice."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from faultline.lint.table_source import Path_, TableSource, source_of
from runbooks.engine.case_result import CaseResult
from runbooks.language.lint import LintFinding
from sandbox.simulation import background, faults, look_alikes, sites
from sandbox.simulation.campaign import Simulated, simulate
from sandbox.simulation.scenario import Scenario, load
from streams.config.plain_faults import faults as plain_faults
from streams.config.plain_faults import said
from streams.model.errors import BadInput
from streams.model.similar import guess, suggestion


def lint_scenarios(files: Sequence[Path]) -> tuple[list[LintFinding], int]:
    """Every fault and warning of the files, and how many scenarios they have."""
    findings: list[LintFinding] = []
    count = 0
    names: dict[str, str] = {}
    for file in files:
        source, unreadable = source_of(file, None)
        findings += unreadable
        if source is None:
            continue
        items = source.content if isinstance(source.content, list) else [source.content]
        for number, item in enumerate(items):
            path: tuple[int | str, ...] = (number,) if isinstance(source.content, list) else ()
            count += 1
            try:
                scenario = TypeAdapter(Scenario).validate_python(item)
            except ValidationError as error:
                for inside, wrong in plain_faults(error, Scenario):
                    message = said(inside, wrong, item)
                    findings.append(LintFinding(source.place(*path, *inside), "fault", message))
                findings += _unknown_names(item, source, path)
                continue
            place = source.place(*path, "name")
            if (other := names.setdefault(scenario.name, place)) != place:
                findings.append(LintFinding(place, "fault", f"{scenario.name} is there twice: {other}"))
            findings += _unknown_names(item, source, path)
            findings += _of(scenario, source, path)
    return findings, count


def _unknown_names(item: Any, source: TableSource, path: Path_) -> Iterator[LintFinding]:
    """Names of nothing in a scenario, whatever else is wrong in it."""
    for keys, what, known in (
        (("campaign", "kinds"), "kind", faults.KINDS),
        (("look_alikes", "kinds"), "kind", look_alikes.KINDS),
        (("background", "rates"), "background kind", background.rates()),
        (("site",), "site", sites.sites()),
    ):
        value = item
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        names = [value] if isinstance(value, str) else value if isinstance(value, list | Mapping) else []
        for number, name in enumerate(names):
            if isinstance(name, str) and name not in known:
                inside = (
                    () if isinstance(value, str) else (name,) if isinstance(value, Mapping) else (number,)
                )
                message = f"there is no {what} {name!r}{suggestion(name, sorted(known))}"
                yield LintFinding(source.place(*path, *keys, *inside), "fault", message)


def _of(scenario: Scenario, source: TableSource, path: tuple[int | str, ...]) -> Iterator[LintFinding]:
    campaign = scenario.campaign
    if scenario.site is not None and scenario.site not in sites.sites():
        return
    known_kinds = [kind for kind in campaign.kinds if kind in faults.KINDS]
    needs = [faults.needs(kind) for kind in known_kinds]
    if known_kinds and sites.choose(scenario.site, needs, 0, scenario.plant.nodes) is None:
        where = f"at {scenario.site}" if scenario.site else "at any site"
        yield LintFinding(
            source.place(*path, "campaign", "kinds"), "fault", f"no fault of it can happen {where}"
        )
    elif scenario.site is not None:
        features = sites.sites()[scenario.site].features
        for number, kind in enumerate(campaign.kinds):
            if kind in faults.KINDS and not faults.needs(kind) <= features:
                lacks = ", ".join(sorted(faults.needs(kind) - features))
                message = f"{kind} never happens at {scenario.site}, which has no {lacks}"
                yield LintFinding(source.place(*path, "campaign", "kinds", number), "warning", message)
    if not campaign.kinds and not campaign.hours:
        yield LintFinding(
            source.place(*path, "campaign"), "fault", "nothing happens: it has neither kinds nor hours"
        )
    if campaign.kinds and not campaign.faults and not campaign.per_hundred_nodes:
        message = "no fault is injected: faults and per_hundred_nodes are 0"
        yield LintFinding(source.place(*path, "campaign"), "fault", message)
    room = int(scenario.plant.nodes * scenario.jobs.busy)
    if scenario.jobs.busy and min(scenario.jobs.nodes, default=1) > room:
        message = f"no job ever starts: the smallest takes {min(scenario.jobs.nodes)} nodes, and {room} are for jobs"
        yield LintFinding(source.place(*path, "jobs"), "warning", message)


def play_scenarios(
    files: Sequence[Path], names: Collection[str], seed: int, nodes: int | None
) -> Iterator[tuple[str, CaseResult]]:
    """Play each scenario twice. It fails where it finds no place, injects none of its kinds, or differs the second time.

    Raises:
        BadInput: when a file is not valid, or has no scenario of one of the names.
    """
    found = [(str(file), scenario) for file in files for scenario in load(file).values()]
    if missing := sorted(set(names) - {scenario.name for _, scenario in found}):
        known = [one.name for _, one in found]
        raise BadInput("\n".join(f"there is no scenario {name}{guess(name, known)}" for name in missing))
    for file, scenario in found:
        if not names or scenario.name in names:
            yield file, CaseResult(scenario.name, tuple(_differences(scenario.sized(nodes), seed)))


def _differences(scenario: Scenario, seed: int) -> Iterator[str]:
    try:
        first = simulate(scenario, seed)
    except BadInput as error:
        yield str(error)
        return
    played = {fault.kind for fault in first.truth.faults}
    if scenario.campaign.kinds and not played:
        yield "none of its faults was injected"
    if not any(first.capture.records.values()):
        yield "its capture has no record"
    if _digest(first) != _digest(simulate(scenario, seed)):
        yield f"it is another one the second time, with the same seed {seed}"


def _digest(simulated: Simulated) -> str:
    found = hashlib.sha256()
    for topic, records in sorted(simulated.capture.records.items()):
        for record in records:
            found.update(f"{topic} {record.partition} {record.timestamp.isoformat()} ".encode())
            found.update(record.value or b"")
    for line in simulated.truth.lines():
        found.update(repr(line).encode())
    return found.hexdigest()
