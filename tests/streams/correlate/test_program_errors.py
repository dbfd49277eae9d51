"""A program that meets faulty hardware and a metric of its node that tells the same of one GPU: two witnesses of one fault.

Neither is enough alone, and none of this matters where the kernel's own log tells of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from streams.model.clock import to_millis
from streams.model.entity import Gpu
from streams.model.facts import NodeFact, PodFact
from streams.model.incident import Certainty, IncidentState
from streams.model.signal import Severity, Signal
from tests.streams.correlate.world import World, at, cluster, failed, job, progress, sign, xid

ECC = "uncorrectable ECC error encountered"
JOBS: dict[str, Sequence[str]] = {"llama": ["n1", "n2", "n3", "n4"], "qwen": ["n5", "n6"]}


def met(name: str, pod: int, seconds: float, rank: int | None = None, reason: str = ECC) -> Signal:
    """What a rank of a job prints as it dies."""
    return failed(name, pod, seconds, "cuda_error", rank=rank, reason=reason)


def gauge(node: str, code: int, since: float, seconds: float, index: int = 3) -> Signal:
    """DCGM's gauge of the last XID: another code at the first time, this one at the second."""
    return xid(
        node,
        code,
        seconds,
        index=index,
        subtype="dcgm",
        reached=code,
        since_ms=to_millis(at(since)),
        series=f"{node}/{index}",
    )


def remap(node: str, subtype: str, seconds: float, index: int = 3, *, cleared: bool = False) -> Signal:
    """A row that was remapped, read at that time."""
    return sign(
        "gpu.row_remap", node, seconds, subtype, index=index, severity=Severity.WARNING, cleared=cleared,
        since_ms=to_millis(at(seconds - 30)), series=f"{node}/{index}/remap",
    )  # fmt: skip


def seen(*signals: Signal) -> World:
    world = World(cluster(JOBS))
    for one in sorted(signals, key=lambda s: s.observed_at):
        world.pass_to((one.observed_at - at(0)).total_seconds(), step=20)
        world.see(one)
    world.pass_to((world.now - at(0)).total_seconds() + 400, step=20)
    return world


CONFIRMED: dict[str, list[Signal]] = {
    "a code between two readings": [met("llama", 1, 0, 11), gauge("n2", 94, -400, 200)],
    "a code, read before the pod's line": [met("llama", 1, 10, 11), gauge("n2", 94, -60, -30)],
    "a code, and no rank in the line": [met("llama", 1, 0), gauge("n2", 94, -10, 20)],
    "the line of a launcher for another pod's rank": [met("llama", 0, 0, 11), gauge("n2", 94, -10, 20)],
    "a code, beside another weak sign of the node's GPUs": [
        sign("gpu.nvlink", "n2", -300, "degraded_bandwidth", index=6, severity=Severity.WARNING),
        sign("gpu.nvlink", "n2", -100, "degraded_bandwidth", index=6, severity=Severity.INFO, cleared=True),
        met("llama", 1, 0, 11),
        gauge("n2", 94, -10, 20),
    ],
    "a row that waits for a reset": [met("llama", 1, 0, 11), remap("n2", "pending", 600)],
    "a row that was remapped": [met("llama", 1, 0, 11), remap("n2", "uncorrectable", 300)],
}


@pytest.mark.parametrize("name", CONFIRMED)
def test_a_gpu_is_told_that_a_program_and_a_metric_accuse(name: str) -> None:
    (incident,) = [i for i in seen(*CONFIRMED[name]).incidents() if i.family != "gpu_nvlink"]
    assert (incident.family, incident.root.key) == ("gpu_memory", "gpu/n2/0000:13:00")
    assert incident.certainty is Certainty.LIKELY
    assert job("llama") in incident.jobs
    assert "a program met an uncorrectable ECC error" in incident.reason


def test_a_code_that_asks_for_a_reset_is_no_more_than_likely() -> None:
    incident = seen(met("llama", 1, 0, 11), gauge("n2", 95, -10, 20)).only()
    assert (incident.family, incident.certainty, incident.facts["xid"]) == (
        "gpu_memory",
        Certainty.LIKELY,
        95,
    )


