"""The two sides of a what-if: the capture as it was decided, and the same with the edit. Faults are found before any replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from faultline.lint.overlay import overlay_faults
from faultline.replay.capture import Capture
from faultline.replay.kafka_capture.surroundings import LIBRARY_PREFIX
from faultline.replay.what_if.edits import Edit, catalog_edits, runbook_edits, setting_edits, topology_edits
from faultline.runtime.runbook_files import sources
from faultline.runtime.settings import Settings, edited, load
from runbooks.language.loader import RunbookLibrary, SourceFile, library_of
from runbooks.language.schema import Runbook
from streams.inventory.topology_file import read_topology
from streams.kafka.topics import INVENTORY
from streams.model.errors import BadInput, ConfigError, FaultlineError

T = TypeVar("T")
Files = tuple[SourceFile, ...]
"""Runbook files as name and text."""


@dataclass(frozen=True, slots=True)
class Side:
    """Everything that one replay decides by; it travels to the process that does."""

    capture: Capture
    settings: Settings
    runbooks: Files
    catalog: Path | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """What the command was given as the edit; empty or None for what stays as it is."""

    settings: tuple[str, ...] = ()
    config: Path | None = None
    runbooks: tuple[Path, ...] = ()
    catalog: Path | None = None
    topology: Path | None = None


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides, and what the second one has that the first has not."""

    before: Side
    after: Side
    edits: tuple[Edit, ...]


def sides(capture: Capture, settings: Settings, given: Given, *, are_chosen: bool = False) -> Sides:
    """Both sides of an edit.

    Args:
        capture: What is replayed. Its own settings and runbooks count before `settings`, unless those `are_chosen`.
        settings: Those of the command.
        given: The edit.
        are_chosen: Whether the command names a settings file.

    Raises:
        BadInput: with a line for every fault of the edit.
    """
    if are_chosen:
        capture = replace(capture, settings=None, runbooks=None)
    own = load(capture.settings) if capture.settings is not None else settings
    before = Side(capture, own, _files_of(capture, own))
    faults: list[str] = []
    changed = _checked(faults, lambda: _settings(own, given), own)
    files = _checked(faults, lambda: _runbooks(before, changed, given), before.runbooks)
    catalog = _checked(faults, lambda: _catalog(given.catalog), None)
    topology = _checked(faults, lambda: _topology(capture, given.topology), None)
    one, other = _library(before.runbooks, faults), _library(files, faults)
    if faults:
        raise BadInput("\n".join(["the edit is not usable:", *dict.fromkeys(faults)]))
    edits = (
        *setting_edits(own, changed, given.config),
        *runbook_edits(_by_id(one), _by_id(other), _places(other)),
        *catalog_edits(catalog),
        *topology_edits(capture.topology, topology, given.topology),
    )
    if not edits:
        return Sides(before, before, ())
    held = capture if topology is None else replace(capture, topology=topology)
    return Sides(before, Side(held, changed, files, catalog), edits)


def _checked(faults: list[str], read: Callable[[], T], otherwise: T) -> T:
    """What `read` returns; its fault is noted, so that all faults are told together."""
    try:
        return read()
    except FaultlineError as error:
        faults += [line if line.startswith(" ") else f"  {line}" for line in str(error).splitlines()]
        return otherwise


def _settings(own: Settings, given: Given) -> Settings:
    return edited(load(given.config) if given.config is not None else own, given.settings)


def _files_of(capture: Capture, settings: Settings) -> Files:
    if capture.runbooks is not None:
        return tuple(sources([capture.runbooks], shipped=False))
    return tuple(sources(settings.responder.runbook_dirs, shipped=True))


def _runbooks(before: Side, changed: Settings, given: Given) -> Files:
    """The files of the second side. What a capture holds of the library that ships stays as it was then."""
    dirs = given.runbooks or changed.responder.runbook_dirs
    if not given.runbooks and dirs == before.settings.responder.runbook_dirs:
        return before.runbooks
    if before.capture.runbooks is None:
        return tuple(sources(dirs, shipped=True))
    shipped = [(name, text) for name, text in before.runbooks if Path(name).name.startswith(LIBRARY_PREFIX)]
    return (*shipped, *sources(dirs, shipped=False))


def _catalog(folder: Path | None) -> Path | None:
    if folder is not None and (faults := overlay_faults(folder)):
        raise ConfigError("\n".join(faults))
    return folder


def _topology(capture: Capture, file: Path | None) -> str | None:
    if file is None:
        return None
    if capture.records.get(INVENTORY.name):
        raise BadInput(
            f"{file}: the capture holds the inventory as it was published, with the topology in it; a topology file counts "
            "for captures of Kubernetes objects"
        )
    try:
        text = file.read_text(encoding="utf-8")
        read_topology(capture.meta.cluster, text, capture.meta.begin)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{file}: cannot be read: {error}") from error
    except BadInput as error:
        raise BadInput(f"{file}: {error}") from error
    return text


def _library(files: Iterable[SourceFile], faults: list[str]) -> RunbookLibrary:
    found = library_of(files)
    faults += [f"  {fault}" for fault in found.faults]
    return found


def _by_id(library: RunbookLibrary) -> dict[str, Runbook]:
    return {name: one.runbook for name, one in library.loaded.items()}


def _places(library: RunbookLibrary) -> dict[str, str]:
    return {name: one.overridden_in or one.file for name, one in library.loaded.items()}


def names_without_effect(edits: Sequence[Edit]) -> list[str]:
    """The settings that are edited, and that no replay decides by."""
    return [edit.where for edit in edits if not edit.has_effect]
