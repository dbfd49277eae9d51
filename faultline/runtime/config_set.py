"""The files that a process decides by, as one set with one version: settings, runbooks, catalog overlay, owners of jobs.

They come as a directory that something else writes: a mounted ConfigMap (kubelet swaps the link `..data`), git-sync (it swaps a
link as well), rsync or an editor (files one after another, half of them for a while). So the version is a digest over all names
and contents, read together, and whoever loads the files reads it again afterwards: equal digests mean that nothing moved.

A file `REVISION` beside the settings says which commit this is. Where there is one, its writer writes it last, and a set counts
as new only when it changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from faultline.runtime.settings import Settings, settings_file
from runbooks.language.loader import yaml_files
from streams.config.table_overlay import overlay_files
from streams.model.errors import ConfigError

REVISION = "REVISION"
MAX_BYTES = 32 * 1024 * 1024
"""Of all files together: they are read every few seconds."""

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/@:+-]{0,63}")


@dataclass(frozen=True, slots=True)
class ConfigSet:
    """Settings, runbooks and catalog as they lay there at one time: a digest of each part, and the revision."""

    settings: str
    runbooks: str
    catalog: str
    owners: str
    revision: str = ""

    @property
    def has_files(self) -> bool:
        """Whether there is any file to decide by; settings may come from the environment alone."""
        return bool(self.settings or self.runbooks or self.catalog or self.owners)

    @property
    def digest(self) -> str:
        """Twelve hex digits over all parts; the revision is not among them."""
        parts = (self.settings, self.runbooks, self.catalog, self.owners)
        return sha256("\n".join(parts).encode()).hexdigest()[:12]

    @property
    def version(self) -> str:
        """`digest`, or `digest+revision`: what runs carry."""
        return f"{self.digest}+{self.revision}" if self.revision else self.digest


Contents = Mapping[Path, bytes]


@dataclass(frozen=True, slots=True)
class ConfigFiles:
    """The files of a set with their contents, read once, and the set that they make."""

    settings: Contents
    runbooks: Contents
    catalog: Contents
    owners: Contents
    found: ConfigSet


def read_set(path: Path | None, settings: Settings) -> ConfigSet:
    """The set as it lies there now, by the places that these settings name.

    Raises:
        ConfigError: when a file cannot be read, as while it is replaced, or there is too much.
    """
    return read_files(path, settings).found


def read_files(path: Path | None, settings: Settings) -> ConfigFiles:
    """The same, with what is in the files.

    Raises:
        ConfigError: when a file cannot be read, as while it is replaced, or there is too much.
    """
    named, left = settings_file(path), [MAX_BYTES]
    owners = settings.slack.owners_file
    books = (file for folder in settings.responder.runbook_dirs for file in yaml_files(folder))
    settings_now = _read([named] if named is not None else [], left)
    runbooks, catalog = _read(books, left), _read(overlay_files(), left)
    owners_now = _read([owners] if owners is not None else [], left)
    found = ConfigSet(
        settings=_digest(settings_now),
        runbooks=_digest(runbooks),
        catalog=_digest(catalog),
        owners=_digest(owners_now),
        revision=_revision(named),
    )
    return ConfigFiles(settings_now, runbooks, catalog, owners_now, found)


def _read(files: Iterable[Path], left: list[int]) -> Contents:
    """The contents of the files; `left` is how many bytes may still be read."""
    contents: dict[Path, bytes] = {}
    for file in files:
        try:
            contents[file] = file.read_bytes()
        except OSError as error:
            raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
        left[0] -= len(contents[file])
        if left[0] < 0:
            raise ConfigError(f"settings, runbooks and catalog are larger than {MAX_BYTES} bytes together")
    return contents


def _digest(contents: Contents) -> str:
    """A digest of names and contents, empty without files."""
    made = sha256()
    for file, content in contents.items():
        name = str(file).encode()
        made.update(b"%d %d\n" % (len(name), len(content)) + name + content)
    return made.hexdigest() if contents else ""


def _revision(settings: Path | None) -> str:
    """The first line of the file REVISION beside the settings, else the commit in the path that a link of git-sync leads to;
    empty where there is neither."""
    if settings is None:
        return ""
    file = settings.parent / REVISION
    try:
        line = (file.read_text(encoding="utf-8").splitlines() or [""])[0].strip()
    except FileNotFoundError:
        commits = (part for part in settings.resolve().parts if _COMMIT.fullmatch(part))
        return next(commits, "")[:12]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    if not _REVISION.fullmatch(line):
        raise ConfigError(f"{file}: {line[:80]!r} is no revision: up to 64 letters, digits and ._/@:+-")
    return line
