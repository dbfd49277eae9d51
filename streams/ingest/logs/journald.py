"""The journal's export format, as `journalctl -o export` and systemd-journal-upload write it.

One field a line, `NAME=text`; an empty line ends an entry. A value that is not printable follows a line with only its name: the
length in eight bytes, then the value. Shape: systemd, Journal Export Formats.
"""

from __future__ import annotations

from collections.abc import Iterator

from streams.ingest.records import Opened, RecordContext

BEGINNINGS = (b"__CURSOR=", b"__REALTIME_TIMESTAMP=")
"""The first bytes of an entry."""

_MAX_FIELDS = 256
_LENGTH = 8


def read(value: bytes, context: RecordContext, into: Opened) -> None:
    """Add the entries to `into.nested`."""
    entry: dict[str, str] = {}
    for field in _fields(value):
        if field is None:
            if entry:
                into.nested.append((entry, context.within(context.origin)))
            entry = {}
        elif len(entry) < _MAX_FIELDS:
            entry.setdefault(*field)
    if entry:
        into.nested.append((entry, context.within(context.origin)))


def _fields(value: bytes) -> Iterator[tuple[str, str] | None]:
    """Name and text of each field; None at the end of an entry."""
    position = 0
    while position < len(value):
        end = value.find(b"\n", position)
        end = len(value) if end < 0 else end
        name, equals, text = value[position:end].rstrip(b"\r").partition(b"=")
        position = end + 1
        if not name:
            yield None
            continue
        if not equals:
            length = int.from_bytes(value[position : position + _LENGTH], "little")
            position += _LENGTH
            text = value[position : position + length]
            position += length + 1
        yield name.decode("utf-8", "replace"), text.decode("utf-8", "replace")
