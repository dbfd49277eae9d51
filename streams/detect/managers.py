"""Who manages a fabric, and which ports its lines are about: `catalog/managers.yaml`.

A manager of a subnet or a fabric (UFM, opensm, NetQ, CloudVision) logs on its own host what happens at ports of other machines.
So what it says of a link is about the ports that the line names, in whatever order and spelling, and about nothing where it
names none. Numbers that name a device (GUID, GID, LID) count where an earlier line of the same partition named it with them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

from streams.config.yaml_tables import Strict
from streams.detect.catalog import load_catalog
from streams.detect.finding import Finding, Stream
from streams.detect.matching import re2_patterns
from streams.detect.matching.re2_patterns import Match, Pattern
from streams.model.errors import ConfigError
from streams.model.record import LogLine
from streams.model.signal import MANAGER, Attribute

_MAX_KNOWN = 50_000
_MAX_NAMED = 16
"""Devices that one message may name; hundreds are an attack."""


class EndSample(Strict):
    """A message and the devices that it names, in its order."""

    text: str
    ends: tuple[dict[str, str], ...]


class ManagerSheet(Strict):
    """The whole file; its head explains the keys."""

    programs: tuple[str, ...]
    words: dict[str, str]
    ends: tuple[str, ...]
    samples: tuple[EndSample, ...]


class End(NamedTuple):
    """One end of a link as a message names it. `name` is of a device that may be a switch or a host."""

    switch: str | None = None
    port: str | None = None
    host: str | None = None
    nic: str | None = None
    name: str | None = None

    @property
    def device(self) -> str | None:
        """What the device is called."""
        return self.switch or self.host or self.name


@cache
def sheet() -> ManagerSheet:
    """The file, read once."""
    return load_catalog("managers", ManagerSheet)


@cache
def _patterns() -> tuple[Pattern, ...]:
    return tuple(re2_patterns.compile(_spelled_out(pattern)) for pattern in sheet().ends)


@cache
def _adapter() -> Pattern:
    return re2_patterns.compile(f"(?i)^(?:{sheet().words['nic']})$")


@cache
def _programs() -> frozenset[str]:
    return frozenset(name.lower() for name in sheet().programs)


def _spelled_out(pattern: str) -> str:
    """The pattern with the words in angle brackets replaced; those of groups (`(?P<port>`) stay.

    Raises:
        ConfigError: for a word that the table does not have.
    """
    for name, meaning in sheet().words.items():
        pattern = pattern.replace(f"(?P<{name}>", f"(?P\0{name}>").replace(f"<{name}>", f"(?:{meaning})")
        pattern = pattern.replace(f"(?P\0{name}>", f"(?P<{name}>")
    if (unknown := _WORD.search(pattern)) is not None:
        raise ConfigError(f"managers.yaml: {unknown[0]} is none of its words")
    return pattern


_WORD = re2_patterns.compile(r"(?:^|[^P])<[a-z]{3,16}>")


def speaks(line: LogLine) -> bool:
    """Whether a fabric's manager wrote the line, by the program in its header or its container."""
    return any(_plain(name) in _programs() for name in (line.source, line.container) if name)


