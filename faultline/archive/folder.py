"""The files of an archive, in a folder or an object store, and their names.

    TOPIC/day=YYYY-MM-DD/cluster=NAME/part-PARTITION-FIRST-LAST.parquet

A file holds every record of its topic, day, cluster and partition from offset FIRST to LAST, both included. So what has been
written is known from the names alone. The day is that of Kafka's timestamp, in UTC. Names in paths are escaped as in URLs; a
cluster that nothing tells is `__HIVE_DEFAULT_PARTITION__`, which readers of such folders take for null.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from streams.model.errors import BadInput, ConfigError, Unreachable

NO_CLUSTER = "__HIVE_DEFAULT_PARTITION__"
STATE = "state"
"""The folder of the daily states of compacted topics (`daily_state`)."""

_NAME = re.compile(r"part-(\d+)-(\d+)-(\d+)\.parquet")
_STATE_NAME = re.compile(r"part-(\d+)\.parquet")
_DAY = re.compile(r"day=(\d{4}-\d\d-\d\d)")
_CLUSTER = "cluster="
_TEMPORARY = ".tmp"


class Place(NamedTuple):
    """One directory: a topic's records of one day and cluster. `cluster` is None where nothing tells it."""

    topic: str
    day: date
    cluster: str | None

    @property
    def path(self) -> str:
        """Relative to the archive."""
        name = NO_CLUSTER if self.cluster is None else quote(self.cluster, safe="")
        return f"{self.topic}/day={self.day.isoformat()}/{_CLUSTER}{name}"


class Part(NamedTuple):
    """One file, by its name."""

    place: Place
    partition: int
    first: int
    last: int

    @property
    def path(self) -> str:
        """Relative to the archive."""
        return f"{self.place.path}/part-{self.partition:05}-{self.first:020}-{self.last:020}.parquet"


class StatePart(NamedTuple):
    """One file of a daily state."""

    place: Place
    partition: int

    @property
    def path(self) -> str:
        """Relative to the archive."""
        return f"{STATE}/{self.place.path}/part-{self.partition:05}.parquet"


@dataclass(frozen=True, slots=True)
class Stored:
    """A file that is there, and its size in bytes."""

    part: Part
    size: int


class Archive:
    """An archive's files. Whatever does not answer, or refuses, raises Unreachable that names the archive."""

    def __init__(self, url: str, files: fs.FileSystem, root: str) -> None:
        self.url = url
        self._files = files
        self._root = root.rstrip("/")
        self._is_local = isinstance(files, fs.LocalFileSystem)

    @classmethod
    def at(cls, url: str) -> Self:
        """The archive in a folder, or at a URI: `s3://BUCKET/PATH`, `gs://…`, `file:///…`. Nothing is created.

        Raises:
            ConfigError: when the URI is not understood.
        """
        if "://" not in url:
            return cls(url, fs.LocalFileSystem(), str(Path(url).absolute()))
        if "@" in urlsplit(url).netloc:
            raise ConfigError(
                "archive.url: a login has no place in it, for logs show it: use the store's own variables"
            )
        try:
            files, root = fs.FileSystem.from_uri(url)
        except (pa.ArrowInvalid, OSError, ValueError) as error:
            raise ConfigError(f"archive.url: {url} is no place for an archive: {error}") from error
        return cls(url, files, root)

    def parts(self, topic: str) -> list[Stored]:
        """All files of a topic, in no order."""
        return [
            Stored(Part(place, *map(int, match.groups())), info.size or 0)
            for info in self._list(topic, recursive=True)
            if (match := _NAME.fullmatch(info.base_name))
            and (place := place_of(f"{topic}/{_tail(info.path)}"))
        ]

    def parts_in(self, place: Place, partition: int) -> list[Stored]:
        """The files of a directory and partition by first offset; of two that begin alike the longer one is first."""
        found = [
            Stored(Part(place, *map(int, match.groups())), info.size or 0)
            for info in self._list(place.path)
            if (match := _NAME.fullmatch(info.base_name))
        ]
        return sorted((one for one in found if one.part.partition == partition), key=in_order)

    def states(self, topic: str) -> list[StatePart]:
        """The daily states of a topic, in no order."""
        return [
            StatePart(place, int(match[1]))
            for info in self._list(f"{STATE}/{topic}", recursive=True)
            if (match := _STATE_NAME.fullmatch(info.base_name))
            and (place := place_of(f"{topic}/{_tail(info.path)}"))
        ]

    def leftovers(self, topic: str, before: datetime) -> list[str]:
        """Paths of files that somebody was still writing at a time long ago."""
        return [
            f"{folder}/{_tail(info.path)}/{info.base_name}"
            for folder in (topic, f"{STATE}/{topic}")
            for info in self._list(folder, recursive=True)
            if info.base_name.endswith(_TEMPORARY) and info.mtime is not None and info.mtime < before
        ]

    def put(self, path: str, content: pa.Buffer, written: Callable[[], None] = lambda: None) -> None:
        """Put a file in its place, whole and on disk, or not at all. `written` is called before it gets its name."""
        with self._answering():
            if self._is_local:
                _put(Path(self._root) / path, content, written)
                return
            written()
            # An object is there when its upload is complete, and not before.
            with self._files.open_output_stream(f"{self._root}/{path}") as out:
                out.write(content)

    @contextmanager
    def opened(self, path: str) -> Iterator[pq.ParquetFile]:
        """A file to read from.

        Raises:
            FileNotFoundError: when it is not there any more.
            BadInput: when it is no Parquet, or damaged.
        """
        with self._answering(), self._files.open_input_file(f"{self._root}/{path}") as source:
            try:
                yield pq.ParquetFile(source)
            except pa.ArrowInvalid as error:
                raise BadInput(f"{self.url}: {path} is not readable: {error}") from error

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; one that is not there is no error."""
        with self._answering():
            for path in paths:
                try:
                    self._files.delete_file(f"{self._root}/{path}")
                except FileNotFoundError:
                    continue

    def _list(self, path: str, *, recursive: bool = False) -> list[fs.FileInfo]:
        with self._answering():
            found: list[fs.FileInfo] = self._files.get_file_info(
                fs.FileSelector(f"{self._root}/{path}", allow_not_found=True, recursive=recursive)
            )
            return found

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise Unreachable(f"the archive {self.url}: {error}") from error


def in_order(stored: Stored) -> tuple[int, int]:
    """By first offset, and of two that begin alike the longer one first."""
    return stored.part.first, -stored.part.last


def place_of(path: str) -> Place | None:
    """The directory at a path like `Place.path`; None for a path of another shape."""
    match path.rsplit("/", 2):
        case [topic, day, cluster] if (found := _DAY.fullmatch(day)) and cluster.startswith(_CLUSTER):
            name = unquote(cluster.removeprefix(_CLUSTER))
            return Place(topic, date.fromisoformat(found[1]), None if name == NO_CLUSTER else name)
        case _:
            return None


def _tail(path: str) -> str:
    """Day and cluster of a file's path."""
    return "/".join(path.split("/")[-3:-1])


def _put(path: Path, content: pa.Buffer, written: Callable[[], None]) -> None:
    """The content is on disk before it has its name, and the name before this returns: offsets are committed after it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}{_TEMPORARY}")
    with temporary.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    written()
    temporary.replace(path)
    for parent in path.parents[:4]:  # cluster, day, topic, archive: any of them may be new
        folder = os.open(parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
