"""Devices that are well: errors that are corrected, drives and file servers that hesitate, links that come back, chatter."""

from __future__ import annotations

from datetime import datetime

from sandbox.simulation.background.kinds import Play
from sandbox.simulation.faults.fabric import nic_state, port_state
from sandbox.simulation.faults.shared import labels
from sandbox.simulation.output import seconds
from sandbox.simulation.simulation import Simulation
from sandbox.simulation.topology import GPUS, Node

_KERNEL = (
    "mlx5_core 0000:5e:00.0: mlx5_cmd_out_err:838:(pid {n}): ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2), "
    "syndrome (0x305684), err(-22)",
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth{n:x}: link becomes ready",
    "cali{n:x}: entered promiscuous mode",
    "EXT4-fs (nvme1n1p1): mounted filesystem with ordered data mode. Opts: (null)",
    "perf: interrupt took too long ({n} > 2500), lowering kernel.perf_event_max_sample_rate to 50000",
    "nvidia-nvlink: Nvlink Core is being initialized, major device number 235",
    "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
    "usb 1-14.1: new high-speed USB device number {n} using xhci_hcd",
)
_DAEMONS = (
    ("systemd[1]", "Started Session {n} of User ubuntu."),
    ("systemd[1]", "logrotate.service: Deactivated successfully."),
    ("sshd[40112]", "Connection closed by 10.0.3.{n} port 50122 [preauth]"),
    ("nvidia-persistenced[1440]", "device 0000:1b:00.0 - persistence mode enabled."),
    ("chronyd[911]", "Selected source 10.0.0.3 offset 0.00{n} seconds"),
    ("containerd[1180]", 'level=info msg="StopPodSandbox for \\"{n:x}\\" returns successfully"'),
)


def _kernel_chatter(sim: Simulation, node: Node, at: datetime) -> None:
    """What a kernel and its daemons log all day."""
    number = sim.rng.randrange(1, 250)
    if sim.rng.random() < 0.7:
        sim.kernel(node, at, sim.rng.choice(_KERNEL).format(n=number))
    else:
        program, text = sim.rng.choice(_DAEMONS)
        sim.daemon(node, at, program, text.format(n=number))


def _corrected_memory(sim: Simulation, node: Node, at: datetime) -> None:
    """Host memory or the PCIe bus corrects an error."""
    rng = sim.rng
    channel, bus = rng.randrange(4), rng.choice(("40", "5a", "9a", "c0"))
    memory = (
        f"EDAC MC{channel}: 1 CE memory read error on CPU_SrcID#0_MC#{channel}_Chan#1_DIMM#0 "
        f"(channel:1 slot:0 page:0x{rng.randrange(2**20):x} offset:0x0 grain:32)"
    )
    bus_line = f"pcieport 0000:{bus}:01.1: AER: Corrected error received: 0000:{bus}:01.0"
    sim.kernel(node, at, rng.choice((memory, bus_line)))


def _corrected_gpu_memory(sim: Simulation, node: Node, at: datetime) -> None:
    """A GPU corrects single-bit errors: the count grows slowly."""
    about, value = labels(node, sim.rng.randrange(GPUS), None), sim.rng.randrange(3, 400)
    for number in range(4):
        value += sim.rng.randrange(2)
        sim.sample(node, at + seconds(120 * number), "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", value, **about)


def _disk_hiccup(sim: Simulation, node: Node, at: datetime) -> None:
    """A drive answers late, once."""
    drive, queue = sim.rng.randrange(8), sim.rng.randrange(60)
    text = f"nvme nvme{drive}: I/O {sim.rng.randrange(900)} QID {queue} timeout, completion polled"
    sim.kernel(node, at, text)


def _storage_hiccup(sim: Simulation, node: Node, at: datetime) -> None:
    """A file server answers one client seconds late."""
    rng, back = sim.rng, at + seconds(sim.rng.uniform(2, 14))
    if rng.random() < 0.6:
        sim.kernel(node, at, "nfs: server filer-home.storage not responding, still trying")
        sim.kernel(node, back, "nfs: server filer-home.storage OK")
        return
    target = f"scratch-OST{rng.randrange(24):04x}-osc-ffff9d3fe1c8a000"
    sent = int(at.timestamp()) - 20
    sim.kernel(
        node, at,
        f"Lustre: 4411:0:(client.c:2305:ptlrpc_expire_one_request()) @@@ Request sent has timed out for slow reply: "
        f"[sent {sent}/real {sent}]  req@ffff8ed1 x1789/t0(0) o4->{target}@10.0.8.4@o2ib:6/4 lens 488/448 e 0",
    )  # fmt: skip
    sim.kernel(node, back, f"Lustre: {target}: Connection restored to 10.0.8.4@o2ib (at 10.0.8.4@o2ib)")


