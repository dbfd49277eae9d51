"""The labels of samples: which one names the node, and how much of them is kept, for every exporter and shipper."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from streams.ingest.fields import NAMES

CACHED = 8192
"""Parsed sets of labels a reader caches: the twenty series of a GPU have the same labels, scrape after scrape."""

MAX_LABELS = 64
MAX_LABEL = 512
"""Characters kept of a label's value: rules remember labels, and anyone can write them."""


def node_of(labels: dict[str, str]) -> str | None:
    """The node in a sample's labels, without a port; None when they name none."""
    for label in _in_order(_OF_NODES.intersection(labels)):
        if value := labels[label]:
            return without_port(value)
    return None


_OF_NODES = frozenset(NAMES.node_labels)


@cache
def _in_order(labels: frozenset[str]) -> tuple[str, ...]:
    """Labels that name nodes, the one to trust most first. Exporters have a few combinations of them."""
    return tuple(label for label in NAMES.node_labels if label in labels)


def without_port(address: str) -> str:
    """The host of `host:port`; an IPv6 address stays as it is."""
    if ":" not in address:
        return address
    host, _, port = address.rpartition(":")
    return host if port.isdigit() and ":" not in host else address


def bounded(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The labels as a dictionary, cut to what is kept; those without a value are dropped."""
    labels = {name: value[:MAX_LABEL] for name, value in pairs if value}
    if len(labels) > MAX_LABELS:
        labels = {name: labels[name] for name in list(labels)[:MAX_LABELS]}
    return labels
