"""The table of names in `names.yaml`, checked once and held as values."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from streams.config.yaml_tables import Strict, load_table

_FILE = Path(__file__).with_name("names.yaml")


class NodeLabels(Strict):
    """Labels that say where a node stands, in order of precedence."""

    pool: tuple[str, ...]
    leaf: tuple[str, ...]
    rack: tuple[str, ...]
    nvlink_domain: tuple[str, ...]
    protected: tuple[str, ...] = ()
    """Labels, `key` or `key=value`, of nodes that runbooks never act on: a site's own."""
    host_names: tuple[str, ...] = ()
    """Labels and annotations with further names of the machine, besides those of the table: a site's own."""

    def after(
        self,
        *,
        leaf: tuple[str, ...] = (),
        rack: tuple[str, ...] = (),
        nvlink_domain: tuple[str, ...] = (),
        protected: tuple[str, ...] = (),
        host_names: tuple[str, ...] = (),
    ) -> NodeLabels:
        """The table with a site's own labels before it: the levels of a Kueue Topology, say."""
        return NodeLabels(
            pool=self.pool,
            leaf=(*leaf, *self.leaf),
            rack=(*rack, *self.rack),
            nvlink_domain=(*nvlink_domain, *self.nvlink_domain),
            protected=(*protected, *self.protected),
            host_names=(*host_names, *self.host_names),
        )


class Names(Strict):
    """Which labels, annotations, taints, resources and kinds mean what."""

    gpu_resources: tuple[str, ...]
    gpu_resource_prefixes: tuple[str, ...]
    node_labels: NodeLabels
    control_plane_labels: tuple[str, ...]
    host_names: tuple[str, ...]
    """Labels and annotations that hold names of the machine, with commas between them."""
    maintenance_annotations: tuple[str, ...]
    maintenance_labels: tuple[str, ...]
    maintenance_taints: tuple[str, ...]
    starters: frozenset[str]
    not_jobs: frozenset[str]
    services: frozenset[str]
    renamed_kinds: dict[str, str]
    owner_labels: dict[str, str]
    index_labels: tuple[str, ...]
    node_rank_env: tuple[str, ...]
    node_list_env: tuple[str, ...]
    ranks_per_pod_env: tuple[str, ...]


@cache
def names() -> Names:
    """The table.

    Raises:
        ConfigError: when the file that ships is damaged.
    """
    return load_table(_FILE, Names)
