"""The names of a NIC on its host: the kernel's interface, the RDMA device, the PCI address with its function."""

from __future__ import annotations

import re
from typing import Literal

from streams.model.entity import canonical_pci

NicNameKind = Literal["address", "rdma", "interface", "adapter", "bond"]

_RDMA = re.compile(r"mlx[45]_|bnxt_re|irdma|hfi1_|qib|rocep|ibp|iwp|erdma_|efa_")
_BOND = re.compile(r"(?:mlx[45]_|bnxt_re_?)?(?:bond|team|lag)[\w.-]{0,24}")
"""A device of several NICs (`bond0`, `mlx5_bond_0`): the name of none of them."""
_VIRTUAL = re.compile(
    r"""
    (?:en|ib|eth|sl)\w*\d(?:  # behind the name of the card's own port:
        v\d+                  # ens2f0v7: a virtual function
        | r\d+                # enp154s0f0r3: the port in the card's switch that stands for one
        | _\d+                # enp154s0f0_12: the same, as older rules of udev name it
        | n?pf\d              # en3f0pf0, enp3s0f0npf0: the port that stands for the host's own function
            (?:[vs]f\d+)?     # enp154s0f0npf0vf3, en3f0pf0sf88: for a virtual function or a subfunction of it
    )
    | (?:c\d)?pf\d(?:         # the bare name of such a port, with the number of another host's controller before it:
        [vs]f\d+              # pf0vf3, pf0sf88, c1pf0vf2
        | hpf                 # pf0hpf
    )
    """,
    re.VERBOSE,
)
_FUNCTION = re.compile(r"\.([0-7])\s*$")


def nic_address(text: str) -> str | None:
    """A NIC's PCI address as `dddd:bb:dd`, with its function where that is not the first: `0000:5e:00.1`.

    The ports of one card differ in their function alone. None when the text holds no address.
    """
    address = canonical_pci(text)
    function = _FUNCTION.search(text)
    if address is None or function is None or function[1] == "0":
        return address
    return f"{address}.{function[1]}"


def nic_name_kind(name: str) -> NicNameKind:
    """Which kind of a name it is. Two NICs of a host never share a name of one kind; one NIC has a name of each."""
    if ":" in name:
        return "address"
    if _BOND.fullmatch(name):
        return "bond"
    if name.startswith("HCA-"):
        return "adapter"  # as a subnet's manager counts them
    return "rdma" if _RDMA.match(name) else "interface"


def is_virtual(name: str) -> bool:
    """Whether an interface is a virtual function, a subfunction or the port that stands for one in the card's switch.

    Source: systemd.net-naming-scheme(7), NAMING_SR_IOV_V and _R; the kernel's "Mellanox devlink" and "switchdev" pages.
    """
    return _VIRTUAL.fullmatch(name) is not None


def nic_name(text: str) -> str:
    """The name as it is compared: an address in its canonical form, any other as it is written."""
    return nic_address(text) or text
