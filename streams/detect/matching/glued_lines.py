"""The end of a driver's message to which the next line was glued."""

from __future__ import annotations

from streams.detect.matching import re2_patterns
from streams.detect.matching.log_patterns import MAX_MESSAGE

_NEXT = re2_patterns.compile(r"NVRM\s?:|nvidia-nvswitch\d|#012|\\n")
_TRAILING_HEADER = re2_patterns.compile(
    r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,253} kernel: ?)?(?:\[ {0,8}\d{1,10}\.\d{1,9}\] ?)?$"
)


def until_next(text: str, start: int) -> tuple[str, int]:
    """The text from `start` up to the header of the next message, and the offset where that message begins."""
    rest = text[start : start + MAX_MESSAGE]
    glued = _NEXT.search(rest)
    if glued is None:
        return rest.lstrip(",.; \t"), len(text)
    rest = rest[: glued.start()]
    if (header := _TRAILING_HEADER.search(rest)) is not None:
        rest = rest[: header.start()]
    return rest.lstrip(",.; \t"), start + glued.start()
