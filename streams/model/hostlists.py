"""Slurm's host lists: `gpu-[001-016,020],login-1` and back to names (slurm, src/common/hostlist.c; `scontrol show hostnames`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from streams.model.errors import BadInput

MAX_HOSTS = 65_536
"""As many as Slurm itself takes in one list (MAX_HOSTLIST_BUILD)."""
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)
_PART = re.compile(r"\[([^\[\]]*)\]")


def hosts(text: str) -> list[str]:
    """The names in a list, in its order, which is the order in which Slurm hands out tasks. Leading zeros are kept.

    Raises:
        BadInput: for brackets that do not match, ranges that run backwards, and more than `MAX_HOSTS` names.
    """
    found: list[str] = []
    for entry in _entries(text):
        for name in _expanded(entry):
            found.append(name)
            if len(found) > MAX_HOSTS:
                raise BadInput(f"host list: more than {MAX_HOSTS} hosts")
    return found


def _entries(text: str) -> Iterator[str]:
    """Split at the commas outside of brackets."""
    depth, begin = 0, 0
    for at, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise BadInput(f"host list: brackets do not match in {text[:80]!r}")
        if char == "," and depth == 0:
            yield text[begin:at].strip()
            begin = at + 1
    if depth:
        raise BadInput(f"host list: brackets do not match in {text[:80]!r}")
    yield text[begin:].strip()


def _expanded(entry: str) -> Iterator[str]:
    if not entry:
        return
    pieces = _PART.split(entry)
    # Every second piece stood in brackets.
    choices = [list(_numbers(piece)) if at % 2 else [piece] for at, piece in enumerate(pieces)]
    size = 1
    for choice in choices:
        size *= len(choice)
    if size > MAX_HOSTS:
        raise BadInput(f"host list: more than {MAX_HOSTS} hosts")
    for combination in product(*choices):
        yield "".join(combination)


def _numbers(ranges: str) -> Iterator[str]:
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise BadInput(f"host list: {part[:40]!r} is no number and no range")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= MAX_HOSTS:
            raise BadInput(f"host list: {part[:40]!r} runs backwards or too far")
        width = len(match[1])
        for number in range(first, last + 1):
            yield f"{number:0{width}d}"
