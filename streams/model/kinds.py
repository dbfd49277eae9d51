"""What signals and incidents are about: the names that detection, correlation and runbooks share."""

from __future__ import annotations

from enum import StrEnum


class SignalKind(StrEnum):
    """What a signal reports. A newer version may write others: what reads signals takes any string.

    `run.*` are the outcomes of runs, which the responder reports back to the correlator; so does `node.planned_work`.
    """

    GPU_DRIVER = "gpu.driver"
    GPU_ECC = "gpu.ecc"
    GPU_IDLE = "gpu.idle"
    GPU_MEMORY = "gpu.memory"
    GPU_NVLINK = "gpu.nvlink"
    GPU_OFF_BUS = "gpu.off_bus"
    GPU_POWER = "gpu.power"
    GPU_ROW_REMAP = "gpu.row_remap"
    GPU_SLOW = "gpu.slow"
    GPU_SXID = "gpu.sxid"
    GPU_THERMAL = "gpu.thermal"
    GPU_XID = "gpu.xid"
    NCCL_TIMEOUT = "nccl.timeout"
    NCCL_ERROR = "nccl.error"
    FABRIC_LINK = "fabric.link"
    FABRIC_NEIGHBOUR = "fabric.neighbour"
    FABRIC_NIC_NAMES = "fabric.nic_names"
    FABRIC_PFC_STORM = "fabric.pfc_storm"
    NODE_CONDITION = "node.condition"
    NODE_GPUS = "node.gpus"
    NODE_KERNEL = "node.kernel"
    NODE_MAINTENANCE = "node.maintenance"
    NODE_MEMORY = "node.memory"
    NODE_NOT_READY = "node.not_ready"
    NODE_PLANNED_WORK = "node.planned_work"
    NODE_PCIE = "node.pcie"
    NODE_POWER = "node.power"
    NODE_STORAGE = "node.storage"
    NODE_THERMAL = "node.thermal"
    JOB_FAILED = "job.failed"
    JOB_STALLED = "job.stalled"
    JOB_PROGRESS = "job.progress"
    JOB_BUSY = "job.busy"
    JOB_CHECKPOINT = "job.checkpoint"
    JOB_RANK = "job.rank"
    JOB_ALLOCATION = "job.allocation"
    RUN_STARTED = "run.started"
    RUN_AWAITING_APPROVAL = "run.awaiting_approval"
    RUN_VERIFYING = "run.verifying"
    RUN_RESOLVED = "run.resolved"
    RUN_FINISHED = "run.finished"
    ALERT_UNMAPPED = "alert.unmapped"
    UNKNOWN = "unknown"


class WorkloadClass(StrEnum):
    """What a pod or a job object is for.

    Only training jobs are acted on, and only they are victims of an incident, but for what died because a node has no usable GPU.
    """

    TRAINING = "training"
    NOTEBOOK = "notebook"
    BATCH = "batch"
    INFERENCE = "inference"
    BUILD = "build"
    SYSTEM = "system"
    UNKNOWN = "unknown"


class IncidentFamily(StrEnum):
    """What an incident is, by its root cause: a row of `correlate/policy/families.yaml` each."""

    GPU_OFF_BUS = "gpu_off_bus"
    GPU_MEMORY = "gpu_memory"
    GPU_NVLINK = "gpu_nvlink"
    GPU_FAULT = "gpu_fault"
    PREEMPTION = "preemption"
    PLANNED_WORK = "planned_work"
    PFC_STORM = "pfc_storm"
    NODES_NOT_READY = "nodes_not_ready"
    SHARED_FAULT = "shared_fault"
    POWER_COOLING = "power_cooling"
    FABRIC_FAULT = "fabric_fault"
    HOST_FAULT = "host_fault"
    STORAGE_FAULT = "storage_fault"
    SILENT_NODE = "silent_node"
    NODE_DOWN = "node_down"
    NIC_LINK = "nic_link"
    PLATFORM_FAULT = "platform_fault"
    APPLICATION = "application"
    STRAGGLER = "straggler"
    HANG = "hang"
    UNKNOWN = "unknown"
