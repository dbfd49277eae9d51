"""One GPU is one incident, by whatever names its records call it; two GPUs that differ in a name are two."""

from __future__ import annotations

import pytest

from streams.model.entity import Gpu
from streams.model.signal import Signal
from tests.streams.correlate.world import World, cluster, sign, xid

REMAP = "gpu.row_remap"
LATER = 1100.0
UUID = "GPU-7d1c2a40-0f3e-4a53-9d5e-2b8a6c1f0e11"


def by(gpu: Gpu | None, seconds: float = LATER) -> Signal:
    """A row that could not be remapped, of a GPU by these names."""
    return sign(REMAP, "n2", seconds, "failure", gpu=gpu)


def told(*signals: Signal) -> World:
    world = World(cluster({"llama": ["n1", "n2"]}))
    for one in sorted(signals, key=lambda s: s.observed_at):
        world.see(one)
    world.pass_to(LATER + 300, step=20)
    return world


@pytest.mark.parametrize(
    "gpu",
    [Gpu(pci="0000:13:00"), Gpu("0000:13:00", UUID, 3), Gpu(index=3), Gpu(uuid=UUID), None],
    ids=["address", "all names", "index", "UUID", "none"],
)
def test_memory_that_fails_again_is_the_same_fault_by_whatever_name(gpu: Gpu | None) -> None:
    incident = told(xid("n2", 94, 10, index=3), by(gpu)).only()
    assert (incident.root.gpu and incident.root.gpu.pci, incident.facts["gpus_failed"]) == ("0000:13:00", 1)


def test_memory_that_fails_without_a_name_first_is_the_same_fault() -> None:
    world = told(by(None, 10), xid("n2", 94, LATER, index=3))
    assert len([i for i in world.incidents() if not i.state.is_over]) == 1


@pytest.mark.parametrize(
    "other",
    [Gpu(pci="0000:14:00"), Gpu(index=4), Gpu(uuid="GPU-other")],
    ids=["address", "index", "UUID"],
)
def test_memory_of_two_gpus_that_differ_in_a_name_is_two_faults(other: Gpu) -> None:
    known = sign(REMAP, "n2", 5, "pending", gpu=Gpu("0000:13:00", UUID, 3))
    assert len(told(known, xid("n2", 94, 10, index=3), by(other)).incidents()) == 2


def test_another_fault_of_a_gpu_by_another_name_stays_its_own() -> None:
    lost = sign("gpu.off_bus", "n2", LATER, gpu=Gpu(index=5))
    assert len(told(xid("n2", 94, 10, index=3), lost).incidents()) == 2
