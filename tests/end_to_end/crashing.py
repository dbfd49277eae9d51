"""A process as `faultline run` starts it, that kills or freezes itself at given points.

python -m tests.end_to_end.crashing NAME KILL|STOP FOLDER LABEL…

Each label counts once for all processes that share FOLDER: the next one passes it. The file it leaves there holds the id of
the process that was hit.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from faultline.runtime.logging_setup import configure
from faultline.runtime.serve import serve
from faultline.runtime.settings import load
from faultline.runtime.wiring import work_of


def mark(folder: Path, label: str) -> Path:
    """The file that says who was hit at `label`."""
    return folder / label.replace(":", "-")


def main(name: str, sends: str, folder: Path, labels: list[str]) -> None:
    """Run; at a label nothing is flushed, closed or said."""

    def at(label: str) -> None:
        if label not in labels:
            return
        try:
            with mark(folder, label).open("x") as found:
                found.write(str(os.getpid()))
        except FileExistsError:
            return
        os.kill(os.getpid(), getattr(signal, f"SIG{sends}"))

    settings = load()
    configure(name, level=settings.log_level, form="json")
    asyncio.run(serve(name, settings, work_of(name, settings, at=at)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
