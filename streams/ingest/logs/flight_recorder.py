"""PyTorch's flight recorder: the ring buffer of collectives that a rank dumps when one of them hangs.

`{"version", "pg_config", "pg_status", "entries": […]}`, also inside a map that names the rank (`{"rank": 3, "dump": {…}}`,
`{"nccl_trace_rank_3": {…}}`). `pg_status` counts by the group's number on its rank (`last_enqueued_collective` …), entries name
the group as `process_group: [name, description]`; releases before 2.4 have no `pg_status`. Source: pytorch FlightRecorder.hpp
and fr_trace, 2.2 to 2.9.

Each group with an incomplete collective becomes one line in the words of the watchdog: dumps are megabytes, and this is what
matters of a hang.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streams.ingest.fields import fields
from streams.ingest.records import JsonObject, Opened, RecordContext, merged
from streams.model.record import LogLine

HINTS = (rb"collective_seq_id|last_enqueued_collective",)
"""Bytes (RE2) of every dump that holds a group."""

SOURCE = "flight recorder"
"""The source of its lines."""

_RANK = re.compile(r"(?i)\brank[_ -]?(\d{1,7})\b|(?<=rank_)(\d{1,7})\b")
_NAMES = ("file", "path", "filename", "file_name", "file_path", "log_file", "key", "name", "source")
_DONE = "completed"
_SPELLING = (("ALL_REDUCE", "ALLREDUCE"), ("ALL_GATHER", "ALLGATHER"), ("ALL_TO_ALL", "ALLTOALL"))
"""Operations as the watchdog spells them."""
_MAX_GROUPS = 1000
_MAX_LISTING = 200_000
_MAX_RANGES = 400


@dataclass(slots=True)
class _Group:
    """One process group in a dump."""

    number: str
    name: str = ""
    about: str = ""
    enqueued: int = -1
    completed: int = -1
    waits: Mapping[str, Any] | None = None
    """The first incomplete collective."""
    members: str = ""
    """Its ranks as ranges, where the dump lists them and the result is short."""

    @property
    def hangs(self) -> bool:
        return self.waits is not None or self.enqueued > self.completed


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add a line for each group that hangs; False when the record is no dump."""
    found = _dump(record)
    if found is None:
        return False
    dump, named = found
    origin = merged(fields(record).origin(), context.origin)
    rank = _rank(record, named, context)
    # The key of a record may be its rank instead of a host.
    keyed = context.node is not None and _RANK.search(context.node) is not None
    node = origin.node or (None if keyed else context.node)
    for group in _groups(dump):
        if group.hangs:
            line = _line(group, rank)
            into.observations.append(
                LogLine(line, origin.at, node, origin.pod, origin.container, source=SOURCE)
            )
    return True


def _dump(record: JsonObject) -> tuple[JsonObject, str] | None:
    """The dump a record is or holds, and the name of the field that holds it."""
    if _is_dump(record):
        return record, ""
    for name, value in record.items():
        if isinstance(value, dict) and _is_dump(value):
            return value, name
    return None


def _is_dump(record: JsonObject) -> bool:
    entries = record.get("entries")
    if not isinstance(entries, list) or not ({"version", "pg_status", "pg_config"} & record.keys()):
        return False
    status = record.get("pg_status")
    return isinstance(status, dict) or any(
        isinstance(entry, dict) and "collective_seq_id" in entry for entry in entries[:8]
    )


def _rank(record: JsonObject, named: str, context: RecordContext) -> int | None:
    for name in ("rank", "global_rank"):
        value = record.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**7:
            return value
        if isinstance(value, str) and value.isdecimal() and len(value) < 8:
            return int(value)
    texts = (value for name in _NAMES if isinstance(value := record.get(name), str))
    for text in (named, *texts, context.node or ""):
        if (match := _RANK.search(text[-256:])) is not None:
            return int(match[1] or match[2])
    return None


def _groups(dump: JsonObject) -> Iterator[_Group]:
    groups: dict[str, _Group] = {}
    status = dump.get("pg_status")
    counted = status if isinstance(status, dict) else {}
    for number, row in counted.items():
        if isinstance(row, dict) and len(groups) < _MAX_GROUPS:
            groups[str(number)] = _Group(
                str(number),
                enqueued=_number(row.get("last_enqueued_collective")),
                completed=_number(row.get("last_completed_collective")),
            )
    for entry in dump["entries"]:
        if isinstance(entry, dict):
            _take(entry, groups, counted=bool(counted))
    config = dump.get("pg_config")
    for group in groups.values():
        about = config.get(group.name or group.number) if isinstance(config, dict) else None
        if isinstance(about, dict):
            group.about = group.about or str(about.get("desc") or "")
            group.members = _ranges(about.get("ranks"))
    yield from groups.values()


def _take(entry: Mapping[str, Any], groups: dict[str, _Group], *, counted: bool) -> None:
    pair = entry.get("process_group")
    pair = [str(part) for part in pair[:2]] if isinstance(pair, list) else []
    number = str(entry.get("pg_id", pair[0] if pair else "0"))
    group = groups.get(number)
    if group is None:
        if len(groups) >= _MAX_GROUPS:
            return
        group = groups[number] = _Group(number)
    if pair:
        group.name, group.about = pair[0], pair[1] if len(pair) > 1 else group.about
    seq = _number(entry.get("collective_seq_id", entry.get("seq_id")))
    done = entry.get("state") == _DONE
    if not counted:
        group.enqueued = max(group.enqueued, seq)
        group.completed = max(group.completed, seq) if done else group.completed
    if done or bool(entry.get("retired")) or (counted and seq <= group.completed):
        return
    if group.waits is None or seq < _number(group.waits.get("collective_seq_id")):
        group.waits = entry


def _line(group: _Group, rank: int | None) -> str:
    """The hang as the watchdog would log it, as far as the dump has the parts."""
    parts = [
        f"Flight recorder: {f'rank {rank}, ' if rank is not None else ''}pg {group.name or group.number}"
    ]
    if group.about:
        parts[0] += f" ({group.about[:64]})"
    if group.waits is not None:
        entry = group.waits
        operation = str(entry.get("profiling_name") or "").rpartition(":")[2].partition(" ")[0].upper()
        for dumped, logged in _SPELLING:
            operation = operation.replace(dumped, logged)
        parts.append(f"SeqNum={_number(entry.get('collective_seq_id', entry.get('seq_id')))}")
        if operation:
            parts.append(f"OpType={operation[:64]}")
        parts.append(f"state {str(entry.get('state') or 'unknown')[:16]}")
        if (timeout := _number(entry.get("timeout_ms"))) >= 0:
            parts.append(f"Timeout(ms)={timeout}")
    if group.members:
        parts.append(f"ranks {group.members}")
    parts.append(f"last enqueued work: {group.enqueued}")
    parts.append(f"last completed work: {group.completed}")
    return ", ".join(parts)


def _ranges(listed: object) -> str:
    """`[0, 1, 2, 8]`, a list or its text, as `0-2,8`; empty when it is neither, or too long for a line."""
    if isinstance(listed, str):
        texts = listed.strip("[]() ").split(",") if len(listed) <= _MAX_LISTING else []
        numbers = {int(text) for text in texts if text.strip().isdecimal()}
    elif isinstance(listed, list):
        numbers = {
            n for n in listed[:_MAX_LISTING] if isinstance(n, int) and not isinstance(n, bool) and n >= 0
        }
    else:
        return ""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    text = ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in parts)
    return text if len(text) <= _MAX_RANGES else ""


def _number(value: object) -> int:
    """A whole number that fits 64 bits, -1 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and -1 <= value < 2**63 else -1
