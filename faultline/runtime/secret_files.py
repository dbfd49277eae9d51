"""Settings that come from files instead of variables, so that no secret stands in an environment.

A process's environment is inherited by its children, shown by /proc, and kept in crash reports. Two ways around it, for every
setting:

- `FAULTLINE_SECRETS_DIR` names a folder whose files are named as variables (`FAULTLINE_SLACK__TOKEN`): what a Secret with such
  keys looks like when it is mounted.
- `FAULTLINE_SLACK__TOKEN_FILE` names one file with the value, as images of databases have it.

A variable that is set itself goes first. Only the end of the last line is cut off.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic_settings import EnvSettingsSource

from streams.model.errors import ConfigError

PREFIX = "FAULTLINE_"
SECRETS_DIR = "FAULTLINE_SECRETS_DIR"
SUFFIX = "_FILE"
LARGEST_BYTES = 64 * 1024
"""A larger file is no secret but a mistake, such as the folder of a log."""


def variables(known: Collection[str], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment, with what files say in it. `known` are the variables of all settings, in capitals.

    Raises:
        ConfigError: naming the variable of each file that cannot be read, and never what is in it.
    """
    found, faults = dict(environment), list[str]()
    places = {**_of_folder(environment, faults), **_of_variables(known, environment, found)}
    there = {name.upper() for name in found}
    for name, file in places.items():
        if name.upper() in there:
            continue  # a variable goes first
        try:
            found[name] = _read(file)
        except (OSError, ValueError) as error:
            faults.append(f"  {name}: {file}: {_why(error)}")
    if faults:
        raise ConfigError("secrets in files are not usable:\n" + "\n".join(faults))
    return found


def _of_folder(environment: Mapping[str, str], faults: list[str]) -> dict[str, Path]:
    """Files named as variables. Kubernetes mounts a Secret as links into a folder that begins with two dots, which is none."""
    if not (named := environment.get(SECRETS_DIR)):
        return {}
    try:
        files = sorted(Path(named).iterdir())
    except OSError as error:
        faults.append(f"  {SECRETS_DIR}: {named}: {_why(error)}")
        return {}
    return {file.name: file for file in files if file.name.upper().startswith(PREFIX)}


def _of_variables(
    known: Collection[str], environment: Mapping[str, str], found: dict[str, str]
) -> dict[str, Path]:
    """`…_FILE` of a setting. Some settings are themselves called so, and those name a file that is read later."""
    places = {}
    for name, value in environment.items():
        if not name.upper().startswith(PREFIX) or not name.upper().endswith(SUFFIX):
            continue
        if name.upper() not in known and name.upper().removesuffix(SUFFIX) in known:
            del found[name]
            places[name[: -len(SUFFIX)]] = Path(value)
    return places


def _read(file: Path) -> str:
    if not file.is_file():
        raise ValueError("is no regular file")  # a FIFO or a device would be read for ever
    with file.open("rb") as content:
        data = content.read(LARGEST_BYTES + 1)
    if len(data) > LARGEST_BYTES:
        raise ValueError(f"holds more than {LARGEST_BYTES} bytes")
    text = data.decode("utf-8")
    return text.removesuffix("\n").removesuffix("\r")


def _why(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8"
    if isinstance(error, OSError):
        return (error.strerror or type(error).__name__).lower()
    return str(error)


class EnvironmentAndFiles(EnvSettingsSource):
    """pydantic's source of variables, with what files say among them."""

    def __init__(self, settings_cls: Any, found: Mapping[str, str]) -> None:
        super().__init__(settings_cls)
        self.env_vars = {name.lower(): value for name, value in found.items()}
