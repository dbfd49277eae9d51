"""Where a quotation begins in a text of several lines: a letter, a ticket, a document, a diff.

After `Last night we saw the following:` the rest is quoted. A record with several logged lines has a header before each of them,
an introduction has none.
"""

from __future__ import annotations

import re

SOURCE = "quotation"
"""The source of quoted lines."""

_FENCE = re.compile(
    r"\s{0,8}(?:```|~~~|commit [0-9a-f]{3,40}$|\.\. \w|@@ |\{code|"
    r"From \S{1,128} {1,2}(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) |<pre\b|<code\b|diff --git )"
)
_INTRODUCTION = re.compile(
    r"(?i)(?:^|[\s,;(])(?:i|we|you|they|he|she|saw|seen|see|following|example|examples|e\.g\.|below|like|such as|got|gave|"
    r"wrote|writes|says|said|printed|prints|output|excerpt|snippet)\b"
)


_LOGGED = re.compile(r"[EWF]\d{4} \d\d:\d\d:\d\d\.\d{1,9} {1,8}\d{1,10} [\w/.-]{1,128}:\d{1,6}\] ")
"""The header of glog, whose programs print lists of what failed."""

_TITLE = re.compile(
    r"[#*=\s]{0,8}(?:[A-Za-z][A-Za-z']{0,24} ){0,8}[A-Za-z][A-Za-z']{0,24}(?P<colon>:?)[*=\s]{0,8}$"
)
"""Words and nothing else: `What happened:`, `Describe the bug`."""
_OF_A_LETTER = re.compile(
    r"(?i)(?:from|to|cc|subject|re|fwd|title|summary|author|reporter|dear|hi|hello)\b.{0,200}[^\d:\s]$"
)
_OF_A_CHAT = re.compile(r"[\w@][^\n:\[\]]{0,48} \d{1,2}:\d\d(?: ?[AaPp]\.?[Mm]\.?)?$")
_ARTICLE = re.compile(r"(?i)\b(?:the|a|an|my|our|your|this|to|we|i)\b")


_OF_A_DESCRIPTION = ("NVRM:", "Allocated resources:", "Non-terminated Pods:", "System Info:")
"""Headings that programs print: kubectl's, among them, stand before the Events of a node."""


def begins(line: str) -> bool:
    """True for a line after which the rest of the text is quoted."""
    text = line.strip()
    if len(text) > 512 or text.startswith(_OF_A_DESCRIPTION) or _LOGGED.match(text):
        return False
    if _FENCE.match(text) or _OF_A_LETTER.match(text) or _OF_A_CHAT.match(text):
        return True
    title = _TITLE.match(text)
    if title is not None and ((title["colon"] and " " in text) or _ARTICLE.search(text)):
        return True
    return text.endswith(":") and _INTRODUCTION.search(text) is not None
