"""What keeps the tables of a site from being read: all of it at once, where loading them ends at the first fault."""

from __future__ import annotations

from pathlib import Path

from faultline.lint import catalog, rules


def overlay_faults(folder: Path) -> list[str]:
    """A line for each file that lies over no table, cannot be read, or has a value that does not fit; `file:line:column: what`.

    Raises:
        ConfigError: when there is no such folder.
    """
    findings = []
    for kind in (catalog, rules):
        found, unreadable = kind.tables(folder)
        findings += unreadable
        for name, source in found.items():
            if (folder / f"{name}.yaml").is_file():
                findings += kind.value_faults(name, source)
    return list(dict.fromkeys(f"{one.place}: {one.message}" for one in findings))
