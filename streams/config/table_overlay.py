"""Rows of a site, laid over the tables that ship: a folder with the same tree as the tables, and only what differs in its files.

`FAULTLINE_CATALOG_DIR` names the folder. It is a variable and no setting, because tables are read before settings are; every
process of an installation needs the same. A file has the path of its table below `streams/detect/catalog` (`xid.yaml`,
`lines/kernel.yaml`) or below `streams/correlate` (`policy/families.yaml`). What it says is laid over the table:

- mappings key by key;
- a list of rows by their `id`, or by their `codes`: a row with the same one gets the given keys, a new one is added;
- everything else is replaced.

The result is validated like the table that ships.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from streams.model.errors import ConfigError
from streams.model.similar import suggestion

VARIABLE = "FAULTLINE_CATALOG_DIR"
COPY = "_FAULTLINE_CATALOG_COPY"
"""Where tables are read from in a process that began anew: the rows that were checked, whatever lies in the folder by now."""

_STREAMS = Path(__file__).parents[1]
ROOTS = (_STREAMS / "detect" / "catalog", _STREAMS / "correlate")
"""Folders of the tables that can be overlaid, each with its own names."""


def overlay_of(table: Path) -> Path | None:
    """The file that is laid over a table; None where there is none."""
    folder = os.environ.get(COPY) or os.environ.get(VARIABLE)
    if not folder:
        return None
    for root in ROOTS:
        if table.is_relative_to(root):
            path = table.relative_to(root)
            given = (Path(folder) / name for name in (path, flat_name(path)))
            return next((file for file in given if file.is_file()), None)
    return None


def overlay_folder() -> Path | None:
    """The folder of this site's overlay; None without one."""
    folder = os.environ.get(VARIABLE)
    return Path(folder) if folder else None


def flat_name(table: Path) -> str:
    """The name of a table where there are no folders, as in a ConfigMap: `lines.nccl.yaml` for `lines/nccl.yaml`."""
    return ".".join(table.parts)


def overlay_files() -> list[Path]:
    """The files of this site's overlay, sorted; none without one."""
    folder = os.environ.get(VARIABLE)
    return tables_in(Path(folder)) if folder else []


def tables_in(folder: Path) -> list[Path]:
    """The files of an overlay, sorted. A mounted ConfigMap has its files a second time, in a folder whose name begins with two
    points, at which its link `..data` points: those are left out."""
    found = folder.rglob("*.yaml")
    return sorted(
        file for file in found if not any(p.startswith("..") for p in file.relative_to(folder).parts)
    )


def unknown_files(folder: Path) -> list[str]:
    """A line for each file of an overlay that lies over no table; one for a folder without any file.

    Raises:
        ConfigError: when there is no such folder.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a directory")
    known = {name for table in tables() for name in (str(table), flat_name(table))}
    files = [str(file.relative_to(folder)) for file in tables_in(folder)]
    if not files:
        return [f"{folder}: no *.yaml in it"]
    return [
        f"{folder / file}: there is no table {file}{suggestion(file, known)}"
        for file in files
        if file not in known
    ]


def tables() -> Iterator[Path]:
    """The path of every table that can be overlaid, below its root."""
    for root in ROOTS:
        yield from (file.relative_to(root) for file in sorted(root.rglob("*.yaml")))


def laid_over(table: Any, given: Any) -> Any:
    """A table, as it is read, with an overlay on it. Neither is changed."""
    if isinstance(table, Mapping) and isinstance(given, Mapping):
        return {**table, **{key: laid_over(table.get(key), value) for key, value in given.items()}}
    if _has_rows(table) and _has_rows(given):
        for key in ("id", "codes"):
            if all(key in row for row in given):
                return _by_codes(table, given) if key == "codes" else _by_id(table, given)
    return given


def value_changes(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The values that differ between two documents: the path of each, and `before → after`. Rows are known by id or code."""
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(key for key in after if key not in before)]:
            yield from value_changes(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
    elif _has_rows(before) and _has_rows(after):
        yield from value_changes(_named(before), _named(after), path)
    else:
        yield path, f"{_shown(before)} → {_shown(after)}"


def read_yaml(path: Path, loader: type[yaml.SafeLoader]) -> Any:
    """The content of a file. Raises ConfigError that names it."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path.name} cannot be read: {error}") from error


def _has_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _by_id(table: list[Any], given: list[Any]) -> list[Any]:
    left = {row["id"]: row for row in given}
    rows = [laid_over(row, left.pop(row["id"], {})) if row.get("id") in left else row for row in table]
    return [*rows, *left.values()]


def _by_codes(table: list[Any], given: list[Any]) -> list[Any]:
    """Rows of codes: a code that is given a row leaves the one that it shares with others."""
    taken = {code: row for row in given for code in row["codes"]}
    rows: list[Any] = []
    known: set[Any] = set()
    for row in table:
        codes = row.get("codes", [])
        known.update(codes)
        if not taken.keys() & set(codes):
            rows.append(row)
            continue
        if kept := [code for code in codes if code not in taken]:
            rows.append({**row, "codes": kept})
        rows += [laid_over(row, {**taken[code], "codes": [code]}) for code in codes if code in taken]
    rows += [{**row, "codes": new} for row in given if (new := [c for c in row["codes"] if c not in known])]
    return rows


def _named(rows: list[Any]) -> Mapping[str, Any]:
    """Rows by what they are known by: their id, each of their codes, else their place."""
    found: dict[str, Any] = {}
    for number, row in enumerate(rows, 1):
        if "codes" in row:
            found |= {str(code): {k: v for k, v in row.items() if k != "codes"} for code in row["codes"]}
        else:
            found[str(row.get("id", number))] = row
    return found


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return str(value)
