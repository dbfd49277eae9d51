"""What an engine holds is left out of garbage collection for as long as the engine is there."""

from __future__ import annotations

import pytest

from streams.config.settings import CorrelatorSettings, KafkaSettings
from streams.correlate import Engine, process
from streams.correlate.process import Correlator


async def test_an_engine_is_left_out_of_garbage_collection_until_it_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    monkeypatch.setattr(process, "collect_seldom", lambda: told.append("left out"))
    monkeypatch.setattr(process, "include_again", lambda: told.append("included"))
    correlator = Correlator(KafkaSettings(), CorrelatorSettings(), Engine)
    term = correlator._ownership.term
    assert await correlator._engine("east", 0, term) is await correlator._engine("east", 0, term)
    assert told == ["left out"]
    correlator._lose_ownership()
    assert told == ["left out", "included"]
