"""The shapes that settings have: an address, a URL, a name that Kubernetes or Kafka takes.

What is written wrong is refused at the start with what would be right. Taken in silence it would show hours later, as a pool
that is not watched or a thread that nobody gets.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

JOB_KINDS = (
    "batch/v1/Job",
    "kubeflow.org/v1/PyTorchJob",
    "kubeflow.org/v1/MPIJob",
    "kubeflow.org/v1/TFJob",
    "kubeflow.org/v1/XGBoostJob",
    "kubeflow.org/v1/PaddleJob",
    "kubeflow.org/v1/JAXJob",
    "kubeflow.org/v2beta1/MPIJob",
    "jobset.x-k8s.io/v1alpha2/JobSet",
    "batch.volcano.sh/v1alpha1/Job",
    "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet",
    "trainer.kubeflow.org/v1alpha1/TrainJob",
    "ray.io/v1/RayJob",
    "ray.io/v1/RayCluster",
)
"""Kinds of jobs in the field, for suggestions only: any other kind can be watched too."""

_CLUSTER = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,118}[A-Za-z0-9])?")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?|\[[0-9A-Fa-f:.%a-z]+\]")
_LISTEN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
_PREFIX = re.compile(r"[A-Za-z0-9._-]{0,150}")
_HEADER = re.compile(r"[!-~]{1,200}")
_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_DNS_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_NODE_PATTERN = re.compile(r"[a-z0-9.*?!\[\]-]{1,253}")
_VERSION = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")
_CHANNEL = re.compile(r"[CGD][A-Z0-9]{2,}")
_PROJECT = re.compile(r"[A-Z][A-Z0-9_]{1,}")


def suggestion(word: str, known: Collection[str]) -> str:
    """`; did you mean X?` for the name that is most alike, empty when none is."""
    names = list(known)
    close = get_close_matches(word, names, n=1, cutoff=0.6)
    if not close:
        folded = {name.casefold(): name for name in names}
        close = [folded[one] for one in get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)]
    return f"; did you mean {close[0]}?" if close else ""


def cluster_name(value: str) -> str:
    """The name of a cluster: it is part of record keys, of ids and of messages."""
    return _like(
        _CLUSTER,
        value,
        "is no name of a cluster: letters, digits, dots, hyphens and underscores, e.g. gpu-east-1",
    )


def bootstrap(value: str) -> str:
    """`host:port` of one or more brokers, separated by commas."""
    for address in value.split(","):
        host, _, port = address.strip().rpartition(":")
        if not _HOST.fullmatch(host) or not port.isdecimal() or not 0 < int(port) < 65536:
            why = f"{address.strip()!r} is no host:port"
            raise ValueError(why + (f"; did you mean {address.strip()}:9092?" if _bare(address) else ""))
    return value


def _bare(address: str) -> bool:
    return _HOST.fullmatch(address.strip()) is not None


def listen_host(value: str) -> str:
    """An address to listen on: an IP address or a host name."""
    return _like(_LISTEN, value, "is no address to listen on: 0.0.0.0, ::, 127.0.0.1 or a host name")


def url(value: str) -> str:
    """An http or https URL with a host, without a query."""
    if "@" in value:
        raise ValueError("a base URL has no user and no password in it")  # and a password is not shown
    try:
        parts = urlsplit(value)
        fine = parts.scheme in ("http", "https") and bool(_HOST.fullmatch(parts.hostname or ""))
        fine = fine and (parts.port is None or parts.port > 0)
    except ValueError:
        fine = False
    if not fine or any(c.isspace() for c in value):
        hint = f"; did you mean https://{value}?" if _DNS_NAME.fullmatch(value) and "." in value else ""
        raise ValueError(f"{value!r} is no URL: https://HOST[:PORT][/PATH]{hint}")
    if parts.query or parts.fragment:
        raise ValueError(f"{value!r}: a base URL has neither query nor fragment")
    return value


def topic_prefix(value: str) -> str:
    """What topic names may begin with."""
    return _like(
        _PREFIX, value, "cannot begin a topic: letters, digits, dots, hyphens and underscores, at most 150"
    )


def header_name(value: str) -> str:
    """The key of a record header."""
    return _like(_HEADER, value, "is no name of a record header: printable, without spaces")


def namespace(value: str) -> str:
    """A name of a Kubernetes namespace."""
    return _like(_DNS_LABEL, value, "is no namespace: lower-case letters, digits and hyphens, at most 63")


def node_pattern(value: str) -> str:
    """A name of a Kubernetes node, in which an asterisk stands for any characters."""
    return _like(
        _NODE_PATTERN, value, "is no name of a node: lower-case letters, digits, dots, hyphens; * for any"
    )


def label_key(value: str) -> str:
    """A key of a Kubernetes label or annotation: `name` or `prefix/name`."""
    prefix, slash, name = value.rpartition("/")
    if (slash and not _DNS_NAME.fullmatch(prefix)) or not _LABEL_NAME.fullmatch(name):
        raise ValueError(f"{value!r} is no key of a label: NAME or PREFIX/NAME, e.g. example.com/rack")
    return value


def label(value: str) -> str:
    """A label as `key` or `key=value`."""
    key, equals, wanted = value.partition("=")
    label_key(key)
    if equals and wanted and not _LABEL_NAME.fullmatch(wanted):
        raise ValueError(f"{wanted!r} is no value of a label: letters, digits, dots, hyphens, at most 63")
    return value


def job_kind(value: str) -> str:
    """A kind of jobs as `group/version/Kind`."""
    match value.split("/"):
        case [group, version, kind] if (
            _is_group(group) and _VERSION.fullmatch(version) and _KIND.fullmatch(kind)
        ):
            if value not in JOB_KINDS and (meant := _meant_kind(value)):
                raise ValueError(f"{value} is no kind that is known; did you mean {meant}?")
            return value
        case _:
            by_kind = {known.rsplit("/", 1)[1]: known for known in reversed(JOB_KINDS)}
            last = value.rsplit("/", 1)[-1]
            meant = suggestion(value, JOB_KINDS)
            if not meant and (close := get_close_matches(last, by_kind, n=1, cutoff=0.6)):
                meant = f"; did you mean {by_kind[close[0]]}?"
            raise ValueError(f"{value!r} is no group/version/Kind, e.g. {JOB_KINDS[0]}{meant}")


def _is_group(group: str) -> bool:
    return _DNS_NAME.fullmatch(group) is not None


def _meant_kind(value: str) -> str:
    """The known kind that differs by a slip of the pen in group or Kind; another version of a known kind is no slip."""
    group, _, kind = value.split("/")
    for known in JOB_KINDS:
        known_group, _, known_kind = known.split("/")
        if (group, kind) == (known_group, known_kind):
            return ""
    for known in JOB_KINDS:
        known_group, _, known_kind = known.split("/")
        slip = get_close_matches(kind.casefold(), [known_kind.casefold()], cutoff=0.85)
        near = get_close_matches(group, [known_group], cutoff=0.85)
        if slip and near:
            return known
    return ""


def channel(value: str) -> str:
    """An id of a Slack channel."""
    if value and not _CHANNEL.fullmatch(value):
        raise ValueError(
            f"{value!r} is no id of a channel: C and letters and digits, at the end of the channel's link"
        )
    return value


def project_key(value: str) -> str:
    """The key of a Jira project."""
    hint = f"; did you mean {value.upper()}?" if _PROJECT.fullmatch(value.upper()) else ""
    return _like(_PROJECT, value, f"is no key of a project: capital letters and digits, e.g. GPU{hint}")


def person(value: str) -> str:
    """A name of somebody who may decide; several names of one person have a `|` between them."""
    if not value.strip() or value != value.strip() or not value.isprintable():
        raise ValueError(f"{value!r} is no name: it is empty, or has blanks around it")
    return value


def name(value: str) -> str:
    """Any name of something that others have named: a pool, a type of issue."""
    if not value.strip() or value != value.strip() or not value.isprintable():
        raise ValueError(f"{value!r} is no name: it is empty, or has blanks around it")
    return value


def _like(shape: re.Pattern[str], value: str, what: str) -> str:
    if not shape.fullmatch(value):
        raise ValueError(f"{value!r} {what}")
    return value


ClusterName = Annotated[str, AfterValidator(cluster_name)]
Bootstrap = Annotated[str, AfterValidator(bootstrap)]
ListenHost = Annotated[str, AfterValidator(listen_host)]
Url = Annotated[str, AfterValidator(url)]
TopicPrefix = Annotated[str, AfterValidator(topic_prefix)]
HeaderName = Annotated[str, AfterValidator(header_name)]
Namespace = Annotated[str, AfterValidator(namespace)]
NodePattern = Annotated[str, AfterValidator(node_pattern)]
LabelKey = Annotated[str, AfterValidator(label_key)]
Label = Annotated[str, AfterValidator(label)]
JobKind = Annotated[str, AfterValidator(job_kind)]
Channel = Annotated[str, AfterValidator(channel)]
ProjectKey = Annotated[str, AfterValidator(project_key)]
Person = Annotated[str, AfterValidator(person)]
Name = Annotated[str, AfterValidator(name)]
