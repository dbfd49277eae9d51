"""Who waits for whom when ranks stop: each rank runs its step until it meets a collective that cannot complete.

A collective completes when every member has reached it (PyTorch, ProcessGroupNCCL: kernels of one rank run in order). So one
rank that stops blocks the members of its groups, those block the members of theirs, and in the end all wait.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from sandbox.simulation.layout import Layout, Op


@dataclass(frozen=True, slots=True)
class Wait:
    """Where one rank ended: the collective it waits in, and how many blocked ranks are between it and the one that stopped.

    `enqueued` is the last collective of the same group that its host program had already launched: the host runs ahead of the
    GPU until the end of the step, where the loss is read. `in_step` is how many a step has.
    """

    rank: int
    op: Op
    enqueued: int
    depth: int
    in_step: int

    @property
    def completed(self) -> int:
        """The last collective of the group that was done."""
        return self.op.seq - 1

    def after(self, steps: int) -> int:
        """What had been counted in the group when so many whole steps were done: every group has a count of its own."""
        return steps * self.in_step


def standstill(layout: Layout, stopped: Mapping[int, int]) -> dict[int, Wait]:
    """Where every rank ends that did not stop itself; `stopped` gives the place in its own step where a rank stopped.

    Ranks that reach the end of the step are left out: no rank they need stopped before it.
    """
    program = layout.program
    at = [0] * layout.world
    arrived: defaultdict[tuple[int, int, tuple[int, ...]], list[int]] = defaultdict(list)
    ready = list(range(layout.world))
    while ready:
        rank = ready.pop()
        if at[rank] >= stopped.get(rank, len(program[rank])):
            continue
        op = program[rank][at[rank]]
        waiting = arrived[op.key]
        waiting.append(rank)
        if len(waiting) == len(op.members):
            for member in waiting:
                at[member] += 1
            ready.extend(waiting)
    ended = {
        rank: program[rank][place]
        for rank, place in enumerate(at)
        if rank not in stopped and place < len(program[rank])
    }
    depths = _depths(ended, stopped)
    lasts = {rank: _last_of(program[rank], op) for rank, op in ended.items()}
    # A whole step enqueues the last one too, so the last of a step is also how many there are.
    return {rank: Wait(rank, op, lasts[rank], depths.get(rank, 0), lasts[rank]) for rank, op in ended.items()}


def _last_of(ops: tuple[Op, ...], like: Op) -> int:
    return max(op.seq for op in ops if op.group.guid == like.group.guid and op.members == like.members)


def _depths(ended: Mapping[int, Op], stopped: Mapping[int, int]) -> dict[int, int]:
    """Steps from the ranks that stopped, along "waits for a member that has not come"."""
    waiting_for: defaultdict[int, list[int]] = defaultdict(list)
    for rank, op in ended.items():
        for member in op.members:
            if member != rank and (member in stopped or ended.get(member) != op):
                waiting_for[member].append(rank)
    depths: dict[int, int] = {}
    edge, depth = list(stopped), 1
    while edge:
        following = {rank for member in edge for rank in waiting_for[member]} - depths.keys() - stopped.keys()
        depths |= dict.fromkeys(sorted(following), depth)
        edge, depth = sorted(following), depth + 1
    return depths
