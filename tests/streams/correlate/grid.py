"""A job laid out in tensor-, pipeline- and data-parallel groups, and what its ranks say when one of them stands still.

Ranks are laid out as Megatron-LM does: tensor-parallel neighbours first, then data-parallel, pipeline stages outermost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property

from streams.correlate.job_rules.connection_votes import NO_ADDRESSES, Addresses
from streams.correlate.job_rules.culprit import HangFinding, find_culprit
from streams.correlate.job_rules.rank_reports import Episode, RankReport, episodes, rank_report
from streams.correlate.sightings import sighting
from streams.correlate.state.placement import Placement
from streams.model.entity import Entity, PodRef
from streams.model.signal import Attribute, Severity, signal
from tests.streams.correlate.world import CLUSTER, at, job

PER_NODE = 8


@dataclass(frozen=True)
class Group:
    """One process group: its global name, its kind and its members in order."""

    guid: str
    number: int
    kind: str
    ranks: tuple[int, ...]


@dataclass
class Grid:
    """Ranks in groups, on nodes of eight."""

    tp: int
    pp: int
    dp: int
    said: list[RankReport] = field(default_factory=list)

    @property
    def world(self) -> int:
        return self.tp * self.pp * self.dp

    @cached_property
    def placements(self) -> list[Placement]:
        return [
            Placement(f"train/llama-{n}", f"u{n}", f"n{n}", job("llama"), at(-3000), None, PER_NODE,
                 range(n * PER_NODE, (n + 1) * PER_NODE), PER_NODE)
            for n in range(self.world // PER_NODE)
        ]  # fmt: skip

    def place(self, rank: int) -> tuple[int, int, int]:
        """Of a rank: tensor, data and pipeline coordinate."""
        return rank % self.tp, rank // self.tp % self.dp, rank // (self.tp * self.dp)

    def rank(self, t: int, d: int, p: int) -> int:
        return t + self.tp * (d + self.dp * p)

    def tensor(self, rank: int) -> Group:
        _, d, p = self.place(rank)
        ranks = tuple(self.rank(t, d, p) for t in range(self.tp))
        return Group(f"{100 + d + p * self.dp}", 1, "TENSOR_MODEL_PARALLEL_GROUP", ranks)

    def pipeline(self, rank: int) -> Group:
        t, d, _ = self.place(rank)
        ranks = tuple(self.rank(t, d, p) for p in range(self.pp))
        return Group(f"{10_000 + t + d * self.tp}", 2, "PIPELINE_MODEL_PARALLEL_GROUP", ranks)

    def data(self, rank: int) -> Group:
        t, _, p = self.place(rank)
        ranks = tuple(self.rank(t, d, p) for d in range(self.dp))
        return Group(f"{20_000 + t + p * self.tp}", 3, "DATA_PARALLEL_GROUP", ranks)

    def all_ranks(self) -> Group:
        return Group("0", 0, "default_pg", tuple(range(self.world)))

    def say(self, rank: int, kind: str, seconds: float, attributes: dict[str, Attribute]) -> None:
        """One line of a rank, in its own pod's log, with the rank that it states."""
        stated = attributes.get("rank")
        pod = PodRef("train", f"llama-{rank // PER_NODE}")
        line = signal(
            kind, Entity(CLUSTER, pod=pod, rank=stated if isinstance(stated, int) else None), severity=Severity.ERROR,
            occurred_at=at(seconds), observed_at=at(seconds + 0.5), attributes=attributes,
        )  # fmt: skip
        seen = sighting(line)
        assert seen is not None
        self.said.append(rank_report(seen, self.placements[rank // PER_NODE]))

    def waits(
        self,
        rank: int,
        group: Group,
        seq: int,
        op: str = "ALLREDUCE",
        *,
        release: str = "2.6",
        **more: Attribute,
    ) -> None:
        """The watchdog of a rank. Releases name group and rank ever more precisely: 2.1 only the rank inside its group."""
        place = group.ranks.index(rank)
        named: dict[str, Attribute] = {
            "2.1": {"rank": place},
            "2.3": {"rank": rank, "pg_rank": place},
            "2.4": {"rank": rank, "pg_rank": place, "pg": str(group.number)},
            "2.6": {
                "rank": rank,
                "pg_rank": place,
                "pg": group.guid,
                "pg_id": str(group.number),
                "pg_name": group.kind,
            },
        }[release]  # type: ignore[assignment]
        said = {**named, "seq": seq, "op": op, "elapsed_ms": 600_009, **more}
        self.say(rank, "nccl.timeout", 600 + rank * 0.001, said)

    def dumps(self, rank: int, enqueued: int, group: Group | None = None) -> None:
        """What a rank says that was only told to write down what it did."""
        group = group or self.all_ranks()
        self.say(
            rank, "nccl.timeout", 601 + rank * 0.001,
            {"rank": rank, "pg": group.guid, "pg_rank": group.ranks.index(rank), "subtype": "dump",
             "last_enqueued": enqueued, "last_completed": enqueued},
        )  # fmt: skip

    def hang(self, still: Iterable[int], *, release: str = "2.6", inside: bool = False) -> None:
        """Some ranks of one pipeline stand still before a tensor-parallel collective, or (`inside`) in the midst of it.

        Their neighbours wait in it, the stages beside them for what they would send, everybody else for their gradients.
        """
        still = set(still)
        stopped = {self.tensor(r).guid for r in still}
        pipelines = {self.place(r)[1] for r in still}
        for rank in range(self.world):
            if rank in still and not inside:
                continue
            if self.tensor(rank).guid in stopped:
                self.waits(rank, self.tensor(rank), 900, release=release)
            elif self.place(rank)[1] in pipelines:
                # Stages count their sends and receives each for itself.
                self.waits(
                    rank, self.pipeline(rank), 40 + 7 * self.place(rank)[2], "COALESCED", release=release
                )
            else:
                self.waits(rank, self.data(rank), 12, "_REDUCE_SCATTER_BASE", release=release)

    def episode(self) -> Episode:
        found = episodes(self.said, timedelta(minutes=1))
        assert len(found) == 1
        return found[0]

    def finding(self, addresses: Addresses = NO_ADDRESSES) -> HangFinding:
        return find_culprit(self.episode(), self.placements, addresses)
