"""The cabling file → link facts. Kubernetes does not know which switch port a host's NIC hangs on; people do.

leaf-03:                      # the switch, by the name under which it logs
  Ethernet12: {node: gpu-07, nic: mlx5_2}
  Ethernet96: {switch: spine-1, port: Ethernet3}
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from streams.model.errors import BadInput
from streams.model.inventory import LinkFact

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml where it is there: a large cluster's file has tens of thousands of lines."""


class _End(BaseModel):
    """What a cable's far end is plugged into."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    node: str | None = None
    nic: str | None = None
    switch: str | None = None
    port: str | None = None

    @model_validator(mode="after")
    def _one_end(self) -> _End:
        host, peer = (self.node, self.nic), (self.switch, self.port)
        if (self.node is None) == (self.switch is None) or any(host if self.switch else peer):
            raise ValueError("needs either `node` (and `nic`) or `switch` (and `port`)")
        return self


def read_links(cluster: str, content: str, at: datetime) -> list[LinkFact]:
    """The links of a cabling file, one per switch port.

    Raises:
        BadInput: naming the switch and port that cannot be understood.
    """
    try:
        switches = yaml.load(content, _LOADER) or {}
    except yaml.YAMLError as error:
        raise BadInput(f"the topology file is not YAML: {error}") from error
    if not isinstance(switches, dict):
        raise BadInput("the topology file must be a mapping of switches")
    return list(_links(cluster, switches, at))


def _links(cluster: str, switches: dict[Any, Any], at: datetime) -> Iterator[LinkFact]:
    for switch, ports in switches.items():
        if not isinstance(ports, dict):
            raise BadInput(f"topology: {switch}: must be a mapping of ports")
        for port, end in ports.items():
            try:
                far = _End.model_validate(end)
            except ValidationError as error:
                reason = error.errors(include_url=False)[0]["msg"]
                raise BadInput(f"topology: {switch}: {port}: {reason}") from error
            yield LinkFact(
                cluster=cluster,
                switch=str(switch),
                port=str(port),
                observed_at=at,
                node=far.node,
                nic=far.nic,
                peer_switch=far.switch,
                peer_port=far.port,
            )
