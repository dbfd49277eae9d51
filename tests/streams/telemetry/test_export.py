"""Spans through the real exporter to a collector, and what happens to work while there is none."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError
from structlog.testing import capture_logs

from streams.config.tracing_settings import TracingSettings
from streams.telemetry import semconv, tracing
from streams.telemetry.export import OtlpTracer
from streams.telemetry.trace_context import TraceContext, of_incident
from tests.testbed.otlp_collector import Collector, collecting
from tests.testbed.waiting import until

SAMPLED = TraceContext("ab" * 16, "cd" * 8, True)
UNSAMPLED = SAMPLED._replace(sampled=False)


@contextmanager
def tracer(endpoint: str, **settings: Any) -> Iterator[OtlpTracer]:
    made = OtlpTracer(
        TracingSettings(endpoint=endpoint, **settings), component="detector", version="1", instance="one"
    )
    try:
        with tracing.installed(made):
            yield made
    finally:
        made.close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as one:
        yield one


def test_a_span_arrives_with_its_ids_links_names_and_login(collector: Collector) -> None:
    began = datetime.now(UTC) - timedelta(seconds=5)
    headers = {"Authorization": SecretStr("Bearer token-of-a-collector")}
    resource = {"deployment.environment.name": "test"}
    with tracer(collector.url, headers=headers, resource=resource) as one:
        with tracing.span(
            "open incident",
            own=of_incident("inc-1"),
            links=[SAMPLED],
            began_at=began,
            attributes={"a": ["b"]},
        ) as span:
            assert span.context == of_incident("inc-1")
        with tracing.span("apply cordon_node", tracing.Kind.CLIENT, parent=of_incident("inc-1")) as call:
            call.fail("Retry", "not now")
        one.flush()
        assert (one.counts.ended, one.counts.sent, one.counts.failed, one.counts.dropped) == (2, 2, 0, 0)
        assert dict(tracing.outcomes()) == {("sent",): 2, ("failed",): 0, ("dropped",): 0}
    first, effect = collector.named("open incident")[0], collector.named("apply cordon_node")[0]
    assert first.ids == of_incident("inc-1")[:2]
    assert first.links == (SAMPLED[:2],)
    assert (first.parent_id, first.attributes["a"]) == ("", ["b"])
    assert (effect.trace_id, effect.parent_id) == first.ids
    assert (effect.failed, effect.reason, effect.attributes[semconv.ERROR_TYPE]) == (True, "not now", "Retry")
    assert first.resource[semconv.SERVICE_NAME] == "faultline-detector"
    assert first.resource["deployment.environment.name"] == "test"
    assert collector.headers[0]["authorization"] == "Bearer token-of-a-collector"


def test_an_exception_marks_its_span_and_goes_on(collector: Collector) -> None:
    with tracer(collector.url, sample_ratio=1) as one:
        with pytest.raises(KeyError), tracing.span("work"):
            raise KeyError("gone")
        one.flush()
    assert collector.named("work")[0].attributes[semconv.ERROR_TYPE] == "KeyError"


@pytest.mark.parametrize(
    ("ratio", "how", "sent"),
    [
        (0.0, {}, False),
        (1.0, {}, True),
        (0.0, {"links": [SAMPLED]}, True),
        (0.0, {"links": [UNSAMPLED, SAMPLED]}, True),
        (0.0, {"links": [UNSAMPLED]}, False),
        (1.0, {"parent": UNSAMPLED}, False),
        (0.0, {"parent": SAMPLED}, True),
        (0.0, {"own": of_incident("inc-1")}, True),
    ],
)
def test_what_is_sampled(collector: Collector, ratio: float, how: dict[str, Any], sent: bool) -> None:
    with tracer(collector.url, sample_ratio=ratio) as one:
        with tracing.span("one", **how) as span:
            assert span.context is not None
            assert span.context.sampled is sent
        one.flush()
    assert bool(collector.named("one")) is sent


def test_the_span_around_another_is_not_its_parent_by_accident(collector: Collector) -> None:
    with tracer(collector.url, sample_ratio=1) as one:
        with tracing.span("outer"), tracing.span("inner"):
            pass
        one.flush()
    assert collector.named("inner")[0].parent_id == ""


def test_a_collector_that_is_away_holds_up_nothing_and_is_logged_once() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # takes no connection
        began = time.monotonic()
        with capture_logs() as logs:
            with tracer(f"http://127.0.0.1:{silent.getsockname()[1]}", queue=512, timeout_s=0.2) as one:
                for number in range(5_000):
                    with tracing.span("effect", own=of_incident(f"inc-{number}")):
                        pass
                made_s = time.monotonic() - began
                until(lambda: one.counts.failed, "a batch was given up")
            closed_s = time.monotonic() - began
        assert one.counts.ended == 5_000
        assert one.counts.sent == 0
        assert one.counts.dropped >= 5_000 - one.counts.failed - 512
        assert made_s < 20
        assert closed_s < 60
        assert [line["event"] for line in logs if "spans cannot be sent" in line["event"]] == [
            "spans cannot be sent; nothing else waits for them"
        ]


def test_a_collector_that_comes_back_is_sent_spans_again(collector: Collector) -> None:
    collector.status = 400
    with capture_logs() as logs, tracer(collector.url, sample_ratio=1) as one:
        for status in (400, 400, 200):
            collector.status = status
            with tracing.span("work"):
                pass
            one.flush()
        assert (one.counts.failed, one.counts.sent) == (2, 1)
    assert [line["event"] for line in logs] == [
        "spans cannot be sent; nothing else waits for them",
        "spans are sent again",
    ]


def test_off_costs_no_import_and_next_to_no_time() -> None:
    program = (
        "import sys, time\n"
        "from streams.detect import process\n"
        "from streams.telemetry import tracing\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry.sdk')], 'imported'\n"
        "began = time.perf_counter()\n"
        "for _ in range(100_000):\n"
        "    with tracing.span('x') as span:\n"
        "        span.headers\n"
        "print(time.perf_counter() - began)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # A hundred thousand batches: a detector has a few in a second. Bounded for a machine with ten times its load.
    assert float(done.stdout) < 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"endpoint": "otel:4318"},
        {"endpoint": "http://user:password@otel:4318"},
        {"endpoint": "http://otel", "headers": {"X\nY": "1"}},
        {"endpoint": "http://otel", "headers": {"X": "1\r\nY: 2"}},
        {"endpoint": "http://otel", "sample_ratio": 1.1},
        {"sample_ratio": 1.0},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TracingSettings(**wrong)