def _plain(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(".service").lower().rstrip("0123456789")


def placed(found: Finding, line: LogLine, begin: int, end: int, stream: Stream) -> Finding:
    """What a manager says between two offsets of its line, at the ports that it names there; nowhere where it names none."""
    attributes: dict[str, Attribute] = dict(found.attributes)
    if line.node is not None:
        attributes[MANAGER] = line.node
    if found.node is not None:
        return found._replace(attributes=attributes, of_others=True)
    ends = ends_of(line.text[begin:end], stream)
    switch = next((e for e in ends if e.switch is not None and (e.port or found.port)), None)
    host = next((e for e in ends if e.host is not None), None)
    other = next((e for e in ends if e.name is not None and e.port is not None), None)
    if switch is None and host is not None and other is not None:
        switch = End(switch=other.name, port=other.port)  # a host is attached to nothing else
    at = switch or host or other or next(iter(ends), None)
    if at is None:
        return found._replace(attributes=attributes, nic=None, port=None, on_switch=False, of_others=True)
    port = (at.port or found.port) if at.host is None else None
    attributes["node"] = at.device or ""
    for name, value in (("port", port), ("device", at.nic)):
        if value is not None:
            attributes[name] = value
    if switch is not None:
        attributes.pop("device", None)
        attributes |= _far_end(next((e for e in ends if e.device != switch.device), None))
    return found._replace(
        attributes=attributes,
        node=at.device,
        nic=at.nic,
        port=port,
        on_switch=at.switch is not None,
        of_others=True,
    )


def _far_end(end: End | None) -> dict[str, Attribute]:
    if end is None:
        return {}
    known = {"peer_node": end.host, "peer_nic": end.nic, "peer_switch": end.switch}
    if end.switch is not None:
        known["peer_port"] = end.port
    return {name: value for name, value in known.items() if value is not None}


def ends_of(message: str, stream: Stream | None = None) -> list[End]:
    """The devices that a message names, each once, in its order; then those whose numbers it gives that `stream` knows."""
    claimed: list[tuple[int, int]] = []
    found: list[tuple[bool, int, End]] = []
    for pattern in _patterns():
        for match in pattern.finditer(message):
            begin, until = _span(match)
            if any(begin < other_until and other < until for other, other_until in claimed):
                continue
            groups = {name: value for name, value in match.named() if value}
            end = _end(groups)
            if end.device is not None and _adapter().match(end.device) is not None:
                continue
            claimed.append((begin, until))
            known = _known(end, _numbers(groups), stream) if stream is not None else None
            if (named := known or end).device is not None:
                found.append((known is not None, begin, named))
        if len(found) >= _MAX_NAMED:
            break
    return _each_once(end for _, _, end in sorted(found, key=lambda one: one[:2]))


def _span(match: Match) -> tuple[int, int]:
    """From where to where a match names a device: an arrow before it belongs to both ends."""
    spans = [match.span(name) for name, _ in match.named()]
    return min(begin for begin, _ in spans), max(until for _, until in spans)


def _end(groups: Mapping[str, str]) -> End:
    port = groups.get("port") or groups.get("second_port") or groups.get("third_port")
    chip = groups.get("chip")
    within = [part for part in (groups.get("board"), chip if chip not in ("U1", "U01") else None) if part]
    return End(
        groups.get("switch"),
        "/".join((*within, port)) if port is not None else None,
        groups.get("host"),
        groups.get("nic") or groups.get("second_nic"),
        groups.get("name"),
    )


def _known(end: End, numbers: Iterable[tuple[str, str]], stream: Stream) -> End | None:
    """The device that the numbers mean by earlier lines, None where they mean none. What names both is remembered."""
    known = stream.rule_state.table("managers.known", _MAX_KNOWN)
    for kind, number in numbers:
        key = (stream.cluster, kind, number)
        if end.switch is not None or (end.host is not None and end.nic is not None):
            known[key] = (end.switch, end.host, end.nic)
        elif end.device is None and (row := known.get(key)) is not None:
            switch, host, nic = (value if isinstance(value, str) else None for value in row)
            return end._replace(switch=switch, host=host, nic=nic)
    return None


def _numbers(groups: Mapping[str, str]) -> list[tuple[str, str]]:
    """The numbers of a device in one spelling each: a GUID as 16 digits, a LID as a decimal number."""
    numbers = []
    if (guid := groups.get("guid")) is not None:
        numbers.append(("guid", f"{int(guid, 16):016x}"))
    if (gid := groups.get("gid")) is not None and (port := _guid_in(gid)) is not None:
        numbers.append(("guid", port))
    if (lid := groups.get("lid")) is not None and (number := _whole(lid)) is not None:
        numbers.append(("lid", str(number)))
    return numbers


def _guid_in(gid: str) -> str | None:
    """The port's GUID, which is the lower half of its GID; None for what is no address."""
    try:
        return f"{int(ipaddress.IPv6Address(gid)) & (2**64 - 1):016x}"
    except ValueError:
        return None


def _whole(text: str) -> int | None:
    try:
        return int(text, 0)
    except ValueError:
        return None


def _each_once(ends: Iterable[End]) -> list[End]:
    """The ends, what is said of one device put together: the first port counts, and of adapters the RDMA device."""
    by_device: dict[str, End] = {}
    for end in ends:
        name = (end.device or "").lower()
        before = by_device.get(name)
        by_device[name] = end if before is None else _together(before, end)
    return list(by_device.values())


def _together(one: End, two: End) -> End:
    first, second = one.nic, two.nic
    nic = second if first is None or (first.startswith("HCA-") and second is not None) else first
    typed = one if one.name is None else two
    return End(typed.switch, one.port or two.port, typed.host, nic, typed.name)
