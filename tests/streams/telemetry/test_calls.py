from __future__ import annotations

import asyncio

import pytest

from connectors.base import AlreadyDone, Done, Retry, Unknown
from connectors.kubernetes.nodes import NodeConnector
from streams.model.errors import Fenced
from streams.telemetry import metrics as shown
from streams.telemetry.backlog import BacklogFigures
from streams.telemetry.call_figures import CallFigures, system_of
from streams.telemetry.registry import OTHER, Metrics


def test_the_first_call_of_a_system_that_is_expected_is_an_increase() -> None:
    metrics = Metrics("responder")
    CallFigures(metrics).expect("kubernetes")
    text = metrics.exposition("")[0].decode()
    assert 'faultline_connector_calls_total{outcome="failed",system="kubernetes"} 0.0' in text
    assert 'faultline_connector_call_seconds_count{system="kubernetes"} 0.0' in text


@pytest.mark.parametrize(
    ("outcome", "counted"),
    [
        (Done(), "done"),
        (AlreadyDone(), "already_done"),
        (Retry(1.0, "busy"), "retry"),
        (Unknown("cut off"), "unknown"),
        (Unknown("the switch was engaged", withheld=True), "withheld"),
        (None, "withheld"),
    ],
)
def test_a_call_counts_by_what_it_returned(outcome: object, counted: str) -> None:
    metrics = Metrics("responder")
    with CallFigures(metrics, clock=iter([1.0, 1.5]).__next__).measured("slack") as call:
        call.returned(outcome)
    assert metrics.value(shown.CONNECTOR_CALLS, "slack", counted) == 1
    assert metrics.value(shown.CONNECTOR_SECONDS, "slack") == (counted != "withheld")


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (RuntimeError("a bug"), "failed"),
        (Fenced("too late"), "withheld"),
        (asyncio.CancelledError(), "unknown"),
    ],
)
def test_a_call_that_raises_counts_and_goes_on_raising(error: BaseException, counted: str) -> None:
    metrics = Metrics("responder")
    with pytest.raises(type(error)), CallFigures(metrics).measured("kubernetes"):
        raise error
    assert metrics.value(shown.CONNECTOR_CALLS, "kubernetes", counted) == 1


def test_a_connector_is_of_the_system_whose_folder_it_is_in() -> None:
    assert system_of(NodeConnector.__new__(NodeConnector)) == "kubernetes"
    assert system_of(object()) == OTHER


def test_a_backlog_is_as_old_as_what_has_waited_longest_without_a_break() -> None:
    now, metrics = 0.0, Metrics("notifier")
    figures = BacklogFigures(metrics, clock=lambda: now)

    def told() -> tuple[float, float]:
        return metrics.value(shown.SINK_BACKLOG, "pager"), metrics.value(shown.SINK_OLDEST, "pager")

    figures.look([("pager", ["inc-1"]), ("mail", [])])
    assert told() == (1, 0)
    now = 30.0
    figures.look([("pager", ["inc-1", "inc-2"]), ("pager", ["inc-3"])])  # two partitions
    assert told() == (3, 30)
    now = 60.0
    figures.look([("pager", ["inc-2"])])
    assert told() == (1, 30)
    now = 90.0
    figures.look([("pager", [])])
    assert told() == (0, 0)
    figures.look([])
    assert told() == (0, 0)
