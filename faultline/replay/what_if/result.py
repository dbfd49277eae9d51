"""The whole answer of a what-if, and its JSON. The names of its fields are stable; a change of meaning raises `schema`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from faultline.replay.difference import Difference, Pair, differences, with_causes
from faultline.replay.what_if.causes import causes_of
from faultline.replay.what_if.decide import Decided, both, group_window_s
from faultline.replay.what_if.edits import Edit
from faultline.replay.what_if.sides import Sides
from faultline.replay.what_if.structure import Answer, Structure, answer
from faultline.replay.what_if.summary import Summary, summary_of
from streams.model.clock import rfc3339

SCHEMA = 1
UNASKED = Structure()


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Both sides of a source, and every incident of either with what differs."""

    source: str
    edits: tuple[Edit, ...]
    before: Decided
    after: Decided
    pairs: tuple[Pair, ...]
    summary: Summary
    structure: Answer | None = None
    """What other spares, checkpoints and drains would have saved, where that was asked."""

    @property
    def differing(self) -> tuple[Pair, ...]:
        """The incidents that differ in anything."""
        return tuple(pair for pair in self.pairs if pair.differences)

    def lines(self) -> Iterator[dict[str, Any]]:
        """As `--output json` prints it: the summary first, then the edits, then each incident that differs."""
        yield {
            "record": "summary",
            "schema": SCHEMA,
            "source": self.source,
            "differing": self.summary.differing,
            **asdict(self.summary),
            "decision_hash_before": self.before.decision_hash,
            "decision_hash_after": self.after.decision_hash,
            "records": self.before.records,
            "signals": self.before.signals,
        }
        if self.structure is not None:
            yield {"record": "structure", **asdict(self.structure)}
        for edit in self.edits:
            yield {"record": "edit", **asdict(edit), "has_effect": edit.has_effect}
        for pair in self.differing:
            yield {
                "record": "incident",
                "incident": pair.either.incident,
                "before": pair.before.incident if pair.before else None,
                "after": pair.after.incident if pair.after else None,
                "title": pair.either.title,
                "fault_at": rfc3339(pair.either.fault_at),
                "differences": [_line(one) for one in pair.differences],
            }


def what_if(
    source: str, given: Sides, asked: Structure = UNASKED, done: Callable[[], None] = lambda: None
) -> WhatIf:
    """Replay both sides and compare them, and answer what is `asked` of the first. `done` is called for each that is ready.

    Raises:
        BadInput: when the capture or a table is invalid.
    """
    before, after = both(given.before, given.after, done)
    pairs = tuple(
        with_causes(pair, lambda pair, one: causes_of(pair, one, given.edits))
        for pair in differences(before.decisions, after.decisions)
        if given.before.capture.is_about(*pair.ids)
    )
    window = timedelta(seconds=group_window_s(given.after.settings))
    structure = answer(before.outages, before.held, asked) if asked.is_asked else None
    return WhatIf(source, given.edits, before, after, pairs, summary_of(pairs, window), structure)


def _line(one: Difference) -> dict[str, Any]:
    return {**asdict(one), "causes": list(one.causes)}
