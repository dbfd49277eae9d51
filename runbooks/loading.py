"""Runbooks from files: the shipped library, and the directories of an installation."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from runbooks.documents import parse
from runbooks.model import Runbook
from streams.model.errors import ConfigError


def load_text(text: str, file: str) -> Runbook:
    """One runbook. Raises ConfigError with file, line and column of every fault."""
    return parse(Runbook, text, file)


def load(directories: Sequence[Path] = (), *, shipped: bool = True) -> tuple[Runbook, ...]:
    """The shipped library and every `*.yaml` of the directories, sorted by id.

    Raises:
        ConfigError: a file cannot be read, is not right, or an id is there twice.
    """
    found: dict[str, tuple[Runbook, str]] = {}
    sources = [(path, "library/") for path in _library()] if shipped else []
    for directory in directories:
        if not directory.is_dir():
            raise ConfigError(f"responder.runbook_dirs: {directory} is not a directory")
        sources += [(path, f"{directory}/") for path in sorted(directory.glob("*.yaml"))]
    for path, where in sources:
        name = where + path.name
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{name}: cannot be read: {error}") from error
        runbook = load_text(text, name)
        if runbook.id in found:
            raise ConfigError(f"{name}:1:1: id {runbook.id} is also in {found[runbook.id][1]}")
        found[runbook.id] = (runbook, name)
    return tuple(found[key][0] for key in sorted(found))


def _library() -> list[Path]:
    folder = Path(str(resources.files("runbooks") / "library"))
    return sorted(folder.glob("*.yaml"))
