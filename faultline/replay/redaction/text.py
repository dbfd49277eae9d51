"""Replaces names in text: those that were learned, and all that show by their form what they are."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from importlib import resources
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from faultline.replay.redaction.encodings import of_base64, of_hex, without_escapes
from faultline.replay.redaction.known_names import any_of, is_unlike_words
from faultline.replay.redaction.name_book import PUBLIC, TABLE, NameBook
from faultline.replay.redaction.pseudonyms import Pseudonyms
from faultline.replay.redaction.values import Unreadable
from faultline.runtime.settings import Settings
from runbooks.language.loader import load as load_runbooks
from runbooks.language.schema import Runbook
from streams.model.control import Control
from streams.model.conversation import Command, TimelineEntry
from streams.model.facts import FactRecord
from streams.model.incident import Incident
from streams.model.run import Run
from streams.model.signal import SignalBatch
from streams.model.thread import Thread

_DOCUMENTS = (FactRecord, SignalBatch, Incident, Run, Thread, TimelineEntry, Command, Control)
_MORE = r"(?:[-._]+(?!(?:[0-9A-Fa-f]{1,4}:){2}|[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{1,4}:)[A-Za-z0-9]+)*"
"""How a name goes on; an IPv6 address behind it (`addr_2001:db8::7`) is none of it."""
_FORMS = re.compile(
    rf"""(?P<login>(?<=://)[^\s/@"'<>]{{1,200}}@)
    |(?P<email>[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)
    |(?P<uuid>(?<![0-9A-Fa-f])[0-9A-Fa-f]{{8}}(?:-[0-9A-Fa-f]{{4}}){{3}}-[0-9A-Fa-f]{{12}}(?![0-9A-Fa-f]))
    |(?P<mac>(?<![0-9A-Fa-f:-])[0-9A-Fa-f]{{2}}(?P<gap>[:-])(?:[0-9A-Fa-f]{{2}}(?P=gap)){{4,18}}[0-9A-Fa-f]{{2}}(?![0-9A-Fa-f]))
    |(?P<guid>(?<![0-9A-Fa-f:])[0-9A-Fa-f]{{4}}(?::[0-9A-Fa-f]{{4}}){{3}}(?![0-9A-Fa-f:]))
    |(?P<ipv4>(?<![0-9.])(?:[0-9]{{1,3}}\.){{3}}[0-9]{{1,3}}(?![0-9]|\.[0-9]))
    |(?P<ipv6>(?<![0-9A-Za-z:])[0-9A-Fa-f]{{0,4}}(?::[0-9A-Fa-f]{{0,4}}){{2,7}}(?![0-9A-Za-z:]|\.[0-9]))
    |(?P<escaped>(?<=\\)[abefnrtv0][A-Za-z0-9]+{_MORE})
    |(?P<base64>(?<![A-Za-z0-9+/_.-])[A-Za-z0-9+/_-]{{8,}}+(?:={{1,2}}(?!=)|(?!\.?[A-Za-z0-9+/=_-]|:[0-9A-Fa-f:]|\[[0-9]|\*)))
    |(?P<beginning>[A-Za-z0-9][A-Za-z0-9._-]*(?=\[[0-9][0-9,-]*\]|\*))
    |(?P<token>[A-Za-z0-9]+{_MORE})""",
    re.VERBOSE,
)
_COLOUR = re.compile(
    r"((?:\x1b|\\(?:x1b|033|e|u001b)|#033)\[[0-9;]*[A-Za-z]|\\[nrt](?=[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:]))"
)
"""Colours of a terminal, and a tab that is written out before an address: what follows begins a word."""
_WITHIN = re.compile(
    r"""(?<![0-9A-Za-z])(?:(?P<uuid>[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})
    |(?P<mac>(?:[0-9A-Fa-f]{2}-){5}[0-9A-Fa-f]{2})
    |(?P<ipv4>(?:[0-9]{1,3}\.){3}[0-9]{1,3}))(?![0-9A-Za-z]|\.[0-9])""",
    re.VERBOSE,
)
"""What may be part of a longer name: `GPU-UUID`, `host-10.0.0.7`."""
_TOKENS = re.compile(r"[A-Za-z0-9]+(?:[-._]+[A-Za-z0-9]+)*")
_SEPARATORS = re.compile(r"([-._]+)")
_DIGITS = re.compile(r"[0-9]+")
_TICKET = re.compile(r"([A-Z][A-Z0-9_]+)-(\d+)")
_OWN_ID = re.compile(r"(?:inc|run)-[0-9a-f]{16}")
_DASHED = re.compile(
    r"(?<![0-9])(?:(?<=ip-)[0-9]{1,3}|10|172|192)(?:-[0-9]{1,3}){3}(?![0-9]|-[0-9])", re.IGNORECASE
)
"""An address as clouds and DNS write it: `10-0-0-7.example.net`."""
_DEEPEST = 6
_NOT_HOSTS = ("127.", "0.", "255.", "169.254.", "224.")
"""Addresses that are the same on every host, and masks."""


class TextRedaction:
    """Replaces names in text, the same everywhere.

    `words` are names that are words which rules look for: they are replaced only where a field holds nothing else. `left` are
    names that are words of the documents themselves, and stay as they are.
    """

    def __init__(self, pseudonyms: Pseudonyms, book: NameBook) -> None:
        self._ids: dict[str, str] = {}
        self.left = sorted(book.names & words_of_documents())
        names = book.names - set(self.left)
        self.words = sorted(
            name for name in names if name.isalpha() and (len(name) < 3 or name in _vocabulary())
        )
        self._pseudonyms = pseudonyms
        self._book = book
        self._names = names - set(self.words)
        self._beginnings = {
            name[: digits.start()] for name in names for digits in _DIGITS.finditer(name) if digits.start()
        }
        self._serials = any_of(one for one in book.serials if len(one) > 5)
        self._unlike = any_of(filter(is_unlike_words, self._names))
        parts = {
            name[: digits.start()]
            for name in book.nodes
            for digits in _DIGITS.finditer(name)
            if digits.start()
        }
        self._parts = any_of(one for one in parts if is_unlike_words(one) and not _is_of_words(one))
        self._depth = 0
        self._fields = _fields(self.words)
        self._people = _phrases(book.people)
        self._token = lru_cache(maxsize=200_000)(self._of_token)
        self._base64 = lru_cache(maxsize=50_000)(self._of_base64)

    def replace_ids(self, ids: Mapping[str, str]) -> None:
        """From now on replace ids of incidents and runs, which are made from names, by these."""
        self._ids.update(ids)
        self._token.cache_clear()
        self._base64.cache_clear()

    def known_in(self, text: str) -> str:
        """The first name or serial number in a text that should have been replaced; empty without one."""
        for pattern in (self._unlike, self._serials):
            if pattern is not None and (found := pattern.search(text)):
                return found[0]
        return ""

    def __call__(self, text: str) -> str:
        """The text with pseudonyms, also where it is encoded within itself. Raises Unreadable when that is so too often."""
        if self._people is not None:
            text = self._people.sub(lambda match: self._pseudonyms.person(match[0]), text)
        changed = without_escapes(text, self._within)
        if changed is None:
            changed = self._plain(text)
        if self._fields is not None:
            changed = self._fields.sub(lambda match: self._pseudonyms.name(match[0]), changed)
        return changed

    def _plain(self, text: str) -> str:
        if ("[" in text or "\\" in text) and _COLOUR.search(text):
            parts = _COLOUR.split(text)
            parts[::2] = [_FORMS.sub(self._of_form, part) for part in parts[::2]]
            return "".join(parts)
        return _FORMS.sub(self._of_form, text)

    def _within(self, text: str) -> str:
        if self._depth >= _DEEPEST:
            raise Unreadable("encoded too many times")
        self._depth += 1
        try:
            return self(text)
        finally:
            self._depth -= 1

    def _of_form(self, match: re.Match[str]) -> str:
        text = match[0]
        match match.lastgroup:
            case "token":
                return self._token(text)
            case "escaped":
                made = self._token(text)
                return made if made != text else text[0] + _FORMS.sub(self._of_form, text[1:])
            case "login":
                user, colon, _ = text[:-1].partition(":")
                return f"{self._pseudonyms.name(user)}{colon}{'secret' if colon else ''}@"
            case "email":
                user, _, domain = text.partition("@")
                return f"{self._pseudonyms.name(user)}@{self._pseudonyms.name(domain)}"
            case "uuid":
                return self._pseudonyms.hex(text)
            case "mac" | "gap":
                return self._pseudonyms.mac(text)
            case "guid":
                return self._pseudonyms.hex(text)
            case "ipv4":
                if match.string.startswith("://", max(match.start() - 3, 0)):
                    return self._pseudonyms.ipv4(text)
                return self._ipv4(text)
            case "ipv6":
                return self._ipv6(text)
            case "base64":
                return self._base64(text)
        return self._beginning(text)

    def _ipv4(self, text: str) -> str:
        if text.startswith(_NOT_HOSTS) or any(int(part) > 255 for part in text.split(".")):
            return text
        return self._pseudonyms.ipv4(text)

    def _ipv6(self, text: str) -> str:
        try:
            address = ip_address(text)
        except ValueError:
            return text
        return text if address.is_loopback or address.is_unspecified else self._pseudonyms.ipv6(text)

    def _of_base64(self, text: str) -> str:
        """What is text when decoded is replaced in that; anything else is taken for words with slashes between."""
        made = of_base64(text, self._within)
        return self._tokens_of(text) if made is None else made

    def _beginning(self, text: str) -> str:
        """What names begin with, before a list of numbers or a star."""
        if text.lower() in self._beginnings:
            return self._pseudonyms.name(text)
        return self._tokens_of(text)

    def _tokens_of(self, text: str) -> str:
        return _TOKENS.sub(lambda match: self._token(match[0]), text)

    def _of_token(self, token: str) -> str:
        if _OWN_ID.fullmatch(token):
            return self._ids.get(token, token)
        if inner := _WITHIN.search(token):
            before, after = token[: inner.start()], token[inner.end() :]
            return self._tokens_of(before) + self._of_form(inner) + self._tokens_of(after)
        lower = token.lower()
        if lower in self._book.serials:
            return self._pseudonyms.digits(token)
        if lower.removeprefix("0x") in self._book.guids:
            return token[:-16] + self._pseudonyms.hex(token[-16:])
        if (ticket := _TICKET.fullmatch(token)) and ticket[1] in self._book.projects:
            return f"{self._pseudonyms.word(ticket[1])}-{self._pseudonyms.digits(ticket[2])}"
        if (made_hex := of_hex(token, self._within)) is not None:
            return made_hex
        parts = _SEPARATORS.split(token)
        made: list[str] = []
        at = 0
        unknown = ""
        while at < len(parts):
            end = next(
                (end for end in range(len(parts), at, -2) if "".join(parts[at:end]).lower() in self._names),
                at,
            )
            if end == at:
                unknown += parts[at]
                at += 1
                continue
            made.append(self._anywhere(unknown))
            unknown = ""
            made.append(self._pseudonyms.name("".join(parts[at:end])))
            at = end
            if "".join(parts[at : at + 1]) == "." and self._is_domain(parts[at + 1 :]):
                made.append("." + self._pseudonyms.name("".join(parts[at + 1 :])))
                at = len(parts)
        return "".join([*made, self._anywhere(unknown)])

    def _anywhere(self, text: str) -> str:
        """Names in a text that has no boundaries around them, addresses with dashes, and what names begin with."""
        for pattern, change in (
            (self._serials, self._pseudonyms.digits),
            (self._unlike, self._pseudonyms.name),
        ):
            if pattern is not None and pattern.search(text):
                # The rest is looked at by itself: what has become a pseudonym is no name.
                found = list(pattern.finditer(text))
                begins = [0, *(one.end() for one in found)]
                ends = [*(one.start() for one in found), len(text)]
                between = [self._anywhere(text[begin:end]) for begin, end in zip(begins, ends, strict=True)]
                return between[0] + "".join(
                    change(one[0]) + after for one, after in zip(found, between[1:], strict=True)
                )
        if self._parts is not None and (begin := self._parts.match(text)):
            return self._pseudonyms.name(begin[0]) + text[begin.end() :]
        return _DASHED.sub(lambda one: self._ipv4(one[0].replace("-", ".")).replace(".", "-"), text)

    def _is_domain(self, parts: list[str]) -> bool:
        last = parts[-1]
        return last.isalpha() and last.lower() not in TABLE.endings and "_" not in "".join(parts)


def _is_of_words(name: str) -> bool:
    """Whether all that a name is made of are words that rules look for, or too short to be anybody's."""
    return all(
        len(word) < 4 or word in _vocabulary() or word in PUBLIC for word in re.findall("[a-z]+", name)
    )


def _fields(names: Collection[str]) -> re.Pattern[str] | None:
    """Where one of these names is all that a field or a part of a path holds."""
    if not names:
        return None
    any_of = "|".join(map(re.escape, names))
    return re.compile(
        rf"""(?<=["'/])(?:{any_of})(?=["'/](?!\s*:))|(?<=/)(?:{any_of})$|^(?:{any_of})(?=/|$)""",
        re.IGNORECASE,
    )


def _phrases(names: Collection[str]) -> re.Pattern[str] | None:
    """Names of several words, the longest first, but for those that rules may look for."""
    wanted = [name for name in names if not _vocabulary().issuperset(name.split())]
    if not wanted:
        return None
    any_of = "|".join(
        r"\s+".join(map(re.escape, name.split())) for name in sorted(wanted, key=len, reverse=True)
    )
    return re.compile(rf"(?<!\w)(?:{any_of})(?!\w)", re.IGNORECASE)


@lru_cache(maxsize=1)
def words_of_documents() -> frozenset[str]:
    """Names of fields, settings, shipped runbooks and their steps, and fixed values, of all that a capture holds."""
    found: set[str] = set()

    def look(schema: Any) -> None:
        if isinstance(schema, dict):
            found.update(schema.get("properties", ()))
            found.update(
                value for value in [*schema.get("enum", ()), schema.get("const")] if isinstance(value, str)
            )
            for inner in schema.values():
                look(inner)
        elif isinstance(schema, list):
            for inner in schema:
                look(inner)

    for kind in (*_DOCUMENTS, Settings, Runbook):
        look(TypeAdapter(kind).json_schema())
    for book in load_runbooks():
        found.update((book.id, *(step.id for step in book.steps)))
    return frozenset(word.lower() for word in found)


@lru_cache(maxsize=1)
def _vocabulary() -> frozenset[str]:
    """The words that the catalog's patterns are made of."""
    catalog = Path(str(resources.files("streams.detect") / "catalog"))
    found = {
        word.lower()
        for path in catalog.rglob("*.yaml")
        for word in re.findall(r"[A-Za-z]{2,}", path.read_text(encoding="utf-8"))
    }
    return frozenset(found - PUBLIC)
