"""Makes few files of many: those of a day that is over become one or a few, and those of the day itself are kept to a bound.

The merged file is in place before those that it replaces are deleted. A crash in between, or a process that was frozen and
writes late, leaves records in two files: readers leave the second out by its offset (`reader`), and the next pass deletes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from faultline.archive.folder import Archive, Part, Place, Stored
from faultline.archive.parquet import encoded
from streams.model.crash_points import ARCHIVE_MERGED, CrashHook, ignore

log = structlog.get_logger(__name__)

MOST_FILES = 16
"""Files of a directory and partition before they are merged while their day lasts."""
MERGED_BYTES = 128 * 1024 * 1024
"""A merged file is about as large at most; it is held in memory while it is written."""


def merge(
    archive: Archive,
    place: Place,
    partition: int,
    *,
    most_files: int = 1,
    merged_bytes: int = MERGED_BYTES,
    beat: Callable[[], None] = lambda: None,
    at: CrashHook = ignore,
) -> int:
    """Merge the files of a partition in one directory if there are more than `most_files`; returns how many there were less.

    Raises:
        Unreachable: when the archive does not answer.
    """
    kept, covered = _without_covered(archive.parts_in(place, partition))
    archive.delete(one.part.path for one in covered)
    overlap = any(a.part.last >= b.part.first for a, b in pairwise(kept))
    if len(kept) <= most_files and not overlap:
        return len(covered)
    gone, done = len(covered), -1
    for group in _groups(kept, merged_bytes):
        if len(group) > 1 or group[0].part.first <= done:
            gone += _merge(archive, [one.part for one in group], done, at)
            beat()
        done = group[-1].part.last
    return gone


def _without_covered(stored: Sequence[Stored]) -> tuple[list[Stored], list[Stored]]:
    """The files, and those whose records all are in one before them."""
    kept: list[Stored] = []
    covered: list[Stored] = []
    for one in stored:
        (covered if kept and one.part.last <= kept[-1].part.last else kept).append(one)
    return kept, covered


def _groups(stored: Sequence[Stored], most_bytes: int) -> Iterator[list[Stored]]:
    """Neighbours that are together no larger than a merged file should be."""
    group: list[Stored] = []
    for one in stored:
        if group and sum(other.size for other in group) + one.size > most_bytes:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _merge(archive: Archive, parts: Sequence[Part], done: int, at: CrashHook) -> int:
    """Write the records after offset `done` of some files as one file, and delete them."""
    try:
        schema = _common_schema(archive, parts)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        log.warning("files of an archive are left apart: their columns differ", reason=str(error))
        return 0
    first = max(parts[0].first, done + 1)
    merged = Part(parts[0].place, parts[0].partition, first, parts[-1].last)
    archive.put(merged.path, encoded(schema, _tables(archive, parts, schema, done)))
    at(ARCHIVE_MERGED)
    archive.delete(part.path for part in parts if part != merged)
    return len(parts) - 1


def _common_schema(archive: Archive, parts: Sequence[Part]) -> pa.Schema:
    """The columns of all the files: those that another version wrote are kept, and null where it did not."""
    schemas = []
    for part in parts:
        with archive.opened(part.path) as file:
            schemas.append(file.schema_arrow)
    return pa.unify_schemas(schemas).remove_metadata()


def _tables(archive: Archive, parts: Sequence[Part], schema: pa.Schema, done: int) -> Iterator[pa.Table]:
    for part in parts:
        with archive.opened(part.path) as file:
            for number in range(file.num_row_groups):
                table = file.read_row_group(number)
                table = pa.concat_tables([schema.empty_table(), table], promote_options="default")
                yield table.filter(pc.greater(table["offset"], done))
        done = part.last
