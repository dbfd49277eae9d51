"""What `configure` sets for the whole process, put back."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from faultline.runtime.logging_setup import FAUST, OURS


@contextmanager
def logging_as_before() -> Iterator[None]:
    """Logging afterwards is as it was before."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    levels = {logger: logger.level for logger in (root, *map(logging.getLogger, (*OURS, *FAUST)))}
    yield
    root.handlers[:] = handlers
    for logger, level in levels.items():
        logger.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
