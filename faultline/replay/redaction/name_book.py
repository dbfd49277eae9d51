"""Which names a capture holds: of hosts, users, jobs, pods, namespaces, switches, tickets. All of it is read for them first.

A name is learned where its place says what it is (a fact, a field of a record, a home directory), and then replaced everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from faultline.replay.redaction.encodings import texts_within
from faultline.runtime.processes import PROCESSES
from streams.config.yaml_tables import Strict, load_table
from streams.ingest.open_record import open_record
from streams.ingest.records import RecordContext
from streams.model.errors import BadInput
from streams.model.hostnames import NOBODYS, is_address
from streams.model.record import Alert, KubeEvent, LogLine, Neighbour, RawRecord, Sample


class NameTable(Strict):
    """`names.yaml`: the fields that hold names, and the names that are nobody's."""

    hosts: frozenset[str]
    names: frozenset[str]
    users: frozenset[str]
    groups_of_users: frozenset[str]
    tickets: frozenset[str]
    public: frozenset[str]
    public_domains: tuple[str, ...]
    controllers: frozenset[str]
    endings: frozenset[str]


TABLE = load_table(Path(__file__).with_name("names.yaml"), NameTable)
PUBLIC = NOBODYS | TABLE.public | frozenset(PROCESSES)
_SERIALS = re.compile(r"serial|asset_tag", re.IGNORECASE)
_GUIDS = re.compile(r"guid", re.IGNORECASE)
_CONTEXTS = re.compile(
    r"""(?:/home/|/Users/|/scratch/|/users/)(?P<home>[A-Za-z_][A-Za-z0-9_.-]*)
    |(?:https?|wss?|ldaps?)://(?:[^\s/@"']{1,200}@)?(?P<url>[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*)
    |\bslack:(?P<slack>[A-Za-z0-9]+)
    |(?P<mail>[A-Za-z0-9][A-Za-z0-9._%+-]*)@(?P<domain>[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)
    |\b(?:user|username|login|owner|userid|logname|uid)["']?\s?[=:]\s?["']?(?:\d+\()?(?P<user>[A-Za-z_][A-Za-z0-9_.-]{1,31})
    |\bof\suser\s(?P<of>[A-Za-z_][A-Za-z0-9_-]{1,31})
    |\bfor\s(?:invalid\suser\s)?(?P<ssh>[A-Za-z_][A-Za-z0-9_-]{1,31})\sfrom\s
    |/browse/(?P<ticket>[A-Z][A-Z0-9_]+-\d+)
    |serial(?:[ _-]?(?:numbers?|num|no))?\.?[\s:=\#"'\\]{1,8}(?:(?:is|was|of)[\s:=\#"'\\]{1,8})?
        (?P<serial>(?=[A-Z]*[0-9])[A-Z0-9]{6,24})
    |guid["']?[ :=]{1,3}["']?(?P<guid>(?:0x)?[0-9a-f]{16}|[0-9a-f]{4}(?::[0-9a-f]{4}){3})\b""",
    re.VERBOSE | re.IGNORECASE,
)
_MARKS = (
    "/home/",
    "/users/",
    "/scratch/",
    "://",
    "@",
    "user",
    "login",
    "owner",
    "logname",
    "uid",
    " from ",
    "/browse/",
    "serial",
    "slack:",
)
"""One of these is in every text that `_CONTEXTS` finds something in."""
_DEEPEST = 4
_ESCAPED = re.compile(r'\\+"')
_WITH_ID = re.compile(r"(.*\S)\s*\(([^()]+)\)")
"""How the pipeline writes who it was: `Ada Lovelace (U0123ABC)`."""
_BETWEEN = re.compile(r"[:|/#=,;<>]+")
"""What is between the parts of a person's name or id: `slack:U0123`, `system:serviceaccount:lab:deployer`, `auth0|5f7c8e`."""
_TOKEN = re.compile(r"[A-Za-z0-9]+(?:[-._]+[A-Za-z0-9]+)*")
_LONGEST_NAME = 80
_SHORTEST_HASH = 16
_MOST_WORDS = 5
_TICKET = re.compile(r"([A-Z][A-Z0-9_]+)-(\d+)")


