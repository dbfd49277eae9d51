"""Runbooks from files: the shipped library, and the directories of an installation.

A file is a runbook (`id: …`), an override of one (`override: …`) or a fragment that runbooks include (`fragment: …`). Cases that
test a runbook (`NAME.cases.yaml`) are skipped here. Fragments and cases are beside the runbooks, or in folders of these names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path

import yaml

from runbooks.language.includes_and_overrides import Fragment, Override, included, overridden
from runbooks.language.schema import Runbook
from runbooks.language.yaml_source import at, child, compose, leaves, validated, where
from streams.model.errors import ConfigError

CASES = ".cases.yaml"

LIBRARY = Path(str(resources.files("runbooks") / "library"))
"""The files that ship."""


SourceFile = tuple[str, str | ConfigError]
"""A file's name and its text, or why it cannot be read: that is one fault among the others."""


@dataclass(frozen=True, slots=True)
class RunbookOrigin:
    """Where one value of a runbook comes from: its key, e.g. `steps.drain.deadline_s`, its text, and `file:line:column`."""

    key: str
    value: str
    place: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """A runbook with the YAML tree that it was read from."""

    runbook: Runbook
    root: yaml.MappingNode
    file: str
    overridden_in: str = ""

    def origins(self) -> Iterator[RunbookOrigin]:
        """Every value, in the order of the document."""
        ids = [step.id for step in self.runbook.steps]
        for path, node in leaves(self.root):
            if path[0] == "steps" and len(path) > 1 and isinstance(path[1], int):
                path = (path[0], ids[path[1]], *path[2:])
            yield RunbookOrigin(".".join(map(str, path)), str(node.value), where(node))

    def foreign(self) -> tuple[RunbookOrigin, ...]:
        """The values that are not from the runbook's own file."""
        return tuple(one for one in self.origins() if not one.place.startswith(f"{self.file}:"))

    def node(self, *path: int | str) -> yaml.Node:
        """The node of a value, or the deepest one on the way there."""
        return at(self.root, path)

    def place(self, *path: int | str) -> str:
        """`file:line:column` of a value."""
        return where(self.node(*path))


@dataclass(slots=True)
class RunbookLibrary:
    """The runbooks by id, the fragments by name, and every fault of the files, each `file:line:column: what`."""

    loaded: dict[str, Loaded] = field(default_factory=dict)
    fragments: dict[str, yaml.MappingNode] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def runbooks(self) -> tuple[Runbook, ...]:
        """Sorted by id."""
        return tuple(self.loaded[key].runbook for key in sorted(self.loaded))


def load_text(text: str, file: str) -> Runbook:
    """One runbook that includes nothing. Raises ConfigError with file, line and column of every fault."""
    return validated(Runbook, included(compose(text, file), {}))


def load(directories: Sequence[Path] = (), *, shipped: bool = True) -> tuple[Runbook, ...]:
    """The shipped library and every `*.yaml` of the directories, sorted by id.

    Raises:
        ConfigError: a file cannot be read or is invalid, or an id is used twice; with a line for every fault.
    """
    return _valid(tuple(files(directories, shipped=shipped)))


@lru_cache(maxsize=2)
def _valid(sources: tuple[SourceFile, ...]) -> tuple[Runbook, ...]:
    """The runbooks in the files. Kept for the same texts: replays and the console ask for the library again and again."""
    library = library_of(sources)
    if library.faults:
        raise ConfigError("\n".join(library.faults))
    return library.runbooks


def files(directories: Sequence[Path] = (), *, shipped: bool = True) -> Iterator[SourceFile]:
    """Name and text of every file; for a file or a directory that cannot be read, the error."""
    sources = (
        [(path, str(path.relative_to(LIBRARY.parent))) for path in yaml_files(LIBRARY)] if shipped else []
    )
    for directory in directories:
        if not directory.is_dir():
            why = (
                f"responder.runbook_dirs: {directory} is not a directory; make it, or take it out of the list"
            )
            yield str(directory), ConfigError(why)
            continue
        sources += [(path, str(path)) for path in yaml_files(directory)]
    for path, name in sources:
        if not path.name.endswith(CASES):
            yield name, text_or_fault(path, name)


