"""Replaces names in text: those that were learned, and all that show by their form what they are."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from importlib import resources
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from faultline.replay.redaction.name_book import PUBLIC, TABLE, NameBook
from faultline.replay.redaction.pseudonyms import Pseudonyms
from streams.model.control import Control
from streams.model.conversation import Command, TimelineEntry
from streams.model.facts import FactRecord
from streams.model.incident import Incident
from streams.model.run import Run
from streams.model.signal import SignalBatch
from streams.model.thread import Thread

_FORMS = re.compile(
    r"""(?P<email>[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)
    |(?P<uuid>(?<![0-9A-Fa-f])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Fa-f]))
    |(?P<mac>(?<![0-9A-Fa-f:-])[0-9A-Fa-f]{2}(?P<gap>[:-])(?:[0-9A-Fa-f]{2}(?P=gap)){4,18}[0-9A-Fa-f]{2}(?![0-9A-Fa-f]))
    |(?P<guid>(?<![0-9A-Fa-f:])[0-9A-Fa-f]{4}(?::[0-9A-Fa-f]{4}){3}(?![0-9A-Fa-f:]))
    |(?P<ipv4>(?<![0-9.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9]|\.[0-9]))
    |(?P<ipv6>(?<![0-9A-Za-z:])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![0-9A-Za-z:]))
    |(?P<base64>(?<![A-Za-z0-9+/_-])(?:[A-Za-z0-9+/]{4}){4,}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?(?![A-Za-z0-9+/=_-]))
    |(?P<beginning>[A-Za-z0-9][A-Za-z0-9._-]*(?=\[[0-9][0-9,-]*\]|\*))
    |(?P<token>[A-Za-z0-9]+(?:[-._]+[A-Za-z0-9]+)*)""",
    re.VERBOSE,
)
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
_NOT_HOSTS = ("127.", "0.", "255.", "169.254.", "224.")
"""Addresses that are the same on every host, and masks."""


class TextRedaction:
    """Replaces names in text, the same everywhere.

    `words` are names that are words which rules look for: they are replaced only where a field holds nothing else. `left` are
    names that are words of the documents themselves, and stay as they are.
    """

    def __init__(self, pseudonyms: Pseudonyms, book: NameBook) -> None:
        self._ids: dict[str, str] = {}
        self.left = sorted(book.names & _words_of_documents())
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
        self._fields = _fields(self.words)
        self._token = lru_cache(maxsize=200_000)(self._of_token)

    def replace_ids(self, ids: Mapping[str, str]) -> None:
        """From now on replace ids of incidents and runs, which are made from names, by these."""
        self._ids.update(ids)
        self._token.cache_clear()

    def __call__(self, text: str) -> str:
        """The text with pseudonyms."""
        changed = _FORMS.sub(self._of_form, text)
        if self._fields is not None:
            changed = self._fields.sub(lambda match: self._pseudonyms.name(match[0]), changed)
        return changed

    def _of_form(self, match: re.Match[str]) -> str:
        text = match[0]
        match match.lastgroup:
            case "token":
                return self._token(text)
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

    def _base64(self, text: str) -> str:
        """What is text when decoded is replaced in that; anything else is taken for words with slashes between."""
        try:
            inner = base64.b64decode(text, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return self._tokens_of(text)
        if not inner.isprintable():
            return self._tokens_of(text)
        return base64.b64encode(self(inner).encode()).decode()

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
        parts = _SEPARATORS.split(token)
        made: list[str] = []
        at = 0
        while at < len(parts):
            end = next(
                (end for end in range(len(parts), at, -2) if "".join(parts[at:end]).lower() in self._names),
                at,
            )
            if end == at:
                made.append(parts[at])
                at += 1
                continue
            made.append(self._pseudonyms.name("".join(parts[at:end])))
            at = end
            if "".join(parts[at : at + 1]) == "." and self._is_domain(parts[at + 1 :]):
                made.append("." + self._pseudonyms.name("".join(parts[at + 1 :])))
                at = len(parts)
        return "".join(made)

    def _is_domain(self, parts: list[str]) -> bool:
        last = parts[-1]
        return last.isalpha() and last.lower() not in TABLE.endings and "_" not in "".join(parts)


def _fields(names: Collection[str]) -> re.Pattern[str] | None:
    """Where one of these names is all that a field or a part of a path holds."""
    if not names:
        return None
    any_of = "|".join(map(re.escape, names))
    return re.compile(
        rf"""(?<=["'/])(?:{any_of})(?=["'/](?!\s*:))|(?<=/)(?:{any_of})$|^(?:{any_of})(?=/|$)""",
        re.IGNORECASE,
    )


@lru_cache(maxsize=1)
def _words_of_documents() -> frozenset[str]:
    """The names of fields and the fixed values of what internal topics hold."""
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

    for kind in (FactRecord, SignalBatch, Incident, Run, Thread, TimelineEntry, Command, Control):
        look(TypeAdapter(kind).json_schema())
    return frozenset(word.lower() for word in found)


@lru_cache(maxsize=1)
def _vocabulary() -> frozenset[str]:
    """The words that the catalog's patterns are made of."""
    catalog = Path(str(resources.files("streams.detect") / "catalog"))
    found = {
        word.lower()
        for path in catalog.rglob("*.yaml")
        for word in re.findall(r"[A-Za-z]{2,}", path.read_text())
    }
    return frozenset(found - PUBLIC)
