"""The table of names in `names.yaml`, checked once and held as values."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from streams.model.errors import ConfigError

_FILE = Path(__file__).with_name("names.yaml")


class NodeLabels(BaseModel):
    """Labels that say where a node stands, in order of precedence."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pool: tuple[str, ...]
    leaf: tuple[str, ...]
    rack: tuple[str, ...]
    nvlink_domain: tuple[str, ...]

    def after(
        self, *, leaf: tuple[str, ...] = (), rack: tuple[str, ...] = (), nvlink_domain: tuple[str, ...] = ()
    ) -> NodeLabels:
        """The table with a site's own labels before it: the levels of a Kueue Topology, say."""
        return NodeLabels(
            pool=self.pool,
            leaf=(*leaf, *self.leaf),
            rack=(*rack, *self.rack),
            nvlink_domain=(*nvlink_domain, *self.nvlink_domain),
        )


class Names(BaseModel):
    """Which labels, annotations, taints, resources and kinds mean what."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    gpu_resources: tuple[str, ...]
    gpu_resource_prefixes: tuple[str, ...]
    node_labels: NodeLabels
    control_plane_labels: tuple[str, ...]
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
    try:
        return Names.model_validate(yaml.safe_load(_FILE.read_text()))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise ConfigError(f"{_FILE.name}: {error}") from error
