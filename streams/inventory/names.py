"""The table of names in `names.yaml`: which labels, annotations, taints, resources and kinds mean what."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from streams.config.yaml_tables import Strict, load_table

_FILE = Path(__file__).with_name("names.yaml")


class NodeLabels(Strict):
    """Labels that tell the location of a node, in order of precedence."""

    pool: tuple[str, ...] = ()
    leaf: tuple[str, ...] = ()
    rack: tuple[str, ...] = ()
    nvlink_domain: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    """A site's own labels, `key` or `key=value`, of nodes that runbooks never act on."""
    host_names: tuple[str, ...] = ()
    """A site's own labels and annotations with further names of the machine."""
    work: tuple[str, ...] = ()
    """A site's own marks, `key` or `key=value`, that say that somebody works on the node."""

    parts: tuple[str, ...] = ()
    """A site's own labels of what nodes share, `kind=key`; the shipped ones are in `parts.yaml`."""

    def after(self, own: NodeLabels) -> NodeLabels:
        """The table with a site's own labels before it, e.g. the levels of a Kueue Topology."""
        return NodeLabels(**{name: (*labels, *getattr(self, name)) for name, labels in own})


class Names(Strict):
    """The whole table."""

    gpu_resources: tuple[str, ...]
    gpu_resource_prefixes: tuple[str, ...]
    gpu_layout_labels: tuple[str, ...]
    """`key` or `key=value` by which operators say how a node's GPUs are handed out."""
    node_labels: NodeLabels
    spot_labels: tuple[str, ...]
    """`key=value` of nodes that a cloud may take back at any time."""
    control_plane_labels: tuple[str, ...]
    host_names: tuple[str, ...]
    """Labels and annotations that hold names of the machine, separated by commas."""
    host_numbers: frozenset[str]
    """The same without their prefix and dashes, of a site's own that hold the machine's serial number or service tag."""
    starters: frozenset[str]
    not_jobs: frozenset[str]
    services: frozenset[str]
    renamed_kinds: dict[str, str]
    owner_labels: dict[str, str]
    owner_kind_labels: dict[str, str]
    index_labels: tuple[str, ...]
    node_rank_env: tuple[str, ...]
    node_list_env: tuple[str, ...]
    ranks_per_pod_env: tuple[str, ...]


@cache
def names() -> Names:
    """The table.

    Raises:
        ConfigError: when the shipped file is damaged.
    """
    return load_table(_FILE, Names)
