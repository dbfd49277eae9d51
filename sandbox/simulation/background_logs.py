"""What a healthy cluster logs all day."""

from __future__ import annotations

from datetime import timedelta

from sandbox.simulation.simulation import Simulation

_KERNEL = (
    "mlx5_core 0000:5e:00.0: mlx5_cmd_out_err:838:(pid {n}): ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2), "
    "syndrome (0x305684), err(-22)",
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth{n:x}: link becomes ready",
    "cali{n:x}: entered promiscuous mode",
    "EXT4-fs (nvme1n1p1): mounted filesystem with ordered data mode. Opts: (null)",
    "perf: interrupt took too long ({n} > 2500), lowering kernel.perf_event_max_sample_rate to 50000",
    "nvidia-nvlink: Nvlink Core is being initialized, major device number 235",
    "usb 1-14.1: new high-speed USB device number {n} using xhci_hcd",
)
_DAEMONS = (
    ("systemd[1]", "Started Session {n} of User ubuntu."),
    ("sshd[40112]", "Connection closed by 10.0.3.{n} port 50122 [preauth]"),
    ("nvidia-persistenced[1440]", "device 0000:1b:00.0 - persistence mode enabled."),
    ("chronyd[911]", "Selected source 10.0.0.3 offset 0.00{n} seconds"),
    ("containerd[1180]", 'level=info msg="StopPodSandbox for \\"{n:x}\\" returns successfully"'),
)


def fill(sim: Simulation) -> None:
    """Ordinary lines over the whole run, spread over all nodes."""
    rng, nodes = sim.rng, list(sim.cluster.nodes.values())
    hours = (sim.end - sim.begin).total_seconds() / 3600
    for _ in range(int(hours * len(nodes) * sim.scenario.noise.chatter_per_node_hour)):
        node, at = rng.choice(nodes), sim.begin + timedelta(hours=rng.uniform(0, hours))
        number = rng.randrange(1, 250)
        if rng.random() < 0.7:
            sim.kernel(node, at, rng.choice(_KERNEL).format(n=number))
        else:
            program, text = rng.choice(_DAEMONS)
            sim.daemon(node, at, program, text.format(n=number))
