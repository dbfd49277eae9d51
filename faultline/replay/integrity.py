"""Whether the files of a complete capture are those that its manifest names: none gone, none besides, and none changed.

Digests are compared before anything is read: that takes a second for a gigabyte of compressed lines, a replay of them minutes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from faultline.replay.frames import opened
from faultline.replay.manifest import Manifest, PartitionPart, StatePart

STATE = "state"
_CHUNK = 1024 * 1024
_RECORDS = (".jsonl", ".jsonl.zst")


def differences(directory: Path, manifest: Manifest) -> Iterator[str]:
    """What is not as the manifest says, a file and a reason each. Raises BadInput for one that cannot be read."""
    named = dict(record_files(directory, manifest))
    for path, part in named.items():
        name = path.relative_to(directory)
        if not path.exists():
            if part.records:
                yield f"{name} is not there"
        elif (size := path.stat().st_size) != part.size:
            yield f"{name} has {size} bytes, not {part.size}"
        elif digest_of(path) != part.sha256:
            yield f"{name} has another digest"
    for path in sorted([*directory.glob("*"), *directory.glob("*/*")]):
        is_topic = path.name.endswith(_RECORDS) and not path.name.startswith((".", "kube-objects.", "truth."))
        if is_topic and path not in named and path.parent.name not in ("runbooks", STATE):
            yield f"{path.relative_to(directory)} is not in it"


def record_files(directory: Path, manifest: Manifest) -> Iterator[tuple[Path, PartitionPart | StatePart]]:
    """The files with records, and what the manifest says of each."""
    for topic, part in sorted(manifest.topics.items()):
        for partition, one in sorted(part.partitions.items()):
            yield directory / topic / f"{partition}.jsonl.zst", one
    for topic, state in sorted(manifest.state.items()):
        yield directory / STATE / f"{topic}.jsonl.zst", state


def digest_of(path: Path) -> str:
    """Its SHA-256."""
    digest = hashlib.sha256()
    with opened(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
