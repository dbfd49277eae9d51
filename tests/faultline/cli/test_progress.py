"""How far a command is: nothing while it is quick, a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import io

import pytest

from faultline.cli.progress import Progress, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_what_is_quick_shows_nothing(kind: type[io.StringIO], clock: Clock) -> None:
    stream = kind()
    with progress("reading", 10, stream=stream) as shown:
        clock.now += 0.9
        shown.advance(10)
    assert stream.getvalue() == ""


def test_elsewhere_there_is_a_line_every_five_seconds(clock: Clock) -> None:
    stream = io.StringIO()
    with progress("reading", 1000, stream=stream) as shown:
        for _ in range(12):
            clock.now += 1.0
            shown.advance(50)
    first, second = stream.getvalue().splitlines()
    assert first == "reading: 250 of 1,000 records (25 %), 5 s, about 15 s left"
    assert second == "reading: 500 of 1,000 records (50 %), 10 s, about 10 s left"


def test_a_terminal_has_one_bar_that_is_gone_at_the_end(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    stream = Terminal()
    with progress("reading", 100, stream=stream) as shown:
        clock.now += 2.0
        shown.reach(50)
        with progress("reading more", 100) as inner:
            assert inner is shown
            clock.now += 1.0
            inner.advance(50)
    drawn = stream.getvalue().split("\r")
    assert drawn[1].startswith("[##########          ] reading: 50 of 100 records (50 %)")
    assert drawn[2].startswith("[##########          ] reading: 100 of 200 records (50 %)")
    assert drawn[-1] == "\x1b[K"
    assert all(len(line.removesuffix("\x1b[K")) < 60 for line in drawn)


def test_how_much_is_left_is_not_guessed_where_nobody_knows_how_much_there_is(clock: Clock) -> None:
    shown = Progress("reading", None, "records", io.StringIO())
    shown.done = 64_000
    assert shown.line(12.0) == "reading: 64,000 records, 12 s"


def test_one_that_begins_after_another_has_ended_counts_anew(clock: Clock) -> None:
    with progress("first", 1) as first:
        first.advance()
    with progress("second", 5) as second:
        assert (second.done, second.total) == (0, 5)