UNCONFIRMED: dict[str, list[Signal]] = {
    "a program alone": [met("llama", 1, 0, 11)],
    "three programs alone": [met("llama", 1, 0, 11), met("qwen", 0, 300, 0), met("llama", 1, 600, 11)],
    "a gauge alone": [gauge("n2", 94, -10, 20)],
    "a gauge of another node": [met("llama", 1, 0, 11), gauge("n3", 94, -10, 20)],
    "a gauge that changed long after": [met("llama", 1, 0, 11), gauge("n2", 94, 800, 830)],
    "a gauge that changed before": [met("llama", 1, 1000, 11), gauge("n2", 94, 0, 30)],
    "a code of another family": [met("llama", 1, 0, 11), gauge("n2", 74, -10, 20)],
    "corrected errors": [
        met("llama", 1, 0, 11),
        sign("gpu.ecc", "n2", 20, "correctable", index=3, severity=Severity.INFO, since_ms=to_millis(at(-10))),
    ],
    "an error that bad programs leave as well": [
        met("llama", 1, 0, 11, reason="an illegal memory access was encountered"),
        gauge("n2", 94, -10, 20),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", UNCONFIRMED)
def test_one_witness_accuses_no_gpu(name: str) -> None:
    found = seen(*UNCONFIRMED[name]).incidents()
    assert [i.family for i in found if i.root.gpu is not None or i.family == "gpu_memory"] == []


def test_a_job_that_dies_there_later_is_a_victim_of_the_same_fault() -> None:
    world = seen(met("llama", 1, 0, 11), gauge("n2", 94, -10, 20))
    world.end("llama", JOBS["llama"], 5)
    for fact in cluster({"gemma": ["n2", "n3"]}):
        if isinstance(fact, PodFact):
            world.tell(replace(fact, scheduled_at=at(600)))
        elif not isinstance(fact, NodeFact):
            world.tell(fact)
    for minute in range(11, 25):
        world.pass_to(minute * 60, step=20)
        world.see(progress("gemma", minute * 60, minute))
    world.see(met("gemma", 0, 1500, 3), failed("gemma", 0, 1501, "process_exit", exitcode=1, local_rank=3))
    world.pass_to(2100, step=20)
    incident = world.only()
    assert incident.root.gpu == Gpu(pci="0000:13:00")
    assert incident.fault_at == at(0)
    assert set(incident.jobs) == {job("llama"), job("gemma")}


def test_it_is_over_when_the_row_is_remapped() -> None:
    world = seen(met("llama", 1, 0, 11), remap("n2", "pending", 600))
    assert world.only().state is IncidentState.OPEN
    world.see(remap("n2", "pending", 1200, cleared=True))
    world.pass_to(1500, step=20)
    assert world.only().state is IncidentState.RESOLVED


def test_what_the_kernel_tells_is_decided_by_that() -> None:
    kernel = xid("n2", 94, 1, index=3)
    beside = seen(kernel, met("llama", 1, 0, 11), gauge("n2", 94, -10, 20)).only()
    alone = seen(kernel, gauge("n2", 94, -10, 20)).only()
    assert (beside.id, beside.reason, beside.facts, beside.fault_at) == (
        alone.id,
        alone.reason,
        alone.facts,
        alone.fault_at,
    )


def test_the_order_in_which_they_are_read_does_not_matter() -> None:
    signals = [met("llama", 1, 0, 11), gauge("n2", 94, -400, 200)]
    one = seen(*signals).only()
    world = World(cluster(JOBS))
    world.see(*reversed(signals))
    world.pass_to(700, step=20)
    other = world.only()
    assert (one.id, one.root, one.fault_at, one.jobs) == (other.id, other.root, other.fault_at, other.jobs)


def test_a_process_that_takes_over_knows_what_the_program_said() -> None:
    world = seen(met("llama", 1, 0, 11))
    world.restart()
    world.see(gauge("n2", 94, -10, 20))
    world.pass_to(900, step=20)
    assert world.only().root.key == "gpu/n2/0000:13:00"


def test_many_programs_that_print_it_accuse_nobody() -> None:
    world = seen(*(met(name, pod, pod) for name, nodes in JOBS.items() for pod in range(len(nodes))))
    assert [i for i in world.incidents() if i.family == "gpu_memory"] == []
    assert world.now > at(0) + timedelta(minutes=5)
