"""Partitions that are assigned while the archive looks after its files are looked after as well, and not an hour later."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from faultline.archive.process import Archiver
from streams.config.archive_settings import ArchiveSettings
from streams.config.settings import KafkaSettings
from streams.kafka.topics import INCIDENTS

OURS, NEW = (TopicPartition(INCIDENTS.name, number) for number in (0, 1))


class Group:
    """A consumer that has nothing to read."""

    def __init__(self) -> None:
        self.assigned = {OURS}

    async def getmany(self, **how: Any) -> dict[Any, Any]:
        """Nothing has come."""
        return {}

    def assignment(self) -> set[TopicPartition]:
        """What this process has now."""
        return self.assigned


async def test_a_partition_that_is_assigned_while_others_are_looked_after_is_looked_after_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archiver = Archiver(KafkaSettings(), ArchiveSettings(url=tmp_path.as_uri()))
    group, looked_after = Group(), list[int]()

    async def tidy(_work: Any, _archive: Any, _topic: Any, partition: int, *_: Any, **__: Any) -> int:
        looked_after.append(partition)
        if not looked_after[1:]:
            group.assigned = {OURS, NEW}
            await archiver.on_partitions_assigned(group.assigned)
        return 0

    monkeypatch.setattr(archiver, "_tidy", tidy)
    for _ in range(3):
        await archiver._step(cast("AIOKafkaConsumer", group))
    assert looked_after == [0, 0, 1], "once more with the new one, and then not for an hour"
