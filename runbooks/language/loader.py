"""Runbooks from files: the shipped library, and the directories of an installation.

A file is a runbook (`id: …`), an override of one (`override: …`) or a fragment that runbooks include (`fragment: …`). Cases that
test a runbook (`NAME.cases.yaml`) are left out here. Fragments and cases lie beside the runbooks, or in folders of these names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class RunbookOrigin:
    """Where one value of a runbook comes from: its key, e.g. `steps.drain.deadline_s`, its text, and `file:line:column`."""

    key: str
    value: str
    place: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """A runbook with the tree it was made of."""

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
    """All that was read: the runbooks by id, and every fault of the files, each `file:line:column: what`."""

    books: dict[str, Loaded] = field(default_factory=dict)
    fragments: dict[str, yaml.MappingNode] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def runbooks(self) -> tuple[Runbook, ...]:
        """Sorted by id."""
        return tuple(self.books[key].runbook for key in sorted(self.books))


def load_text(text: str, file: str) -> Runbook:
    """One runbook that includes nothing. Raises ConfigError with file, line and column of every fault."""
    return validated(Runbook, included(compose(text, file), {}))


def load(directories: Sequence[Path] = (), *, shipped: bool = True) -> tuple[Runbook, ...]:
    """The shipped library and every `*.yaml` of the directories, sorted by id.

    Raises:
        ConfigError: a file cannot be read, is not right, or an id is there twice; with a line for every fault.
    """
    shelf = library_of(files(directories, shipped=shipped))
    if shelf.faults:
        raise ConfigError("\n".join(shelf.faults))
    return shelf.runbooks


def files(directories: Sequence[Path] = (), *, shipped: bool = True) -> Iterator[tuple[str, str]]:
    """Name and text of every file. Raises ConfigError for one that cannot be read."""
    sources = [(path, str(path.relative_to(LIBRARY.parent))) for path in inside(LIBRARY)] if shipped else []
    for directory in directories:
        if not directory.is_dir():
            raise ConfigError(f"responder.runbook_dirs: {directory} is not a directory")
        sources += [(path, str(path)) for path in inside(directory)]
    for path, name in sources:
        if not path.name.endswith(CASES):
            yield name, read(path, name)


def read(path: Path, name: str) -> str:
    """The text of a file. Raises ConfigError that names it."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}: cannot be read: {error}") from error


def library_of(sources: Iterable[tuple[str, str]]) -> RunbookLibrary:
    """Everything in the files, and everything that is wrong with them. Pure: it reads nothing itself."""
    shelf = RunbookLibrary()
    roots: dict[str, dict[str, yaml.MappingNode]] = {"id": {}, "override": {}, "fragment": {}}
    for file, text in sources:
        try:
            root = compose(text, file)
        except ConfigError as error:
            shelf.faults.append(str(error))
            continue
        kind = next((key for key in ("override", "fragment") if child(root, key) is not None), "id")
        _shelve(root, kind, roots[kind], shelf)
    shelf.fragments = roots["fragment"]
    for root in shelf.fragments.values():
        try:
            validated(Fragment, root)
        except ConfigError as error:
            shelf.faults += str(error).splitlines()
    for name, root in roots["id"].items():
        try:
            shelf.books[name] = _assembled(root, roots["override"].pop(name, None), shelf.fragments)
        except ConfigError as error:
            shelf.faults += str(error).splitlines()
    for name, root in roots["override"].items():
        shelf.faults.append(f"{where(at(root, ('override',)))}: override: there is no runbook {name}")
    shelf.faults += _ladder_faults(shelf.books, set(roots["id"]))
    # A fault in a fragment is met again in every runbook that includes it.
    shelf.faults = list(dict.fromkeys(shelf.faults))
    return shelf


def _shelve(
    root: yaml.MappingNode, kind: str, known: dict[str, yaml.MappingNode], shelf: RunbookLibrary
) -> None:
    node = child(root, kind)
    name = node.value if isinstance(node, yaml.ScalarNode) else where(root)
    if name in known:
        here, there = where(node or root), where(known[name]).split(":")[0]
        shelf.faults.append(f"{here}: {kind} {name} is also in {there}")
    else:
        known[name] = root


def _assembled(
    root: yaml.MappingNode, change: yaml.MappingNode | None, fragments: Mapping[str, yaml.MappingNode]
) -> Loaded:
    whole, file = included(root, fragments), root.start_mark.name
    if change is None:
        return Loaded(validated(Runbook, whole), whole, file)
    validated(Runbook, whole)  # What is wrong without the override is not laid to it.
    validated(Override, change)
    whole = overridden(whole, change)
    return Loaded(validated(Runbook, whole), whole, file, change.start_mark.name)


def _ladder_faults(books: Mapping[str, Loaded], named: set[str]) -> Iterator[str]:
    """Escalations that lead nowhere or in a circle."""
    to = {name: one.runbook.escalation.to for name, one in books.items() if one.runbook.escalation}
    for name, next_rung in sorted(to.items()):
        here = f"{books[name].place('escalation', 'to')}: escalation.to"
        if next_rung not in named:
            yield f"{here}: there is no runbook {next_rung}"
            continue
        climbed = [name]
        while climbed[-1] in to and climbed.count(climbed[-1]) == 1:
            climbed.append(to[climbed[-1]])
        if climbed.count(climbed[-1]) > 1 and climbed[-1] == name:
            yield f"{here}: it leads in a circle: {' → '.join(climbed)}"


def inside(directory: Path) -> list[Path]:
    """The files of a directory of runbooks, with those in its folders `fragments` and `cases`."""
    folders = (directory, directory / "fragments", directory / "cases")
    return [path for folder in folders for path in sorted(folder.glob("*.yaml"))]
