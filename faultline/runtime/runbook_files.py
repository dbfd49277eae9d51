"""Runbook files of a command: the ones it is given, and the built-in library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from runbooks.language.lint import unanswered
from runbooks.language.loader import (
    CASES,
    LIBRARY,
    RunbookLibrary,
    SourceFile,
    files,
    library_of,
    text_or_fault,
    yaml_files,
)
from runbooks.language.schema import Runbook
from streams.config.settings import ResponderSettings
from streams.model.errors import BadInput, ConfigError


def sources(paths: Sequence[Path], *, shipped: bool) -> Iterator[SourceFile]:
    """Name and text of every file in `paths` (files, and directories of them), and of the built-in ones; each file once."""
    own = [path for one in paths for path in _inside(one) if not path.name.endswith(CASES)]
    seen = {path.resolve() for path in own}
    if shipped and not seen & {path.resolve() for path in yaml_files(LIBRARY)}:
        yield from files()
    for path in dict.fromkeys(own):
        yield str(path), text_or_fault(path, str(path))


def read_library(paths: Sequence[Path], *, shipped: bool) -> RunbookLibrary:
    """All runbooks in the files, with their faults."""
    return library_of(sources(paths, shipped=shipped))


def valid_library(paths: Sequence[Path], *, shipped: bool = True) -> RunbookLibrary:
    """The same. Raises BadInput with every fault when there is one."""
    found = read_library(paths, shipped=shipped)
    if found.faults:
        raise BadInput("\n".join(found.faults))
    return found


def of_responder(policy: ResponderSettings) -> tuple[Runbook, ...]:
    """The runbooks that a responder with these settings works with, sorted by id.

    Raises:
        ConfigError: with a line for every fault of the files, and for every approval that no approver could give.
    """
    found = library_of(files(policy.runbook_dirs))
    faults = found.faults or [f"{one.place}: {one.message}" for one in unanswered(found, policy)]
    if faults:
        raise ConfigError("\n".join(faults))
    return found.runbooks


def case_files(paths: Sequence[Path]) -> list[Path]:
    """Every `NAME.cases.yaml` of the paths, or of the library without paths."""
    return [path for one in paths or [LIBRARY] for path in _inside(one) if path.name.endswith(CASES)]


def _inside(path: Path) -> list[Path]:
    return yaml_files(path) if path.is_dir() else [path]
