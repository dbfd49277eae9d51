"""Is this message being reported, or merely quoted?

A line in a chat, a stack trace, a question or a test holds the same words as the driver's own line. What tells them apart is
what stands before the message: loggers put times, hosts, ranks and brackets there, people put words and quotes.
"""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict

from streams.detect.catalog import load_catalog
from streams.envelopes.header import KERNEL_TAGS
from streams.model.record import LogLine


class Prose(BaseModel):
    """Words that people put before a quotation and loggers never put before a message."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    words: tuple[str, ...]


_GROUPS = re.compile(r"\[[^\]]{0,200}\]|\([^)]{0,200}\)|<[\w./-]{1,64}>")
_FIELD = re.compile(r"[\w.@-]{1,64}=(?:\"?[^\s\"]{0,128}\"?)$")
_MESSAGE_FIELD = re.compile(r"\b(?:msg|message|MESSAGE|log)\s?[=:]\s?\\?[\"']$")
_CLOCKWORK = re.compile(r"[\dTZ:.,+/|;-]{1,40}$")
_LEVEL = re.compile(
    r"(?:emerg|alert|crit(?:ical)?|err(?:or)?|warn(?:ing)?|notice|info|debug|fatal|stdout|stderr)[:|]?$",
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(r"[\w.@#/+:-]{1,128}$")
_EXCEPTION = re.compile(r"\w*(?:Error|Exception|Traceback|Warning)\b")
_ANNOUNCERS = re.compile(
    r"(?:[\w./]{1,64}:\d{1,6} (?:\(\w{1,64}\) )?)?NCCL WARN "
    r"|(?:Process group|NCCL) watchdog thread terminated with exception: ?|\bwhat\(\): {0,4}"
    r"|(?:torch\.distributed\.)?DistBackendError: ?|terminate called after throwing an instance of '[^']{0,80}'"
)
_PROSE = frozenset(load_catalog("prose", Prose).words)
_QUOTES = "\"'`“”‘’«»"
_MOST_WORDS = 2


def reported(line: LogLine, at: int, *, by_kernel: bool = False, after: int | None = None) -> bool:
    """True when what begins at `at` is the line's own message.

    Args:
        line: The line.
        at: Where the words were found in `line.text`.
        by_kernel: Only the kernel says such a thing; a line of another program that holds it is a quotation.
        after: End of a message of the same line that was found to be reported: two lines may be glued together.
    """
    before = line.text[(line.start if after is None else after) : at]
    if _quoted(before):
        return False
    if line.source == "kernel" or "orchagent" in line.source or after is not None:
        return True
    if by_kernel and line.source not in _MAY_RELAY_KERNEL:
        return False
    return _looks_like_a_header(_ANNOUNCERS.sub(" ", before))


_MAY_RELAY_KERNEL = KERNEL_TAGS | {
    "",
    "container",
    "journal",
    "journald",
    "syslog",
    "systemd-journald",
    "rsyslogd",
}


def _quoted(before: str) -> bool:
    """An opening quote without its end, unless it opens the message field of a structured line."""
    tail = before.rstrip()
    if not tail or _MESSAGE_FIELD.search(tail):
        return False
    if tail[-1] in _QUOTES + ">$#/=":
        return True
    return before.count('"') % 2 == 1 or before.count("`") % 2 == 1


def _looks_like_a_header(before: str) -> bool:
    """Times, levels, brackets and up to two names: yes. Sentences: no."""
    if len(before) > 512:
        return False
    names = 0
    for token in _GROUPS.sub(" ", _MESSAGE_FIELD.sub(" ", before)).split():
        if _CLOCKWORK.match(token) or _LEVEL.match(token) or _FIELD.match(token):
            continue
        if token.rstrip(":,?!").lower() in _PROSE or _EXCEPTION.search(token):
            return False
        if not _IDENTIFIER.match(token):
            return False
        # A bare word is half a sentence; a name with digits, dashes or a colon is a host, a pod or a program.
        names += 2 if token.isalpha() and not token.isupper() else 1
    return names <= _MOST_WORDS
