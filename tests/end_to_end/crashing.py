"""`python -m tests.end_to_end.crashing NAME LABEL`: a process as `faultline run` starts it, that dies at LABEL as by SIGKILL."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from faultline.logs import configure
from faultline.serving import serve
from faultline.settings import load
from faultline.wiring import work_of


def main(name: str, fatal: str) -> None:
    """Run until `fatal` is reached; nothing is flushed, closed or said."""

    def die(label: str) -> None:
        if label == fatal:
            os.kill(os.getpid(), signal.SIGKILL)

    settings = load()
    configure(name, level=settings.log_level, form="json")
    asyncio.run(serve(name, settings, work_of(name, settings, at=die)))


if __name__ == "__main__":
    main(*sys.argv[1:])
