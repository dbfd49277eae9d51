"""The log gives back exactly what is kept, whenever it is stopped, and does not grow with what was forgotten."""

from __future__ import annotations

import random
from dataclasses import fields, replace

import orjson
import pytest

from streams.correlate.sightings import Sighting, sighting
from streams.correlate.state import sighting_log
from streams.correlate.state.sighting_codec import Entry, pack, unpack
from streams.correlate.state.sighting_log import PREFIX, SightingLog
from streams.correlate.state.store import State
from streams.model.entity import Entity, Gpu, JobRef, PodRef
from streams.model.errors import BadInput
from tests.streams.correlate.test_order import STORIES
from tests.streams.correlate.world import World, xid


def seen(number: int, second: int = 0) -> Sighting:
    found = sighting(xid(f"n{number % 7}", 31, second + number / 1000, index=number % 8))
    assert found is not None
    return found


def told(rows: dict[str, bytes]) -> dict[tuple[str, str], str]:
    entries = SightingLog().load((k, v) for k, v in rows.items() if k.startswith(PREFIX))
    return {(e.row, e.sighting.id): e.group for e in entries}


@pytest.mark.parametrize("seed", range(6))
def test_what_is_kept_is_what_is_loaded_after_any_adds_drops_and_restarts(seed: int) -> None:
    chance = random.Random(seed)
    pool = [(f"node/n{i % 7}", f"group-{i % 3}", seen(i)) for i in range(60)]
    rows: dict[str, bytes] = {}
    live, kept = SightingLog(), dict[tuple[str, str], str]()
    for _ in range(300):
        for row, group, s in chance.sample(pool, chance.randint(0, 12)):
            if (row, s.id) in kept:
                live.drop(row, s)
                del kept[row, s.id]
            if chance.random() < 0.6:
                live.add(row, group, s)
                kept[row, s.id] = group
        live.flush(rows)
        if chance.random() < 0.2:
            live = SightingLog()
            loaded = {(e.row, e.sighting.id): e.group for e in live.load(rows.items())}
            assert loaded == kept
        assert told(rows) == kept
    stored = [orjson.loads(value) for value in rows.values()]
    assert sum(len(s["seen"]) for s in stored) <= 2 * len(kept) + 12


def test_stopped_between_any_two_writes_it_lost_at_most_the_last_flush() -> None:
    class Recorded(dict[str, bytes]):
        steps: list[dict[str, bytes]]

        def __setitem__(self, key: str, value: bytes) -> None:
            super().__setitem__(key, value)
            self.steps.append(dict(self))

        def __delitem__(self, key: str) -> None:
            super().__delitem__(key)
            self.steps.append(dict(self))

    chance = random.Random(5)
    rows = Recorded()
    rows.steps = []
    live, kept = SightingLog(), dict[tuple[str, str], str]()
    for number in range(200):
        before = dict(kept)
        rows.steps.clear()
        for i in range(4):
            s = seen(number * 4 + i)
            live.add("node/n1", "g", s)
            kept["node/n1", s.id] = "g"
        for row, sid in chance.sample(sorted(before), min(len(before), 4 if number % 3 else 1)):
            live.drop(row, next(e.sighting for e in _all(live) if e.sighting.id == sid))
            del kept[row, sid]
        live.flush(rows)
        for step in rows.steps:
            assert told(step) in (before, kept)
    assert told(rows) == kept


def _all(live: SightingLog) -> list[Entry]:
    return [e for segment in live._segments.values() for e in segment.live.values()]


def test_a_segment_too_large_for_a_record_is_written_as_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sighting_log, "MAX_BYTES", 4000)
    rows: dict[str, bytes] = {}
    live = SightingLog()
    for i in range(50):
        live.add("node/n1", "g", seen(i))
    live.flush(rows)
    assert len(rows) > 5
    assert all(len(value) <= 4000 for value in rows.values())
    assert len(told(rows)) == 50


@pytest.mark.parametrize("story", STORIES)
def test_a_new_process_knows_exactly_what_the_old_one_knew(story: object) -> None:
    facts, signals = story()  # type: ignore[operator]
    world = World(facts)
    for one in signals:
        world.see(one)
        before, after = world.engine._state, State(world.rows, "east")
        for old, new in ((before.nodes, after.nodes), (before.pods, after.pods), (before.ports, after.ports)):
            assert {k: row for k, row in old.items() if row.seen} == {
                k: new[k] for k, row in old.items() if row.seen
            }
            assert old.reporting == new.reporting


def test_rows_of_what_is_repeated_and_forgotten_do_not_grow() -> None:
    world = World()
    sizes = []
    for minute in range(120):
        world.see(*(xid(f"n{i % 5}", 31, 60 * minute + i / 10, index=i % 8) for i in range(80)))
        world.pass_to(60 * minute + 59, step=59)
        sizes.append(sum(len(v) for k, v in world.rows.items() if k.startswith(PREFIX)))
    assert max(sizes[60:]) < 1.3 * max(sizes[40:60])
    world.pass_to(60 * 240, step=30)
    assert sum(len(v) for k, v in world.rows.items() if k.startswith(PREFIX)) < sizes[0]


def test_a_sighting_with_every_field_of_its_place_comes_back_as_it_was() -> None:
    every = {f.name: f"some-{f.name}" for f in fields(Entity)} | {
        "gpu": Gpu("0000:1b:00", "GPU-1", 3, "5:1"),
        "job": JobRef("PyTorchJob", "train", "llama", "u-1"),
        "pod": PodRef("train", "llama-0", "u-2"),
        "rank": 7,
    }
    full = replace(
        seen(1),
        entity=Entity(**every),  # type: ignore[arg-type]
        attributes={
            "xid": 31,
            "ranks": (1, 2),
            "names": ("a", "b"),
            "share": 0.5,
            "is_so": True,
            "text": "ü",
        },
    )
    for one in (full, seen(2), replace(seen(3), evidence=())):
        told = unpack(pack([Entry("node/n1", "g", one)], [("node/n1", "gone")]))
        assert told.seen[0] == Entry("node/n1", "g", one)
        assert told.seen[0].sighting.code == one.code
        assert list(told.gone) == [("node/n1", "gone")]


def test_columns_of_another_version_are_left_out_and_damage_is_named() -> None:
    one = seen(1)
    raw = orjson.loads(pack([Entry("node/n1", "g", one)], []))
    raw["columns"]["entity"].append("planet")
    raw["seen"][0][3].append("earth")
    assert unpack(orjson.dumps(raw)).seen[0].sighting == one
    with pytest.raises(BadInput, match="not a segment"):
        unpack(b'{"seen": []}')
