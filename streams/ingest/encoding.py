"""Plain UTF-8 from raw bytes: byte-order marks, UTF-16, and the NULs that a crash leaves in a file."""

from __future__ import annotations

import re

_BOM = b"\xef\xbb\xbf"
_LITTLE, _BIG = b"\xff\xfe", b"\xfe\xff"
_WIDE = re.compile(rb"(?:[\t\r\n -~]\x00){4}|(?:\x00[\t\r\n -~]){4}")

HINTS = (rb"(?:[ -~]\x00){8}",)
"""Bytes (RE2) of UTF-16 text, which no other pattern would find."""


def plain(value: bytes) -> bytes:
    """The text in UTF-8 without byte-order mark and NULs; plain bytes come back as they are."""
    if value[:2] in (_LITTLE, _BIG) or (b"\x00" in value[:64] and _WIDE.search(value[:64])):
        value = _narrow(value)
    if value.startswith(_BOM):
        value = value[len(_BOM) :]
    return value.replace(b"\x00", b"") if b"\x00" in value else value


def _narrow(value: bytes) -> bytes:
    big = value[:2] == _BIG or (value[:2] != _LITTLE and value[:1] == b"\x00")
    text = value.decode("utf-16-be" if big else "utf-16-le", "replace")
    return text.lstrip("\ufeff").encode("utf-8", "replace")
