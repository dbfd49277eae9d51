"""Reads the operator's files of templates and diagnostics; every fault is a `ConfigError` that names setting and file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from streams.model.errors import ConfigError

M = TypeVar("M", bound=BaseModel)

MAX_BYTES = 64 * 1024


def files_in(folder: Path, setting: str, what: str, most: int) -> list[Path]:
    """The YAML files of a folder, by name.

    Raises:
        ConfigError: it cannot be read, or has none or more than `most` of them.
    """
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix in (".yaml", ".yml"))
    except OSError as error:
        raise ConfigError(f"{setting}: cannot read {folder}: {error.strerror}") from error
    if not 0 < len(files) <= most:
        raise ConfigError(f"{setting}: {folder} has {len(files)} {what}, 1 to {most} are possible")
    return files


def yaml_in(file: Path, where: str) -> Any:
    """What a file holds; `where` names it in errors.

    Raises:
        ConfigError: it cannot be read, is too long, or is no YAML.
    """
    try:
        raw = file.read_bytes()
        content = yaml.safe_load(raw.decode("utf-8")) if len(raw) <= MAX_BYTES else None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: not YAML: {error}") from error
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{where}: longer than {MAX_BYTES} bytes")
    return content


def checked(model: type[M], content: Any, where: str) -> M:
    """What a file holds, as a model.

    Raises:
        ConfigError: it does not fit; a line for each fault.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        lines = (f"{where}: {'.'.join(map(str, one['loc']))}: {one['msg']}" for one in faults)
        raise ConfigError("\n".join(lines)) from error
