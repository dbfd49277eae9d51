"""Faults of GPUs: the bus, memory, NVLink, firmware (NVIDIA, Xid catalog; Delta study for what follows what)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from sandbox.simulation import driver_logs, framework_logs
from sandbox.simulation.faults.kinds import FaultPlace, Kind, on_busy_gpu, record_truth, some_gpu
from sandbox.simulation.job_failure import crash, hang, restart_job
from sandbox.simulation.output import seconds
from sandbox.simulation.simulation import Simulation
from sandbox.simulation.topology import GPUS
from sandbox.simulation.workload import Job

DriverLog = Callable[[Simulation, FaultPlace, datetime], None]
"""Emits what the driver logs about a fault of one GPU."""

NVLINK_ERROR = "uncorrectable NVLink error detected during the execution"
ECC_ERROR = "uncorrectable ECC error encountered"
SWITCHES = 4
"""NVSwitches of an HGX board."""


def _broken(
    kind: str, family: str, log: DriverLog, *, ends: Sequence[str] = ("hang", "crash"),
    error: str = "unspecified launch failure", idle_share: float = 0.1,
) -> Kind:  # fmt: skip
    """A GPU breaks; its rank hangs or dies (`ends`), its job goes down with it, an operator takes its node out."""

    def inject(sim: Simulation, at: datetime) -> bool:
        place = some_gpu(sim, at, idle_share=idle_share)
        if place is None:
            return False
        _break(sim, place, at, kind, family, log, ends, error)
        return True

    return inject


def _break(
    sim: Simulation, place: FaultPlace, at: datetime,
    kind: str, family: str, log: DriverLog, ends: Sequence[str], error: str,
) -> None:  # fmt: skip
    nodes = place.job.nodes if place.job else [place.node]
    log(sim, place, at)
    until = _end(sim, place, at, ends, error)
    record_truth(
        sim, kind, at, until, family, place.gpu_root(),
        jobs=[place.job] if place.job else [], nodes=nodes, may_cordon=[place.node],
    )  # fmt: skip


def _end(sim: Simulation, place: FaultPlace, at: datetime, ends: Sequence[str], error: str) -> datetime:
    if place.job is None:
        return sim.cordon_and_replace(place.node, at)
    if sim.rng.choice(list(ends)) == "crash":
        text = framework_logs.cuda_error(place.rank, error)
        return crash(sim, place.job, at + seconds(1), place.rank, text, avoid=[place.node])
    return hang(sim, place.job, at, [place.rank], avoid=[place.node])


def _xid(
    sim: Simulation, place: FaultPlace, at: datetime, code: int, body: str, *, after_s: float = 0, pid: bool = True,
    vital: bool = True,
) -> None:  # fmt: skip
    """An Xid of the GPU; with `pid` it names the process of the rank, if the GPU has one."""
    process = place.job.pod_of(place.rank).pid(place.rank) if pid and place.job else None
    sim.xid(place.node, place.gpu, at + seconds(after_s), code, body, pid=process, vital=vital)


def _recovery_action(sim: Simulation, place: FaultPlace, at: datetime, to: int) -> None:
    """Xid 154, where the driver has it."""
    if line := driver_logs.recovery(place.node, place.gpu, to):
        sim.gpu(place.node, place.gpu, at + seconds(0.4), line)


def _off_bus(sim: Simulation, place: FaultPlace, at: datetime) -> None:
    """The links to the GPU fail too: SXid 20034 on every NVSwitch of the board, about 12 s after Xid 79."""
    sim.gpu(place.node, place.gpu, at, *driver_logs.off_bus(place.node, place.gpu))
    _recovery_action(sim, place, at, 2)
    for switch in range(SWITCHES):
        body = f"Fatal, Link {sim.rng.randrange(64):02d} LTSSM Fault Up"
        moment = at + seconds(12) + seconds(sim.rng.uniform(0, 1.5))
        sim.kernel(place.node, moment, driver_logs.sxid(switch, 20034, body))


def _off_bus_quietly(sim: Simulation, place: FaultPlace, at: datetime) -> None:
    sim.kernel(place.node, at, *driver_logs.off_bus_quietly(place.node, place.gpu), vital=True)


def _remapping(sim: Simulation, place: FaultPlace, at: datetime, row: int) -> None:
    body = f"Row Remapper: New row (0x{row:014x}) marked for remapping, reset gpu to activate."
    _xid(sim, place, at, 63, body, after_s=0.1, pid=False, vital=False)


def _double_bit(sim: Simulation, place: FaultPlace, at: datetime) -> None:
    rng = sim.rng
    _xid(sim, place, at, 48, driver_logs.double_bit(rng.randrange(8), rng.randrange(2**20)), pid=False)
    _remapping(sim, place, at, 0xA1F0)
    if rng.random() < 0.5:
        body = "Contained: CE User Channel (0x9). RST: No, D-RST: No"
        _xid(sim, place, at, 94, body, after_s=0.2, vital=False)
    if place.job is not None:
        _xid(sim, place, at, 45, "Ch 00000009", after_s=0.5, vital=False)
    _recovery_action(sim, place, at, 1)


def _uncontained(sim: Simulation, place: FaultPlace, at: datetime) -> None:
    _xid(sim, place, at, 95, "Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No")
    _recovery_action(sim, place, at, 1)


def _contained(sim: Simulation, place: FaultPlace, at: datetime) -> None:
    _xid(sim, place, at, 94, "Contained: SM (0x1). RST: No, D-RST: No")
    _remapping(sim, place, at, 0xB2C1)
    _xid(sim, place, at, 45, "Ch 0000000b", after_s=0.6, vital=False)


def _remap_failure(sim: Simulation, place: FaultPlace, at: datetime) -> None:
    body = "Row Remapper: Failed to remap row, no spare rows left in bank."
    _xid(sim, place, at, 64, body, pid=False)
    _recovery_action(sim, place, at, 1)


def _gsp(sim: Simulation, place: FaultPlace, at: datetime) -> None:
    for number in range(3):
        _xid(sim, place, at, 119, driver_logs.gsp_timeout(place.gpu), after_s=6 * number)
    address = place.node.gpu_pci(place.gpu)
    limit = f"NVRM: Rate limiting GSP RPC error prints for GPU at PCI:{address} (printing 1 of every 30)."
    sim.kernel(place.node, at + seconds(13), f"{limit}  The GPU likely needs to be reset.")
    if sim.rng.random() < 0.5:
        _recovery_action(sim, place, at + seconds(14), 2)


def _context_switch(sim: Simulation, place: FaultPlace, at: datetime) -> None:
    _xid(sim, place, at, 109, "errorString CTX SWITCH TIMEOUT, Info 0x5c009")
    _recovery_action(sim, place, at, 1)


def _unknown(sim: Simulation, place: FaultPlace, at: datetime) -> None:
    _xid(sim, place, at, sim.rng.choice((201, 207, 219, 233)), "Unexpected engine state 0x41", pid=False)


def _init_failure(sim: Simulation, place: FaultPlace, at: datetime) -> None:
    address, minor = place.node.gpu_pci(place.gpu), place.gpu
    for number in range(3):
        sim.kernel(
            place.node, at + seconds(11 * number),
            f"NVRM: GPU {address}.0: RmInitAdapter failed! (0x62:0x65:1784)",
            f"NVRM: GPU {address}.0: rm_init_adapter failed, device minor number {minor}",
            vital=True,
        )  # fmt: skip


def _nvlink(sim: Simulation, place: FaultPlace, at: datetime) -> None:
    """A link fails: the faulty GPU logs the cause, the one at the other end an error that came over the link."""
    rng, other = sim.rng, _other_gpu(sim, place.gpu)
    cause = driver_logs.nvlink_error(rng.randrange(18), 0x10000)
    echo = driver_logs.nvlink_error(rng.randrange(18), 0x100000)
    _xid(sim, place, at, 74, cause)
    sim.xid(place.node, other, at + seconds(rng.choice((-0.2, 0.15, 0.6))), 74, echo)
    body = f"Fatal, Link {rng.randrange(64):02d} LTSSM Fault Up"
    sim.kernel(place.node, at + seconds(0.3), driver_logs.sxid(rng.randrange(SWITCHES), 20034, body))
    _recovery_action(sim, place, at, 4)


def _nvlink5(sim: Simulation, place: FaultPlace, at: datetime) -> None:
    """A link of a newer generation loses its signal (149, reason 2); the other end blames its peer (reason 33)."""
    other, link = _other_gpu(sim, place.gpu), sim.rng.randrange(18)
    _xid(sim, place, at, 149, driver_logs.nvlink5_down(place.node, link, reason=2), pid=False)
    moment = at + seconds(sim.rng.choice((-0.15, 0.1, 0.5)))
    sim.xid(
        place.node, other, moment, 149, driver_logs.nvlink5_down(place.node, sim.rng.randrange(18), reason=33)
    )
    _recovery_action(sim, place, at, 4)


def _overruled(sim: Simulation, place: FaultPlace, at: datetime) -> None:
    """A contained error, for which a restart of the application would do; but the driver asks for more."""
    _contained(sim, place, at)
    _recovery_action(sim, place, at, sim.rng.choice((1, 2)))


def _other_gpu(sim: Simulation, gpu: int) -> int:
    return sim.rng.choice([n for n in range(GPUS) if n != gpu])


def _board(sim: Simulation, place: FaultPlace, job: Job, at: datetime) -> datetime:
    """A baseboard loses power: several of its GPUs leave the bus within seconds."""
    lost = sorted(sim.rng.sample(range(GPUS), sim.rng.choice((2, 4, 8))))
    for number, gpu in enumerate(lost):
        sim.gpu(place.node, gpu, at + seconds(0.7 * number), *driver_logs.off_bus(place.node, gpu))
    return hang(sim, job, at, [place.ranks[gpu] for gpu in lost], avoid=[place.node])


def _nvswitch(sim: Simulation, place: FaultPlace, job: Job, at: datetime) -> datetime:
    """An NVSwitch fails: fatal SXids, and 74 on every GPU of the board."""
    switch = sim.rng.randrange(SWITCHES)
    code, body = sim.rng.choice(
        ((22003, "Fatal, Link 28 MINION fatal interrupt"), (23001, "Fatal, NXBAR ingress buffer overflow"))
    )
    sim.kernel(place.node, at, driver_logs.sxid(switch, code, body), vital=True)
    for gpu in range(GPUS):
        body = driver_logs.nvlink_error(sim.rng.randrange(18), 0x100000)
        sim.xid(place.node, gpu, at + seconds(0.2 + gpu * 0.1), 74, body)
    text = framework_logs.cuda_error(place.rank, NVLINK_ERROR)
    return crash(sim, job, at + seconds(2), place.rank, text, avoid=[place.node])


def _flapping(sim: Simulation, place: FaultPlace, job: Job, at: datetime) -> datetime:
    """The same GPU reports the same NVLink error again and again while its job goes on: one fault."""
    for _ in range(sim.rng.randrange(4, 8)):
        _xid(sim, place, at, 74, driver_logs.nvlink_error(7, 0x10000))
        at += seconds(sim.rng.uniform(60, 400))
    return restart_job(sim, job, at + timedelta(minutes=2), [place.node], by_hand=True)


def _repeat(sim: Simulation, at: datetime) -> bool:
    """A GPU is reset after an uncontained error, its driver reports no action left, and it fails again: two faults."""
    place = some_gpu(sim, at, idle_share=0)
    if place is None or place.job is None or int(place.node.driver) < driver_logs.RECOVERY_SINCE:
        return _uncontained_kind(sim, at)
    job, node, moment = place.job, place.node, at
    for turn in range(2):
        nodes = job.nodes
        _uncontained(sim, place, moment)
        back = hang(sim, job, moment, [place.rank], avoid=[node] if turn else ())
        record_truth(
            sim, "gpu_repeat_offender", moment, back, "gpu_memory", place.gpu_root(),
            jobs=[job], nodes=nodes, may_cordon=[node],
        )  # fmt: skip
        if turn == 0:
            healthy = driver_logs.recovery(node, place.gpu, 0, before=1)
            assert healthy is not None
            sim.gpu(node, place.gpu, back - seconds(30), healthy)
            moment = back + timedelta(minutes=sim.rng.uniform(12, 30))
    return True


def break_gpu_of(sim: Simulation, job: Job, at: datetime) -> None:
    """A GPU under a given job fails with an uncontained memory error."""
    place = FaultPlace(sim.rng.choice(job.nodes), sim.rng.randrange(GPUS), job)
    _break(sim, place, at, "gpu_uncontained", "gpu_memory", _uncontained, ("hang", "crash"), ECC_ERROR)


_uncontained_kind = _broken("gpu_uncontained", "gpu_memory", _uncontained)


KINDS: dict[str, Kind] = {
    "gpu_off_bus": _broken("gpu_off_bus", "gpu_off_bus", _off_bus),
    "gpu_off_bus_no_xid": _broken("gpu_off_bus_no_xid", "gpu_off_bus", _off_bus_quietly),
    "gpu_board_lost": on_busy_gpu("gpu_board_lost", "gpu_off_bus", _board),
    "gpu_double_bit": _broken("gpu_double_bit", "gpu_memory", _double_bit, error=ECC_ERROR),
    "gpu_uncontained": _uncontained_kind,
    "gpu_contained": _broken("gpu_contained", "gpu_memory", _contained, ends=("crash",), error=ECC_ERROR),
    "gpu_remap_failure": _broken("gpu_remap_failure", "gpu_memory", _remap_failure),
    "gpu_nvlink": _broken("gpu_nvlink", "gpu_nvlink", _nvlink, error=NVLINK_ERROR),
    "gpu_nvlink5": _broken("gpu_nvlink5", "gpu_nvlink", _nvlink5, error=NVLINK_ERROR),
    "gpu_recovery_override": _broken("gpu_recovery_override", "gpu_memory", _overruled, ends=("crash",), error=ECC_ERROR),
    "gpu_nvswitch": on_busy_gpu("gpu_nvswitch", "gpu_nvlink", _nvswitch),
    "gpu_gsp_timeout": _broken("gpu_gsp_timeout", "gpu_fault", _gsp, ends=("hang",)),
    "gpu_context_switch": _broken("gpu_context_switch", "gpu_fault", _context_switch),
    "gpu_init_failure": _broken("gpu_init_failure", "gpu_fault", _init_failure, idle_share=1.0),
    "gpu_unknown_code": _broken("gpu_unknown_code", "unknown", _unknown, idle_share=1.0),
    "gpu_flapping": on_busy_gpu("gpu_flapping", "gpu_nvlink", _flapping, root=FaultPlace.gpu_root),
    "gpu_repeat_offender": _repeat,
}  # fmt: skip
