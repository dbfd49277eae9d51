"""The one package that the archive needs and the usual installation leaves out."""

from __future__ import annotations

from importlib.util import find_spec

from streams.model.errors import ConfigError


def require_pyarrow(what: str) -> None:
    """Raise ConfigError that says what needs pyarrow and how to install it, where it is missing."""
    if find_spec("pyarrow") is None:
        raise ConfigError(
            f"{what} needs the package 'pyarrow', which this installation leaves out: install 'faultline[archive]'"
        )
