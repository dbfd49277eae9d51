"""Look-alikes of devices: programs of users, old reports, corrected errors, and what only quotes a fault."""

from __future__ import annotations

from datetime import datetime, timedelta

from sandbox.simulation import driver_logs
from sandbox.simulation.faults.shared import labels
from sandbox.simulation.look_alikes.kinds import ALONE, Play, killed_program
from sandbox.simulation.timeline import Stage
from sandbox.simulation.topology import GPUS, Node
from sandbox.simulation.workload import Pod


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def _process(stage: Stage) -> int:
    return stage.rng.randrange(50_000, 400_000)


def _pod_of(stage: Stage, node: Node) -> Pod | None:
    return next((pod for job in stage.jobs if not job.finished for pod in job.pods if pod.node == node), None)


def _user_xid(stage: Stage, node: Node, at: datetime) -> None:
    """A user's own program on a node that no job holds reads past its memory: 13 or 31, and the 43 that ends its channel."""
    idle = stage.idle_nodes(at)
    if node not in idle:
        if not idle:
            killed_program(stage, node, at)
            return
        node = stage.rng.choice(idle)
        stage.occupy(at + ALONE, [node])
    rng, gpu, pid = stage.rng, stage.rng.randrange(GPUS), _process(stage)
    name = rng.choice(("python", "ipython", "vectorAdd", "nbody"))
    if rng.random() < 0.5:
        code, body = 31, driver_logs.memory_fault(rng.randrange(7), rng.randrange(14), rng.randrange(2**16))
    else:
        code, body = 13, driver_logs.warp_exception(rng.randrange(7), rng.randrange(9))
    stage.xid(node, gpu, at, driver_logs.xid(node, gpu, code, body, pid=pid, process=name))
    stage.xid(
        node,
        gpu,
        at + _seconds(0.3),
        driver_logs.xid(node, gpu, 43, f"Ch {gpu + 8:08x}", pid=pid, process=name),
    )


def _quoted(stage: Stage, node: Node, at: datetime) -> None:
    """A program prints what somebody wrote about a fault."""
    pod = _pod_of(stage, node)
    texts = (
        f'INFO ticket-bot: closed yesterday: "NVRM: Xid (PCI:{node.gpu_pci(3)}): 79, GPU has fallen off the bus." on {node.name}',
        "> NVRM: Xid (PCI:0000:1b:00): 48, pid=1, name=x, An uncorrectable double bit error (DBE) has been detected",
        "# if you see 'PFC Watchdog detected PFC storm on port Ethernet0' restart the exporter",
        "assert 'Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5' in captured.err",
    )
    text = stage.rng.choice(texts)
    if pod is not None:
        stage.pod(pod, at, text)
    else:
        stage.daemon(node, at, "ticket-bot[4411]", text)


def _banner(stage: Stage, node: Node, at: datetime) -> None:
    """The driver says who it is."""
    stage.kernel(
        node, at,
        f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {node.driver}.90.07  Fri May 31 09:35:42 UTC 2024",
        "nvidia-nvlink: Nvlink Core is being initialized, major device number 235",
        "NVRM: failed to register character device is not an error of this version",
    )  # fmt: skip


def _corrected_memory(stage: Stage, node: Node, at: datetime) -> None:
    """Corrected errors of host memory and of PCIe."""
    stage.kernel(
        node, at,
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x71a2 offset:0x80 grain:32)",
        "pcieport 0000:40:01.1: AER: Corrected error received: 0000:41:00.0",
    )  # fmt: skip


def _corrected_gpu_memory(stage: Stage, node: Node, at: datetime) -> None:
    """Single-bit errors of a GPU, which its memory corrects: a count that creeps."""
    gpu, value = stage.rng.randrange(GPUS), stage.rng.randrange(3, 40)
    about = labels(node, gpu, None)
    for number in range(4):
        moment = at + timedelta(minutes=2 * number)
        stage.sample(node, moment, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", value + number, **about)


def _remapped(stage: Stage, node: Node, at: datetime) -> None:
    """A row was remapped without any loss: 63 alone asks for a reset at leisure."""
    gpu = stage.rng.randrange(GPUS)
    words = "Row Remapper: New row (0x00000000001c70) marked for remapping, reset gpu to activate."
    stage.xid(node, gpu, at, driver_logs.xid(node, gpu, 63, words))


def _warm(stage: Stage, node: Node, at: datetime) -> None:
    """A GPU is hot for a minute under load, and no longer."""
    about = labels(node, stage.rng.randrange(GPUS), None)
    for number, value in enumerate((70, 84, 91, 90, 78, 71)):
        stage.sample(node, at + _seconds(30 * number), "DCGM_FI_DEV_GPU_TEMP", value, **about)


def _other_xid(stage: Stage, node: Node, at: datetime) -> None:
    """Another program's "xid": a transaction, not a code of the driver."""
    texts = (
        "postgres[811]: ERROR: could not access status of transaction xid 79",
        "zookeeper[644]: processing zxid: 0x79 session 0x10000",
        "dhclient[901]: DHCPDISCOVER on eno1 to 255.255.255.255 port 67 interval 7 (xid=0x4879e31)",
    )
    program, _, text = stage.rng.choice(texts).partition(": ")
    stage.daemon(node, at, program, text)


def _old_journal(stage: Stage, node: Node, at: datetime) -> None:
    """A shipper is installed anew and reads the journal from its beginning: faults of days ago, long since mended."""
    gpu, age = stage.rng.randrange(GPUS), timedelta(hours=stage.rng.uniform(26, 200))
    words = stage.rng.choice(
        (driver_logs.off_bus(node, gpu), [driver_logs.xid(node, gpu, 48, driver_logs.double_bit(2, 81_234))])
    )
    stage.kernel(node, at, *words, age=age)
    stage.kernel(
        node, at + _seconds(1), "NVRM: loading NVIDIA UNIX x86_64 Kernel Module", age=age - timedelta(hours=1)
    )


def _sticky_gauge(stage: Stage, node: Node, at: datetime) -> None:
    """The exporter still shows the code of last week."""
    about = labels(node, stage.rng.randrange(GPUS), None)
    code = stage.rng.choice((13, 31, 43, 45, 63))
    for number in range(3):
        stage.sample(node, at + _seconds(30 * number), "DCGM_FI_DEV_XID_ERRORS", code, **about)


def _idle(stage: Stage, node: Node, at: datetime) -> None:
    """GPUs that nobody uses."""
    for gpu in range(0, GPUS, 3):
        about = labels(node, gpu, None)
        for number in range(3):
            moment = at + _seconds(30 * number)
            stage.sample(node, moment, "DCGM_FI_DEV_GPU_UTIL", 0, **about)
            stage.sample(node, moment, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 1, **about)


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
