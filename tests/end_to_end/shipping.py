"""What tests of shippers share: the files that ship, made to run here, and numbered lines that are found again in a topic."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from streams.config.settings import KafkaSettings
from streams.kafka.topics import RAW, Topic
from tests.streams.detect.process.test_detector_process import everything

SHIPPERS = Path(__file__).parents[2] / "k8s/shippers"
_LOGIN = re.compile(
    r"security\.protocol|ssl\.(?:ca|certificate|key)\.location|^\s*tls_|^\s*sasl_|^\s*tls: \{ca_file|^\s*auth: \{sasl"
)
_NUMBER = re.compile(rb"seq=(\d+)")


def as_shipped(file: str, settings: KafkaSettings, **changes: str) -> str:
    """The text of a file of `k8s/shippers` for a broker without a login and topics with a prefix; `changes` are by its words."""
    lines = (SHIPPERS / file).read_text().splitlines()
    text = "\n".join(line for line in lines if not _LOGIN.search(line)) + "\n"
    for topic in RAW:
        text = text.replace(topic.name, f"{settings.topic_prefix}{topic.name}")
    for before, after in changes.items():
        assert before in text, before
        text = text.replace(before, after)
    return text


def number(path: Path, numbers: Iterable[int]) -> None:
    """Append a line for each number."""
    with path.open("a") as log:
        log.writelines(f"[ {n}.000001] seq={n} filler\n" for n in numbers)


@dataclass(frozen=True, slots=True)
class Arrived:
    """The numbers that arrived, in their order, and in how many partitions."""

    numbers: tuple[int, ...]
    partitions: frozenset[int]

    @property
    def firsts(self) -> list[int]:
        """Each number once, where it came first."""
        return list(dict.fromkeys(self.numbers))

    @property
    def out_of_order(self) -> int:
        """How often a number came for the first time behind a greater one."""
        return sum(a > b for a, b in zip(self.firsts, self.firsts[1:], strict=False))


async def arrived(settings: KafkaSettings, topic: Topic) -> Arrived:
    """The numbered lines of a topic. Its records are read partition by partition, which are all that has an order."""
    records = sorted(await everything(settings, topic), key=lambda record: (record.partition, record.offset))
    found = [(int(n), record.partition) for record in records for n in _NUMBER.findall(record.value or b"")]
    return Arrived(tuple(n for n, _ in found), frozenset(partition for _, partition in found))
