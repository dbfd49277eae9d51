"""What the runbooks would plan for an incident: of a capture, from JSON, or a sample of an incident type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from faultline.replay.capture import read
from faultline.replay.replay import facts_of as facts_in
from faultline.replay.replay import replay_capture
from faultline.runtime.settings import Settings
from runbooks.engine.dry_run import ACTIONS
from runbooks.engine.run.plan import plan
from runbooks.language.cases import IncidentFixture, InventoryFixture, facts_of_inventory, incident_of
from runbooks.language.conditions import facts_of
from runbooks.language.schema import NODE_WORK, Runbook
from runbooks.language.select import Choice, select, unmet
from streams.config.plain_faults import faults as plain_faults
from streams.config.plain_faults import said
from streams.config.tenant_settings import Tenant
from streams.correlate import Config
from streams.inventory.cluster_view import ClusterView
from streams.model.codec import decode
from streams.model.errors import BadInput
from streams.model.incident import Incident
from streams.model.run import Mode, Plan

ASSUMED = "assumed healthy, with the incident's jobs on its node"


@dataclass(frozen=True, slots=True)
class Planned:
    """A choice and its plan. `refused` says why there is none although a runbook was chosen; `unmet` is by runbook."""

    incident: Incident
    choice: Choice
    inventory: str
    plan: Plan | None = None
    refused: str = ""
    unmet: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Installation:
    """What an installation allows: the mode of its runbooks, and the node work that it has templates for."""

    mode: Mode
    actions: frozenset[str]
    tenants: tuple[Tenant, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> Installation:
        """As the settings describe it."""
        return cls(
            settings.responder.mode,
            frozenset(name for name in NODE_WORK if settings.node_work.offers(name)),
            settings.responder.tenants,
        )


def actions_of(settings: Settings) -> frozenset[str]:
    """What a replay plans with: as an installation with these settings has connectors. Tickets count as configured."""
    return frozenset(ACTIONS) | Installation.of(settings).actions


def planned(
    incident: Incident,
    runbooks: Sequence[Runbook],
    view: ClusterView,
    installation: Installation,
    inventory: str,
) -> Planned:
    """Select a runbook and plan it. Other runs and escalations are not considered."""
    choice = select(incident, runbooks)
    facts = facts_of(incident)
    missing = {book.id: parts for book in runbooks if (parts := unmet(book.match, facts))}
    if choice.runbook is None:
        return Planned(incident, choice, inventory, unmet=missing)
    try:
        bound = plan(
            incident,
            choice.runbook,
            view,
            installation.mode,
            installation.actions,
            tenants=installation.tenants,
        )
    except ValueError as error:
        return Planned(incident, choice, inventory, refused=str(error), unmet=missing)
    return Planned(incident, choice, inventory, bound, unmet=missing)


def from_capture(
    directory: Path, prefix: str, runbooks: Sequence[Runbook], settings: Settings
) -> list[Planned]:
    """For the incidents of a capture, with its inventory as of its end. Raises BadInput when there are none."""
    capture = read(directory)
    decided = replay_capture(
        capture, responder=settings.responder, config=Config.of(settings.correlator), runbooks=runbooks,
        actions=actions_of(settings),
    )  # fmt: skip
    view = ClusterView(capture.meta.cluster)
    for _, key, fact in sorted(facts_in(capture), key=lambda entry: entry[0]):
        if fact is not None:
            view.put(fact)
        else:
            view.forget(key)
    found = [incident for key, incident in sorted(decided.incidents.items()) if key.startswith(prefix)]
    if not found:
        raise BadInput(f"{directory}: no incident" + (f" whose id begins with {prefix}" if prefix else ""))
    return [
        planned(incident, runbooks, view, Installation.of(settings), f"of {directory}") for incident in found
    ]


def from_json(raw: bytes, runbooks: Sequence[Runbook], installation: Installation) -> list[Planned]:
    """For incidents as the command line prints them. Raises BadInput that names what is wrong."""
    return [_on_assumed(one, runbooks, installation) for one in _incidents(raw)]


def from_family(
    family: str,
    root: Sequence[str],
    facts: Sequence[str],
    runbooks: Sequence[Runbook],
    installation: Installation,
) -> list[Planned]:
    """For a sample: a decisive incident with one job on the node at its root, and the given names and facts."""
    names = dict(_pairs(root)) or {"node": "node-03", "gpu": "0000:1b:00"}
    values = {name: _value(text) for name, text in _pairs(facts)}
    job = names.get("job") or "PyTorchJob/research/llm"
    try:
        sample = IncidentFixture.model_validate(
            {"family": family, "root": names, "facts": values, "jobs": [job]}
        )
    except ValidationError as error:
        lines = [said(path, wrong, None) for path, wrong in plain_faults(error, IncidentFixture)]
        raise BadInput("\n".join(lines)) from error
    return [_on_assumed(incident_of(sample), runbooks, installation)]


def _on_assumed(incident: Incident, runbooks: Sequence[Runbook], installation: Installation) -> Planned:
    view = ClusterView(incident.cluster)
    for fact in facts_of_inventory(InventoryFixture(), incident):
        view.put(fact)
    return planned(incident, runbooks, view, installation, ASSUMED)


def _incidents(raw: bytes) -> Iterator[Incident]:
    try:
        documents = [orjson.loads(raw)]
    except orjson.JSONDecodeError:
        documents = [
            _document(line, number) for number, line in enumerate(raw.splitlines(), 1) if line.strip()
        ]
    if not documents:
        raise BadInput("no incident given")
    for number, document in enumerate(documents, 1):
        inner = document.get("incident", document) if isinstance(document, dict) else document
        try:
            yield decode(Incident, orjson.dumps(inner))
        except BadInput as error:
            raise BadInput(f"incident {number}: {error}") from error


def _document(line: bytes, number: int) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"line {number}: not JSON: {error}") from error


def _pairs(given: Sequence[str]) -> Iterator[tuple[str, str]]:
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise BadInput(f"{pair}: expected NAME=VALUE")
        yield name, value


def _value(text: str) -> Any:
    """JSON values as JSON; everything else is text."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
