"""What switches and hosts hear of each other at the ends of their cables, and the cables that follow from it.

Read are `lldpctl -f json` and `-f json0` of a host or a switch (lldpd), SONiC's `show lldp table`, SONiC's application database
(`LLDP_ENTRY_TABLE:*`, as one document or one a line), the leaves of gNMI's tree and of the MIB, whatever collector fetched them,
and `iblinkinfo -l`. A table does not say whose it is: its file or its record bears the device's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import orjson

from streams.ingest.records import JsonObject, Opened, RecordContext
from streams.model.errors import BadInput
from streams.model.facts import LinkFact
from streams.model.record import Neighbour
from streams.model.switch_descriptions import read_description

HINTS = (
    rb'"lldp\\{0,2}"\s{0,8}:\s{0,8}[\[{]',
    rb'"name\\{0,2}"\s{0,8}:\s{0,8}\\{0,2}"lldp',
    rb"LLDP_ENTRY_TABLE:",
    rb"lldp/interfaces/interface",
    rb"openconfig[_-]lldp",
    rb"lldp_?[rR]em_?[sS]ys_?[nN]ame",
    rb"LocalPort {1,40}RemoteDevice",
    rb"==\( *\d+X [^\n]*LinkUp",
)
"""Bytes (RE2) of records that hold such a table."""

SUFFIXES = frozenset({".json", ".jsonl", ".txt", ".log"})
"""What is not part of a device's name at the end of its file's."""

_SWITCH_PORT = re.compile(
    r"(?:Ethernet|PortChannel|Eth|Et|swp|et-|xe-|ge-|[A-Za-z]{2,24}(?:GigE|GigabitEthernet)|Gi|Te|Hu|Fo)\d"
)
_MAC = re.compile(r"(?:[0-9a-fA-F]{2}[:.-]?){5}[0-9a-fA-F]{2}")
_ENTRY = "LLDP_ENTRY_TABLE:"
_REMOTE = ("system_name", "lldp_rem_sys_name", "lldpremsysname", "chassis_name", "sysname")
_REMOTE_PORT = ("port_id", "lldp_rem_port_id", "lldpremportid")
_REMOTE_DESCRIPTION = ("port_description", "port_descr", "lldp_rem_port_desc", "lldpremportdesc")
_END = r" {1,8}\d{1,6} {1,8}(?P<%s>\d{1,4})\[[^\]\n]{0,8}\] "
_SUBNET = re.compile(
    rf"\"(?P<device>[^\"\n]{{1,192}})\"{_END % 'port'}==\([^)\n]{{0,80}}LinkUp {{0,4}}\)==> {{0,8}}(?:0x[0-9a-f]{{1,16}} )?"
    rf"{_END % 'remote_port'}\"(?P<remote>[^\"\n]{{1,192}})\""
)
"""One line of `iblinkinfo -l`: both ends with their node descriptions, which are `HOST DEVICE` for a host."""
_SUBNET_PORT = re.compile(r"(?:[LSU]\d{1,3}/){0,2}\d{1,4}")
_HOST_DEVICE = re.compile(
    r"(?P<host>[\w.-]{1,128})[ /](?P<device>(?:mlx[45]_|HCA-|hfi1_|ibp|qib)[\w.-]{1,32})"
)
_BRIDGES = 0x2800
"""Bit 2 is a bridge, bit 4 a router, counted from the most significant of sixteen (IEEE 802.1AB, 8.5.8)."""


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


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the rows of a table that is JSON to `into`; False for any other format."""
    if not isinstance(record.get("lldp"), (dict, list)) and not any(map(_is_entry, record)):
        return False
    device = context.origin.node or context.node or ""
    try:
        _add(list(_in_document(device, record)), context.origin.at, into)
    except BadInput as error:
        into.unreadable.append(str(error))
    return True


def read_text(text: str, device: str | None, at: datetime | None, into: Opened) -> bool:
    """Add the rows of a table that is text to `into`; False for any other text."""
    rows: list[Neighbour] = []
    if "==>" in text:
        rows = list(_in_subnet(text))
    elif device and "RemoteDevice" in text:
        try:
            rows = list(_in_table(device, text))
        except BadInput:
            return False
    _add(rows, at, into)
    return bool(rows)


