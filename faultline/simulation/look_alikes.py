"""Things that resemble faults: what users, schedulers, monitors and healthy hardware do all day. None may close a node."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from faultline.simulation import nvrm, torch
from faultline.simulation.faults.fabric import nic_state, pauses, port_state, watchdog
from faultline.simulation.faults.shared import labels
from faultline.simulation.plant import GPUS, Node
from faultline.simulation.stage import Pod, Stage
from faultline.simulation.truth import LookAlike
from streams.model.errors import BadInput

ALONE = timedelta(minutes=3)
"""No fault begins on the node for so long: it would take the look-alike for part of itself, and rightly so."""

Play = Callable[[Stage, Node, datetime], None]


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def play(stage: Stage, at: datetime) -> bool:
    """Play one of those that the scenario names, on a node where nothing else happens; False when there is none."""
    wanted = stage.scenario.look_alikes.kinds or tuple(KINDS)
    kind = stage.rng.choice(wanted)
    if kind not in KINDS:
        raise BadInput(f"no look-alike {kind!r}; there are: {', '.join(sorted(KINDS))}")
    calm = [node for node in stage.cluster.nodes.values() if stage.calm(node, at)]
    if not calm:
        return False
    node = stage.rng.choice(calm)
    KINDS[kind](stage, node, at)
    stage.occupy(at + ALONE, [node])
    stage.truth.look_alikes.append(LookAlike(kind, at, node.name))
    return True


def _process(stage: Stage) -> int:
    return stage.rng.randrange(50_000, 400_000)


def _user_xid(stage: Stage, node: Node, at: datetime) -> None:
    """A user's own program on a node that no job holds reads past its memory: 13 or 31, and the 43 that ends its channel."""
    idle = stage.idle_nodes(at)
    if node not in idle:
        if not idle:
            _killed(stage, node, at)
            return
        node = stage.rng.choice(idle)
        stage.occupy(at + ALONE, [node])
    rng, gpu, pid = stage.rng, stage.rng.randrange(GPUS), _process(stage)
    name = rng.choice(("python", "ipython", "vectorAdd", "nbody"))
    if rng.random() < 0.5:
        code, body = 31, nvrm.memory_fault(rng.randrange(7), rng.randrange(14), rng.randrange(2**16))
    else:
        code, body = 13, nvrm.warp_exception(rng.randrange(7), rng.randrange(9))
    stage.xid(node, gpu, at, nvrm.xid(node, gpu, code, body, pid=pid, process=name))
    stage.xid(
        node, gpu, at + _seconds(0.3), nvrm.xid(node, gpu, 43, f"Ch {gpu + 8:08x}", pid=pid, process=name)
    )


def _killed(stage: Stage, node: Node, at: datetime) -> None:
    """Somebody ends a program with Ctrl-C: 45 alone."""
    gpu = stage.rng.randrange(GPUS)
    stage.xid(
        node, gpu, at, nvrm.xid(node, gpu, 45, f"Ch {gpu + 8:08x}", pid=_process(stage), process="python")
    )


def _pod_of(stage: Stage, node: Node) -> Pod | None:
    return next((pod for job in stage.jobs if not job.finished for pod in job.pods if pod.node == node), None)


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


def _brief_pause(stage: Stage, node: Node, at: datetime) -> None:
    """Incast: everybody on a leaf is paused a little, nobody for long."""
    nic = stage.rng.randrange(GPUS)
    for other in stage.cluster.under(node.leaf)[:4]:
        for way in ("received", "transmitted"):
            fractions = [0.0, *(stage.rng.uniform(0.01, 0.4) for _ in range(4)), 0.0]
            pauses(stage, other, nic, at, way, fractions)


def _pause_victim(stage: Stage, node: Node, at: datetime) -> None:
    """A host is told to pause nearly all of the time by a congested network: it suffers, it is not the source."""
    pauses(stage, node, stage.rng.randrange(GPUS), at, "received", [0.0, *[0.95] * 4, 0.1, 0.0, 0.0])


def _congested_uplink(stage: Stage, node: Node, at: datetime) -> None:
    """Traffic across a leaf's uplinks is too much for minutes: all of its hosts are told to pause a good part of the time."""
    nic = stage.rng.randrange(GPUS)
    for other in stage.cluster.under(node.leaf)[:8]:
        fractions = [0.0, *(stage.rng.uniform(0.25, 0.6) for _ in range(10)), 0.05]
        pauses(stage, other, nic, at + _seconds(stage.rng.uniform(0, 15)), "received", fractions)


def _brief_storm(stage: Stage, node: Node, at: datetime) -> None:
    """The switch's watchdog fires and restores within a second: a burst."""
    port = node.port(stage.rng.randrange(GPUS))
    watchdog(stage, node.leaf, port, at, vital=True)
    watchdog(stage, node.leaf, port, at + _seconds(0.45), restored=True, vital=True)


