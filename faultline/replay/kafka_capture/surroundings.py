"""What decides besides the records: the settings, the runbooks as they are loaded, the topology, and the versions of all."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, SecretStr

from faultline.replay.capture import RUNBOOKS, SETTINGS, TOPOLOGY
from faultline.replay.manifest import Versions
from faultline.runtime.settings import Settings
from runbooks.language.loader import files, library_of
from streams.config.settings import ResponderSettings
from streams.config.table_overlay import overlay_files
from streams.model.digest import digest
from streams.model.errors import ConfigError

_CONNECTIONS = frozenset({"kafka", "slack", "tickets", "jira", "posts", "gateway", "console"})
"""Sections that say where things are and who may log in: nothing is decided by them, and a capture is given away."""
_PLACES = {"responder": {"runbook_dirs"}, "inventory": {"topology_file", "lldp_folder"}}
"""Settings that name files and folders; their content is in the capture."""

LIBRARY_PREFIX = "00-"
"""How the names of the runbooks begin that ship; those of the folders of an installation follow with 01- and so on."""

Text = Callable[[str], str]


def write_surroundings(directory: Path, settings: Settings, change: Text) -> None:
    """Write settings, runbooks and topology into a capture, each text as `change` has it.

    Raises:
        ConfigError: when a file that the settings name cannot be read.
    """
    (directory / SETTINGS).write_text(change(yaml.safe_dump(plain_settings(settings), sort_keys=False)))
    if topology := topology_of(settings):
        (directory / TOPOLOGY).write_text(change(topology))
    _write_runbooks(directory / RUNBOOKS, settings.responder, change)


def topology_of(settings: Settings) -> str:
    """The topology file; empty without one. Raises ConfigError when it cannot be read."""
    path = settings.inventory.topology_file
    try:
        return path.read_text() if path is not None else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"inventory.topology_file: {path}: {error}") from error


def versions(policy: ResponderSettings) -> Versions:
    """Those of this program, its catalog, and the runbooks that it would work with."""
    catalog = resources.files("streams.detect") / "catalog"
    rows = [*sorted(Path(str(catalog)).rglob("*.yaml")), *overlay_files()]
    return Versions(
        metadata.version("faultline"),
        digest(*(part for path in rows for part in (path.name, path.read_text()))),
        {book.id: str(book.revision) for book in library_of(files(policy.runbook_dirs)).runbooks},
    )


def plain_settings(settings: Settings) -> dict[str, Any]:
    """What was set and decides, ready for a YAML file that can be loaded: no secret, no connection, no path."""
    found = _plain(settings)
    return {
        section: value
        for section, value in found.items()
        if section not in _CONNECTIONS and (value or not isinstance(value, dict))
    }


def _plain(section: BaseModel, path: str = "") -> dict[str, Any]:
    dumped = section.model_dump(mode="json", exclude_defaults=True)
    for name in list(dumped):
        value = getattr(section, name)
        if isinstance(value, SecretStr) or name in _PLACES.get(path, ()):
            del dumped[name]
        elif isinstance(value, BaseModel):
            dumped[name] = _plain(value, name)
    return dumped


def _write_runbooks(folder: Path, policy: ResponderSettings, change: Text) -> None:
    """All files in one folder, with the number of the folder they are from: names may repeat."""
    folder.mkdir(exist_ok=True)
    sources = [((), True), *(((path,), False) for path in policy.runbook_dirs)]
    for number, (paths, shipped) in enumerate(sources):
        for name, text in files(paths, shipped=shipped):
            (folder / f"{number:02}-{Path(name).name}").write_text(change(text) if number else text)
