"""Host names in all their forms: short, with a domain, as an address, as a cloud spells it, with a port."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from ipaddress import ip_address

NOBODYS = frozenset(
    {
        *("", "localhost", "localhost.localdomain", "localhost4", "localhost6", "127.0.0.1", "::1", "0.0.0.0", "::"),
        *("unknown", "none", "null", "-", "n/a", "default", "default string", "not specified", "not applicable"),
        *("to be filled by o.e.m.", "system serial number", "0123456789"),
    }
)  # fmt: skip
"""Names that identify no host. Board vendors leave the last ones in place of a serial number."""

MAX_LABELS = 12
"""Most parts of a dotted name that are considered: log text can have any number."""

_WITH_PORT = re.compile(r"\[([0-9a-f:.%]+)\](?::\d{1,5})?|([^:\[\]]+):\d{1,5}")
_BMC = "bmc|idrac|ilo|ipmi|drac|xcc|imm|irmc|cimc|lom|oob|mgmt|rac"
_OF_BMC = re.compile(
    rf"(?:(?:{_BMC})\d?[-_.](?P<behind>(?=[^.]*\d)[a-z0-9].*)|(?P<before>[a-z0-9][a-z0-9_-]*?)[-_.]?(?<=[0-9_.-])(?:{_BMC})\d?(?P<domain>\..*)?)"
)
"""How sites call the management controller of a host: `gpu-07-bmc`, `gpu07-ilo.mgmt.example`, `idrac-gpu-07`, `gpu-07.ipmi`."""
_DASHED = re.compile(r"ip-(\d{1,3})-(\d{1,3})-(\d{1,3})-(\d{1,3})(?:\..*)?")


@lru_cache(maxsize=65_536)
def folded(name: str) -> str:
    """A name as it is compared: lower case, without blanks around it, a port (`10.0.0.7:9400`) or the root's dot behind it."""
    name = name.strip().lower()
    if match := _WITH_PORT.fullmatch(name):
        name = match[1] or match[2]
    return name.rstrip(".")


def short(name: str) -> str:
    """A folded name without its domain; an address as a whole."""
    name = folded(name)
    return name if is_address(name) else name.partition(".")[0]


def address_in(name: str) -> str | None:
    """The address that a cloud's name of a host spells out, `10.0.1.7` of `ip-10-0-1-7.ec2.internal`; None when it is none."""
    match = _DASHED.fullmatch(name)
    return ".".join(match.groups()) if match else None


@lru_cache(maxsize=65_536)
def host_of_controller(name: str) -> str | None:
    """The host whose management controller is called so, `gpu-07` of `gpu-07-bmc.example`; None when it is no such name.

    Without the domain: controllers stand in a network of their own.
    """
    match = _OF_BMC.fullmatch(name)
    if match is None:
        return None
    return (match["before"] or match["behind"]).rstrip("-_.").partition(".")[0] or None


def is_controller(name: str) -> bool:
    """Whether a host's management controller is called so, and not the host: `n7-bmc.example`, but not `n7.mgmt.example`."""
    host = host_of_controller(folded(name))
    return host is not None and host != short(name)


@lru_cache(maxsize=65_536)
def is_address(name: str) -> bool:
    """Whether it is an IP address, whose dots do not separate labels."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def parents(name: str) -> Iterator[str]:
    """What a folded name begins with up to each of its dots, the shortest first: `a` and `a.b` of `a.b.c`."""
    if is_address(name):
        return
    labels = name.split(".", MAX_LABELS)
    yield from (".".join(labels[:count]) for count in range(1, min(len(labels), MAX_LABELS)))


def is_within(name: str, other: str) -> bool:
    """Whether two folded names may be one host's: equal, or one is the other with more of its domain."""
    return name == other or name.startswith(f"{other}.") or other.startswith(f"{name}.")
