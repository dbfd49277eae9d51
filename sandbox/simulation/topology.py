"""The hardware of a simulated cluster: nodes with eight GPUs and eight NICs each, racks, leafs, spines and cables."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, replace
from typing import Any

import yaml

from sandbox.simulation.scenario import Plant
from sandbox.simulation.sites import Site

GPUS = 8
GPU_BUSES = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
"""PCI buses of an HGX board's GPUs, by index."""
NIC_BUSES = ("18", "40", "4f", "5e", "9a", "c0", "ce", "dc")
PRIORITY = 3
"""The lossless class of RoCE."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A top-of-rack switch. `vendor` decides the wording of its logs: `sonic`, `arista`, `ufm` (InfiniBand), `none`."""

    name: str
    vendor: str
    number: int

    def access_port(self, slot: int, nic: int) -> str:
        """The port of a NIC of the node in that slot."""
        lane = slot * GPUS + nic
        if self.vendor == "ufm":
            return str(lane + 1)
        return f"Ethernet{lane * 4}" if self.vendor == "sonic" else f"Ethernet{lane + 1}/1"

    def uplink(self, spine: int) -> str:
        """The port towards a spine."""
        lane = 1024 + spine
        return f"Ethernet{lane * 4}" if self.vendor == "sonic" else f"Ethernet{lane + 1}/1"


@dataclass(frozen=True, slots=True)
class Node:
    """One server."""

    name: str
    number: int
    leaf: Leaf
    slot: int
    rack: str
    address: str
    driver: str
    fabric: str = "roce"
    rack_number: int = 0
    """Racks, and places in a rack, count from 1."""
    place: int = 0
    made: str = "2025-11-03T09:00:00Z"
    """When it joined the cluster."""

    def gpu_pci(self, gpu: int) -> str:
        """As the driver prints it: `0000:1b:00`."""
        return f"0000:{GPU_BUSES[gpu]}:00"

    def gpu_uuid(self, gpu: int) -> str:
        """The UUID of a GPU."""
        return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{self.name}/{gpu}')}"

    def serial(self, gpu: int) -> int:
        """The board's serial number."""
        return 1_650_000_000_000 + self.number * 100 + gpu

    def nic_pci(self, nic: int) -> str:
        """As the kernel prints it."""
        return f"0000:{NIC_BUSES[nic]}:00.0"

    def nic(self, number: int) -> str:
        """The RDMA device."""
        return f"rdmap{79 + 8 * number}s0" if self.fabric == "efa" else f"mlx5_{number}"

    def netdev(self, number: int) -> str:
        """The network interface of a NIC."""
        return f"ib{number}" if self.fabric == "infiniband" else f"rdma{number}"

    def port(self, nic: int) -> str:
        """The leaf's port at the other end of a NIC's cable."""
        return self.leaf.access_port(self.slot, nic)


@dataclass(slots=True)
class SimulatedCluster:
    """All of it. Servers may be replaced while a campaign runs."""

    name: str
    spec: Plant
    site: Site
    driver: str
    leafs: tuple[Leaf, ...]
    nodes: dict[str, Node]
    _next: int = 0

    @classmethod
    def build(cls, spec: Plant, site: Site, rng: random.Random) -> SimulatedCluster:
        """Lay a cluster out; one driver branch and one switch vendor for all of it."""
        vendor = rng.choice(site.switches) if site.switches else "none"
        count = -(-spec.nodes // spec.nodes_per_leaf)
        prefix = "ib-leaf" if vendor == "ufm" else "leaf"
        leafs = tuple(Leaf(f"{prefix}-{n + 1:02d}", vendor, n) for n in range(count))
        driver = rng.choice(spec.drivers)
        cluster = cls(site.cluster, spec, site, driver, leafs, {})
        for number in range(spec.nodes):
            leaf, slot = leafs[number // spec.nodes_per_leaf], number % spec.nodes_per_leaf
            rack, place = divmod(number, spec.nodes_per_rack)
            cluster._add(leaf, slot, rack + 1, place + 1)
        return cluster

    def replace(self, node: Node, made: str) -> Node:
        """Put another server, under another name, in the place of this one."""
        del self.nodes[node.name]
        new = self._add(node.leaf, node.slot, node.rack_number, self._next + 1)
        self.nodes[new.name] = new = replace(new, made=made)
        return new

    def spare(self, like: Node, made: str) -> Node:
        """A further server, on the same leaf as another, that no job gets."""
        number, self._next = self._next, self._next + 1
        return replace(self._make(number, like.leaf, like.slot, like.rack_number, number + 1), made=made)

    def under(self, leaf: Leaf) -> list[Node]:
        """The nodes of a leaf."""
        return [node for node in self.nodes.values() if node.leaf == leaf]

    def in_rack(self, rack: str) -> list[Node]:
        """The nodes of a rack."""
        return [node for node in self.nodes.values() if node.rack == rack]

    def cabling(self) -> str:
        """The topology file."""
        switches: dict[str, dict[str, Any]] = {leaf.name: {} for leaf in self.leafs}
        for node in self.nodes.values():
            for nic in range(GPUS):
                switches[node.leaf.name][node.port(nic)] = {"node": node.name, "nic": node.nic(nic)}
        for leaf in self.leafs:
            for spine in range(self.spec.spines):
                far = {"switch": f"spine-{spine + 1}", "port": f"Ethernet{leaf.number * 4}"}
                switches[leaf.name][leaf.uplink(spine)] = far
        return yaml.dump(switches, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper))

    def labels(self, node: Node) -> dict[str, str]:
        """The labels of a node's object."""
        labels = {"kubernetes.io/hostname": node.name, "node.kubernetes.io/instance-type": "gpu-8"}
        if self.spec.labelled:
            about = {
                "leaf": node.leaf.name, "rack": node.rack, "zone": node.number % 3 + 1, "feed": self.feed(node),
                "loop": self.loop(node), "domain": f"7f3c0d3e-5a1e-4b11-9d20-{node.rack_number:012d}.32766",
            }  # fmt: skip
            labels |= {key: value.format(**about) for key, value in self.site.labels.items()}
        return labels

    def feed(self, node: Node) -> str:
        """The power feed of a node: two for each rack."""
        return f"feed-{'a' if node.place <= self.spec.nodes_per_rack / 2 else 'b'}-{node.rack}"

    def loop(self, node: Node) -> str:
        """The coolant loop of a node: one for two racks."""
        return f"cdu-{(node.rack_number + 1) // 2:02d}"

    def _add(self, leaf: Leaf, slot: int, rack: int, place: int) -> Node:
        number, self._next = self._next, self._next + 1
        node = self._make(number, leaf, slot, rack, place)
        self.nodes[node.name] = node
        return node

    def _make(self, number: int, leaf: Leaf, slot: int, rack: int, place: int) -> Node:
        address = f"10.{64 + number // 62_500}.{number // 250 % 250}.{number % 250 + 2}"
        dashes = address.replace(".", "-")
        name = self.site.node.format(number=number + 1, rack=rack, slot=place, address=dashes)
        there = self.site.rack.format(rack=rack)
        return Node(name, number, leaf, slot, there, address, self.driver, self.site.fabric, rack, place)
