"""Where a replay's records come from: a capture, an archive, or Kafka itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from faultline.replay.capture import Capture, read
from faultline.runtime.settings import Settings
from streams.model.errors import BadInput

KAFKA = "kafka"


@contextmanager
def opened(
    source: str, settings: Settings, begin: datetime | None = None, end: datetime | None = None
) -> Iterator[Capture]:
    """Open a source; what it needs on disk is gone afterwards.

    Args:
        source: A capture's directory.
        settings: The settings.
        begin: From when on, for a source that is no capture.
        end: Until when.

    Raises:
        BadInput: when it is none of these, or is damaged.
    """
    directory = Path(source)
    if not directory.is_dir():
        raise BadInput(f"{source}: no such directory")
    if begin is not None or end is not None:
        raise BadInput(f"{source} is a capture: it has its own times; --until ends a replay earlier")
    yield read(directory)
