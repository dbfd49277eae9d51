"""What is edited, value by value: settings, runbooks, rows of the tables, the topology."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml
from pydantic import SecretStr

from faultline.runtime.settings import Settings
from runbooks.language.diff import compare
from runbooks.language.schema import Runbook
from streams.config.table_overlay import ROOTS, laid_over, read_yaml, value_changes
from streams.config.yaml_tables import LOADER

REPLAYED = ("correlator", "responder", "notifier")
"""Sections of the settings that a replay decides by."""
MAX_CABLES = 20
"""Changes of a topology that are named."""


class EditKind(StrEnum):
    """Where an edit was made."""

    SETTING = "setting"
    RUNBOOK = "runbook"
    CATALOG = "catalog"
    TOPOLOGY = "topology"


@dataclass(frozen=True, slots=True)
class Edit:
    """One value that is edited. `where` is its key: `responder.kill_switch`, `gpu-off-bus steps.drain`, `xid.yaml codes.79`."""

    kind: EditKind
    where: str
    text: str
    file: str = ""
    """The file it stands in; empty for a setting of the command line."""

    @property
    def has_effect(self) -> bool:
        """Whether a replay decides by it at all."""
        return self.kind is not EditKind.SETTING or self.where.split(".")[0] in REPLAYED

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


def setting_edits(before: Settings, after: Settings, file: Path | None) -> Iterator[Edit]:
    """The settings that differ. Runbooks are compared themselves, not their folders."""
    one, other = dict(_flat(before.model_dump())), dict(_flat(after.model_dump()))
    for key in sorted({*one, *other}):
        if key != "responder.runbook_dirs" and one.get(key) != other.get(key):
            text = f"{_shown(one.get(key))} → {_shown(other.get(key))}"
            yield Edit(EditKind.SETTING, key, text, str(file or ""))


def runbook_edits(
    before: Mapping[str, Runbook], after: Mapping[str, Runbook], files: Mapping[str, str]
) -> Iterator[Edit]:
    """What differs between the runbooks of both sides; `files` has the file of each on the second side."""
    for name in sorted({*before, *after}):
        for change in compare(before.get(name), after.get(name)):
            yield Edit(EditKind.RUNBOOK, f"{name} {change.where}", change.text, files.get(name, ""))


def catalog_edits(folder: Path | None) -> Iterator[Edit]:
    """The values that an overlay changes. Its files are known to lie over tables."""
    for file in sorted(folder.rglob("*.yaml")) if folder is not None else ():
        path = file.relative_to(folder) if folder is not None else file
        table = next(root / path for root in ROOTS if (root / path).is_file())
        before = read_yaml(table, LOADER)
        for where, text in value_changes(before, laid_over(before, read_yaml(file, LOADER))):
            yield Edit(EditKind.CATALOG, f"{path} {where}", text, str(file))


def topology_edits(before: str, after: str | None, file: Path | None) -> Iterator[Edit]:
    """What the topology file says otherwise. Both are known to be YAML."""
    if after is None:
        return
    found = list(value_changes(yaml.load(before, LOADER) or {}, yaml.load(after, LOADER) or {}))
    for where, text in found[:MAX_CABLES]:
        yield Edit(EditKind.TOPOLOGY, f"topology {where}", text, str(file or ""))
    if len(found) > MAX_CABLES:
        yield Edit(EditKind.TOPOLOGY, "topology", f"and {len(found) - MAX_CABLES} more", str(file or ""))


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _shown(value: Any) -> str:
    if isinstance(value, SecretStr):
        return str(value)
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        return f"[{', '.join(map(str, value))}]"
    return "none" if value is None else str(value)
