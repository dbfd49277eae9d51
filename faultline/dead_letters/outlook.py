"""What today's code says of the record in a dead letter, and whether it may be written back to its topic.

Written back are records of `raw.*` and of `signals`, with their own time: their readers take late and repeated records, and judge
them by that time. All else is not:

- state (`inventory`, `controls`): an old record would replace a newer one of its key;
- `commands`: what a person decided holds for its moment, and is given again by a person;
- `timeline`: the entry is still there, and would be there twice;
- `ticks`: a later one has come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from faultline.dead_letters.letter import Letter
from streams.correlate.record_batch import read_fact, read_signals
from streams.detect.batch import read_safely
from streams.detect.detector import NOTHING, Detector
from streams.kafka.topics import (
    COMMANDS,
    CONTROLS,
    INVENTORY,
    RAW,
    SIGNALS,
    TICKS,
    TIMELINE,
    partition_of,
)
from streams.model.clock import parse_rfc3339
from streams.model.codec import decode
from streams.model.control import Control
from streams.model.conversation import Command, TimelineEntry
from streams.model.errors import BadInput

NOT_WRITTEN_BACK: Mapping[str, str] = {
    INVENTORY.name: "it is state: an old record would replace what the inventory wrote since. "
    "Restart the inventory if the object is missing",
    CONTROLS.name: "it is state: an old record would replace the switches of now. Set them with `faultline guard`",
    COMMANDS.name: "a decision holds for its moment: give the command again if it is still meant",
    TIMELINE.name: "the entry is still in the timeline and would be there twice",
    TICKS.name: "a later tick has come",
}
"""Why records of a topic are never written back."""

_RAW = frozenset(topic.name for topic in RAW)


@dataclass(frozen=True, slots=True)
class Outlook:
    """`dead`: it could not be read today either. `left`: it is not to be written back. `retry`: it may be."""

    verdict: Literal["dead", "left", "retry"]
    why: str


class TodaysCode:
    """Reads records as the processes of this version would, each by itself.

    Args:
        cluster: The cluster of raw records that name none.
        cluster_header: The header that names it.
        cluster_partitions: How many partitions the internal topics have.
    """

    def __init__(self, cluster: str, cluster_header: str, cluster_partitions: int) -> None:
        self._detector = Detector(cluster, cluster_header=cluster_header)
        self._cluster_partitions = cluster_partitions

    def outlook(self, letter: Letter) -> Outlook:
        """What would become of the record if it were written back now."""
        why, topic = letter.why, letter.why.topic
        if why.truncated or why.cut_short:
            what = (
                f"{why.size_bytes} bytes, of which the first MiB is kept"
                if why.truncated
                else "its key or headers were cut"
            )
            return Outlook(
                "left", f"only a part of it is kept ({what}); the whole record was {_place(letter)}"
            )
        try:
            read = self._read(letter)
        except BadInput as error:
            return Outlook("dead", str(error))
        if (reason := NOT_WRITTEN_BACK.get(topic)) is not None:
            return Outlook("left", f"{read}; not written back: {reason}")
        return Outlook("retry", read)

    def _read(self, letter: Letter) -> str:
        topic = letter.why.topic
        if topic in _RAW:
            return self._detected(letter)
        if topic == SIGNALS.name:
            return self._signals(letter)
        if (reads := _READERS.get(topic)) is None:
            raise BadInput(f"{topic[:60]!r} is no topic that this version reads")
        return reads(letter)

    def _detected(self, letter: Letter) -> str:
        self._detector.set_rule_states({})
        value = letter.record.value or b""
        detected = read_safely(self._detector, letter.record) if self._detector.wants(value) else NOTHING
        if detected.dead:
            raise BadInput("; ".join(detected.dead))
        kinds = Counter(str(signal.kind) for signal in detected.signals)
        listed = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        return (
            f"readable: {listed or 'nothing of interest'} in {detected.observations} lines, samples or events"
        )

    def _signals(self, letter: Letter) -> str:
        batch = read_signals(letter.record.value)
        wanted = partition_of(batch.cluster, self._cluster_partitions)
        if wanted != letter.why.partition:
            raise BadInput(f"cluster {batch.cluster} does not belong in partition {letter.why.partition}")
        return f"readable: {len(batch.signals)} signals of {batch.cluster}"


def _place(letter: Letter) -> str:
    return f"{letter.why.topic}:{letter.why.partition}:{letter.why.offset}"


def _fact(letter: Letter) -> str:
    return f"readable: {read_fact(letter.record.key, letter.record.value)[0]}"


def _tick(letter: Letter) -> str:
    return f"readable: {parse_rfc3339((letter.record.value or b'').decode(errors='replace'))}"


def _document(kind: type) -> Callable[[Letter], str]:
    def read(letter: Letter) -> str:
        decode(kind, letter.record.value or b"")
        return f"readable: a {kind.__name__}"

    return read


_READERS: Mapping[str, Callable[[Letter], str]] = {
    INVENTORY.name: _fact,
    TICKS.name: _tick,
    COMMANDS.name: _document(Command),
    CONTROLS.name: _document(Control),
    TIMELINE.name: _document(TimelineEntry),
}
