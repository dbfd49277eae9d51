from __future__ import annotations

import io
from datetime import UTC, datetime

import orjson
import pytest
from rich.console import Console

from sandbox.demo.screens import LineScreen, LiveScreen, RecordScreen
from sandbox.demo.spectator import DemoMoment
from sandbox.demo.verdict import Check, DemoVerdict

AT = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
HOSTILE = DemoMoment(AT, "signal", "line with [bold red]markup[/] and \x1b[31mescape\x07")


def terminal() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=True, width=120, height=40, color_system=None), out


def test_log_text_is_shown_as_it_is_and_never_obeyed() -> None:
    console, out = terminal()
    LineScreen(console).show(HOSTILE)
    assert "[bold red]markup[/] and \\x1b[31mescape\\x07" in out.getvalue()
    assert "\x1b[31m" not in out.getvalue()


def test_the_panels_show_each_moment_where_it_belongs() -> None:
    console, out = terminal()
    screen = LiveScreen(console)
    screen.show(DemoMoment(AT, "story", "1. something breaks"))
    screen.show(DemoMoment(AT, "step", "done cordon_node"))
    screen.show(HOSTILE)
    screen.close()
    shown = out.getvalue()
    for text in ("1. something breaks", "done cordon_node", "[bold red]markup[/]"):
        assert text in shown
    assert "\x1b[31m" not in shown


def test_the_way_to_the_console_stays_beside_the_panels() -> None:
    console, out = terminal()
    screen = LiveScreen(console)
    screen.link("http://127.0.0.1:12345/")
    screen.show(DemoMoment(AT, "story", "1. something breaks"))
    screen.show(DemoMoment(AT, "person", "Ada Byron (U1) presses [Approve]"))
    screen.close()
    last = out.getvalue().rpartition("faultline demo")[2]
    for text in ("http://127.0.0.1:12345/", "1. something breaks", "person", "presses [Approve]"):
        assert text in last


def test_programs_get_an_object_a_line_and_last_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    screen = RecordScreen("json")
    screen.link("http://127.0.0.1:12345/")
    screen.show(HOSTILE)
    screen.conclude(
        DemoVerdict((), (Check(False, "not so"),), {"gpu-01": "inc-1"}, {"team/job": ("gpu-02",)})
    )
    lines = [orjson.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["record"] for line in lines] == ["console", "moment", "check", "summary"]
    assert lines[-1]["good"] is False
    assert lines[-1]["cordoned"] == {"gpu-01": "inc-1"}
