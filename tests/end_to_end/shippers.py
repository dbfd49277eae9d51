"""Records as shippers write them, for stories told on a real cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def kernel(node: str, message: str) -> dict[str, Any]:
    """A kernel line through Fluent Bit's kmsg input with the host added by a filter."""
    return {
        "@timestamp": datetime.now(UTC).timestamp(),
        "host": node,
        "priority": 4,
        "sec": 4711,
        "usec": 12,
        "msg": message,
    }


def rank_output(namespace: str, pod: str, node: str, text: str) -> dict[str, Any]:
    """A line of a training container through Fluent Bit's tail input."""
    kubernetes = {"pod_name": pod, "namespace_name": namespace, "host": node, "container_name": "train"}
    return {
        "@timestamp": datetime.now(UTC).timestamp(),
        "log": text,
        "stream": "stderr",
        "kubernetes": kubernetes,
    }


def off_bus(node: str, pci: str = "0000:3b:00") -> dict[str, Any]:
    """XID 79."""
    return kernel(node, f"NVRM: Xid (PCI:{pci}): 79, pid=4242, name=python, GPU has fallen off the bus.")


def teardown(node: str, pci: str = "0000:3b:00", pid: int = 4242) -> dict[str, Any]:
    """XID 45, as every rank's channel is torn down."""
    return kernel(node, f"NVRM: Xid (PCI:{pci}): 45, pid={pid}, name=python, Ch 00000008")


def mmu_fault(node: str, pci: str = "0000:3b:00") -> dict[str, Any]:
    """XID 31: the program read where nothing is mapped."""
    channel = "pid=4242, name=python, channel 0x00000007, intr 00000000"
    fault = "ENGINE GRAPHICS GPC2 GPCCLIENT_T1_4 faulted @ 0x7f21_5a000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
    return kernel(node, f"NVRM: Xid (PCI:{pci}): 31, {channel}. MMU Fault: {fault}")


def watchdog(namespace: str, pod: str, node: str, rank: int) -> dict[str, Any]:
    """A collective that timed out, in the wording of PyTorch 2.5. It began when the job of a short test ran already."""
    now = datetime.now(UTC)
    text = (
        f"[rank{rank}]:[E{now.month}{now:%d %H:%M:%S.%f}000 ProcessGroupNCCL.cpp:616] "
        f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=31, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=2000) "
        "ran for 2009 milliseconds before timing out."
    )
    return rank_output(namespace, pod, node, text)


def iteration(namespace: str, pod: str, node: str, step: int) -> dict[str, Any]:
    """A training loop's sign of life."""
    text = f" iteration {step:8}/   50000 | consumed samples: {step * 512} | elapsed time per iteration (ms): 812.4 |"
    return rank_output(namespace, pod, node, text)
