"""Lines of the log: their order, and what becomes of a client that says the same sixty times a second."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from typing import Literal

import pytest
import structlog
from structlog.testing import capture_logs

from faultline.runtime.log_folding import KafkaLogFilter
from faultline.runtime.logging_setup import configure
from tests.faultline.runtime.as_before import logging_as_before

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
def restored() -> Iterator[None]:
    with logging_as_before():
        yield


@pytest.mark.usefixtures("restored")
def test_every_line_begins_with_event_level_time_and_process_whoever_says_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    configure("detector", form="json")
    structlog.get_logger("streams.detect.process").info("counts", topic="raw.metrics", records=3, accepted=2)
    logging.getLogger("theirs").warning("of a library: %s", "slow")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [list(line)[:4] for line in lines] == [["event", "level", "timestamp", "process"]] * 2
    assert [line["timestamp"][-1] for line in lines] == ["Z", "Z"]
    assert list(lines[0])[4:] == sorted(list(lines[0])[4:])


@pytest.mark.usefixtures("restored")
def test_at_debug_only_our_own_lines_are_many(capsys: pytest.CaptureFixture[str]) -> None:
    """A library at `debug` prints what it was answered, and an expression's every step."""
    configure("responder", level="debug", form="json")
    structlog.get_logger("runbooks.engine.process").debug("step", run="run-1")
    for library in ("celpy.Evaluator", "kubernetes.client.rest", "httpx", "asyncio"):
        logging.getLogger(library).debug("response body: %s", "kept to itself")
        logging.getLogger(library).warning("of a library: %s", "slow")
    events = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert events == ["step", *["of a library: slow"] * 4]


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("form", ["json", "line"])
def test_a_traceback_holds_no_values_of_local_variables(
    form: Literal["json", "line"], capsys: pytest.CaptureFixture[str]
) -> None:
    configure("gateway", form=form)
    try:
        _fails_beside("".join(["hunter", "2"]))
    except LookupError:
        structlog.get_logger("x").exception("it failed")
        logging.getLogger("aiohttp.server").exception("it failed there, too")
    said = capsys.readouterr().err
    assert said.count("LookupError") >= 2
    assert "hunter2" not in said


def _fails_beside(token: str) -> None:
    raise LookupError(f"{len(token)} characters")
