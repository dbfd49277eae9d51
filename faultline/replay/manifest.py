"""The manifest of a capture that was taken from Kafka: what is in it, what it was taken with, and what was not there any more.

It is written before the first record, with the offsets that will be read, and again when all are: only then is it `complete`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import orjson
from pydantic import AwareDatetime

from faultline.replay.frames import opened
from streams.model.codec import decode, encode_plain
from streams.model.errors import BadInput

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class PartitionPart:
    """What is in the file of one partition. Offsets are Kafka's; `end` is the one after the last that may be in it.

    `bytes` counts its lines as they are read, `size` the file as it lies there. `late` are records with a time before the
    capture's that lie among its own; `ahead` are records with a time after it, which were left out. `lost` counts the offsets
    that the broker deleted before they were read. `left_out` are records that an incident does not need, or in which names could
    not be replaced.
    """

    begin: int
    end: int
    records: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    bytes: int = 0
    size: int = 0
    sha256: str = ""
    late: int = 0
    ahead: int = 0
    lost: int = 0
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class TopicPart:
    """What is of one topic. `complete_from` is the time from which on all is there, where what was before has been deleted."""

    partitions: Mapping[int, PartitionPart]
    complete_from: AwareDatetime | None = None


@dataclass(frozen=True, slots=True)
class StatePart:
    """A compacted topic as it stood when the capture begins.

    `unknown_keys` have their first retained record later: they are new, or compaction has removed what they were.
    """

    records: int
    unknown_keys: int
    bytes: int
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Versions:
    """What took the capture, and what decided then: the program, its catalog, the revision of each runbook."""

    faultline: str = ""
    catalog: str = ""
    runbooks: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lineage:
    """When a capture was begun, and what was asked for. `incident` is the one it was cut to."""

    taken_at: AwareDatetime | None = None
    incident: str = ""
    asked: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Manifest:
    """All of it. `lead` is where the records begin, `begin` to `end` is what the capture is about. `redaction` names the key that
    its pseudonyms were made with, and does not give it away."""

    cluster: str
    begin: AwareDatetime
    end: AwareDatetime
    lead: AwareDatetime
    topics: Mapping[str, TopicPart]
    state: Mapping[str, StatePart] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    """Topics that are not on the broker."""
    versions: Versions = Versions()
    lineage: Lineage = Lineage()
    redaction: str = ""
    complete: bool = False
    format: Literal[2] = 2


def read_manifest(path: Path) -> Manifest:
    """Read it. Raises BadInput that names the file and the field that is wrong."""
    try:
        with opened(path) as file:
            return decode(Manifest, file.read())
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write it whole or not at all: a reader, and a capture that goes on, never see half of it."""
    draft = path.with_name(f".{path.name}")
    draft.write_bytes(
        orjson.dumps(encode_plain(manifest), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS) + b"\n"
    )
    draft.replace(path)
