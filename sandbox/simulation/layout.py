"""How a job's ranks are cut into process groups, and what each rank does in one training step.

Ranks are numbered as Megatron does: tensor-parallel peers side by side, then data parallel, then pipeline stages. A step is a
list of collectives for each rank; members of a group run the same ones in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

MICROBATCHES = 2
SAMPLE_NUMEL = 16_777_216


@dataclass(frozen=True, slots=True)
class RankGroup:
    """A process group: its number in creation order, its description, its members in order of their local ranks."""

    guid: int
    about: str
    ranks: tuple[int, ...]

    def local(self, rank: int) -> int:
        """The rank's number within the group."""
        return self.ranks.index(rank)


@dataclass(frozen=True, slots=True)
class Op:
    """One collective of a step as every member sees it. `members` take part in it; `seq` counts from 1 among
    the collectives of the same members (sends and receives count for each pair)."""

    group: RankGroup
    seq: int
    kind: str
    numel: int
    members: tuple[int, ...]

    @property
    def key(self) -> tuple[int, int, tuple[int, ...]]:
        """The same for all members of the collective."""
        return self.group.guid, self.seq, self.members


@dataclass(frozen=True)
class Layout:
    """World size and how it is cut; `data` follows from the rest."""

    world: int
    tensor: int
    pipeline: int

    def __post_init__(self) -> None:
        if self.world % (self.tensor * self.pipeline):
            raise ValueError("tensor x pipeline must divide the world")

    @property
    def data(self) -> int:
        """Replicas of the model."""
        return self.world // (self.tensor * self.pipeline)

    def rank(self, stage: int, replica: int, shard: int) -> int:
        """The global rank at a place."""
        return (stage * self.data + replica) * self.tensor + shard

    def place(self, rank: int) -> tuple[int, int, int]:
        """Stage, replica and shard of a rank."""
        return rank // (self.data * self.tensor), rank // self.tensor % self.data, rank % self.tensor

    @cached_property
    def groups(self) -> tuple[RankGroup, ...]:
        """The default group and all groups of more than one rank, in the order in which they are made."""
        t, d, p = range(self.tensor), range(self.data), range(self.pipeline)
        cut = {
            "DATA_PARALLEL_GROUP": [tuple(self.rank(s, r, x) for r in d) for s in p for x in t],
            "TENSOR_MODEL_PARALLEL_GROUP": [tuple(self.rank(s, r, x) for x in t) for s in p for r in d],
            "PIPELINE_MODEL_PARALLEL_GROUP": [tuple(self.rank(s, r, x) for s in p) for r in d for x in t],
        }
        found = [RankGroup(0, "default_pg", tuple(range(self.world)))]
        for about, members in cut.items():
            if len(members[0]) > 1:
                found += [RankGroup(len(found) + n, about, ranks) for n, ranks in enumerate(members)]
        return tuple(found)

    def group_of(self, rank: int, about: str) -> RankGroup | None:
        """The rank's group of a kind, None when it would be alone in it."""
        return self._by_rank.get((rank, about))

    @cached_property
    def _by_rank(self) -> dict[tuple[int, str], RankGroup]:
        return {(rank, group.about): group for group in self.groups for rank in group.ranks}

    @cached_property
    def program(self) -> tuple[tuple[Op, ...], ...]:
        """What each rank runs in a step, in order: forward and backward of each micro-batch, gradients, the loss."""
        return tuple(tuple(self._step_of(rank)) for rank in range(self.world))

    def _step_of(self, rank: int) -> list[Op]:
        counts: dict[tuple[int, tuple[int, ...]], int] = {}
        ops: list[Op] = []

        def run(group: RankGroup | None, kind: str, numel: int, pair: tuple[int, ...] = ()) -> None:
            if group is not None:
                members = pair or group.ranks
                seq = counts[group.guid, members] = counts.get((group.guid, members), 0) + 1
                ops.append(Op(group, seq, kind, numel, members))

        stage, replica, shard = self.place(rank)
        tensor = self.group_of(rank, "TENSOR_MODEL_PARALLEL_GROUP")
        stages = self.group_of(rank, "PIPELINE_MODEL_PARALLEL_GROUP")
        data = self.group_of(rank, "DATA_PARALLEL_GROUP")
        for way in ("forward", "backward"):
            for _ in range(MICROBATCHES):
                step = 1 if way == "forward" else -1
                before, after = stage - step, stage + step
                if 0 <= before < self.pipeline:
                    run(stages, "RECV", SAMPLE_NUMEL // 8, self._pair(before, stage, replica, shard))
                run(tensor, "ALLREDUCE", SAMPLE_NUMEL // 4)
                run(tensor, "ALLREDUCE", SAMPLE_NUMEL // 4)
                if 0 <= after < self.pipeline:
                    run(stages, "SEND", SAMPLE_NUMEL // 8, self._pair(after, stage, replica, shard))
        run(data, "_REDUCE_SCATTER_BASE", SAMPLE_NUMEL)
        run(data, "_ALLGATHER_BASE", SAMPLE_NUMEL)
        run(self.groups[0], "ALLREDUCE", 1)
        return ops

    def _pair(self, one: int, other: int, replica: int, shard: int) -> tuple[int, ...]:
        return tuple(self.rank(stage, replica, shard) for stage in sorted((one, other)))