def read_fields(
    device: str, port: str | None, fields: Mapping[str, Any], at: datetime | None, into: Opened
) -> bool:
    """Add what a collector fetched of one neighbour, by the last names of the leaves; False where that is no neighbour."""
    told = {_last(name): value for name, value in _leaves(fields) if isinstance(value, str) and value}
    remote = next((told[name] for name in _REMOTE if name in told), "")
    identity = next((told[name] for name in _REMOTE_PORT if name in told), "")
    far = _best(identity, next((told[name] for name in _REMOTE_DESCRIPTION if name in told), ""))
    if not (device and port and remote and far):
        return False
    is_switch = _SWITCH_PORT.match(port) is not None
    row = Neighbour(
        device, port, remote, far, _SWITCH_PORT.match(far) is not None, "switch" if is_switch else ""
    )
    _add([row], at, into)
    return True


def _add(rows: Iterable[Neighbour], at: datetime | None, into: Opened) -> None:
    for row in rows:
        if row.device and not into.full():
            into.observations.append(row._replace(at=at))


def _leaves(fields: Mapping[str, Any], depth: int = 6) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, dict) and depth:
            yield from _leaves(value, depth - 1)
        else:
            yield str(name), value


def _last(path: str) -> str:
    return path.rpartition("/")[2].rpartition(":")[2].lower().replace("-", "_")


def _is_entry(key: object) -> bool:
    return isinstance(key, str) and key.startswith(_ENTRY)


def _in_subnet(text: str) -> Iterator[Neighbour]:
    """A subnet's links: a switch's row of a host, or of another switch. A host's own rows say the same."""
    for match in _SUBNET.finditer(text):
        device, remote = match["device"].strip(), match["remote"].strip()
        if _HOST_DEVICE.fullmatch(device):
            continue
        switch = read_description(device)
        port = switch.port(match["port"])
        if (host := _HOST_DEVICE.fullmatch(remote)) is not None:
            yield Neighbour(switch.name, port, host["host"], host["device"], False, "switch")
            continue
        other = read_description(remote)
        if other.name != switch.name:  # the cards of a director are joined inside it, by no cable
            yield Neighbour(switch.name, port, other.name, other.port(match["remote_port"]), True, "switch")


def cables(cluster: str, heard: Iterable[Neighbour], at: datetime) -> list[LinkFact]:
    """The cables, one for each switch port; what both ends tell is one.

    A device is a switch when its own table says so, when its ports are named like a switch's, or when a host hears it forward.
    """
    rows = sorted(heard, key=lambda n: (n.device, n.port, n.remote))
    switches = {n.device for n in rows if n.side == "switch" or (not n.side and _SWITCH_PORT.match(n.port))}
    switches |= {
        n.remote
        for n in rows
        if n.bridges and (_SWITCH_PORT.match(n.remote_port) or _SUBNET_PORT.fullmatch(n.remote_port))
    }
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
    own = (document.get(key) for key in ("host", "hostname", "device"))
    name = next((value for value in own if isinstance(value, str) and value), device)
    entries = {k: v for k, v in document.items() if k.startswith(_ENTRY)}
    if "lldp" in document:
        yield from _in_lldpctl(name, document["lldp"])
    elif entries:
        yield from _in_database(name, entries)
    else:
        raise BadInput("neither `lldp` nor LLDP_ENTRY_TABLE in the document")


def _in_lldpctl(device: str, lldp: Any) -> Iterator[Neighbour]:
    if isinstance(lldp, list):
        for one in lldp:
            for interface in _list(_dict(one).get("interface")):
                yield from _in_json0(device, _dict(interface))
        return
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


def _in_json0(device: str, interface: dict[str, Any]) -> Iterator[Neighbour]:
    """lldpd's `json0`, in which everything is a list and every value is under `value`."""
    name = interface.get("name")
    for chassis in map(_dict, _list(interface.get("chassis"))):
        remote = _value(chassis.get("name"))
        for port in map(_dict, _list(interface.get("port"))):
            far = _best(_value(port.get("id")), _value(port.get("descr")))
            able = map(_dict, _list(chassis.get("capability")))
            bridges = any(c.get("type") in ("Bridge", "Router") and c.get("enabled") is True for c in able)
            if isinstance(name, str) and remote and far:
                yield Neighbour(device, name, remote, far, bridges)


def _value(told: Any) -> str:
    return next((str(one["value"]) for one in map(_dict, _list(told)) if one.get("value")), "")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


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
