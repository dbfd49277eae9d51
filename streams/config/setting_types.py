"""Types of settings, validated at start: addresses, URLs, names that Kubernetes, Kafka, Slack or Jira accept.

An error says what would be accepted. A typo that passes here shows hours later: a pool not watched, a thread nobody gets.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from streams.job_kinds.known import WATCHED_BY_DEFAULT
from streams.model.similar import suggestion

JOB_KINDS = WATCHED_BY_DEFAULT
"""Known job kinds, for suggestions only: any other kind can be watched too."""

_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?|\[[0-9A-Fa-f:.%a-z]+\]")
_DNS_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_VERSION = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")
_PART_KIND = re.compile(r"[a-z][a-z0-9-]{0,31}")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")
_PROJECT = re.compile(r"[A-Z][A-Z0-9_]{1,}")


def _bootstrap(value: str) -> str:
    for address in map(str.strip, value.split(",")):
        host, _, port = address.rpartition(":")
        if not _HOST.fullmatch(host) or not port.isdecimal() or not 0 < int(port) < 65536:
            hint = f"; did you mean {address}:9092?" if _HOST.fullmatch(address) else ""
            raise ValueError(f"{address!r} is not host:port{hint}")
    return value


def _url(value: str) -> str:
    if "@" in value:
        raise ValueError("a base URL must not contain a user or password")  # the value is not echoed
    try:
        parts = urlsplit(value)
        fine = parts.scheme in ("http", "https") and bool(_HOST.fullmatch(parts.hostname or ""))
        fine = fine and (parts.port is None or parts.port > 0)
    except ValueError:
        fine = False
    if not fine or any(c.isspace() for c in value):
        hint = f"; did you mean https://{value}?" if _DNS_NAME.fullmatch(value) and "." in value else ""
        raise ValueError(f"{value!r} is not a URL: https://HOST[:PORT][/PATH]{hint}")
    if parts.query or parts.fragment:
        raise ValueError(f"{value!r}: a base URL has neither query nor fragment")
    return value


def _label_key(value: str) -> str:
    prefix, slash, name = value.rpartition("/")
    if (slash and not _DNS_NAME.fullmatch(prefix)) or not _LABEL_NAME.fullmatch(name):
        raise ValueError(f"{value!r} is not a label key: NAME or PREFIX/NAME, e.g. example.com/rack")
    return value


def _label(value: str) -> str:
    key, _, wanted = value.partition("=")
    _label_key(key)
    if wanted and not _LABEL_NAME.fullmatch(wanted):
        raise ValueError(f"{wanted!r} is not a label value: letters, digits, dots, hyphens, at most 63")
    return value


def _part_label(value: str) -> str:
    kind, equals, key = value.partition("=")
    if not equals or not _PART_KIND.fullmatch(kind) or kind in ("nodes", "nvlink", "storage"):
        raise ValueError(f"{value!r} is not kind=label, e.g. power-feed=example.com/pdu")
    _label_key(key)
    return value


def _job_kind(value: str) -> str:
    match value.split("/"):
        case [group, version, kind] if (
            _DNS_NAME.fullmatch(group) and _VERSION.fullmatch(version) and _KIND.fullmatch(kind)
        ):
            if meant := _mistyped_kind(group, kind):
                raise ValueError(f"{value} is not a known kind; did you mean {meant}?")
            return value
        case _:
            by_kind = {known.rsplit("/", 1)[1]: known for known in reversed(JOB_KINDS)}
            last = value.rsplit("/", 1)[-1]
            meant = suggestion(value, JOB_KINDS)
            if not meant and (close := get_close_matches(last, by_kind, n=1, cutoff=0.6)):
                meant = f"; did you mean {by_kind[close[0]]}?"
            raise ValueError(f"{value!r} is not group/version/Kind, e.g. {JOB_KINDS[0]}{meant}")


def _mistyped_kind(group: str, kind: str) -> str:
    """The known kind that differs by a typo in group or Kind; another version of a known kind is not a typo."""
    known_kinds = [(known, *known.split("/")) for known in JOB_KINDS]
    if any((group, kind) == (known_group, known_kind) for _, known_group, _, known_kind in known_kinds):
        return ""
    for known, known_group, _, known_kind in known_kinds:
        similar = get_close_matches(kind.casefold(), [known_kind.casefold()], cutoff=0.85)
        if similar and get_close_matches(group, [known_group], cutoff=0.85):
            return known
    return ""


def _project_key(value: str) -> str:
    if _PROJECT.fullmatch(value):
        return value
    hint = f"; did you mean {value.upper()}?" if _PROJECT.fullmatch(value.upper()) else ""
    raise ValueError(f"{value!r} is not a project key: capital letters and digits, e.g. GPU{hint}")


def _name(value: str) -> str:
    if not value.strip() or value != value.strip() or not value.isprintable():
        raise ValueError(f"{value!r} is not a name: it is empty, or has blanks around it")
    return value


def _matching(pattern: str, otherwise: str) -> AfterValidator:
    """Accepts what matches `pattern` as a whole; `otherwise` says what is accepted."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise ValueError(f"{value!r} {otherwise}")
        return value

    return AfterValidator(check)


ClusterName = Annotated[
    str,
    _matching(
        r"[A-Za-z0-9]([A-Za-z0-9._-]{0,118}[A-Za-z0-9])?",
        "is not a cluster name: letters, digits, dots, hyphens and underscores, e.g. gpu-east-1",
    ),
]
"""Part of record keys, ids and messages."""
Bootstrap = Annotated[str, AfterValidator(_bootstrap)]
"""`host:port` of one or more brokers, separated by commas."""
ListenHost = Annotated[
    str,
    _matching(
        r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*",
        "is not an address to listen on: 0.0.0.0, ::, 127.0.0.1 or a host name",
    ),
]
Url = Annotated[str, AfterValidator(_url)]
"""http or https with a host, without a query."""
TopicPrefix = Annotated[
    str,
    _matching(
        r"[A-Za-z0-9._-]{0,150}",
        "cannot begin a topic name: letters, digits, dots, hyphens and underscores, at most 150",
    ),
]
HeaderName = Annotated[
    str, _matching(r"[!-~]{1,200}", "is not a record header name: printable, without spaces")
]
Namespace = Annotated[
    str,
    _matching(
        r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
        "is not a namespace: lower-case letters, digits and hyphens, at most 63",
    ),
]
NodePattern = Annotated[
    str,
    _matching(
        r"[a-z0-9.*?!\[\]-]{1,253}",
        "is not a node name: lower-case letters, digits, dots, hyphens; * for any",
    ),
]
LabelKey = Annotated[str, AfterValidator(_label_key)]
"""`name` or `prefix/name`, of a Kubernetes label or annotation."""
Label = Annotated[str, AfterValidator(_label)]
"""`key` or `key=value`."""
PartLabel = Annotated[str, AfterValidator(_part_label)]
"""`kind=key`: a kind of part that nodes share, and the label that names it."""
JobKind = Annotated[str, AfterValidator(_job_kind)]
"""`group/version/Kind`."""
Channel = Annotated[
    str,
    _matching(
        r"([CGD][A-Z0-9]{2,})?",
        "is not a channel id: C and letters and digits, at the end of the channel's link",
    ),
]
ProjectKey = Annotated[str, AfterValidator(_project_key)]
Name = Annotated[str, AfterValidator(_name)]
"""A name that others have given: a pool, an issue type, an approver (aliases of one person are separated by `|`)."""
