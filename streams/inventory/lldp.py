"""LLDP tables → link facts: what switches and hosts hear of each other at the ends of their cables.

Read are `lldpctl -f json` of a host or a switch (lldpd), SONiC's `show lldp table`, and SONiC's application database
(`LLDP_ENTRY_TABLE:*`, as one document or one a line). A table does not say whose it is: its file bears the device's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import orjson

from streams.model.errors import BadInput
from streams.model.facts import LinkFact

SUFFIXES = frozenset({".json", ".jsonl", ".txt", ".log"})
"""What is not part of a device's name at the end of its file's."""

Side = Literal["switch", "host", ""]

_SWITCH_PORT = re.compile(
    r"(?:Ethernet|PortChannel|Eth|Et|swp|et-|xe-|ge-|[A-Za-z]{2,24}(?:GigE|GigabitEthernet)|Gi|Te|Hu|Fo)\d"
)
_MAC = re.compile(r"(?:[0-9a-fA-F]{2}[:.-]?){5}[0-9a-fA-F]{2}")
_ENTRY = "LLDP_ENTRY_TABLE:"
_BRIDGES = 0x2800
"""Bit 2 is a bridge, bit 4 a router, counted from the most significant of sixteen (IEEE 802.1AB, 8.5.8)."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """One row: what `device` hears on `port`. `bridges`: the remote says that it forwards."""

    device: str
    port: str
    remote: str
    remote_port: str
    bridges: bool
    side: Side = ""
    """What the device is, when the table itself tells."""


def read_neighbours(device: str, content: str) -> list[Neighbour]:
    """The rows of one device's table.

    Raises:
        BadInput: when it is in none of the known formats.
    """
    if content.lstrip().startswith(("{", "[")):
        return [n for document in _documents(content) for n in _in_document(device, document)]
    if "LocalPort" in content:
        return list(_in_table(device, content))
    raise BadInput("neither `lldpctl -f json`, nor `show lldp table`, nor entries of LLDP_ENTRY_TABLE")


def cables(cluster: str, heard: Iterable[Neighbour], at: datetime) -> list[LinkFact]:
    """The cables, one for each switch port; what both ends tell is one.

    A device is a switch when its own table says so, when its ports are named like a switch's, or when a host hears it forward.
    """
    rows = sorted(heard, key=lambda n: (n.device, n.port, n.remote))
    switches = {n.device for n in rows if n.side == "switch" or (not n.side and _SWITCH_PORT.match(n.port))}
    switches |= {n.remote for n in rows if n.bridges and _SWITCH_PORT.match(n.remote_port)}
    found: dict[str, LinkFact] = {}
    for n in rows:
        here, there = n.device in switches, n.remote in switches
        if here and there:
            link = LinkFact(cluster, n.device, n.port, at, peer_switch=n.remote, peer_port=n.remote_port)
        elif here:
            link = LinkFact(cluster, n.device, n.port, at, node=n.remote, nic=_nic(n.remote_port))
        elif there:
            link = LinkFact(cluster, n.remote, n.remote_port, at, node=n.device, nic=n.port)
        else:
            continue
        known = found.get(link.key)
        # A host knows its own interface's name; a switch may have heard an address only.
        if known is None or known.nic is None:
            found[link.key] = link
    return [found[key] for key in sorted(found)]


def _nic(port: str) -> str | None:
    return None if _MAC.fullmatch(port) else port


def _documents(content: str) -> Iterator[Any]:
    try:
        yield orjson.loads(content)
        return
    except orjson.JSONDecodeError as error:
        whole = error
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            yield orjson.loads(line)
        except orjson.JSONDecodeError:
            raise BadInput(f"not JSON: {whole}; and as lines: line {number} is none") from whole


def _in_document(device: str, document: Any) -> Iterator[Neighbour]:
    if isinstance(document, list):
        for one in document:
            yield from _in_document(device, one)
        return
    if not isinstance(document, dict):
        raise BadInput("an LLDP document must be an object")
    name = next((str(document[k]) for k in ("host", "hostname", "device") if document.get(k)), device)
    entries = {k: v for k, v in document.items() if k.startswith(_ENTRY)}
    if "lldp" in document:
        yield from _in_lldpctl(name, document["lldp"])
    elif entries:
        yield from _in_database(name, entries)
    else:
        raise BadInput("neither `lldp` nor LLDP_ENTRY_TABLE in the document")


def _in_lldpctl(device: str, lldp: Any) -> Iterator[Neighbour]:
    for name, told in _named(_dict(lldp).get("interface")):
        for remote, chassis in _named(_dict(told).get("chassis")):
            port = _dict(_dict(told).get("port"))
            about = _dict(port.get("id"))
            remote_port = _best(str(about.get("value") or ""), str(port.get("descr") or ""))
            able = chassis.get("capability")
            bridges = any(
                _dict(c).get("type") in ("Bridge", "Router") and _dict(c).get("enabled") is True
                for c in (able if isinstance(able, list) else [able])
            )
            if remote_port:
                yield Neighbour(device, name, remote, remote_port, bridges)


def _named(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """lldpd gives one thing as an object under its name and many as a list of such objects."""
    for one in value if isinstance(value, list) else [value]:
        for name, told in _dict(one).items():
            if isinstance(told, dict):
                yield str(name), told


def _in_database(device: str, entries: Mapping[str, Any]) -> Iterator[Neighbour]:
    for key, entry in entries.items():
        told = _dict(_dict(entry).get("value")) or _dict(entry)
        remote = str(told.get("lldp_rem_sys_name") or "")
        port = _best(str(told.get("lldp_rem_port_id") or ""), str(told.get("lldp_rem_port_desc") or ""))
        try:
            able = int(str(told.get("lldp_rem_sys_cap_enabled") or "0").replace(" ", ""), 16)
        except ValueError as error:
            raise BadInput(f"{key}: lldp_rem_sys_cap_enabled is no bit mask") from error
        if remote and port:
            bridges = bool(able & _BRIDGES)
            yield Neighbour(device, key.removeprefix(_ENTRY), remote, port, bridges, "switch")


def _in_table(device: str, content: str) -> Iterator[Neighbour]:
    """Columns lie where the rule under their heads says; names may hold blanks."""
    lines = content.splitlines()
    heads = next(number for number, line in enumerate(lines) if "LocalPort" in line)
    if heads + 1 >= len(lines) or not re.fullmatch(r"[- ]+", lines[heads + 1]):
        raise BadInput("`show lldp table` without the rule under its heads")
    spans = [m.span() for m in re.finditer(r"-+", lines[heads + 1])]
    names = [lines[heads][start:end].strip() for start, end in spans]
    for line in lines[heads + 2 :]:
        if not line.strip() or line.startswith("---"):
            break
        ends = [end for _, end in spans[:-1]] + [len(line)]
        row = {n: line[s:e].strip() for n, (s, _), e in zip(names, spans, ends, strict=True)}
        port = _best(row.get("RemotePortID", ""), row.get("RemotePortDescr", ""))
        if row.get("LocalPort") and row.get("RemoteDevice") and port:
            bridges = any(letter in row.get("Capability", "") for letter in "BR")
            yield Neighbour(device, row["LocalPort"], row["RemoteDevice"], port, bridges, "switch")


def _best(identity: str, description: str) -> str:
    """The port as its device logs it: where it is identified by an alias (SONiC) or an address (hosts), the description."""
    if _SWITCH_PORT.match(identity) or not description:
        return identity
    if _SWITCH_PORT.match(description) or _MAC.fullmatch(identity):
        return description.split()[0] if description.split() else identity
    return identity


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
