"""Faults of GPUs: the bus, memory, NVLink, firmware (NVIDIA, Xid catalog; Delta study for what follows what)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from sandbox.simulation import driver_logs
from sandbox.simulation.faults.kinds import FaultPlace, Kind, gpu_root, some_gpu, write_down
from sandbox.simulation.job_failure import again, crash, hang
from sandbox.simulation.timeline import Stage
from sandbox.simulation.topology import GPUS
from sandbox.simulation.truth import TrueRoot
from sandbox.simulation.workload import Job

Tell = Callable[[Stage, FaultPlace, datetime], None]
"""Says what the driver prints about a fault of one GPU."""

NVLINK_WORDS = "uncorrectable NVLink error detected during the execution"
ECC_WORDS = "uncorrectable ECC error encountered"
SWITCHES = 4
"""NVSwitches of an HGX board."""


def _broken(
    kind: str, family: str, tell: Tell, *, ends: Sequence[str] = ("hang", "crash"), words: str = "unspecified launch failure",
    accepted: tuple[str, ...] = (), idle_share: float = 0.1,
) -> Kind:  # fmt: skip
    """A GPU breaks; its rank hangs or dies (`ends`), its job goes down with it, a person takes its node out."""

    def play(stage: Stage, at: datetime) -> bool:
        place = some_gpu(stage, at, idle_share=idle_share)
        if place is None:
            return False
        nodes = place.job.nodes if place.job else [place.node]
        tell(stage, place, at)
        until = _end(stage, place, at, ends, words)
        jobs = [place.job] if place.job else []
        write_down(
            stage, kind, at, until, family, place.root,
            jobs=jobs, nodes=nodes, may_cordon=[place.node], accepted=accepted,
        )  # fmt: skip
        return True

    return play


def _end(stage: Stage, place: FaultPlace, at: datetime, ends: Sequence[str], words: str) -> datetime:
    if place.job is None:
        return stage.send_away(place.node, at)
    if stage.rng.choice(list(ends)) == "crash":
        text = f"[rank{place.rank}]: RuntimeError: CUDA error: {words}"
        return crash(stage, place.job, at + timedelta(seconds=1), place.rank, text, avoid=[place.node])
    return hang(stage, place.job, at, [place.rank], avoid=[place.node])


def _asks(stage: Stage, place: FaultPlace, at: datetime, to: int) -> None:
    """Xid 154, where the driver has it."""
    if line := driver_logs.recovery(place.node, place.gpu, to):
        stage.xid(place.node, place.gpu, at + timedelta(seconds=0.4), line)


def _pid(place: FaultPlace) -> int | None:
    return place.job.pod_of(place.rank).pid(place.rank) if place.job else None


def _off_bus(stage: Stage, place: FaultPlace, at: datetime) -> None:
    stage.xid(place.node, place.gpu, at, *driver_logs.off_bus(place.node, place.gpu))
    _asks(stage, place, at, 2)
    _switches_see(stage, place, at + timedelta(seconds=12))


def _off_bus_quietly(stage: Stage, place: FaultPlace, at: datetime) -> None:
    stage.kernel(place.node, at, *driver_logs.off_bus_quietly(place.node, place.gpu), vital=True)


def _switches_see(stage: Stage, place: FaultPlace, at: datetime) -> None:
    """Every NVSwitch of the board reports the links to a GPU that has gone (SXid 20034 about 12 s after 79)."""
    for switch in range(SWITCHES):
        words = f"Fatal, Link {stage.rng.randrange(64):02d} LTSSM Fault Up"
        moment = at + timedelta(seconds=stage.rng.uniform(0, 1.5))
        stage.kernel(place.node, moment, driver_logs.sxid(switch, 20034, words))


def _double_bit(stage: Stage, place: FaultPlace, at: datetime) -> None:
    rng, pid = stage.rng, _pid(place)
    words = driver_logs.double_bit(rng.randrange(8), rng.randrange(2**20))
    stage.xid(place.node, place.gpu, at, driver_logs.xid(place.node, place.gpu, 48, words))
    _more(
        stage,
        place,
        at,
        0.1,
        63,
        "Row Remapper: New row (0x0000000000a1f0) marked for remapping, reset gpu to activate.",
        None,
    )
    if rng.random() < 0.5:
        _more(stage, place, at, 0.2, 94, "Contained: CE User Channel (0x9). RST: No, D-RST: No", pid)
    if pid is not None:
        _more(stage, place, at, 0.5, 45, "Ch 00000009", pid)
    _asks(stage, place, at, 1)


def _uncontained(stage: Stage, place: FaultPlace, at: datetime) -> None:
    words = "Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No"
    stage.xid(place.node, place.gpu, at, driver_logs.xid(place.node, place.gpu, 95, words, pid=_pid(place)))
    _asks(stage, place, at, 1)


def _contained(stage: Stage, place: FaultPlace, at: datetime) -> None:
    words = "Contained: SM (0x1). RST: No, D-RST: No"
    stage.xid(place.node, place.gpu, at, driver_logs.xid(place.node, place.gpu, 94, words, pid=_pid(place)))
    _more(
        stage,
        place,
        at,
        0.1,
        63,
        "Row Remapper: New row (0x0000000000b2c1) marked for remapping, reset gpu to activate.",
        None,
    )
    _more(stage, place, at, 0.6, 45, "Ch 0000000b", _pid(place))


def _remap_failure(stage: Stage, place: FaultPlace, at: datetime) -> None:
    words = "Row Remapper: Failed to remap row, no spare rows left in bank."
    stage.xid(place.node, place.gpu, at, driver_logs.xid(place.node, place.gpu, 64, words))
    _asks(stage, place, at, 1)


def _gsp(stage: Stage, place: FaultPlace, at: datetime) -> None:
    line = driver_logs.xid(place.node, place.gpu, 119, driver_logs.gsp_timeout(place.gpu), pid=_pid(place))
    for number in range(3):
        stage.xid(place.node, place.gpu, at + timedelta(seconds=6 * number), line)
    address = place.node.gpu_pci(place.gpu)
    limit = f"NVRM: Rate limiting GSP RPC error prints for GPU at PCI:{address} (printing 1 of every 30)."
    stage.kernel(place.node, at + timedelta(seconds=13), f"{limit}  The GPU likely needs to be reset.")
    if stage.rng.random() < 0.5:
        _asks(stage, place, at + timedelta(seconds=14), 2)


def _context_switch(stage: Stage, place: FaultPlace, at: datetime) -> None:
    words = "errorString CTX SWITCH TIMEOUT, Info 0x5c009"
    stage.xid(place.node, place.gpu, at, driver_logs.xid(place.node, place.gpu, 109, words, pid=_pid(place)))
    _asks(stage, place, at, 1)


def _unknown(stage: Stage, place: FaultPlace, at: datetime) -> None:
    code = stage.rng.choice((201, 207, 219, 233))
    stage.xid(
        place.node,
        place.gpu,
        at,
        driver_logs.xid(place.node, place.gpu, code, "Unexpected engine state 0x41"),
    )


def _init_failure(stage: Stage, place: FaultPlace, at: datetime) -> None:
    address, minor = place.node.gpu_pci(place.gpu), place.gpu
    for number in range(3):
        moment = at + timedelta(seconds=11 * number)
        stage.kernel(
            place.node, moment,
            f"NVRM: GPU {address}.0: RmInitAdapter failed! (0x62:0x65:1784)",
            f"NVRM: GPU {address}.0: rm_init_adapter failed, device minor number {minor}",
            vital=True,
        )  # fmt: skip


def _nvlink(stage: Stage, place: FaultPlace, at: datetime) -> None:
    """A link fails: the GPU at fault tells of its cause, the one at the other end of an error that came to it."""
    rng, other = stage.rng, _other_gpu(stage, place.gpu)
    link = rng.randrange(18)
    cause, echo = (
        driver_logs.nvlink_error(link, 0x10000),
        driver_logs.nvlink_error(rng.randrange(18), 0x100000),
    )
    stage.xid(place.node, place.gpu, at, driver_logs.xid(place.node, place.gpu, 74, cause, pid=_pid(place)))
    moment = at + timedelta(seconds=rng.choice((-0.2, 0.15, 0.6)))
    stage.xid(place.node, other, moment, driver_logs.xid(place.node, other, 74, echo))
    words = f"Fatal, Link {rng.randrange(64):02d} LTSSM Fault Up"
    stage.kernel(
        place.node, at + timedelta(seconds=0.3), driver_logs.sxid(rng.randrange(SWITCHES), 20034, words)
    )
    _asks(stage, place, at, 4)


def _nvlink5(stage: Stage, place: FaultPlace, at: datetime) -> None:
    """A link of a newer generation loses its signal (149, reason 2); the other end says that its peer is at fault (reason 33)."""
    other, link = _other_gpu(stage, place.gpu), stage.rng.randrange(18)
    words = driver_logs.nvlink5_down(place.node, link, reason=2)
    stage.xid(place.node, place.gpu, at, driver_logs.xid(place.node, place.gpu, 149, words))
    moment = at + timedelta(seconds=stage.rng.choice((-0.15, 0.1, 0.5)))
    echo = driver_logs.nvlink5_down(place.node, stage.rng.randrange(18), reason=33)
    stage.xid(place.node, other, moment, driver_logs.xid(place.node, other, 149, echo))
    _asks(stage, place, at, 4)


def _overruled(stage: Stage, place: FaultPlace, at: datetime) -> None:
    """A contained error, for which a restart of the application would do; but the driver asks for more."""
    _contained(stage, place, at)
    _asks(stage, place, at, stage.rng.choice((1, 2)))


def _other_gpu(stage: Stage, gpu: int) -> int:
    return stage.rng.choice([n for n in range(GPUS) if n != gpu])


def _more(
    stage: Stage, place: FaultPlace, at: datetime, after_s: float, code: int, words: str, pid: int | None
) -> None:
    line = driver_logs.xid(place.node, place.gpu, code, words, pid=pid)
    stage.xid(place.node, place.gpu, at + timedelta(seconds=after_s), line, vital=False)


def _board(stage: Stage, at: datetime) -> bool:
    """A baseboard loses power: several of its GPUs leave the bus within seconds."""
    place = some_gpu(stage, at, idle_share=0)
    if place is None or place.job is None:
        return False
    lost = sorted(stage.rng.sample(range(GPUS), stage.rng.choice((2, 4, 8))))
    for number, gpu in enumerate(lost):
        moment = at + timedelta(seconds=0.7 * number)
        stage.xid(place.node, gpu, moment, *driver_logs.off_bus(place.node, gpu))
    first = place.job.nodes.index(place.node) * GPUS
    nodes = place.job.nodes
    until = hang(stage, place.job, at, [first + gpu for gpu in lost], avoid=[place.node])
    write_down(
        stage, "gpu_board_lost", at, until, "gpu_off_bus", TrueRoot(node=place.node.name),
        jobs=[place.job], nodes=nodes, may_cordon=[place.node],
    )  # fmt: skip
    return True


def _nvswitch(stage: Stage, at: datetime) -> bool:
    """An NVSwitch fails: fatal SXids, and 74 on every GPU of the board."""
    place = some_gpu(stage, at, idle_share=0)
    if place is None or place.job is None:
        return False
    switch = stage.rng.randrange(SWITCHES)
    code, words = stage.rng.choice(
        ((22003, "Fatal, Link 28 MINION fatal interrupt"), (23001, "Fatal, NXBAR ingress buffer overflow"))
    )
    stage.kernel(place.node, at, driver_logs.sxid(switch, code, words), vital=True)
    for gpu in range(GPUS):
        words = driver_logs.nvlink_error(stage.rng.randrange(18), 0x100000)
        moment = at + timedelta(seconds=0.2 + gpu * 0.1)
        stage.xid(place.node, gpu, moment, driver_logs.xid(place.node, gpu, 74, words))
    nodes = place.job.nodes
    until = crash(
        stage, place.job, at + timedelta(seconds=2), place.rank,
        f"[rank{place.rank}]: RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
        avoid=[place.node],
    )  # fmt: skip
    write_down(
        stage, "gpu_nvswitch", at, until, "gpu_nvlink", TrueRoot(node=place.node.name),
        jobs=[place.job], nodes=nodes, may_cordon=[place.node],
    )  # fmt: skip
    return True


def _flapping(stage: Stage, at: datetime) -> bool:
    """The same GPU tells of the same kind of trouble again and again while its job goes on: one fault."""
    place = some_gpu(stage, at, idle_share=0)
    if place is None or place.job is None:
        return False
    moment = at
    for _ in range(stage.rng.randrange(4, 8)):
        words = driver_logs.nvlink_error(7, 0x10000)
        stage.xid(
            place.node, place.gpu, moment, driver_logs.xid(place.node, place.gpu, 74, words, pid=_pid(place))
        )
        moment += timedelta(seconds=stage.rng.uniform(60, 400))
    nodes = place.job.nodes
    until = again(stage, place.job, moment + timedelta(minutes=2), [place.node])
    write_down(
        stage, "gpu_flapping", at, until, "gpu_nvlink", place.root,
        jobs=[place.job], nodes=nodes, may_cordon=[place.node],
    )  # fmt: skip
    return True


def _repeat(stage: Stage, at: datetime) -> bool:
    """A GPU is reset after an uncontained error, its driver says that all is well, and it fails again: two faults."""
    place = some_gpu(stage, at, idle_share=0)
    if place is None or place.job is None or int(place.node.driver) < driver_logs.TELLS_RECOVERY:
        return _uncontained_kind(stage, at)
    job, node, moment = place.job, place.node, at
    for turn in range(2):
        nodes = job.nodes
        _uncontained(stage, place, moment)
        back = hang(stage, job, moment, [place.rank], avoid=[node] if turn else ())
        write_down(
            stage, "gpu_repeat_offender", moment, back, "gpu_memory", gpu_root(node, place.gpu),
            jobs=[job], nodes=nodes, may_cordon=[node],
        )  # fmt: skip
        if turn == 0:
            well = driver_logs.recovery(node, place.gpu, 0, before=1)
            assert well is not None
            stage.xid(node, place.gpu, back - timedelta(seconds=30), well)
            moment = back + timedelta(minutes=stage.rng.uniform(12, 30))
    return True


def again_on(stage: Stage, job: Job, at: datetime) -> bool:
    """A GPU under a given job fails."""
    place = FaultPlace(stage.rng.choice(job.nodes), stage.rng.randrange(GPUS), job)
    nodes = job.nodes
    _uncontained(stage, place, at)
    until = _end(stage, place, at, ("hang", "crash"), "uncorrectable ECC error encountered")
    write_down(
        stage, "gpu_uncontained", at, until, "gpu_memory", place.root,
        jobs=[job], nodes=nodes, may_cordon=[place.node],
    )  # fmt: skip
    return True


_uncontained_kind = _broken("gpu_uncontained", "gpu_memory", _uncontained)


KINDS: dict[str, Kind] = {
    "gpu_off_bus": _broken("gpu_off_bus", "gpu_off_bus", _off_bus),
    "gpu_off_bus_no_xid": _broken("gpu_off_bus_no_xid", "gpu_off_bus", _off_bus_quietly),
    "gpu_board_lost": _board,
    "gpu_double_bit": _broken("gpu_double_bit", "gpu_memory", _double_bit, words=ECC_WORDS),
    "gpu_uncontained": _uncontained_kind,
    "gpu_contained": _broken("gpu_contained", "gpu_memory", _contained, ends=("crash",), words=ECC_WORDS),
    "gpu_remap_failure": _broken("gpu_remap_failure", "gpu_memory", _remap_failure),
    "gpu_nvlink": _broken("gpu_nvlink", "gpu_nvlink", _nvlink, words=NVLINK_WORDS),
    "gpu_nvlink5": _broken("gpu_nvlink5", "gpu_nvlink", _nvlink5, words=NVLINK_WORDS),
    "gpu_recovery_override": _broken("gpu_recovery_override", "gpu_memory", _overruled, ends=("crash",), words=ECC_WORDS),
    "gpu_nvswitch": _nvswitch,
    "gpu_gsp_timeout": _broken("gpu_gsp_timeout", "gpu_fault", _gsp, ends=("hang",)),
    "gpu_context_switch": _broken("gpu_context_switch", "gpu_fault", _context_switch),
    "gpu_init_failure": _broken("gpu_init_failure", "gpu_fault", _init_failure, idle_share=1.0),
    "gpu_unknown_code": _broken("gpu_unknown_code", "unknown", _unknown, idle_share=1.0),
    "gpu_flapping": _flapping,
    "gpu_repeat_offender": _repeat,
}  # fmt: skip
