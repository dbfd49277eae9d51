"""The environment that the Quix Streams app runs in: made once from the package index, beside the testbed's builds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.figures import progress
from tests.testbed import parts

REQUIREMENTS = ("quixstreams>=3.28,<3.29",)


def python() -> Path:
    """The environment's interpreter; installs it when it is not there."""
    home = parts.home() / "quix"
    stamp, interpreter = home / "stamp", home / "bin" / "python"
    wanted = "\n".join((*REQUIREMENTS, sys.version))
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        progress(f"installing {', '.join(REQUIREMENTS)} into {home} …")
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        subprocess.run(
            [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS],
            check=True,
            stdout=sys.stderr,
        )
        stamp.write_text(wanted)
    return interpreter


def version() -> str:
    """The version of Quix Streams in it."""
    asked = "from importlib.metadata import version; print(version('quixstreams'))"
    answer = subprocess.run([python(), "-c", asked], capture_output=True, text=True, check=True)
    return answer.stdout.strip()
