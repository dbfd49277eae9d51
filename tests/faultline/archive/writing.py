"""Writes records to an archive without a broker: as the process does, with nothing of Kafka around it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from faultline.archive.folder import Archive, Part
from faultline.archive.pending import PendingRows
from streams.model.crash_points import CrashHook, ignore
from streams.model.record import RawRecord

FAR = 2**62


def archive_at(folder: Path) -> Archive:
    """An archive in a folder."""
    return Archive.at(str(folder))


def write(
    archive: Archive, records: Iterable[RawRecord], *, end: int = FAR, at: CrashHook = ignore
) -> list[Part]:
    """Write records at once, each topic and partition by its offsets, as a process that has just begun."""
    files: list[Part] = []
    ordered = sorted(records, key=lambda one: (one.topic, one.partition, one.offset))
    for (topic, partition), own in groupby(ordered, key=lambda one: (one.topic, one.partition)):
        taken = list(own)
        pending = PendingRows(topic, partition, taken[0].offset, 0.0)
        for record in taken:
            pending.take(record)
        files += pending.write(archive, {}, end, at)
    return files


def parts(archive: Archive, topic: str) -> list[Part]:
    """Its files."""
    return sorted((one.part for one in archive.parts(topic)), key=lambda part: (part.place.day, part.path))