def _kubelet_restart(stage: Stage, node: Node, at: datetime) -> None:
    """A kubelet is restarted: its node is not ready for seconds, its pods go on."""
    stage.not_ready(node, at, status="False")
    stage.daemon(node, at, "systemd[1]", "Stopping Kubernetes Kubelet...")
    stage.ready_again(node, at + _seconds(stage.rng.uniform(4, 18)))
    stage.event(
        at + _seconds(3),
        "Node",
        node.name,
        "Starting",
        "Starting kubelet.",
        component="kubelet",
        host=node.name,
        warning=False,
    )


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
    stage.xid(node, gpu, at, nvrm.xid(node, gpu, 63, words))


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


def _link_blink(stage: Stage, node: Node, at: datetime) -> None:
    """One link goes down for two seconds, once: a cable was touched, nobody noticed."""
    nic = stage.rng.randrange(GPUS)
    nic_state(stage, node, nic, at, "down", vital=True)
    port_state(stage, node.leaf, node.port(nic), at + _seconds(0.2), "down", vital=True)
    nic_state(stage, node, nic, at + _seconds(2.1), "up", vital=True)
    port_state(stage, node.leaf, node.port(nic), at + _seconds(2.3), "up", vital=True)


def _register_flood(stage: Stage, node: Node, at: datetime) -> None:
    """mlx5 refuses a register access, many times a minute: harmless."""
    for number in range(12):
        text = (
            f"mlx5_core {node.nic_pci(number % GPUS)}: mlx5_cmd_out_err:838:(pid 2211): ACCESS_REG(0x805) op_mod(0x1) failed, "
            "status bad operation(0x2), syndrome (0x305684), err(-22)"
        )
        stage.kernel(node, at + _seconds(number * 0.8), text)


def _maintenance(stage: Stage, node: Node, at: datetime) -> None:
    """An idle node is closed on purpose, restarted and opened again."""
    if node not in stage.idle_nodes(at):
        _register_flood(stage, node, at)
        return
    back = at + timedelta(minutes=stage.rng.uniform(5, 9))
    taint = {"key": "faultline.dev/maintenance", "value": "firmware", "effect": "NoSchedule"}
    stage.node_changes(node, at, spec={"unschedulable": True, "taints": [taint]})
    text = f"Node {node.name} status is now: NodeNotSchedulable"
    stage.event(at, "Node", node.name, "NodeNotSchedulable", text, component="kubelet", warning=False)
    down = at + timedelta(minutes=2)
    stage.node_changes(node, down, ready="Unknown", spec={"unschedulable": True, "taints": [taint]})
    stage.event(
        down, "Node", node.name, "NodeNotReady", f"Node {node.name} status is now: NodeNotReady", vital=True
    )
    stage.event(
        back,
        "Node",
        node.name,
        "Rebooted",
        f"Node {node.name} has been rebooted, boot id: 0c1f2a3b",
        component="kubelet",
        host=node.name,
    )
    stage.node_changes(node, back, spec={"unschedulable": True, "taints": [taint]})
    stage.event(
        back,
        "Node",
        node.name,
        "NodeReady",
        f"Node {node.name} status is now: NodeReady",
        component="kubelet",
        host=node.name,
        warning=False,
        vital=True,
    )
    stage.node_changes(node, back + timedelta(minutes=1))
    stage.occupy(back + timedelta(minutes=8), [node])


def _job_done(stage: Stage, node: Node, at: datetime) -> None:
    """A job has done its work: its channels are torn down, sockets close, its pods are complete."""
    jobs = [job for job in stage.calm_jobs(at, pods=1) if node in job.nodes]
    running = [job for job in stage.jobs if not job.finished]
    if not jobs or len(running) < 4 or len(jobs[0].pods) > 4:
        _killed(stage, node, at)
        return
    job = jobs[0]
    for pod in job.pods:
        gpu = stage.rng.randrange(GPUS)
        line = nvrm.xid(pod.node, gpu, 45, f"Ch {gpu + 8:08x}", pid=pod.pid(pod.rank + gpu))
        stage.xid(pod.node, gpu, at + _seconds(stage.rng.uniform(0, 2)), line, vital=False)
        stage.pod(pod, at, "INFO training finished, final checkpoint written")
    stage.occupy(at + timedelta(minutes=4), job.nodes)
    nodes = job.nodes
    stage.finish(job, at + _seconds(3))
    stage.replace_job(job, nodes, at + timedelta(minutes=3))


def _restarted_by_hand(stage: Stage, node: Node, at: datetime) -> None:
    """A user stops a job and starts it again: every rank gets SIGTERM, channels are torn down."""
    jobs = [job for job in stage.calm_jobs(at, pods=1) if node in job.nodes]
    if not jobs or len(jobs[0].pods) > 8:
        _killed(stage, node, at)
        return
    job = jobs[0]
    for pod in job.pods:
        stage.pod(pod, at + _seconds(stage.rng.uniform(0, 1)), torch.told_to_end(at))
        gpu = stage.rng.randrange(GPUS)
        line = nvrm.xid(pod.node, gpu, 45, f"Ch {gpu + 8:08x}", pid=pod.pid(pod.rank + gpu))
        stage.xid(pod.node, gpu, at + _seconds(stage.rng.uniform(0.5, 2)), line, vital=False)
    stage.stop(job, at + _seconds(4), exit_code=143)
    stage.restart(job, at + _seconds(70))


