"""Trace context in the headers of records, most of which nobody can be trusted to have written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.telemetry.trace_context import TraceContext, extract, of_incident, of_revision, of_run

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def parent(text: str, **more: str) -> list[tuple[str, bytes]]:
    return [("traceparent", text.encode()), *((name, value.encode()) for name, value in more.items())]


def test_a_context_is_read_back_as_it_was_written() -> None:
    for sampled in (True, False):
        context = TraceContext(TRACE, SPAN, sampled, "vendor=1,other=2")
        assert extract(context.headers) == context
        assert extract(dict(context.headers)) == context


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"00-{TRACE}-{SPAN}",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_what_is_no_context_by_the_standard_is_none(text: str) -> None:
    assert extract(parent(text)) is None


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert extract(parent(f"cc-{TRACE}-{SPAN}-09-what-comes")) == TraceContext(TRACE, SPAN, True)


def test_of_two_contexts_nobody_knows_which_is_meant() -> None:
    assert extract(parent(f"00-{TRACE}-{SPAN}-01") * 2) is None


def test_a_state_that_no_header_may_hold_is_dropped_and_the_context_kept() -> None:
    for state in ("a=1\r\nX-Forged: 1", "x" * 513, "ü=1"):
        assert extract(parent(f"00-{TRACE}-{SPAN}-01", tracestate=state)) == TraceContext(TRACE, SPAN, True)


@given(st.binary(max_size=200), st.binary(max_size=600))
def test_no_bytes_make_the_reader_fail(value: bytes, state: bytes) -> None:
    found = extract([("traceparent", value), ("tracestate", state)])
    assert found is None or extract(found.headers) == found


def test_the_trace_of_an_incident_is_known_by_its_id_and_its_spans_differ() -> None:
    first, run = of_incident("inc-1"), of_run("inc-1", "run-1")
    assert of_incident("inc-1") == first
    assert first.sampled
    assert run.trace_id == first.trace_id != of_incident("inc-2").trace_id
    assert (
        len({first.span_id, run.span_id, of_run("inc-1", "run-2").span_id, of_revision("inc-1", 2).span_id})
        == 4
    )
    assert extract(run.headers) == run
