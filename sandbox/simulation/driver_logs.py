"""What NVIDIA's driver logs, in the wording of each branch (open-gpu-kernel-modules 515 to 595; NVIDIA, Xid catalog)."""

from __future__ import annotations

from sandbox.simulation.topology import Node

PEERMEM_TEARDOWN = (
    "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing"
)
"""Logged when a process with GPUDirect RDMA ends; harmless."""
RECOVERY = {
    0: "None",
    1: "GPU Reset Required",
    2: "Node Reboot Required",
    3: "Drain P2P",
    4: "Drain and Reset",
}
RECOVERY_SINCE = 570
"""Xid 154 came with R565."""


def xid(
    node: Node, gpu: int, code: int, body: str, *, pid: int | None = None, process: str = "python3"
) -> str:
    """One Xid line. An unknown process is left out by branches from 570 on, and `<unknown>` before."""
    return f"NVRM: Xid (PCI:{node.gpu_pci(gpu)}): {code}, {_process(node, pid, process)}{body}"


def recovery(node: Node, gpu: int, to: int, before: int = 0) -> str | None:
    """Xid 154 of a driver that has it, None for older ones."""
    if int(node.driver) < RECOVERY_SINCE:
        return None
    body = f"GPU recovery action changed from 0x{before:x} ({RECOVERY[before]}) to 0x{to:x} ({RECOVERY[to]})"
    return f"NVRM: Xid (PCI:{node.gpu_pci(gpu)}): 154, {body}"


def introduction(node: Node, gpu: int) -> list[str]:
    """Logged once for each GPU before its first Xid."""
    address = node.gpu_pci(gpu)
    return [
        f"NVRM: GPU at PCI:{address}: {node.gpu_uuid(gpu)}",
        f"NVRM: GPU Board Serial Number: {node.serial(gpu)}",
    ]


def off_bus(node: Node, gpu: int) -> list[str]:
    """An Xid 79 with its companions."""
    address = node.gpu_pci(gpu)
    return [
        xid(node, gpu, 79, "GPU has fallen off the bus."),
        f"NVRM: GPU {address}.0: GPU has fallen off the bus.",
        f"NVRM: GPU {address}.0: GPU serial number is {node.serial(gpu)}.",
    ]


def off_bus_quietly(node: Node, gpu: int) -> list[str]:
    """The form of three lines without an Xid."""
    return [
        f"NVRM: The NVIDIA GPU {node.gpu_pci(gpu)}.0",
        "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    ]


def memory_fault(gpc: int, client: int, page: int) -> str:
    """The body of an Xid 31: an address that is not mapped."""
    return (
        f"channel 0x{page % 7 + 2:08x}, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC{gpc} GPCCLIENT_T1_{client} faulted @ "
        f"0x7f{page % 256:02x}_{page * 4096 & 0xFFFFFFFF:08x}. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
    )


def warp_exception(gpc: int, tpc: int) -> str:
    """The body of an Xid 13."""
    return f"Graphics SM Warp Exception on (GPC {gpc}, TPC {tpc}, SM 0): Out Of Range Address"


def channel(gpu: int) -> str:
    """The body of an Xid 43 or 45: a channel that was torn down."""
    return f"Ch {gpu + 8:08x}"


def double_bit(partition: int, page: int) -> str:
    """The body of an Xid 48."""
    return (
        "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at "
        f"(physAddr 0x{page * 4096:x} )partition {partition}, subpartition {partition % 2}"
    )


def nvlink_error(link: int, register: int) -> str:
    """The body of an Xid 74: seven registers, the first with the cause's bits."""
    return f"NVLink: fatal error detected on link {link}(0x{register:x}, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"


def nvlink5_down(node: Node, link: int, reason: int) -> str:
    """The body of an Xid 149: bits 20 to 25 of the first word say why the link went down, the bits below the kind of event."""
    event = 0x425C6 if int(node.driver) < 575 else 0x42411
    info = reason << 20 | event
    zeros = " ".join(["0x00000000"] * 5)
    return f"NETIR_LINK_EVT  Fatal   XC0 i0 Link {link:02d} (0x{info:08x} {zeros})"


def gsp_timeout(gpu: int) -> str:
    """The body of an Xid 119."""
    return (
        f"Timeout after 6s of waiting for RPC response from GPU{gpu} GSP! "
        "Expected function 76 (GSP_RM_CONTROL) (0x20802a02 0x8)."
    )


def sxid(switch: int, code: int, body: str) -> str:
    """An SXid of one of the board's NVSwitches."""
    return f"nvidia-nvswitch{switch}: SXid (PCI:0000:{5 + switch:02x}:00.0): {code:05d}, {body}"


def register_refused(pci: str) -> str:
    """The mlx5 driver is refused a register access; harmless."""
    return (
        f"mlx5_core {pci}: mlx5_cmd_out_err:838:(pid 2211): ACCESS_REG(0x805) op_mod(0x1) failed, "
        "status bad operation(0x2), syndrome (0x305684), err(-22)"
    )


def _process(node: Node, pid: int | None, process: str) -> str:
    if pid is not None:
        return f"pid={pid}, name={process}, "
    return "" if int(node.driver) >= 570 else "pid='<unknown>', name=<unknown>, "
