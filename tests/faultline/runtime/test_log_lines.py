"""Lines of the log: their order, and what becomes of a client that says the same sixty times a second."""

from __future__ import annotations

import json
import logging
import sys
from typing import Literal

import pytest
import structlog
from structlog.testing import capture_logs

from faultline.runtime.log_folding import KafkaLogFilter
from faultline.runtime.logging_setup import configure

CLIENT = "aiokafka.client"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def said(folding: KafkaLogFilter, text: str, *args: object, name: str = CLIENT) -> bool:
    return folding.filter(logging.LogRecord(name, logging.ERROR, "client.py", 1, text, args, None))


def outage(folding: KafkaLogFilter, clock: Clock, seconds: int) -> None:
    for _ in range(seconds):
        for _ in range(60):
            assert not said(folding, "Unable connect to node with id %s: %s", 1, "refused")
        clock.now += 1
        folding.look()


def test_an_outage_is_one_line_when_it_lasts_one_a_minute_and_one_when_it_is_over() -> None:
    clock = Clock()
    folding = KafkaLogFilter(clock=clock)
    with capture_logs() as lines:
        outage(folding, clock, 130)
        for _ in range(15):
            clock.now += 1
            folding.look()
    told = [(line["log_level"], line["event"]) for line in lines]
    assert told == [("error", "Kafka unreachable, retrying")] * 3 + [("info", "Kafka reachable again")]
    assert lines[0]["reason"] == "Unable connect to node with id 1: refused"
    assert lines[-1]["tries"] == 130 * 60


def test_a_moment_without_a_leader_or_a_coordinator_is_not_told_and_neither_are_two() -> None:
    clock = Clock()
    folding = KafkaLogFilter(clock=clock)
    with capture_logs() as lines:
        for _ in range(2):
            outage(folding, clock, 2)
            assert not said(folding, "Group Coordinator Request failed: %s", "[Error 15]")
            clock.now += 8
            folding.look()
    assert lines == []


def test_a_group_that_finds_no_coordinator_for_long_is_told() -> None:
    clock = Clock()
    folding = KafkaLogFilter(clock=clock)
    with capture_logs() as lines:
        for _ in range(40):
            said(folding, "Group Coordinator Request failed: %s", "[Error 15] not available")
            clock.now += 1
            folding.look()
    assert [line["log_level"] for line in lines] == ["error"]
    assert "offsets.topic.replication.factor" in lines[0]["event"]


def test_everything_else_is_told_as_it_is() -> None:
    folding = KafkaLogFilter()
    assert said(folding, "Topic %s is not authorized for this client", "runs")
    assert said(folding, "Unable connect to the API server", name="connectors.kubernetes")


@pytest.fixture
def restored() -> object:
    """Logging as it was before."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.mark.usefixtures("restored")
def test_every_line_begins_with_event_level_time_and_process_whoever_says_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    configure("detector", form="json")
    structlog.get_logger("ours").info("counts", topic="raw.metrics", records=3, accepted=2)
    logging.getLogger("theirs").warning("of a library: %s", "slow")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [list(line)[:4] for line in lines] == [["event", "level", "timestamp", "process"]] * 2
    assert [line["timestamp"][-1] for line in lines] == ["Z", "Z"]
    assert list(lines[0])[4:] == sorted(list(lines[0])[4:])


@pytest.mark.parametrize("form", ["json", "line"])
def test_a_traceback_holds_no_values_of_local_variables(
    form: Literal["json", "line"], capsys: pytest.CaptureFixture[str]
) -> None:
    root, ours = logging.getLogger(), structlog.get_config()
    before, level = root.handlers[:], root.level
    try:
        configure("gateway", form=form)
        try:
            _fails_beside("".join(["hunter", "2"]))
        except LookupError:
            structlog.get_logger("x").exception("it failed")
            logging.getLogger("aiohttp.server").exception("it failed there, too")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        structlog.configure(**ours)
        structlog.contextvars.clear_contextvars()
    said = capsys.readouterr().err
    assert said.count("LookupError") >= 2
    assert "hunter2" not in said


def _fails_beside(token: str) -> None:
    raise LookupError(f"{len(token)} characters")
