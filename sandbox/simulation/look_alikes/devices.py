"""Look-alikes of devices: programs of users, old reports, corrected errors, and what only quotes a fault."""

from __future__ import annotations

from datetime import datetime, timedelta

from sandbox.simulation import driver_logs
from sandbox.simulation.faults.shared import labels
from sandbox.simulation.look_alikes.kinds import ALONE, Play, killed_program
from sandbox.simulation.output import seconds
from sandbox.simulation.simulation import Simulation
from sandbox.simulation.topology import GPUS, Node
from sandbox.simulation.workload import Pod


def _pod_of(sim: Simulation, node: Node) -> Pod | None:
    return next((pod for job in sim.jobs if not job.finished for pod in job.pods if pod.node == node), None)


def _user_xid(sim: Simulation, node: Node, at: datetime) -> None:
    """A user's own program on an idle node reads past its memory: 13 or 31, and the 43 that ends its channel."""
    idle = sim.idle_nodes(at)
    if node not in idle:
        if not idle:
            killed_program(sim, node, at)
            return
        node = sim.rng.choice(idle)
        sim.reserve(at + ALONE, [node])
    rng, gpu, pid = sim.rng, sim.rng.randrange(GPUS), sim.rng.randrange(50_000, 400_000)
    process = rng.choice(("python", "ipython", "vectorAdd", "nbody"))
    if rng.random() < 0.5:
        code, body = 31, driver_logs.memory_fault(rng.randrange(7), rng.randrange(14), rng.randrange(2**16))
    else:
        code, body = 13, driver_logs.warp_exception(rng.randrange(7), rng.randrange(9))
    sim.xid(node, gpu, at, code, body, pid=pid, process=process)
    sim.xid(node, gpu, at + seconds(0.3), 43, driver_logs.channel(gpu), pid=pid, process=process)


def _quoted(sim: Simulation, node: Node, at: datetime) -> None:
    """A program quotes a log line of some other fault."""
    pod = _pod_of(sim, node)
    texts = (
        f'INFO ticket-bot: closed yesterday: "NVRM: Xid (PCI:{node.gpu_pci(3)}): 79, GPU has fallen off the bus." on {node.name}',
        "> NVRM: Xid (PCI:0000:1b:00): 48, pid=1, name=x, An uncorrectable double bit error (DBE) has been detected",
        "# if you see 'PFC Watchdog detected PFC storm on port Ethernet0' restart the exporter",
        "assert 'Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5' in captured.err",
    )
    text = sim.rng.choice(texts)
    if pod is not None:
        sim.pod(pod, at, text)
    else:
        sim.daemon(node, at, "ticket-bot[4411]", text)


def _banner(sim: Simulation, node: Node, at: datetime) -> None:
    """The driver logs its version when it is loaded."""
    sim.kernel(
        node, at,
        f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {node.driver}.90.07  Fri May 31 09:35:42 UTC 2024",
        "nvidia-nvlink: Nvlink Core is being initialized, major device number 235",
        "NVRM: failed to register character device is not an error of this version",
    )  # fmt: skip


def _corrected_memory(sim: Simulation, node: Node, at: datetime) -> None:
    """Corrected errors of host memory and of PCIe."""
    sim.kernel(
        node, at,
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x71a2 offset:0x80 grain:32)",
        "pcieport 0000:40:01.1: AER: Corrected error received: 0000:41:00.0",
    )  # fmt: skip


def _corrected_gpu_memory(sim: Simulation, node: Node, at: datetime) -> None:
    """Single-bit errors of a GPU, which its memory corrects: a slowly growing count."""
    gpu, value = sim.rng.randrange(GPUS), sim.rng.randrange(3, 40)
    about = labels(node, gpu, None)
    for number in range(4):
        moment = at + timedelta(minutes=2 * number)
        sim.sample(node, moment, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", value + number, **about)


def _remapped(sim: Simulation, node: Node, at: datetime) -> None:
    """A row was remapped without any loss: 63 alone asks for a reset at leisure."""
    gpu = sim.rng.randrange(GPUS)
    body = "Row Remapper: New row (0x00000000001c70) marked for remapping, reset gpu to activate."
    sim.xid(node, gpu, at, 63, body)


def _warm(sim: Simulation, node: Node, at: datetime) -> None:
    """A GPU is hot for a minute under load, and no longer."""
    about = labels(node, sim.rng.randrange(GPUS), None)
    for number, value in enumerate((70, 84, 91, 90, 78, 71)):
        sim.sample(node, at + seconds(30 * number), "DCGM_FI_DEV_GPU_TEMP", value, **about)


def _other_xid(sim: Simulation, node: Node, at: datetime) -> None:
    """Another program's "xid": a transaction, not a code of the driver."""
    texts = (
        "postgres[811]: ERROR: could not access status of transaction xid 79",
        "zookeeper[644]: processing zxid: 0x79 session 0x10000",
        "dhclient[901]: DHCPDISCOVER on eno1 to 255.255.255.255 port 67 interval 7 (xid=0x4879e31)",
    )
    program, _, text = sim.rng.choice(texts).partition(": ")
    sim.daemon(node, at, program, text)


def _old_journal(sim: Simulation, node: Node, at: datetime) -> None:
    """A new shipper reads the journal from its beginning: faults of days ago, long since repaired."""
    gpu, age = sim.rng.randrange(GPUS), timedelta(hours=sim.rng.uniform(26, 200))
    lines = sim.rng.choice(
        (driver_logs.off_bus(node, gpu), [driver_logs.xid(node, gpu, 48, driver_logs.double_bit(2, 81_234))])
    )
    sim.kernel(node, at, *lines, age=age)
    sim.kernel(
        node, at + seconds(1), "NVRM: loading NVIDIA UNIX x86_64 Kernel Module", age=age - timedelta(hours=1)
    )


def _sticky_gauge(sim: Simulation, node: Node, at: datetime) -> None:
    """The exporter still shows the code of last week."""
    about = labels(node, sim.rng.randrange(GPUS), None)
    code = sim.rng.choice((13, 31, 43, 45, 63))
    for number in range(3):
        sim.sample(node, at + seconds(30 * number), "DCGM_FI_DEV_XID_ERRORS", code, **about)


def _idle(sim: Simulation, node: Node, at: datetime) -> None:
    """GPUs that no job uses."""
    for gpu in range(0, GPUS, 3):
        about = labels(node, gpu, None)
        for number in range(3):
            moment = at + seconds(30 * number)
            sim.sample(node, moment, "DCGM_FI_DEV_GPU_UTIL", 0, **about)
            sim.sample(node, moment, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 1, **about)


KINDS: dict[str, Play] = {
    "user_xid": _user_xid,
    "killed_program": killed_program,
    "quoted_log": _quoted,
    "driver_banner": _banner,
    "corrected_host_errors": _corrected_memory,
    "corrected_gpu_memory": _corrected_gpu_memory,
    "remapped_row": _remapped,
    "warm_gpu": _warm,
    "other_xid": _other_xid,
    "old_journal": _old_journal,
    "sticky_gauge": _sticky_gauge,
    "idle_gpus": _idle,
}
