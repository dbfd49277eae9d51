"""Matching untrusted text in linear time: RE2 behind the few calls that families need.

Text is matched as Latin-1 bytes, one for each character, so offsets are the same in both. A character outside Latin-1 becomes a
question mark for the match; groups are cut from the text itself. RE2's own `str` support converts offsets through UTF-8 at every
call, which costs more than matching.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import re2

from streams.model.errors import ConfigError

_LATIN1 = re2.Options()
_LATIN1.encoding = re2.Options.Encoding.LATIN1
_LATIN1.log_errors = False

_SEVERAL = re2.Options()
_SEVERAL.encoding = re2.Options.Encoding.LATIN1
_SEVERAL.never_capture = True
_SEVERAL.max_mem = 64 * 1024 * 1024
"""A set can only match with its automaton, so that must always fit."""

Span = tuple[int, int]

_last: tuple[str, bytes] = ("", b"")
_last_lower: tuple[str, bytes] = ("", b"")
"""The text matched last with its bytes, as written and in lower case: a line is matched against many patterns in turn."""

_ANY_CASE = "(?i)"


@cache
def compile(pattern: str) -> Pattern:
    """The pattern, ready to match.

    Raises:
        ConfigError: naming the pattern and what is wrong with it.
    """
    return Pattern(pattern)


def _bytes_of(text: str) -> bytes:
    global _last
    known, raw = _last
    if known is not text:
        raw = text.encode("latin-1", "replace")
        _last = text, raw
    return raw


def _lower_of(text: str) -> bytes:
    global _last_lower
    known, raw = _last_lower
    if known is not text:
        raw = _bytes_of(text).lower()
        _last_lower = text, raw
    return raw


class Match:
    """One match. Groups are numbered from 1 or named; a group that did not match is None."""

    __slots__ = ("_groups", "_spans", "_text")

    def __init__(self, text: str, spans: list[Span], groups: Mapping[str, int]) -> None:
        self._text = text
        self._spans = spans
        self._groups = groups

    def span(self, group: int | str = 0) -> Span:
        """Start and end of the group, (-1, -1) when it did not match."""
        return self._spans[self._groups[group] if isinstance(group, str) else group]

    def start(self, group: int | str = 0) -> int:
        """The start of the group."""
        return self.span(group)[0]

    def end(self, group: int | str = 0) -> int:
        """The end of the group."""
        return self.span(group)[1]

    def group(self, group: int | str = 0) -> str | Any:
        """The text of the group."""
        start, end = self._spans[self._groups[group] if isinstance(group, str) else group]
        return None if start < 0 else self._text[start:end]

    __getitem__ = group

    def groups(self) -> tuple[str | Any, ...]:
        """All groups in order."""
        return tuple(self.group(number) for number in range(1, len(self._spans)))

    def groupdict(self) -> dict[str, str | Any]:
        """All named groups."""
        return {name: self.group(number) for name, number in self._groups.items()}

    def named(self) -> Iterator[tuple[str, str]]:
        """The named groups that matched, in order."""
        for name, number in self._groups.items():
            start, end = self._spans[number]
            if start >= 0:
                yield name, self._text[start:end]


class Pattern:
    """A compiled pattern."""

    __slots__ = ("_any_case", "_groups", "_literal", "_match", "pattern")

    def __init__(self, pattern: str) -> None:
        try:
            raw = pattern.encode("latin-1")
            compiled: Any = re2.compile(raw, _LATIN1)
        except (UnicodeEncodeError, re2.error) as error:
            raise ConfigError(f"pattern {pattern!r}: {error}") from error
        self.pattern = pattern
        self._groups = {name.decode(): number for name, number in compiled.groupindex.items()}
        self._match = compiled._regexp.Match  # the public method makes a generator for each call
        any_case = pattern.startswith(_ANY_CASE)
        literal = literal_of(pattern.removeprefix(_ANY_CASE))
        if any_case:  # bytes.lower() knows ASCII only
            literal = literal.lower() if literal.isascii() else ""
        self._literal = literal.encode("latin-1")
        self._any_case = any_case

    def search(self, text: str, pos: int = 0) -> Match | None:
        """The first match from `pos` on."""
        raw = _last[1] if _last[0] is text else _bytes_of(text)
        if self._literal not in (_lower_of(text) if self._any_case else raw):
            return None
        spans = self._match(_UNANCHORED, raw, min(pos, len(raw)), len(raw))
        return Match(text, spans, self._groups) if spans[0][0] >= 0 else None

    def match(self, text: str, pos: int = 0) -> Match | None:
        """The match that begins at `pos`."""
        return self._first(_START, text, pos)

    def fullmatch(self, text: str, pos: int = 0) -> Match | None:
        """The match of everything from `pos` on."""
        return self._first(_BOTH, text, pos)

    def finditer(self, text: str, pos: int = 0) -> Iterator[Match]:
        """All non-overlapping matches from `pos` on."""
        raw = _last[1] if _last[0] is text else _bytes_of(text)
        if self._literal not in (_lower_of(text) if self._any_case else raw):
            return
        while pos <= len(raw):
            spans = self._match(_UNANCHORED, raw, pos, len(raw))
            start, end = spans[0]
            if start < 0:
                return
            yield Match(text, spans, self._groups)
            pos = end if end > pos else pos + 1

    def findall(self, text: str, pos: int = 0) -> list[str]:
        """The text of all matches, in order."""
        return [match.group() for match in self.finditer(text, pos)]

    def _first(self, anchor: Any, text: str, pos: int) -> Match | None:
        raw = _last[1] if _last[0] is text else _bytes_of(text)
        spans = self._match(anchor, raw, min(pos, len(raw)), len(raw))
        return Match(text, spans, self._groups) if spans[0][0] >= 0 else None


_UNANCHORED = re2._Anchor.UNANCHORED
_START = re2._Anchor.ANCHOR_START
_BOTH = re2._Anchor.ANCHOR_BOTH


class PatternSet:
    """Many patterns matched at once, which costs little more than matching one.

    Raises:
        ConfigError: naming the pattern that is wrong.
    """

    def __init__(self, patterns: Iterable[bytes]) -> None:
        self._match = _set_of(tuple(patterns))

    def found_in(self, text: str) -> list[int]:
        """The numbers of the patterns that match somewhere in the text, in order."""
        return sorted(self._match(_bytes_of(text))) if self._match is not None else []


@cache
def _set_of(patterns: tuple[bytes, ...]) -> Any:
    """The match function of the patterns, compiled once; None without patterns, which RE2 refuses."""
    if not patterns:
        return None
    several = re2.Set.SearchSet(_SEVERAL)
    for pattern in patterns:
        try:
            several.Add(pattern)
        except re2.error as error:
            raise ConfigError(f"pattern {pattern!r}: {error}") from error
    several.Compile()
    return several._set.Match


def literal_of(pattern: str) -> str:
    """The longest literal that every match contains; empty when there is none or it is not obvious.

    Searching it first costs a tenth of an RE2 match, and most patterns do not concern a line.
    """
    if _UNCLEAR.search(pattern):
        return ""
    runs, depth = [""], 0
    for token in _TOKEN.finditer(pattern):
        text = token.group()
        if text[0] == "(":
            depth += 1
        elif text == ")":
            depth -= 1
        elif depth:
            continue
        elif text in ("|", "["):
            return ""
        elif token.lastgroup == "plain":
            runs[-1] += text[-1]
            continue
        elif token.lastgroup == "optional":
            runs[-1] = runs[-1][:-1]
        runs.append("")
    return max(runs, key=len)


_TOKEN = re.compile(
    r"(?P<kind>\\[A-Za-z0-9]|\[\^?\]?(?:\\.|\[:\w{1,9}:\]|[^\]\\]){0,512}\]|\((?:\?(?:P?<\w{1,64}>|:))?|[).|^$+])|"
    r"(?P<optional>[?*]|\{\d{0,4},?\d{0,4}\})|(?P<plain>\\[^A-Za-z0-9]|.)",
    re.DOTALL,
)
_UNCLEAR = re.compile(r"\(\?\w{0,4}i|\\[xpPQC]|\(\?[a-zA-OQ-Z-]")
"""Case-insensitive groups, other flags, and escapes of more than one character."""
