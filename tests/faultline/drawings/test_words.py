"""Text that fits its room, whatever it is, and durations as people say them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from faultline.drawings.words import clean, fit, fit_middle, span, width_of
from streams.model.counted import many


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-5, "0 s"), (0, "0 s"), (0.004, "<0.1 s"), (0.43, "0.4 s"), (2, "2 s"), (9.96, "10 s"), (59.6, "1 min"),
        (61, "1 min 1 s"), (3599.7, "1 h"), (7800, "2 h 10 min"), (86400, "1 d"), (100_000, "1 d 3 h"),
    ],
)  # fmt: skip
def test_a_duration_has_two_units_at_most(seconds: float, said: str) -> None:
    assert span(timedelta(seconds=seconds)) == said


@pytest.mark.parametrize("text", ["gpu-1", "m" * 300, "漢字" * 200, "", "\x00\u202e", "a" * 100_000])
@pytest.mark.parametrize("room", [30.0, 200.0])
def test_a_text_fits_its_room(text: str, room: float) -> None:
    for cut in (fit(text, room, 12), fit_middle(text, room, 12)):
        assert width_of(cut, 12) <= room + 12
        assert "\u202e" not in cut


def test_a_long_name_keeps_its_end() -> None:
    assert fit_middle("gpu-rack-a-row-7-slot-0017", 90, 12).endswith("0017")
    assert fit("gpu-rack-a-row-7-slot-0017", 90, 12).startswith("gpu-rack")


def test_text_becomes_one_clean_line() -> None:
    assert clean("a\nb\tc\ufffe \x1b[31md") == "a b c [31md"
    assert (many(1, "node"), many(1200, "node")) == ("1 node", "1,200 nodes")
