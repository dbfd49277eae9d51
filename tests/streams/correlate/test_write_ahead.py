"""A step is stored whole or not at all, wherever the process ends while its rows go out."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime
from functools import cache, partial
from itertools import chain

import pytest

from streams.correlate import Changes, Config, Engine, Rows, write_ahead
from streams.correlate.write_ahead import ClusterEngine, Records, TableRows
from streams.model.codec import encode
from streams.model.facts import Fact
from streams.model.incident import Incident
from streams.model.signal import Signal
from tests.streams.correlate import test_order
from tests.streams.correlate.deliveries import essence, standing
from tests.streams.correlate.world import CLUSTER, at

Step = Callable[[write_ahead.StepEngine], Changes]
Telling = Callable[[], test_order.Story]


class Broker:
    """What was written, and the owner of the moment."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.changelog: dict[bytes, bytes] = {}
        self.said: dict[str, list[Incident]] = {}
        self.entries: set[bytes] = set()
        self.deaths = 0
        self.take_over()

    def take_over(self) -> None:
        """A new process reads the changelog, and may die again at once."""
        while True:
            self.held = ClusterEngine(TableRows(dict(self.changelog), CLUSTER), partial(make_engine, CLUSTER))
            rows, again = self.held.recover()
            if self._dies(rows):
                continue
            self._say(again)
            return

    def take(self, step: Step) -> None:
        """Take a step, as often as it needs until the process lives through it."""
        while True:
            changes = step(self.held.engine)
            record, rows = self.held.store(changes)
            if not self._dies([*record, *rows]):
                if self.chance.random() < 0.9:
                    self._say(changes)
                    self.held.clear()
                    return
                self.deaths += 1
            self.take_over()

    def _dies(self, rows: Records) -> bool:
        """Write rows one by one; True when the process ended in between."""
        dies = bool(rows) and self.chance.random() < 0.3
        for key, value in rows[: self.chance.randrange(len(rows))] if dies else rows:
            if value is None:
                self.changelog.pop(key, None)
            else:
                self.changelog[key] = value
        self.deaths += dies
        return dies

    def _say(self, changes: Changes) -> None:
        for incident in changes.incidents:
            said = self.said.setdefault(incident.id, [])
            if incident.revision > len(said):
                said.append(incident)
            assert said[incident.revision - 1] == incident
        self.entries |= {encode(entry) for entry in changes.timeline}

    @property
    def latest(self) -> dict[str, Incident]:
        """The latest revision of every incident."""
        return {name: said[-1] for name, said in self.said.items()}


def told(facts: list[tuple[str, Fact | None, datetime]]) -> Step:
    return lambda engine: engine.on_facts(facts)


def seen(signals: list[Signal]) -> Step:
    return lambda engine: engine.on_signals(signals, at(1600))


def ticked(now: float) -> Step:
    return lambda engine: engine.on_tick(at(now))


def make_engine(cluster: str, rows: Rows) -> Engine:
    return Engine(cluster, rows, Config())


@cache
def once_told(story: Telling) -> test_order.Story:
    """The same signals each time: a story that is made again has others."""
    return story()


def steps(story: Telling, chance: random.Random) -> list[Step]:
    """The story in batches of some size, in some order, and the time after it."""
    facts, signals = once_told(story)
    size = chance.randint(3, 20)
    batches = [signals[i : i + size] for i in range(0, len(signals), size)]
    chance.shuffle(batches)
    played = [told([(fact.key, fact, at(0)) for fact in facts])]
    played += [seen(batch) for batch in batches]
    return played + [ticked(now) for now in range(1610, 2600, 30)]


@cache
def undisturbed(story: Telling, seed: int) -> Broker:
    """What comes of it where nobody dies, and so whatever the size of the pieces."""
    whole = Broker(Steady())
    for step in steps(story, random.Random(seed)):
        whole.take(step)
    return whole


@pytest.mark.parametrize("story", test_order.STORIES)
@pytest.mark.parametrize("piece", [300, write_ahead.PIECE])
def test_what_ends_in_the_middle_of_its_rows_ends_with_the_same_incidents(
    story: Telling, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_ahead, "PIECE", piece)
    deaths = 0
    for seed in range(6):
        chance = random.Random(seed)
        played = steps(story, chance)
        cut = Broker(chance)
        for step in played:
            cut.take(step)
        deaths += cut.deaths
        whole = undisturbed(story, seed)
        assert [essence(i) for i in standing(cut.latest)] == [essence(i) for i in standing(whole.latest)]
        assert cut.entries == whole.entries
    assert deaths > 20


class Steady(random.Random):
    """Nobody dies."""

    def random(self) -> float:
        return 0.5


def test_pieces_of_two_records_never_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_ahead, "PIECE", 60)
    table: dict[bytes, bytes] = {}
    held = ClusterEngine(TableRows(table, CLUSTER), partial(make_engine, CLUSTER))
    quiet = held.engine.on_tick(at(0))
    held.rows["a"], held.rows["b"] = b"1" * 90, b"2"
    held.store(quiet)
    before = dict(table)
    held.rows["a"], held.rows["b"] = b"3" * 90, b"4"
    record, rows = held.store(quiet)
    written = [(key, value) for key, value in (*record, *rows) if value is not None]
    assert len(record) >= 3

    def read_after(count: int) -> bytes:
        table = {**before, **dict(written[:count])}
        return ClusterEngine(TableRows(table, CLUSTER), partial(make_engine, CLUSTER)).rows["a"]

    assert [read_after(count) for count in range(len(written) + 1)] == [
        *[b"1" * 90] * len(record),
        *[b"3" * 90] * (len(written) + 1 - len(record)),
    ]


def test_what_was_done_for_a_predecessor_is_not_done_again_over_a_later_row() -> None:
    changelog: dict[bytes, bytes] = {}

    def take_over() -> ClusterEngine:
        held = ClusterEngine(TableRows(dict(changelog), CLUSTER), partial(make_engine, CLUSTER))
        write(held.recover()[0])
        return held

    def write(*parts: Records) -> None:
        for key, value in chain(*parts):
            if value is not None:
                changelog[key] = value
            else:
                changelog.pop(key, None)

    first = take_over()
    quiet = first.engine.on_tick(at(0))
    first.rows["a"], first.rows["b"] = b"1", b"2"
    write(*first.store(quiet))
    second = take_over()
    second.rows["a"] = b"3"
    write(*second.store(quiet))
    assert take_over().rows["a"] == b"3"
