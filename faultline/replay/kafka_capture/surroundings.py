"""What decides besides the records: the settings, the runbooks as they are loaded, the topology, and the versions of all."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from importlib import metadata, resources
from pathlib import Path
from typing import Any, get_args

import yaml

from faultline.replay.capture import RUNBOOKS, SETTINGS, TOPOLOGY
from faultline.replay.manifest import Versions
from faultline.runtime.settings import Settings
from runbooks.language.loader import files, library_of
from runbooks.language.schema import NODE_WORK
from streams.config.connector_settings import NodeWorkSettings
from streams.config.notifier_settings import PAGES, NotifierSettings
from streams.config.power_settings import HookAction
from streams.config.settings import ResponderSettings
from streams.config.table_overlay import overlay_files
from streams.model.digest import digest
from streams.model.errors import ConfigError

DECIDES: Mapping[str, frozenset[str]] = {
    "correlator": frozenset({"retention_minutes", "hang_settle_s", "application_settle_s", "node_settle_s"}),
    "responder": frozenset(
        {
            "mode",
            "kill_switch",
            "blast_radius",
            "breaker",
            "protect",
            "closed_times",
            "notices",
            "rollout",
            "freshness_s",
        }
        | {"tickets_per_10_min", "snooze_max_s", "approval_expiry_s"}
        | {"approvers", "approval_groups", "people", "approval_classes"}
    ),
}
"""The settings that a replay decides by, as they are. Of `node_work` and `notifier` it needs only what is offered, and how pages
are grouped. Nothing else is written: a capture is given away, and any setting may name a host, a path or a secret."""
SINK = frozenset({"kind", "page_shadow", "group_window_s"})
_LEFT_OUT = "left-out-of-captures"
"""Stands where a value is needed for the file to be loaded, and nothing is decided by what it is."""

LIBRARY_PREFIX = "00-"
"""How the names of the runbooks begin that ship; those of the folders of an installation follow with 01- and so on."""

Text = Callable[[str], str]


def write_surroundings(directory: Path, settings: Settings, change: Text) -> None:
    """Write settings, runbooks and topology into a capture, each text as `change` has it.

    Raises:
        ConfigError: when a file that the settings name cannot be read.
    """
    (directory / SETTINGS).write_text(
        yaml.safe_dump(_changed(plain_settings(settings), change), sort_keys=False)
    )
    if topology := topology_of(settings):
        (directory / TOPOLOGY).write_text(change(topology))
    _write_runbooks(directory / RUNBOOKS, settings.responder, change)


def _changed(value: Any, change: Text) -> Any:
    """Settings with every text as `change` has it. The names of settings are among the words that it leaves."""
    match value:
        case str():
            return change(value)
        case list():
            return [_changed(one, change) for one in value]
        case dict():
            return {change(name): _changed(one, change) for name, one in value.items()}
    return value


def topology_of(settings: Settings) -> str:
    """The topology file; empty without one. Raises ConfigError when it cannot be read."""
    path = settings.inventory.topology_file
    try:
        return path.read_text(encoding="utf-8") if path is not None else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"inventory.topology_file: {path}: {error}") from error


def versions(policy: ResponderSettings) -> Versions:
    """Those of this program, its catalog, and the runbooks that it would work with."""
    catalog = resources.files("streams.detect") / "catalog"
    rows = [*sorted(Path(str(catalog)).rglob("*.yaml")), *overlay_files()]
    return Versions(
        metadata.version("faultline"),
        digest(*(part for path in rows for part in (path.name, path.read_text(encoding="utf-8")))),
        {book.id: str(book.revision) for book in library_of(files(policy.runbook_dirs)).runbooks},
    )


def plain_settings(settings: Settings) -> dict[str, Any]:
    """What was set and decides, ready for a YAML file that can be loaded: no secret, no connection, no path."""
    found: dict[str, Any] = {"cluster": settings.cluster}
    for section, names in DECIDES.items():
        found[section] = getattr(settings, section).model_dump(
            mode="json", exclude_defaults=True, include=set(names)
        )
    found["node_work"] = _offered(settings.node_work)
    found["notifier"] = _pagers(settings.notifier)
    return {section: value for section, value in found.items() if value}


def _offered(work: NodeWorkSettings) -> dict[str, Any]:
    """Settings that offer the same actions."""
    places = {"diagnose_nodes": "pairs", "apply_template": "object_templates"}
    offered = [action for action in sorted(NODE_WORK) if work.offers(action)]
    hooked = [action for action in offered if action in get_args(HookAction)]
    made: dict[str, Any] = {places.get(name, name): _LEFT_OUT for name in offered if name not in hooked}
    if hooked:
        secret = f"whsec_{base64.b64encode(_LEFT_OUT.ljust(24).encode()).decode()}"
        made["hook"] = {"url": f"https://{_LEFT_OUT}.invalid", "secret": secret, "actions": hooked}
    return made


def _pagers(notifier: NotifierSettings) -> dict[str, Any]:
    """Settings with sinks that page the same."""
    sinks = {
        name: sink.model_dump(mode="json", include=set(SINK)) | {"key": _LEFT_OUT}
        for name, sink in notifier.sinks.items()
        if sink.kind in PAGES
    }
    return {"sinks": sinks} if sinks else {}


def _write_runbooks(folder: Path, policy: ResponderSettings, change: Text) -> None:
    """All files in one folder, with the number of the folder they are from: names may repeat."""
    folder.mkdir(exist_ok=True)
    sources = [((), True), *(((path,), False) for path in policy.runbook_dirs)]
    for number, (paths, shipped) in enumerate(sources):
        for name, text in files(paths, shipped=shipped):
            if isinstance(text, ConfigError):
                raise text
            (folder / f"{number:02}-{Path(name).name}").write_text(change(text) if number else text)