def _maintenance_drain(stage: Stage, node: Node, at: datetime) -> None:
    """A node with a job is emptied on purpose: its pods are evicted, the job starts again elsewhere, the node restarts."""
    jobs = [job for job in stage.calm_jobs(at) if node in job.nodes and len(job.pods) <= 8]
    if not jobs or not stage.idle_nodes(at):
        _register_flood(stage, node, at)
        return
    job = jobs[0]
    pod = job.pods[job.nodes.index(node)]
    peers = [other for other in job.pods if other is not pod][:2]
    taint = {"key": "faultline.dev/maintenance", "value": "firmware", "effect": "NoSchedule"}
    closed = {"unschedulable": True, "taints": [taint]}
    stage.node_changes(node, at, spec=closed)
    text = f"Node {node.name} status is now: NodeNotSchedulable"
    stage.event(at, "Node", node.name, "NodeNotSchedulable", text, component="kubelet", warning=False)
    out = at + _seconds(20)
    text = f"Marking for deletion Pod {pod.namespace}/{pod.name}"
    stage.event(
        out, "Pod", pod.name, "TaintManagerEviction", text, namespace=pod.namespace, uid=pod.uid,
        component="taint-eviction-controller", warning=False,
    )  # fmt: skip
    stage.pod(pod, out + _seconds(0.5), torch.told_to_end(out))
    for peer in peers:
        moment = out + _seconds(stage.rng.uniform(2, 5))
        gpu = stage.rng.randrange(GPUS)
        stage.pod(peer, moment, torch.closed(peer.name, peer.pid(peer.rank + gpu), gpu, moment, pod.address))
    stage.stop(job, out + _seconds(9), exit_code=143)
    stage.restart(job, out + _seconds(80), [node])
    down, back = at + timedelta(minutes=3), at + timedelta(minutes=stage.rng.uniform(7, 11))
    stage.node_changes(node, down, ready="Unknown", spec=closed)
    stage.event(
        down, "Node", node.name, "NodeNotReady", f"Node {node.name} status is now: NodeNotReady", vital=True
    )
    stage.node_changes(node, back, spec=closed)
    text = f"Node {node.name} status is now: NodeReady"
    stage.event(
        back,
        "Node",
        node.name,
        "NodeReady",
        text,
        component="kubelet",
        host=node.name,
        warning=False,
        vital=True,
    )
    stage.node_changes(node, back + timedelta(minutes=1))
    stage.occupy(back + timedelta(minutes=8), [node])


def _preempted(stage: Stage, node: Node, at: datetime) -> None:
    """The scheduler takes a job's nodes for a more important one; it runs again a little later."""
    jobs = [job for job in stage.calm_jobs(at, pods=1) if node in job.nodes and len(job.pods) <= 8]
    if not jobs:
        _killed(stage, node, at)
        return
    job = jobs[0]
    for pod in job.pods:
        text = f"Preempted by pod 7f0c1d2e-0000-4000-8000-00000000c0de on node {pod.node.name}"
        stage.event(
            at,
            "Pod",
            pod.name,
            "Preempted",
            text,
            namespace=pod.namespace,
            uid=pod.uid,
            component="default-scheduler",
        )
        stage.pod(pod, at + _seconds(stage.rng.uniform(0, 1)), torch.told_to_end(at))
    stage.stop(job, at + _seconds(6), exit_code=143)
    stage.restart(job, at + timedelta(minutes=4))


def _old_journal(stage: Stage, node: Node, at: datetime) -> None:
    """A shipper is installed anew and reads the journal from its beginning: faults of days ago, long since mended."""
    gpu, age = stage.rng.randrange(GPUS), timedelta(hours=stage.rng.uniform(26, 200))
    words = stage.rng.choice((nvrm.off_bus(node, gpu), [nvrm.xid(node, gpu, 48, nvrm.double_bit(2, 81_234))]))
    stage.kernel(node, at, *words, age=age)
    stage.kernel(
        node, at + _seconds(1), "NVRM: loading NVIDIA UNIX x86_64 Kernel Module", age=age - timedelta(hours=1)
    )


KINDS: dict[str, Play] = {
    "user_xid": _user_xid,
    "killed_program": _killed,
    "quoted_log": _quoted,
    "driver_banner": _banner,
    "brief_pause": _brief_pause,
    "pause_victim": _pause_victim,
    "congested_uplink": _congested_uplink,
    "brief_storm": _brief_storm,
    "kubelet_restart": _kubelet_restart,
    "corrected_host_errors": _corrected_memory,
    "corrected_gpu_memory": _corrected_gpu_memory,
    "remapped_row": _remapped,
    "warm_gpu": _warm,
    "other_xid": _other_xid,
    "old_journal": _old_journal,
    "sticky_gauge": _sticky_gauge,
    "idle_gpus": _idle,
    "link_blink": _link_blink,
    "register_flood": _register_flood,
    "maintenance": _maintenance,
    "maintenance_drain": _maintenance_drain,
    "preempted_job": _preempted,
    "job_done": _job_done,
    "restarted_by_hand": _restarted_by_hand,
}
