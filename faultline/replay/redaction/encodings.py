"""Texts within a text: what is written with percent signs or `\\xNN`, in hex, or in base64, compressed or not."""

from __future__ import annotations

import base64
import binascii
import gzip
import re
from collections.abc import Callable, Iterator

from faultline.replay.redaction.values import redacted
from streams.ingest.compression import is_packed, unpacked
from streams.model.errors import BadInput

Text = Callable[[str], str]

_RUN = re.compile(r"""[^\s"'<>]+""")
_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+|(?:\\x[0-9A-Fa-f]{2})+")
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2}){6,}")
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{24,}+={0,2}")


def without_escapes(text: str, change: Text) -> str | None:
    """The text with `change` applied to what it says without its escapes, and those written again; None when it has none."""
    if "%" not in text and "\\x" not in text:
        return None
    made, at = [], 0
    for run in _RUN.finditer(text):
        if _ESCAPES.search(run[0]):
            made += [change(text[at : run.start()]), _run(run[0], change)]
            at = run.end()
    return "".join([*made, change(text[at:])]) if at else None


def _run(run: str, change: Text) -> str:
    plain = _unescaped(run)
    changed = change(plain)
    if changed == plain:
        return run
    sign = "%" if "%" in run else "\\x"
    escaped = {char for found in _ESCAPES.findall(run) for char in _unescaped(found)} | {sign[0]}
    return "".join(
        "".join(f"{sign}{byte:02X}" for byte in char.encode("utf-8", "surrogateescape"))
        if char in escaped
        else char
        for char in changed
    )


def _unescaped(run: str) -> str:
    def plain(found: re.Match[str]) -> str:
        return bytes.fromhex(found[0].replace("%", "").replace("\\x", "")).decode("utf-8", "surrogateescape")

    return _ESCAPES.sub(plain, run)


def of_hex(token: str, change: Text) -> str | None:
    """The same in hex, where it is text; None where it is not, or nothing in it changes."""
    begin = 2 if token[:2] in ("0x", "0X") else 0
    if not _HEX.fullmatch(token, begin):
        return None
    text = _printable(bytes.fromhex(token[begin:]))
    if text is None or (changed := change(text)) == text:
        return None
    return token[:begin] + changed.encode().hex()


def of_base64(token: str, change: Text) -> str | None:
    """The same in base64 of either alphabet, padded as it was; None where it is no text, or nothing in it changes.

    Raises:
        Unreadable: for what is compressed and no text.
    """
    raw = _decoded(token)
    if raw is None:
        return None
    if is_packed(raw):
        try:
            plain = unpacked(raw)
        except BadInput:
            plain = raw
        if plain is not raw:
            changed = redacted(plain, change)
            return None if changed == plain else _encoded(gzip.compress(changed, mtime=0), token)
    text = _printable(raw)
    if text is None or (made := redacted(raw, change)) == raw:
        return None
    return _encoded(made, token)


def _decoded(token: str) -> bytes | None:
    plain = token.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def _encoded(raw: bytes, like: str) -> str:
    made = base64.b64encode(raw).decode()
    if "-" in like or "_" in like or not (like.endswith("=") or len(like) % 4 == 0):
        made = made.replace("+", "-").replace("/", "_")
    return made if like.endswith("=") or len(like) % 4 == 0 else made.rstrip("=")


def _printable(raw: bytes) -> str | None:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return text if text.translate(_BLANKS).isprintable() else None


_BLANKS = {ord(char): " " for char in "\n\r\t\x1b"}


def texts_within(text: str) -> Iterator[str]:
    """What is written in a text in these ways, one layer of it."""
    if "%" in text or "\\x" in text:
        for run in _RUN.finditer(text):
            if _ESCAPES.search(run[0]):
                yield _unescaped(run[0])
    for found in _BASE64.finditer(text):
        token = found[0]
        if _HEX.fullmatch(token) and (inner := _printable(bytes.fromhex(token))) is not None:
            yield inner
        elif (raw := _decoded(token)) is not None:
            try:
                raw = unpacked(raw) if is_packed(raw) else raw
            except BadInput:
                continue
            if (inner := _printable(raw)) is not None:
                yield inner
