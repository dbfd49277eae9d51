"""An incident for each shipped runbook, made of the families and facts that correlation really gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from streams.model.entity import OUTPUT, Entity, Gpu, Part
from streams.model.incident import Certainty, Incident
from tests.runbooks.scenes import CLUSTER, JOB, incident

NODE = "node-03"
GPU = Entity(CLUSTER, node=NODE, gpu=Gpu(pci="0000:1b:00", uuid="GPU-5a1d"))
ON_NODE = Entity(CLUSTER, node=NODE)
NIC = Entity(CLUSTER, node=NODE, nic="mlx5_0")
FEED = Entity(CLUSTER, part=Part("power-feed", "b"))
PRINTED = Entity(CLUSTER, part=Part(OUTPUT, "research"))
DEVICES = Entity(CLUSTER, part=Part("container-runtime", "device access"))


@dataclass(frozen=True)
class Sample:
    """What `runbook` is for. `escalated` says that no incident chooses it: another runbook leads to it."""

    runbook: str
    family: str
    root: Entity = GPU
    facts: dict[str, Any] = field(default_factory=dict)
    certainty: Certainty = Certainty.DECISIVE
    jobs: tuple[Any, ...] = (JOB,)
    escalated: bool = False

    @property
    def incident(self) -> Incident:
        """The incident itself."""
        return incident(
            self.family,
            self.root,
            facts=self.facts,
            certainty=self.certainty,
            jobs=self.jobs,
            nodes=(self.root.node,) if self.root.node else (),
        )


def xid(code: int, action: str, *others: int, **more: Any) -> dict[str, Any]:
    """Facts of a GPU that reported a code."""
    return {"xid": code, "xids": tuple(sorted({code, *others})), "action": action, "gpus_failed": 1} | more


def signs(*kinds: str, **more: Any) -> dict[str, Any]:
    """Facts of what was told without a code."""
    return {"signs": tuple(sorted(kinds))} | more


LIKELY = Certainty.LIKELY
LEAVES = {**signs("node.maintenance.termination"), "deadline": "2026-03-01T12:29:00Z", "node_ends": "gone"}
WORK = {"by": "ada", "until": "2026-03-01T12:10:00Z", "work_reason": "new firmware"}

SAMPLES = (
    Sample("job-diagnosis", "silent_node", ON_NODE, certainty=LIKELY, escalated=True),
    Sample("gpu-off-bus", "gpu_off_bus", facts=xid(79, "restart_bm")),
    Sample("gpu-memory", "gpu_memory", facts=xid(95, "reset_gpu", 63)),
    Sample("gpu-memory-contained", "gpu_memory", facts=xid(94, "restart_app"), certainty=LIKELY),
    Sample("row-remap-pending", "gpu_memory", facts=xid(94, "restart_app", 63), certainty=LIKELY),
    Sample("row-remap-failed", "gpu_memory", facts=xid(64, "reset_gpu", 63)),
    Sample("gpu-nvlink", "gpu_nvlink", facts=xid(74, "workflow_nvlink_err", link=3), certainty=LIKELY),
    Sample("nvswitch", "gpu_nvlink", ON_NODE, {"sxids": (20034,), "gpus_failed": 1}, LIKELY),
    Sample("gpu-gsp", "gpu_fault", facts=xid(119, "reset_gpu")),
    Sample("gpu-driver", "gpu_fault", facts=signs("gpu.driver.rm_init_adapter", action="restart_bm")),
    Sample("gpu-fault", "gpu_fault", facts=xid(62, "reset_gpu")),
    Sample("gpu-thermal", "power_cooling", facts=signs("gpu.thermal.overheat"), certainty=LIKELY),
    Sample("gpu-quarantine", "straggler", facts=signs("gpu.slow.clock_straggler", repeats=2), certainty=LIKELY),
    Sample("repeat-offender", "gpu_off_bus", facts=xid(79, "restart_bm", repeats=2)),
    Sample("gpu-reset", "straggler", facts=signs("gpu.slow.clock_straggler"), certainty=LIKELY, escalated=True),
    Sample("node-reboot", "gpu_fault", facts=xid(62, "reset_gpu"), escalated=True),
    Sample("node-power-cycle", "gpu_off_bus", facts=xid(79, "restart_bm"), escalated=True),
    Sample("node-replace", "gpu_off_bus", facts=xid(79, "restart_bm"), escalated=True),
    Sample("silent-node", "silent_node", ON_NODE, {"silent": True, "culprit_ranks": (8, 9), "waited_s": 600}),
    Sample("silent-rank", "silent_node", ON_NODE, {"silent": True, "others_keep_up": True}, LIKELY),
    Sample("hang", "hang", Entity(CLUSTER, job=JOB), {"ranks_reported": 16}, Certainty.WEAK),
    Sample(
        "hang-suspects",
        "hang",
        Entity(CLUSTER, job=JOB),
        {"culprit_ranks": (8,), "suspect_nodes": (NODE, "node-04")},
        Certainty.WEAK,
    ),
    Sample("node-down", "node_down", ON_NODE, {"node_not_ready": True, "maintenance": False}),
    Sample("kubelet-down", "node_down", ON_NODE, {"node_not_ready": True, "maintenance": False, "lives": True}, LIKELY),
    Sample("many-nodes-down", "nodes_not_ready", Entity(CLUSTER), {"nodes_hit": 1800, "nodes_known": 2000}, LIKELY, jobs=()),
    Sample("many-nodes-down", "shared_fault", FEED, {"nodes_hit": 6, "nodes_known": 8}, LIKELY, jobs=()),
    Sample("node-idle-down", "node_down", ON_NODE, {"node_not_ready": True, "maintenance": False}, jobs=()),
    Sample("host-memory", "host_fault", ON_NODE, signs("node.memory.uncorrectable"), LIKELY),
    Sample("host-kernel", "host_fault", ON_NODE, signs("node.kernel.hard_lockup"), LIKELY),
    Sample("host-storage", "host_fault", ON_NODE, signs("node.storage.read_only"), LIKELY),
    Sample("host-fault", "host_fault", ON_NODE, signs("node.pcie.aer"), LIKELY),
    Sample("maintenance-notice", "preemption", ON_NODE, signs("node.maintenance.scheduled_event"), LIKELY),
    Sample("leaving-node", "preemption", ON_NODE, LEAVES),
    Sample("planned-work", "planned_work", ON_NODE, {**WORK, "approved": True}),
    Sample("planned-work-asked", "planned_work", ON_NODE, {**WORK, "approved": False}),
    Sample("preemption", "preemption", ON_NODE, signs("node.maintenance.termination"), LIKELY),
    Sample("nic-down", "nic_link", NIC, {"hard": True, "link": "link down", "maintenance": False}),
    Sample("nic-cable", "nic_link", NIC, {"hard": False, "link": "link flaps", "maintenance": False}, LIKELY),
    Sample("nic-link", "nic_link", NIC, {"hard": False, "link": "link down", "maintenance": False}, LIKELY),
    Sample("pfc-storm-host", "pfc_storm", NIC, {"direction": "sent", "both_ends": True}),
    Sample("pfc-storm-switch", "pfc_storm", Entity(CLUSTER, switch="leaf-1"), {"shared_nodes": 9}, LIKELY),
    Sample("pfc-storm-fabric", "pfc_storm", Entity(CLUSTER, switch="leaf-1", port="Ethernet8"), {"uplink": True}, LIKELY),
    Sample("fabric-fault", "fabric_fault", Entity(CLUSTER, switch="leaf-1"), {"source": "leaf-1"}),
    Sample("power-cooling", "power_cooling", Entity(CLUSTER, rack="r1"), {"nodes_hit": 6, "nodes_known": 8}, LIKELY),
    Sample("storage-fault", "storage_fault", Entity(CLUSTER, storage="lfs1"), {"nodes_hit": 4}, LIKELY),
    Sample("printed-faults", "platform_fault", PRINTED, {"nodes_hit": 60, "printed": True}, LIKELY, jobs=()),
    Sample("lost-devices", "platform_fault", DEVICES, {"nodes_hit": 4, "lost_devices": True}, LIKELY),
    Sample("platform-fault", "platform_fault", Entity(CLUSTER, job=JOB), signs("job.failed.image_pull"), LIKELY),
    Sample("application", "application", Entity(CLUSTER, job=JOB), {"xid": 31, "xids": (31,), "shared_nodes": 3}),
    Sample("straggler", "straggler", facts=signs("gpu.slow.clock_straggler"), certainty=LIKELY),
    Sample("unknown", "unknown", facts=xid(999, "contact_support"), certainty=Certainty.WEAK),
)  # fmt: skip
