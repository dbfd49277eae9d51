"""Messages for invalid settings: every fault once, with its place and a suggestion.

The place is `file:line` of a key of the file, or the name of the environment variable that sets it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from faultline.runtime.secret_files import PREFIX, SECRETS_DIR
from streams.config.plain_faults import model_at, model_of, what
from streams.config.section import ContradictionAt
from streams.config.table_overlay import VARIABLE as CATALOG_DIR
from streams.model.similar import suggestion

Path = tuple[int | str, ...]

SETTINGS_FILE = "FAULTLINE_CONFIG"
"""Where the settings file is."""
NO_SETTINGS = (SETTINGS_FILE, CATALOG_DIR, SECRETS_DIR)
"""Variables of the same prefix that are no settings."""


def fault_lines(
    error: ValidationError, model: type[BaseModel], root: yaml.Node | None, *, besides: Sequence[Path] = ()
) -> list[str]:
    """A line for each fault. Faults that follow from the values at the paths `besides`, known to be wrong, are left out."""
    found = []
    for path, wrong in _faults(error, model, besides):
        line = f"  {_place(path, root)}{shown(path) or 'settings'}: {wrong}"
        found += [line] if line not in found else []
    return found


def wrong_values(error: ValidationError) -> list[Path]:
    """The paths of the values that are wrong by themselves."""
    found = error.errors(include_url=False, include_input=False)
    return [tuple(one["loc"]) for one in found if one["loc"] and one["type"] != "contradictions"]


def contradiction_lines(
    found: Iterable[ContradictionAt], root: yaml.Node | None, *, besides: Sequence[Path] = ()
) -> list[str]:
    """A line for each contradiction of which no key touches one of the values `besides`, which are known to be wrong."""
    return [
        f"  {_place(keys[0], root)}{shown(keys[0])}: {why}"
        for keys, why in found
        if not any(_touches(key, wrong) for key in keys for wrong in besides)
    ]


def no_json(model: type[BaseModel], environment: Mapping[str, str] = os.environ) -> list[str]:
    """A line for each variable of a list, a mapping or a section that is not JSON."""
    found = []
    for name, path in _variables(environment):
        if _holds_many(model, path) and not _is_json(environment[name]):
            found.append(f'  {name}: {shown(path)}: no JSON; a list in a variable is written ["a", "b"]')
    return found


def _holds_many(model: type[BaseModel], path: Path) -> bool:
    within = model_at(model, path[:-1])
    field = within.model_fields.get(str(path[-1])) if within is not None else None
    if field is None:
        return False
    kinds = (field.annotation, *get_args(field.annotation))
    return any(get_origin(kind) in (tuple, Mapping) or model_of(kind) is not None for kind in kinds)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def unknown_variables(model: type[BaseModel], environment: Mapping[str, str] = os.environ) -> list[str]:
    """A line for each variable of our prefix that is no setting: pydantic ignores names it does not know."""
    known = {f"{PREFIX}{name.replace('.', '__').upper()}": name for name in every_key(model)}
    found = []
    for name, (key, *_) in _variables(environment):
        if key not in model.model_fields:
            meant = suggestion(name.upper(), known)
            listed = "" if meant else f"; known are {', '.join(sorted(model.model_fields))}"
            found.append(f"  {name}: there is no setting `{key}`{meant}{listed}")
    return found


def _variables(environment: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The variables of our prefix by name, each with the path of the setting it would set."""
    for name in sorted(environment):
        if name.upper().startswith(PREFIX) and name not in NO_SETTINGS:
            yield name, tuple(name[len(PREFIX) :].lower().split("__"))


def twice(root: yaml.Node, path: Path = ()) -> Iterator[str]:
    """A line for each key that a mapping has twice: YAML would silently take the last one."""
    if isinstance(root, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in root.value:
            here = (*path, str(key.value))
            if str(key.value) in seen:
                yield f"  {_at(key)}: {shown(here)}: the key is there twice"
            seen.add(str(key.value))
            yield from twice(value, here)
    elif isinstance(root, yaml.SequenceNode):
        for number, item in enumerate(root.value):
            yield from twice(item, (*path, number))


def every_key(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """Every key that is no section, with its sections before it."""
    for name, field in model.model_fields.items():
        inner = model_of(field.annotation)
        if inner is not None and isinstance(field.annotation, type):
            yield from every_key(inner, f"{before}{name}.")
        else:
            yield f"{before}{name}"


def shown(path: Path) -> str:
    """`responder.closed_times.0.tz`."""
    return ".".join(map(str, path))


def _faults(
    error: ValidationError, model: type[BaseModel], besides: Sequence[Path]
) -> Iterator[tuple[Path, str]]:
    for one in error.errors(include_url=False):
        path = tuple(one["loc"])
        if one["type"] == "contradictions":
            for keys, why in one["ctx"]["found"]:
                full = [(*path, *key.split(".")) for key in keys]
                if not any(_touches(key, wrong) for key in full for wrong in besides):
                    yield full[0], why
        elif not any(_touches(path, wrong) for wrong in besides):
            yield path, what(one, model, noun="setting", elsewhere=partial(_elsewhere, model))


def _touches(one: Path, other: Path) -> bool:
    short = min(len(one), len(other))
    return tuple(map(str, one[:short])) == tuple(map(str, other[:short]))


def _elsewhere(model: type[BaseModel], name: str) -> str:
    """The whole name of the one setting that is called so."""
    found = [key for key in every_key(model) if key.rsplit(".", 1)[-1] == name]
    return found[0] if len(found) == 1 else ""


def _place(path: Path, root: yaml.Node | None) -> str:
    if variable := _variable(path):
        return f"{variable}: "
    if root is None or not path:
        return ""
    node, key = root, None
    for part in path:
        if isinstance(node, yaml.MappingNode):
            pair = next(((k, v) for k, v in node.value if str(k.value) == str(part)), None)
            if pair is None:
                break
            key, node = pair
        elif isinstance(node, yaml.SequenceNode) and str(part).isdigit() and int(part) < len(node.value):
            key = node = node.value[int(part)]
        else:
            break
    return f"{_at(key)}: " if key is not None else ""


def _variable(path: Path) -> str:
    """The environment variable that sets the value at a path, or a section around it."""
    names = {name.upper(): name for name in os.environ}
    for length in range(len(path), 0, -1):
        name = PREFIX + "__".join(str(part) for part in path[:length]).upper()
        if name in names:
            return names[name]
    return ""


def _at(node: yaml.Node) -> str:
    return f"{node.start_mark.name}:{node.start_mark.line + 1}"
