"""Checks a kubeconfig with errors that name the setting: the client reports a missing file unclearly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from streams.model.errors import ConfigError
from streams.model.similar import suggestion


def check(file: Path, context: str | None) -> None:
    """Check that the file exists and has the context.

    Raises:
        ConfigError: naming the setting, and the existing contexts.
    """
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"kubernetes.kubeconfig: cannot read {file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"kubernetes.kubeconfig: {file} is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"kubernetes.kubeconfig: {file} is not a kubeconfig")
    known = [str(entry["name"]) for entry in _listed(content.get("contexts")) if "name" in entry]
    wanted = context or content.get("current-context")
    named = ", ".join(sorted(known)) or "none"
    if not wanted:
        raise ConfigError(
            f"kubernetes.kubeconfig: {file} has no current-context; set kubernetes.context, known are {named}"
        )
    if wanted not in known:
        key = "kubernetes.context" if context else "kubernetes.kubeconfig: its current-context"
        raise ConfigError(
            f"{key}: {file} has no context {wanted}; known are {named}{suggestion(str(wanted), known)}"
        )


def _listed(entries: Any) -> list[dict[str, Any]]:
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
