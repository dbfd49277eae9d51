"""Which release is the previous one, and its code in a folder."""

from __future__ import annotations

import os
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parents[2]

BEFORE_THE_FIRST_TAG = "0e366cbc2bfdd29381c992ad528d18acff2497a1"
"""What counts as the previous release until one is tagged."""

_PARTS = ("streams", "connectors", "runbooks", "faultline", "sandbox", "pyproject.toml")


class NoPreviousRelease(Exception):
    """This checkout does not hold it: a shallow clone, or an archive without history."""


def previous() -> str:
    """The commit of the previous release: `UPGRADE_FROM`, else the last tag `v…` before this commit, else a fixed one.

    Raises:
        NoPreviousRelease: when this checkout does not have that commit.
    """
    wanted = os.environ.get("UPGRADE_FROM") or _last_tag() or BEFORE_THE_FIRST_TAG
    found = _git("rev-parse", "--verify", "--quiet", f"{wanted}^{{commit}}")
    if found is None:
        raise NoPreviousRelease(f"this checkout does not have {wanted}: fetch the whole history, with tags")
    return found.decode().strip()


def unpack(commit: str, folder: Path) -> Path:
    """Write the code of a commit to `folder` and return that."""
    packed = _git("archive", "--format=tar", commit, *_PARTS)
    if packed is None:
        raise NoPreviousRelease(f"git archive {commit} failed")
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _last_tag() -> str | None:
    # HEAD^: at the commit of a release the previous one is the tag before its own.
    found = _git("describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^")
    return found.decode().strip() if found else None


def _git(*arguments: str) -> bytes | None:
    """What git printed; None when it failed."""
    try:
        result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return result.stdout if result.returncode == 0 else None