class NameBook:
    """The names that were learned, in lower case."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self.names: set[str] = set()
        self.people: set[str] = set()
        """Names of people that are more than one word, or not in ASCII."""
        self.serials: set[str] = set()
        self.guids: set[str] = set()
        """GUIDs as their sixteen hex digits."""
        self.nodes: set[str] = set()
        """Names of the cluster's nodes: what they begin with is nobody's word."""
        self.projects: set[str] = set()
        """What tickets begin with."""
        self._seen_hosts: set[str] = set()

    def learn(self, record: RawRecord) -> None:
        """Learn the names in a record, whatever its format. One that cannot be read has none in places that are known."""
        for part in (record.value, record.key, *(value for _, value in record.headers)):
            if part:
                self.learn_text(part.decode(errors="replace"))
        if record.value is None:
            return
        try:
            if record.topic.startswith("raw."):
                self._learn_raw(record)
            else:
                self.learn_document(orjson.loads(record.value))
        except (BadInput, orjson.JSONDecodeError):
            return

    def learn_text(self, text: str, depth: int = 0) -> None:
        """Learn users, tickets, serial numbers and GUIDs, and the hosts of URLs, where the words around tell."""
        if depth < _DEEPEST:
            for inner in texts_within(text):
                self.learn_text(inner, depth + 1)
        lower = text.lower()
        if not any(mark in lower for mark in _MARKS):
            return
        for match in _CONTEXTS.finditer(_ESCAPED.sub('"', text)):
            name = match[match.lastgroup or 0]
            match match.lastgroup:
                case "url":
                    self.add_host(name)
                case "domain":
                    self._add(match["mail"])
                    self._add_domain(name)
                case "ticket":
                    self._add_ticket(name)
                case "serial":
                    self._add_serial(name)
                case "slack":
                    self._add_id(name)
                case "guid":
                    self._add_guid(name)
                case _:
                    self._add(name.rstrip("."))

    def learn_document(self, document: Any, key: str = "") -> None:
        """Learn the names in a JSON document by the names of its fields."""
        if isinstance(document, Mapping):
            if {"kind", "namespace", "name"} <= document.keys():
                self._add(str(document["name"]))
            if document.get("kind") == "node" and isinstance(document.get("name"), str):
                self.add_host(document["name"])
                self.nodes.add(document["name"].lower())
            for name, value in document.items():
                # Who is in which group stands under the name of the group.
                self.learn_document(value, key if key in TABLE.groups_of_users else name)
        elif isinstance(document, list | tuple):
            for value in document:
                self.learn_document(value, key)
        elif isinstance(document, str):
            self._learn_field(key.lower(), document)
            if document[:1] in ("{", "["):
                with suppress(orjson.JSONDecodeError):
                    self.learn_document(orjson.loads(document))

    def add_host(self, name: str) -> None:
        """Add a host by a name with or without its domain, port or address."""
        name = name.lower().rstrip(".")
        if name in self._seen_hosts:
            return
        self._seen_hosts.add(name)
        host, _, port = name.rpartition(":")
        name = host if host and port.isdecimal() else name
        if is_address(name) or _is_public(name):
            return
        short, _, domain = name.partition(".")
        self._add(short)
        if domain:
            self._add_domain(domain)

    def add_person(self, name: str, *, is_surely_one: bool = False) -> None:
        """Add a person in any form: a name, an id, both, an address, or several with `|` between."""
        if with_id := _WITH_ID.fullmatch(name):
            self.add_person(with_id[1], is_surely_one=True)
            self.add_person(with_id[2])
            return
        self.learn_text(name)  # addresses, and where an issuer of subjects is
        for part in map(str.strip, _BETWEEN.split(name)):
            words = part.split()
            if "@" in part or PUBLIC.issuperset(map(str.lower, words)):
                continue
            if len(words) == 1 and _TOKEN.fullmatch(part):
                self._add_id(part)
            elif is_surely_one or (len(words) <= _MOST_WORDS and len(part) <= _LONGEST_NAME):
                self.people.add(" ".join(words).lower())

    def _add_id(self, name: str) -> None:
        """Add the name or the id of an account. An id is changed in its digits too."""
        is_id = any(char.isdigit() for char in name) and (name == name.upper() or len(name) >= _SHORTEST_HASH)
        if is_id and len(name) > 4:
            self._add_serial(name)
        else:
            self._add(name)

    def _learn_raw(self, record: RawRecord) -> None:
        opened = open_record(record.value or b"", RecordContext(record.timestamp))
        for found in opened.observations:
            for host in _hosts_of(found):
                self.add_host(host)
            for name in _names_of(found):
                self._add(name)
        text = (record.value or b"").lstrip()
        if text[:1] in (b"{", b"["):
            self.learn_document(orjson.loads(text))

    def _learn_field(self, key: str, value: str) -> None:
        if key in TABLE.hosts:
            self.add_host(value)
        elif key in TABLE.names:
            self._add(value.rpartition("/")[2])
        elif key in TABLE.users or key in TABLE.groups_of_users:
            self.add_person(value)
        elif key in TABLE.tickets:
            self._add_ticket(value)
        elif _SERIALS.search(key):
            self._add_serial(value)
        elif _GUIDS.search(key):
            self._add_guid(value)

    def _add(self, name: str) -> None:
        name = name.strip().lower()
        if (
            name not in PUBLIC
            and name != self._cluster
            and any("a" <= char <= "z" for char in name)
            and len(name) < 254
        ):
            self.names.add(name)

    def _add_domain(self, domain: str) -> None:
        labels = domain.lower().split(".")
        if not _is_public(domain.lower()):
            for begin in range(len(labels) - 1):
                self._add(".".join(labels[begin:]))

    def _add_ticket(self, name: str) -> None:
        if match := _TICKET.fullmatch(name):
            self.projects.add(match[1])
        elif name:
            self._add_serial(name)

    def _add_serial(self, serial: str) -> None:
        if len(serial) > 4 and any(char.isdigit() for char in serial) and serial.lower() not in PUBLIC:
            self.serials.add(serial.lower())

    def _add_guid(self, guid: str) -> None:
        digits = guid.lower().removeprefix("0x").replace(":", "")
        if len(digits) == 16:
            self.guids.add(digits)


def _is_public(domain: str) -> bool:
    return f".{domain}".endswith(tuple(f".{one}" for one in TABLE.public_domains))


def _hosts_of(found: object) -> Iterator[str]:
    match found:
        case LogLine() | Sample():
            if found.node:
                yield found.node
        case KubeEvent():
            if found.host:
                yield found.host
            if found.kind == "Node":
                yield found.name
        case Alert():
            yield from (
                found.labels[name] for name in ("node", "instance", "hostname") if name in found.labels
            )
        case Neighbour():
            yield found.device
            yield found.remote


def _names_of(found: object) -> Iterator[str]:
    match found:
        case LogLine():
            if found.pod:
                yield from (found.pod.namespace, found.pod.name)
        case KubeEvent():
            yield from (found.namespace, found.name)
