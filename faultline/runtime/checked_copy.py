"""What a process begins anew with: a copy of the files that were checked.

Between the check and the start the files may change again, and what lies there then nobody has checked: a process that works
would end over it, or begin with defaults. So the program that replaces itself hands on what was checked, and sees what lies there
now at its first look.

The copy lies in memory where that can be had: it holds what the settings file holds, and a container often has no other folder
that can be written to.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from faultline.runtime.config_set import ConfigFiles, ConfigSet
from faultline.runtime.settings import Settings, load
from streams.config.table_overlay import COPY, overlay_folder
from streams.model.errors import ConfigError

VARIABLE = "_FAULTLINE_CHECKED_COPY"
"""Names the copy to the program that begins. It is no setting: nobody else sets it."""

_IN_MEMORY = Path("/dev/shm")
_SETTINGS, _OWNERS, _SET, _RUNBOOKS, _CATALOG = "settings.yaml", "owners", "set.json", "runbooks", "catalog"


@dataclass(frozen=True, slots=True)
class Begun:
    """What a process begins with: the settings as they were given, the same with the places of the copies, and the set."""

    settings: Settings
    to_work_with: Settings
    found: ConfigSet


def write_copy(files: ConfigFiles, settings: Settings) -> Path:
    """Write a copy that only this user can read; returns its folder.

    Raises:
        ConfigError: no folder can be written to.
    """
    try:
        is_there = os.access(_IN_MEMORY, os.W_OK)
        folder = Path(tempfile.mkdtemp(prefix="faultline-", dir=_IN_MEMORY if is_there else None))
        named = (
            *((_SETTINGS, one) for one in files.settings.values()),
            *((_OWNERS, one) for one in files.owners.values()),
        )
        to_write = {folder / name: content for name, content in named}
        for number, place in enumerate(settings.responder.runbook_dirs):
            to = folder / _RUNBOOKS / str(number)
            to.mkdir(parents=True)
            to_write |= {
                to / file.relative_to(place): content
                for file, content in files.runbooks.items()
                if file.is_relative_to(place)
            }
        to_write |= {
            folder / _CATALOG / file.relative_to(overlay_folder() or ""): content
            for file, content in files.catalog.items()
        }
        to_write[folder / _SET] = json.dumps(asdict(files.found)).encode()
        for file, content in to_write.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    except OSError as error:
        raise ConfigError(f"what was checked cannot be kept for a new start: {error}") from error
    return folder


def hand_on(folder: Path) -> None:
    """Have the program that replaces this one begin with the copy. That of this one is deleted."""
    drop()
    os.environ[VARIABLE] = str(folder)
    if (folder / _CATALOG).is_dir():
        os.environ[COPY] = str(folder / _CATALOG)  # tables are read while modules are imported


def begun() -> Begun | None:
    """What was handed on to this program; None where it was started by somebody else.

    Raises:
        ConfigError: when the environment has changed so that the settings are not valid any more.
    """
    if (told := os.environ.get(VARIABLE)) is None:
        return None
    folder = Path(told)
    given = folder / _SETTINGS
    settings = load(given if given.exists() else None)
    dirs = tuple(folder / _RUNBOOKS / str(number) for number in range(len(settings.responder.runbook_dirs)))
    work = settings.model_copy(
        update={"responder": settings.responder.model_copy(update={"runbook_dirs": dirs})}
    )
    if (folder / _OWNERS).exists():
        slack = settings.slack.model_copy(update={"owners_file": folder / _OWNERS})
        work = work.model_copy(update={"slack": slack})
    return Begun(settings, work, ConfigSet(**json.loads((folder / _SET).read_text())))


def drop() -> None:
    """Delete the copy that this program began with."""
    if (told := os.environ.pop(VARIABLE, None)) is not None:
        os.environ.pop(COPY, None)
        shutil.rmtree(told, ignore_errors=True)


def without_copy() -> dict[str, str]:
    """The environment of a program that is to see the files as they lie there."""
    return {name: value for name, value in os.environ.items() if name not in (VARIABLE, COPY)}
