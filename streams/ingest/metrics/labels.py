"""The labels of samples: which of them names the node, and how much of them is kept. One rule for every exporter and shipper."""

from __future__ import annotations

from collections.abc import Iterable

from streams.ingest.fields import NAMES

CACHED = 8192
"""Sets of labels that a reader keeps: a GPU's twenty series come with the same labels, scrape after scrape."""

MAX_LABELS = 64
MAX_LABEL = 512
"""Characters of a label's value that are kept: rules remember what labels say, and exporters let anyone write them."""


def node_of(labels: dict[str, str]) -> str | None:
    """The node that a sample's labels name, without a port; None when they name none."""
    for label in NAMES.node_labels:
        if value := labels.get(label):
            return without_port(value)
    return None


def without_port(address: str) -> str:
    """A host as `host:port` names it; an IPv6 address stays as it is."""
    host, colon, port = address.rpartition(":")
    return host if colon and port.isdigit() and ":" not in host else address


def bounded(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Labels in a dictionary, cut to what is kept of them; those without a value are no labels."""
    labels = {name: value[:MAX_LABEL] for name, value in pairs if value}
    if len(labels) > MAX_LABELS:
        labels = {name: labels[name] for name in list(labels)[:MAX_LABELS]}
    return labels
