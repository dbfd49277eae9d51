"""Whether the test machinery as it is now has passed its own tests on this machine.

The servers, emulators and stand-ins that the tests use are tested too. Those tests (marked `machinery`) take minutes and can
fail only when the machinery changed, so `make test`, when it passes with all of them, leaves a note beside the testbed's
builds, under a digest of the machinery. While the note is there, they run at night only.
"""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from pathlib import Path

from tests.testbed.parts import home

_ROOT = Path(__file__).parents[2]
_WHAT_IT_IS = ("tests/testbed", "tests/sandbox/emulated", "sandbox/emulated", "requirements.lock")


@cache
def digest() -> str:
    """Return a digest over the sources of the machinery and of its tests, what they depend on, and the version of Python."""
    total = hashlib.sha256(sys.version.encode())
    for place in map(_ROOT.joinpath, _WHAT_IT_IS):
        files = [place] if place.is_file() else sorted(place.rglob("*"))
        assert files, f"{place} is gone: where is that part of the machinery now?"
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                total.update(str(file.relative_to(_ROOT)).encode() + b"\0" + file.read_bytes())
    return total.hexdigest()


def tested() -> bool:
    """Tell whether this machinery has passed its tests here."""
    return _note(digest()).exists()


def note_tested(machine: str) -> None:
    """Leave the note that the machinery of this digest has."""
    _note(machine).parent.mkdir(parents=True, exist_ok=True)
    _note(machine).touch()


def _note(machine: str) -> Path:
    return home() / "machinery-tested" / machine
