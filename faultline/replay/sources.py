"""Where a replay's records come from: a capture, an archive, or Kafka itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from faultline.replay.bar import Bar, no_bar
from faultline.replay.capture import META, Capture, read
from faultline.replay.manifest import MANIFEST
from faultline.runtime.settings import Settings
from streams.model.clock import EPOCH, rfc3339, utc_now
from streams.model.errors import BadInput

KAFKA = "kafka"

WARM_UP = timedelta(hours=2)
"""How much earlier than asked for the records of an archive or of Kafka begin, for what a running pipeline knows by then."""


@contextmanager
def opened(
    source: str,
    settings: Settings,
    begin: datetime | None = None,
    end: datetime | None = None,
    *,
    changed_ok: bool = False,
    bar: Callable[[], AbstractContextManager[Bar]] = no_bar,
) -> Iterator[Capture]:
    """Open a source; what it needs on disk is gone afterwards.

    Args:
        source: A capture's directory, an archive's directory or address (`s3://BUCKET/PATH`), or `kafka`.
        settings: The cluster, and where Kafka is.
        begin: From when on, for a source that is no capture.
        end: Until when, likewise; now where it is left out.
        changed_ok: Whether a capture may hold other files than its manifest says.
        bar: Shows how far the taking from Kafka is; by default nothing does.

    Raises:
        BadInput: when there is no such source, or it is damaged.
        Unreachable: when Kafka or the archive does not answer.
    """
    if source != KAFKA and any((Path(source) / name).exists() for name in (META, MANIFEST)):
        if begin is not None or end is not None:
            raise BadInput(f"{source} is a capture, with times of its own; --until ends a replay earlier")
        yield read(Path(source), changed_ok=changed_ok)
        return
    if source != KAFKA and "://" not in source:
        _check_archive(Path(source))
    if begin is None:
        raise BadInput(f"{source}: no capture, so --from has to say where to begin")
    if begin < EPOCH:
        raise BadInput(f"--from {rfc3339(begin)} is before 1970")
    warm_up = min(WARM_UP, begin - EPOCH)
    until = end or utc_now()
    if begin >= until:
        raise BadInput("--from is not before --to")
    if source == KAFKA:
        from faultline.replay.kafka_capture.take import Order, take

        with TemporaryDirectory(prefix="faultline-replay-") as folder:
            directory, order = Path(folder) / "capture", Order(begin, until, begin - warm_up)
            with bar() as shown:
                asyncio.run(take(settings, directory, order, shown))
            yield read(directory)
        return
    from faultline.archive.needed import require_pyarrow

    require_pyarrow(f"{source}: an archive")
    from faultline.replay.archived import (
        open_archive,  # loads pyarrow, which takes longer than a small replay
    )

    yield open_archive(source, settings.cluster, begin, until, warm_up=warm_up)


def _check_archive(folder: Path) -> None:
    """Whether there are files of an archive in a directory that is no capture. Raises BadInput where there are none."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such directory")
    if next(folder.glob("*/day=*"), None) is None:
        raise BadInput(
            f"{folder}: neither a capture (there is no {MANIFEST} or {META} in it) nor an archive (no TOPIC/day=…)"
        )
