"""What PyTorch's NCCL process group prints, release by release (ProcessGroupNCCL.cpp, 2.0 to 2.9), and NCCL's own warnings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sandbox.simulation.wait_for import Wait


@dataclass(frozen=True, slots=True)
class RankLog:
    """What a rank logs depends on its job's release of PyTorch."""

    release: str
    rank: int

    @property
    def version(self) -> tuple[int, int]:
        """The release as a pair."""
        major, minor = self.release.split(".")
        return int(major), int(minor)

    def prefix(self, at: datetime, line: int, wait: Wait | None = None, level: str = "E") -> str:
        """The prefix of a message: the time from 2.4 on, the global rank from 2.2 on, and the group as each release spells it."""
        source = f"ProcessGroupNCCL.cpp:{line}]"
        if self.version < (2, 2):
            head = f"[{level} {source} "
        elif self.version < (2, 4):
            head = f"[rank{self.rank}]:[{level} {source} "
        else:
            head = f"[rank{self.rank}]:[{level}{at.month}{at:%d %H:%M:%S.%f}000 {source} "
        if wait is None:
            return head
        group = wait.op.group
        local = group.local(self.rank)
        if self.version < (2, 4):
            return f"{head}[Rank {local}] "
        if self.version < (2, 5):
            return f"{head}[PG {group.guid} Rank {local}] "
        about = group.about if group.about == "default_pg" or self.version >= (2, 6) else "undefined"
        return f"{head}[PG ID {group.guid} PG GUID {group.guid}({about}) Rank {local}] "


def timed_out(log: RankLog, wait: Wait, steps: int, at: datetime, timeout_ms: int, ran_ms: int) -> list[str]:
    """The watchdog's lines of one rank; `steps` were done before the one that hangs."""
    op, seq = wait.op, wait.op.seq + wait.after(steps)
    work = (
        f"SeqNum={seq}, OpType={op.kind}, NumelIn={op.numel}, NumelOut={op.numel}, Timeout(ms)={timeout_ms}"
    )
    if log.version < (2, 1):
        work = f"OpType={op.kind}, TensorShape=[{op.numel}], Timeout(ms)={timeout_ms}"
    lines = [
        f"{log.prefix(at, 616, wait)}Watchdog caught collective operation timeout: WorkNCCL({work}) "
        f"ran for {ran_ms} milliseconds before timing out."
    ]
    if summary := _counters(log, wait, steps, at):
        lines.append(summary)
    return lines


def aborting(log: RankLog, wait: Wait, at: datetime) -> list[str]:
    """What every rank logs before it aborts."""
    return [
        f"{log.prefix(at, 630, wait)}Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA "
        "kernels, subsequent GPU operations might run on corrupted/incomplete data.",
        f"{log.prefix(at, 636, wait)}To avoid data inconsistency, we are taking the entire process down.",
    ]


def _counters(log: RankLog, wait: Wait, steps: int, at: datetime) -> str | None:
    base = wait.after(steps)
    seq, enqueued, done = wait.op.seq + base, wait.enqueued + base, wait.completed + base
    if log.version < (2, 4):
        return None
    if log.version < (2, 6):
        return (
            f"{log.prefix(at, 1785, wait)}Timeout at NCCL work: {seq}, last enqueued NCCL work: {enqueued}, "
            f"last completed NCCL work: {done}."
        )
    return (
        f"{log.prefix(at, 1834, wait)} failure detected by watchdog at work sequence id: {seq} PG status: "
        f"last enqueued work: {enqueued}, last completed work: {done}"
    )


def desync(release: str, first: Wait, lagging: list[int], steps: int, at: datetime) -> str:
    """TORCH_NCCL_DESYNC_DEBUG's report, printed by one of the ranks that waited longest (`first`)."""
    log = RankLog(release, first.rank)
    op, seq = first.op, first.op.seq + first.after(steps)
    absent = ", ".join(map(str, lagging))
    return (
        f"{log.prefix(at, 650, first)}\n\t - [{first.rank}] Timeout at collective: {op.kind}, #{seq}"
        f"\n\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:"
        f"\n\t   - [{absent}] finished collective #{seq - 1}, but didn't join collective #{seq} (count from 1)"
    )


def cuda_error(rank: int, error: str) -> str:
    """The last line of a rank's Python traceback."""
    return f"[rank{rank}]: RuntimeError: CUDA error: {error}"


