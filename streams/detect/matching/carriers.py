"""What programs put around a message they pass on: a field of a structured line, a chain of exceptions, a word of relay.

`err="failed to create shim: …"`, `Caused by: RuntimeError: …`, `step 812 failed: …`, `kmsg: …`. A program that logs it as an
error reports it; a person's sentence, a prompt or a chat in such a field does not. Words decide between them
(`catalog/prose.yaml`).
"""

from __future__ import annotations

import re

from streams.detect.matching import prose

_SHEET = prose.sheet()
_PEOPLE = re.compile(
    rf"(?i)(?<![\w-])(?:{'|'.join(map(re.escape, _SHEET.personal))}|[\w-]{{0,24}}(?:slack|chat|ticket|jira|wiki)[\w-]{{0,24}}|"
    r"[\w-]{1,24}bot)(?![\w-])"
)
_RELAYS = frozenset(_SHEET.relays)

_ERRORS = r"err|error|exception|exc|exc_info|cause|reason|stderr|details?|failure|stack|stacktrace|traceback"
_TEXTS = r"msg|message|MESSAGE|log|event|text|line|entry|kmsg|raw|output|body"
_FIELD = re.compile(
    rf"(?:^|[\s{{,\[(]|\\n)\\{{0,8}}[\"']?(?:{_ERRORS}|{_TEXTS})\\{{0,8}}[\"']?\s?[:=]\s?\\{{0,8}}(?P<quote>[\"'])"
    r"(?P<words>(?:[^\"'\\\n]|\\{1,8}[\"'ntr/]|(?<=[\w\s:])'(?=[\w\s\\])){0,600})$"
)
"""A field whose value is still open; quotes within it are escaped."""
_SEVERE = re.compile(
    r"\b(?i:level|lvl|severity|levelname)\\{0,8}[\"']?\s?[=:]\s?\\{0,8}[\"']?(?i:e|err|error|warn|warning|crit|critical|fatal|"
    r"panic|emerg|alert|[45]0|60)\b|"
    r"(?:^|[\s\[|(:-])(?:ERROR|ERR|CRITICAL|CRIT|FATAL|WARN|WARNING|PANIC)(?:[\s\]|):-]|$)|"
    r"(?:^|[\s\]:])[EWF]\d{3,4} \d\d:\d\d:\d\d\."
)
"""A program's own level, at which it reports and does not tell of what it read."""

_CLASS = r"(?:[A-Za-z_$][\w$]{0,63}\.){0,8}[A-Z]\w{0,63}(?:Error|Exception|Failure|Fault|Traceback)(?:\([\w., ]{0,80}\))?"
_LINK = re.compile(
    rf"(?:^|(?<=[\s:\"'\]>)]))(?:{_CLASS}|[Cc]aused by|Exception in thread [^\n:]{{1,64}}|panic|fatal error|nested exception is|"
    r"thread '[^'\n]{1,64}' panicked at [^\s'\"]{1,160}|Error executing job with overrides: \[[^\]\n]{0,200}\]|"
    r"(?:[Uu]ncaught|[Uu]nhandled) (?:exception|error)(?: in [\w. -]{1,64})?|"
    r"The above exception was the direct cause(?: of [\w ]{1,48})?|During handling of the above exception[\w ,]{0,48}|"
    r"rpc error: code = \w{1,32} desc =|exit status \d{1,3}|(?:ERROR|CRITICAL|FATAL|WARNING)(?::[\w.]{1,64})?|"
    r"ray::[\w.:<>]{1,96}(?:\(\))? \([^)\n]{1,160}\)|(?:worker|rank|process|task|step|node|replica|actor) #?\d{1,9}(?: failed)?|"
    r"(?:exec|worker|trainer|training|step|job|task)(?: failed| crashed)?)(?::| -|;)?\s{0,3}$"
)
_MAX_LINKS = 8
_MAX_LINK = 320
_MAX_FIELD = 768
_MAX_BEFORE = 2048
_MAX_LEVEL = 256
"""Characters in which a line's level stands."""
_SAID = re.compile(r"^[\w\s.,:;/()\[\]#=|<>%+'-]{0,256}(?::| -|\|)\s{0,3}$")
"""What a program says it was doing: words up to a colon, without quotes."""

_RELAYED = re.compile(
    r"(?:^|[\s\]:])(?:(?:new|read|from|got) )?(?:imkmsg|kmsg|kernel|dmesg|klog)"
    r"(?: (?:message|line|log|entry|record))?[:=]\s?[\"']?$"
)


def personal(before: str) -> bool:
    """True for words that people and their tools use around what they quote."""
    return _PEOPLE.search(before[-_MAX_BEFORE:]) is not None


def in_a_field(before: str) -> bool:
    """True when the text ends in an open field of a structured line, in which a program reports an error of another."""
    field = _FIELD.search(before[-_MAX_FIELD:])
    return field is not None and _is_severe(before) and not personal(before)


def without_chain(before: str) -> str:
    """The text without the exceptions and wrappers of errors at its end; with them when people's words stand before them."""
    if _PEOPLE.search(before) is not None:
        return before
    for _ in range(_MAX_LINKS):
        tail = before[-_MAX_LINK:]
        if (link := _LINK.search(tail)) is None:
            break
        before = before[: len(before) - len(tail) + link.start()]
    return before


def tells_of_an_error(before: str) -> bool:
    """True when a program says at its own error level what it was doing, and then what went wrong."""
    return _is_severe(before) and _SAID.match(before) is not None and _PEOPLE.search(before) is None


def without_relay(before: str) -> str:
    """The text without the word by which an agent says that the kernel's line follows."""
    relayed = _RELAYED.search(before)
    return before if relayed is None else before[: relayed.start()] + " "


def is_relay(source: str) -> bool:
    """True for an agent that reads the kernel's log and prints what it found."""
    return source in _RELAYS


def _is_severe(before: str) -> bool:
    return _SEVERE.search(before[:_MAX_LEVEL]) is not None
