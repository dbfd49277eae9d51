"""An archive is replayed as a capture is."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from faultline.archive import needed
from faultline.archive.upkeep import keep_up
from faultline.replay.archived import open_archive
from faultline.replay.replay import facts_of
from faultline.replay.sources import opened
from faultline.runtime.settings import Settings
from streams.kafka.topics import INVENTORY
from streams.model.codec import encode
from streams.model.errors import ConfigError
from streams.model.facts import FactRecord
from streams.model.record import RawRecord
from tests.faultline.archive.writing import archive_at, write
from tests.faultline.replay.test_recorded_inputs import decided_of, only_signals
from tests.faultline.replay.test_replay import NOON, capture, decided_once

DAY = timedelta(days=1)
END = NOON + timedelta(hours=2)


def inventory(earlier: timedelta = timedelta()) -> list[RawRecord]:
    """The facts of the capture as the inventory writes them; those before its signals so much earlier."""
    found = []
    for offset, news in enumerate(sorted(facts_of(capture()), key=lambda news: news.at)):
        at = news.at - earlier if news.at <= NOON else news.at
        value = encode(FactRecord(news.fact)) if news.fact else None
        found.append(RawRecord(INVENTORY.name, 0, offset, at, news.key.encode(), value))
    return found


def archived(folder: Path, facts: list[RawRecord]) -> None:
    """Write the capture's signals and some facts."""
    signals = only_signals(capture()).records["signals"]
    write(archive_at(folder), [*signals, *facts])


def test_an_archive_leads_to_the_same_decisions_as_the_lines_its_signals_were_found_in(
    tmp_path: Path,
) -> None:
    archived(tmp_path, inventory())
    decided = decided_of(open_archive(str(tmp_path), "east", NOON - DAY, END))
    assert decided.decision_hash == decided_once().decision_hash
    assert decided.signals == decided_once().signals


def test_what_the_inventory_held_months_before_is_known_when_a_replay_begins(tmp_path: Path) -> None:
    archived(tmp_path, inventory(earlier=90 * DAY))
    without = decided_of(open_archive(str(tmp_path), "east", NOON, END, warm_up=timedelta(hours=1)))
    keep_up(archive_at(tmp_path), INVENTORY, 0, NOON)
    one = open_archive(str(tmp_path), "east", NOON, END, warm_up=timedelta(hours=1))
    assert len(one.state[INVENTORY.name]) > 1
    decided = decided_of(one)
    assert decided.decision_hash == without.decision_hash == decided_once().decision_hash


def test_a_folder_that_is_no_capture_is_opened_as_an_archive(tmp_path: Path) -> None:
    archived(tmp_path, inventory())
    with opened(str(tmp_path), Settings(cluster="east"), NOON - DAY, END) as one:
        assert decided_of(one).decision_hash == decided_once().decision_hash


def test_without_pyarrow_an_archive_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needed, "find_spec", lambda name: None)
    (tmp_path / "signals" / "day=2026-03-01").mkdir(parents=True)
    with (
        pytest.raises(ConfigError, match=r"pyarrow.*faultline\[archive\]"),
        opened(str(tmp_path), Settings(cluster="east"), NOON - DAY, END),
    ):
        pass