def _processor_warm(sim: Simulation, node: Node, at: datetime) -> None:
    """A processor slows itself down for a second."""
    cpu, count = sim.rng.randrange(190), sim.rng.randrange(1, 90)
    text = f"CPU{cpu}: Core temperature is above threshold, cpu clock is throttled (total events = {count})"
    sim.kernel(node, at, text)
    sim.kernel(node, at + seconds(1), f"CPU{cpu}: Core temperature/speed normal")


def _clock_step(sim: Simulation, node: Node, at: datetime) -> None:
    """NTP steps a clock."""
    sim.daemon(
        node, at, "chronyd[911]", f"System clock was stepped by {sim.rng.uniform(-0.9, 0.9):.6f} seconds"
    )


def _container_memory(sim: Simulation, node: Node, at: datetime) -> None:
    """The kernel ends a process that outgrew its container."""
    rng = sim.rng
    program, pid = rng.choice(("java", "node", "cc1plus", "python3")), rng.randrange(9_000, 90_000)
    sim.kernel(
        node, at,
        f"{program} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=985",
        f"Memory cgroup out of memory: Killed process {pid} ({program}) total-vm:{rng.randrange(10**6, 10**8)}kB, "
        f"anon-rss:{rng.randrange(10**6, 10**7)}kB, file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:512kB oom_score_adj:985",
    )  # fmt: skip


def _link_bounce(sim: Simulation, node: Node, at: datetime) -> None:
    """A link goes down and comes back within seconds: somebody works at the cables."""
    nic, back = sim.rng.randrange(GPUS), at + seconds(sim.rng.uniform(1.5, 4))
    for moment, state in ((at, "down"), (back, "up")):
        nic_state(sim, node, nic, moment, state)
        port_state(sim, node.leaf, node.port(nic), moment + seconds(0.2), state)


def _switch_chatter(sim: Simulation, node: Node, at: datetime) -> None:
    """What a switch logs all day."""
    rng, leaf, port = sim.rng, node.leaf, f"Ethernet{4 * sim.rng.randrange(64)}"
    if leaf.vendor == "ufm":
        program, text = "ufm", rng.choice((
            f"[INFO] Fabric: Symbol error rate on (Switch:{leaf.name}) port {rng.randrange(1, 40)} below threshold",
            f"[INFO] Fabric: Congested port cleared (Switch:{leaf.name}) port {rng.randrange(1, 40)}",
            "[INFO] Fabric: SUBNET UP",
        ))  # fmt: skip
    elif leaf.vendor == "sonic":
        program, text = rng.choice((
            ("lldp#lldpmgrd", f"Unable to retrieve description for port {port}. Not adding port description"),
            ("bgp#bgpd", f"[EC 33554454] 10.255.{rng.randrange(4)}.{rng.randrange(90)} [Event] BGP keepalive processed late"),
            ("pmon#psud", f"PSU 1 fan speed {rng.randrange(9_000, 16_000)} RPM"),
        ))  # fmt: skip
    else:
        program, text = rng.choice((
            ("%LLDP-5-NEIGHBOR_NEW", f"LLDP neighbor with chassisId 9c7b.ef01.4410 added on interface {port}/1"),
            ("%SYS-6-LOGMSG_INFO", "Session opened for ops from 10.0.9.14"),
        ))  # fmt: skip
    sim.switch(leaf, at, program, text)


KINDS: dict[str, Play] = {
    "kernel_chatter": _kernel_chatter,
    "corrected_memory": _corrected_memory,
    "corrected_gpu_memory": _corrected_gpu_memory,
    "disk_hiccup": _disk_hiccup,
    "storage_hiccup": _storage_hiccup,
    "processor_warm": _processor_warm,
    "clock_step": _clock_step,
    "container_memory": _container_memory,
    "link_bounce": _link_bounce,
    "switch_chatter": _switch_chatter,
}
