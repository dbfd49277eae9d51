"""Which rank runs on which GPU: told once for each process, and again when it begins anew."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from streams.detect.comm_init import CommInit
from streams.detect.finding import Stream
from streams.detect.rule_state import RuleState
from streams.model.entity import PodRef
from streams.model.record import LogLine

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Log:
    """A pod's log and what is found in it."""

    def __init__(self) -> None:
        self.rule_state = RuleState()
        self.family = CommInit()

    def says(
        self, rank: int, nranks: int, *, pid: int = 201, after: float = 0, pod: str = "llm-w-1"
    ) -> list[int]:
        text = (
            f"{pod}:{pid}:377 [5] NCCL INFO ncclCommInitRank comm 0x55d0c0aa rank {rank} nranks {nranks} cudaDev 5 nvmlDev 5 "
            "busId 5d000 commId 0x9ab3 - Init COMPLETE"
        )
        at = NOW + timedelta(seconds=after)
        line = LogLine(text, at, "gpu-07", PodRef("ml", pod), "main")
        found = self.family.read(line, Stream("east", "raw.job-logs", at, self.rule_state))
        return [size for f in found if isinstance(size := f.attributes["nranks"], int)]


def test_of_each_process_only_a_larger_communicator_is_news() -> None:
    log = Log()
    assert log.says(5, 8) == [8]
    assert log.says(13, 64) == [64]
    assert log.says(5, 8, after=1) == log.says(1, 8, after=2) == log.says(13, 64, after=3) == []


def test_every_process_and_pod_tells_for_itself() -> None:
    log = Log()
    assert log.says(13, 64) == log.says(14, 64, pid=202) == log.says(21, 64, pod="llm-w-2") == [64]


def test_a_process_that_begins_anew_tells_again() -> None:
    log = Log()
    assert log.says(13, 64) == log.says(13, 64, after=3600) == [64]
