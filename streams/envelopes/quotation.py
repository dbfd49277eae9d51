"""Where a text of several lines begins to quote: a letter, a ticket, a document, a change to a file.

`Last night we saw the following:` says that what comes after it is retold. Loggers that ship several lines in one record
put a header before each of them; a line that introduces has none.
"""

from __future__ import annotations

import re

SOURCE = "quotation"
"""What lines from there on have as their source."""

_FENCE = re.compile(r"\s{0,8}(?:```|~~~|\.\. \w|@@ |\{code|<pre\b|<code\b|diff --git )")
_INTRODUCTION = re.compile(
    r"(?i)(?:^|[\s,;(])(?:i|we|you|they|he|she|saw|seen|see|following|example|examples|e\.g\.|below|like|such as|got|gave|"
    r"wrote|writes|says|said|printed|prints|output|excerpt|snippet)\b"
)


def begins(line: str) -> bool:
    """True for a line after which the rest of the text is quoted."""
    text = line[:512].rstrip()
    return _FENCE.match(text) is not None or (
        len(line) <= 512 and text.endswith(":") and _INTRODUCTION.search(text) is not None
    )
