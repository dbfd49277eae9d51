"""Which sources fell silent, by what the raw topics hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from faultline.why.silence import silent_sources
from streams.model.record import RawRecord

START = datetime(2026, 3, 1, 3, tzinfo=UTC)
NOW = START + timedelta(minutes=30)


def _metrics(
    node: str, minutes: int, every_s: int = 30, text: str = "DCGM_FI_DEV_GPU_TEMP"
) -> list[RawRecord]:
    times = range(0, minutes * 60, every_s)
    return [
        RawRecord(
            "raw.metrics",
            0,
            number,
            START + timedelta(seconds=at),
            None,
            f'{text}{{Hostname="{node}"}} 40'.encode(),
        )
        for number, at in enumerate(times)
    ]


def test_a_source_that_stopped_is_told_with_the_time_it_was_heard_last() -> None:
    records = {"raw.metrics": [*_metrics("gpu-1", 4), *_metrics("gpu-2", 30)]}
    (silent,) = silent_sources(records, ["gpu-1"], ["gpu-1", "gpu-2"], NOW)
    assert (
        str(silent)
        == "no DCGM metrics from gpu-1 since 2026-03-01 03:03:30Z; it never paused for much more than 30 s before"
    )


def test_a_source_that_only_other_nodes_have_is_told_as_never_heard() -> None:
    records = {"raw.metrics": _metrics("gpu-2", 30)}
    (silent,) = silent_sources(records, ["gpu-1"], ["gpu-1", "gpu-2"], NOW)
    assert str(silent) == "no DCGM metrics from gpu-1 at all, though 1 of 1 others have it"


def test_a_source_that_speaks_is_not_silent() -> None:
    assert silent_sources({"raw.metrics": _metrics("gpu-1", 30)}, ["gpu-1"], ["gpu-1"], NOW) == ()


def test_a_name_that_begins_like_another_one_is_another_node() -> None:
    records = {"raw.metrics": _metrics("gpu-12", 30)}
    assert silent_sources(records, ["gpu-1"], ["gpu-1", "gpu-12"], NOW)[0].since is None


def test_what_was_read_after_the_time_asked_about_does_not_count() -> None:
    records = {"raw.metrics": [*_metrics("gpu-1", 4), *_metrics("gpu-2", 30), *_metrics("gpu-1", 60, 1800)]}
    early = START + timedelta(minutes=15)
    assert silent_sources(records, ["gpu-1"], ["gpu-2"], early)[0].since == START + timedelta(seconds=210)


def test_a_source_that_one_node_of_many_has_is_missed_on_no_other() -> None:
    nodes = [f"gpu-{number}" for number in range(1, 13)]
    assert silent_sources({"raw.metrics": _metrics("gpu-3", 30)}, nodes[:4], nodes, NOW) == ()


def test_nodes_that_are_asked_about_are_compared_with_each_other_too() -> None:
    nodes = ["gpu-1", "gpu-2", "gpu-3"]
    records = {"raw.metrics": [*_metrics("gpu-2", 30), *_metrics("gpu-3", 30)]}
    (silent,) = silent_sources(records, nodes, nodes, NOW)
    assert str(silent) == "no DCGM metrics from gpu-1 at all, though 2 of 2 others have it"
