"""The topology file → link facts and the location of nodes, which Kubernetes knows little of.

leaf-03:                      # the switch, as it names itself in its logs
  Ethernet12: {node: gpu-07, nic: mlx5_2}
  Ethernet96: {switch: spine-1, port: Ethernet3}
nodes:                        # where the cabling is not known port by port
  gpu-07: {leaf: leaf-03, rack: r12, nvlink_domain: d4, rails: {mlx5_0: leaf-03, mlx5_1: leaf-04}}
  gpu-08: {rack: r12, nics: {mlx5_0: {switch: leaf-03, port: Ethernet16}}}   # cables, told from the node's end
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, Field, ValidationError, model_validator

from streams.config.plain_faults import faults as plain_faults
from streams.config.plain_faults import said
from streams.config.yaml_tables import LOADER, Strict
from streams.model.errors import BadInput
from streams.model.facts import LinkFact
from streams.model.hostlists import hosts

Name = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
"""A name, which YAML reads as a number where it is one: ports of InfiniBand switches are."""


class _End(Strict):
    """The far end of a cable."""

    node: Name | None = None
    nic: Name | None = None
    switch: Name | None = None
    port: Name | None = None

    @model_validator(mode="after")
    def _one_end(self) -> _End:
        host, peer = (self.node, self.nic), (self.switch, self.port)
        if (self.node is None) == (self.switch is None) or any(host if self.switch else peer):
            raise ValueError("needs either `node` (and `nic`) or `switch` (and `port`)")
        return self


class _SwitchPort(Strict):
    """Where a NIC is plugged in."""

    switch: Name
    port: Name


class NodePosition(Strict):
    """Location of a node. `rails` names the leaf of each NIC, where a node's NICs are connected to different ones; `nics` also
    the port, which makes a cable.
    """

    leaf: Name | None = None
    rack: Name | None = None
    nvlink_domain: Name | None = None
    rails: dict[str, Name] = Field(default_factory=dict)
    nics: dict[str, _SwitchPort] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cabling:
    """Contents of a topology file; `places` by node name."""

    links: list[LinkFact] = field(default_factory=list)
    places: Mapping[str, NodePosition] = field(default_factory=dict)


NODES = "nodes"
"""The section of a topology file that is not a switch."""


def read_topology(cluster: str, content: str, at: datetime) -> Cabling:
    """A whole topology file.

    Raises:
        BadInput: naming the switch and port, or the node, that is malformed.
    """
    switches = _load(content)
    nodes = switches.pop(NODES, None) or {}
    if not isinstance(nodes, dict):
        raise BadInput(f"topology: {NODES}: must be a mapping of nodes")
    places = {name: _place(n, entry) for n, entry in nodes.items() for name in hosts(str(n))}
    links = {
        link.key: link
        for link in chain(_links_of_nodes(cluster, places, at), _links(cluster, switches, places, at))
    }
    return Cabling(list(links.values()), places)


def _links_of_nodes(cluster: str, places: Mapping[str, NodePosition], at: datetime) -> Iterator[LinkFact]:
    for node, place in places.items():
        for nic, end in place.nics.items():
            yield LinkFact(cluster, end.switch, end.port, at, node=node, nic=nic, rack=place.rack)


def _place(node: object, entry: object) -> NodePosition:
    try:
        return NodePosition.model_validate(entry)
    except ValidationError as error:
        wrong = "; ".join(said(path, what, entry) for path, what in plain_faults(error, NodePosition))
        raise BadInput(f"topology: {NODES}: {node}: {wrong}") from error


def _load(content: str) -> dict[Any, Any]:
    try:
        switches = yaml.load(content, LOADER) or {}
    except yaml.YAMLError as error:
        raise BadInput(f"the topology file is not YAML: {error}") from error
    if not isinstance(switches, dict):
        raise BadInput("the topology file must be a mapping of switches")
    return switches


def _links(
    cluster: str, switches: dict[Any, Any], places: Mapping[str, NodePosition], at: datetime
) -> Iterator[LinkFact]:
    for switch, ports in switches.items():
        if not isinstance(ports, dict):
            raise BadInput(f"topology: {switch}: must be a mapping of ports")
        for port, end in ports.items():
            try:
                far = _End.model_validate(end)
            except ValidationError as error:
                wrong = "; ".join(said(path, what, end) for path, what in plain_faults(error, _End))
                raise BadInput(f"topology: {switch}: {port}: {wrong}") from error
            yield LinkFact(
                cluster=cluster,
                switch=str(switch),
                port=str(port),
                observed_at=at,
                node=far.node,
                nic=far.nic,
                peer_switch=far.switch,
                peer_port=far.port,
                rack=place.rack if far.node and (place := places.get(far.node)) else None,
            )
