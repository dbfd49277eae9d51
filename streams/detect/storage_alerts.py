"""Alerts about a storage: which of other people's rules are, and which storage they name.

An alert is about one by the system in its name (`LustreOSTUnresponsive`), by a label that only a storage has (`ost`, `filer`), or
by a mount in its labels (`device="filer-3:/sets"`); and its name says that something is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from streams.config.yaml_tables import Strict
from streams.detect.matching import re2_patterns
from streams.ingest.metrics.labels import without_port
from streams.model.signal import Attribute

_MOUNT = re.compile(r"(?P<server>\[?[\w.:@\]-]{2,120}?\]?):(?P<path>/[\w./-]{0,160})")
"""What a remote file system is mounted from: `filer-3:/sets`, `10.0.8.1@o2ib:/lfs1`."""
_URL = re.compile(r"https?://(?P<host>[\w.-]{1,253})")
_NUMBER = re.compile(r"\d{1,6}")


class StorageAlertSheet(Strict):
    """The part `storage` of `catalog/alerts.yaml`; its comments explain the keys."""

    systems: Mapping[str, str]
    file_systems: Mapping[str, str]
    gone: str
    less: str
    borne: str
    unless: str
    target_value: str
    clustered: frozenset[str]
    names: Mapping[str, tuple[str, ...]]
    own: frozenset[str]
    with_system: Mapping[str, tuple[str, ...]]


class StorageAlert(NamedTuple):
    """What an alert says of a storage: its names as attributes, and whether it is not reached at all (`gone`)."""

    attributes: Mapping[str, Attribute]
    gone: bool

    @property
    def name(self) -> str | None:
        """The storage by the widest name that the alert has for it."""
        names = ("storage_cluster", "filesystem", "server", "target")
        return next((str(self.attributes[n]) for n in names if n in self.attributes), None)


class StorageAlerts:
    """Reads which storage an alert is about."""

    def __init__(self, sheet: StorageAlertSheet) -> None:
        self._sheet = sheet
        self._systems = [(name, re2_patterns.compile(p)) for name, p in sheet.systems.items()]
        self._file_systems = [(name, re2_patterns.compile(p)) for name, p in sheet.file_systems.items()]
        self._gone, self._less = re2_patterns.compile(sheet.gone), re2_patterns.compile(sheet.less)
        self._borne, self._unless = re2_patterns.compile(sheet.borne), re2_patterns.compile(sheet.unless)
        self._target = re2_patterns.compile(sheet.target_value)

    def read(self, name: str, labels: Mapping[str, str], cluster: str) -> StorageAlert | None:
        """The storage that an alert is about; None for an alert about anything else.

        Args:
            name: The alert's name in lower case, without separators.
            labels: Its labels.
            cluster: The cluster that the record is of: a label with its name names no storage.
        """
        gone = self._gone.search(name) is not None
        if (not gone and self._less.search(name) is None) or self._unless.search(name) is not None:
            return None
        system = next((found for found, p in self._systems if p.search(name)), None)
        mount = _MOUNT.fullmatch(labels.get("device", "")) or _MOUNT.fullmatch(labels.get("export", ""))
        remote = next((n for n, p in self._file_systems if p.search(labels.get("fstype", "").lower())), None)
        own = any(labels.get(label) for label in self._sheet.own)
        of_target = any(self._target.search(value) for value in labels.values())
        if system is None and not own and not of_target and not (mount is not None and remote is not None):
            return None
        system = system or remote
        found: dict[str, Attribute] = {"system": system} if system else {}
        for attribute, names in self._sheet.names.items():
            generic = self._sheet.with_system.get(attribute, ())
            value = next((v for label in (*names, *generic) if (v := labels.get(label))), None)
            if value is not None and value != cluster:
                found[attribute] = _plain(value)
        others = found.keys() - {"system", "storage_cluster"}
        if others and system not in self._sheet.clustered and not own:
            found.pop(
                "storage_cluster", None
            )  # the label of Kubernetes' cluster, as Prometheus adds it to everything
        if mount is not None:
            found.setdefault("server", mount["server"])
            if "@" in mount["server"]:
                found.setdefault("filesystem", mount["path"].strip("/") or mount["server"])
        probed = _URL.match(labels.get("instance", ""))
        if probed is not None:
            found.setdefault("server", probed["host"])
        target = next((v for v in labels.values() if self._target.search(v)), None)
        if target is not None:
            found["target"] = target
        return StorageAlert(found, gone and self._borne.search(name) is None)


def _plain(value: str) -> str:
    """A name without scheme and port."""
    url = _URL.match(value)
    if url is not None:
        return url["host"]
    mount = _MOUNT.fullmatch(value)
    if mount is not None:
        return mount["server"]
    return value if _NUMBER.fullmatch(value) else without_port(value)