def text_or_fault(path: Path, name: str) -> str | ConfigError:
    """The text of a file, or the error that `read` raises for it."""
    try:
        return read(path, name)
    except ConfigError as error:
        return error


def read(path: Path, name: str) -> str:
    """The text of a file. Raises ConfigError that names it."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}:1:1: cannot be read: {error}") from error


def library_of(sources: Iterable[SourceFile]) -> RunbookLibrary:
    """The library in files given as (name, text), with every fault of it. Pure: it reads nothing itself."""
    library = RunbookLibrary()
    roots: dict[str, dict[str, yaml.MappingNode]] = {"id": {}, "override": {}, "fragment": {}}
    for file, text in sources:
        try:
            if isinstance(text, ConfigError):
                raise text
            root = compose(text, file)
        except ConfigError as error:
            library.faults.append(str(error))
            continue
        kind = next((key for key in ("override", "fragment") if child(root, key) is not None), "id")
        _add_root(root, kind, roots[kind], library)
    library.fragments = roots["fragment"]
    for root in library.fragments.values():
        try:
            validated(Fragment, root)
        except ConfigError as error:
            library.faults += str(error).splitlines()
    for name, root in roots["id"].items():
        try:
            library.loaded[name] = _assembled(root, roots["override"].pop(name, None), library.fragments)
        except ConfigError as error:
            library.faults += str(error).splitlines()
    for name, root in roots["override"].items():
        library.faults.append(f"{where(at(root, ('override',)))}: override: there is no runbook {name}")
    library.faults += _escalation_faults(library.loaded, set(roots["id"]))
    # Every runbook that includes a fragment reports its faults again.
    library.faults = list(dict.fromkeys(library.faults))
    return library


def _add_root(
    root: yaml.MappingNode, kind: str, known: dict[str, yaml.MappingNode], library: RunbookLibrary
) -> None:
    node = child(root, kind)
    name = node.value if isinstance(node, yaml.ScalarNode) else where(root)
    if name in known:
        here, there = where(node or root), where(known[name]).split(":")[0]
        library.faults.append(f"{here}: {kind} {name} is also in {there}")
    else:
        known[name] = root


def _assembled(
    root: yaml.MappingNode, change: yaml.MappingNode | None, fragments: Mapping[str, yaml.MappingNode]
) -> Loaded:
    whole, file = included(root, fragments), root.start_mark.name
    if change is None:
        return Loaded(validated(Runbook, whole), whole, file)
    validated(Runbook, whole)  # A fault of the runbook itself must not be reported as one of the override.
    validated(Override, change)
    whole = overridden(whole, change)
    return Loaded(validated(Runbook, whole), whole, file, change.start_mark.name)


def _escalation_faults(loaded: Mapping[str, Loaded], known: set[str]) -> Iterator[str]:
    """Escalations to an unknown runbook or in a circle."""
    to = {name: one.runbook.escalation.to for name, one in loaded.items() if one.runbook.escalation}
    for name, first in sorted(to.items()):
        here = f"{loaded[name].place('escalation', 'to')}: escalation.to"
        if first not in known:
            yield f"{here}: there is no runbook {first}"
            continue
        chain = [name]
        while chain[-1] in to and chain.count(chain[-1]) == 1:
            chain.append(to[chain[-1]])
        if chain.count(chain[-1]) > 1 and chain[-1] == name:
            yield f"{here}: escalates in a circle: {' → '.join(chain)}"


def yaml_files(directory: Path) -> list[Path]:
    """The files of a directory of runbooks, with those in its folders `fragments` and `cases`."""
    folders = (directory, directory / "fragments", directory / "cases")
    return [path for folder in folders for path in sorted(folder.glob("*.yaml"))]