def connection_closed(host: str, pid: int, gpu: int, at: datetime, peer: str) -> str:
    """NCCL, socket.cc: a peer's process has ended."""
    warning = f"{host}:{pid}:{pid + 411} [{gpu}] socket.cc:{_line(at)} NCCL WARN"
    return f"{warning} socketProgress: Connection closed by remote peer {peer}<41022>"


def port_error(host: str, pid: int, gpu: int, nic: str) -> str:
    """NCCL, net_ib.cc: the NIC reports an error of its port."""
    return f"{host}:{pid}:{pid + 405} [{gpu}] net_ib.cc:123 NCCL WARN NET/IB : {nic}:1 Got async event : port error"


def process_failed(at: datetime, local_rank: int, pid: int, exit_code: int) -> str:
    """The launcher's line of a process that ended."""
    source = f"E{at:%m%d %H:%M:%S}.000000 1 torch/distributed/elastic/multiprocessing/api.py:874]"
    return f"{source} failed (exitcode: {exit_code}) local_rank: {local_rank} (pid: {pid}) of binary: /usr/bin/python3"


def sigterm_sent(at: datetime, pid: int) -> str:
    """The launcher ends a process because of another one."""
    source = f"W{at:%m%d %H:%M:%S}.000000 1 torch/distributed/elastic/multiprocessing/api.py:900]"
    return f"{source} Sending process {pid} closing signal SIGTERM"


def sigterm_received(at: datetime) -> str:
    """The launcher got SIGTERM from whoever stops the job."""
    source = f"W{at:%m%d %H:%M:%S}.000000 1 torch/distributed/elastic/agent/server/api.py:741]"
    return f"{source} Received 15 death signal, shutting down workers"


def remote_error(log: RankLog, wait: Wait, at: datetime) -> str:
    """A rank notices that another one has ended."""
    group = wait.op.group
    return (
        f"{log.prefix(at, 1895, wait)}Process group watchdog thread terminated with exception: NCCL error: remote process exited "
        f"or there was a network error, NCCL version 2.21.5\nncclRemoteError: A call failed possibly due to a network error or a "
        f"remote process exiting prematurely. Group {group.guid}."
    )


def retry_exceeded(host: str, pid: int, nic: int, address: str, peer: str) -> str:
    """NCCL, net_ib.cc: a peer does not acknowledge (12 is IBV_WC_RETRY_EXC_ERR, 129 a missing answer)."""
    return (
        f"{host}:{pid}:{pid + 402} [{nic}] net_ib.cc:1295 NCCL WARN NET/IB: Got completion from peer {peer}<41022> with "
        f"status=12 opcode=0 len=0 vendor err 129 (Send) localGid ::ffff:{address} remoteGids::ffff:{peer} hca mlx5_{nic}"
    )


def unreachable_peer(host: str, pid: int, gpu: int, nic: str) -> str:
    """aws-ofi-nccl, NCCL's plugin for libfabric: a peer does not acknowledge over EFA."""
    return (
        f"{host}:{pid}:{pid + 402} [{gpu}] nccl_net_ofi_rdma.c:1062 NCCL WARN NET/OFI Request 0x7f31c80a4b00 completed with "
        f"error. RC: 12. Error: 4123 (Unresponsive receiver (reachable by EFA device but handshake failed)). "
        f"Completed length: 0, Request: {{ dev: {gpu}, size: 524288, state: CREATED, type: SEND, rail: {nic} }}"
    )


def init_line(host: str, pid: int, rank: int, world: int, gpu: int, bus: str, comm: int) -> str:
    """NCCL INFO at the start of a communicator: rank, device and bus of a process."""
    return (
        f"{host}:{pid}:{pid + 300} [{gpu}] NCCL INFO ncclCommInitRank comm 0x{comm:012x} rank {rank} nranks {world} "
        f"cudaDev {gpu} nvmlDev {gpu} busId {bus} commId 0x{comm * 7919 % 16**16:016x} - Init COMPLETE"
    )


def iteration(at: datetime, step: int, total: int, step_ms: float) -> str:
    """Megatron's line of one iteration."""
    return (
        f" [{at:%Y-%m-%d %H:%M:%S}] iteration {step:8d}/{total:8d} | consumed samples: {step * 512:12d} | "
        f"elapsed time per iteration (ms): {step_ms:.1f} | learning rate: 1.500000E-04 | lm loss: {7.5 / (1 + step / 4000):.6E} |"
    )


def _line(at: datetime) -> int:
    return 800 + at.microsecond % 40
