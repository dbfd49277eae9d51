import re
import threading
from collections.abc import Iterable

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families as prometheus

from faultline.runtime.processes import PROCESSES
from streams.model.kinds import SignalKind
from streams.telemetry import metrics as shown
from streams.telemetry.registry import LONGEST_VALUE, OTHER, PREFIX, Family, Label, Metrics

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def openmetrics(text: str) -> Iterable[Metric]:
    found: Iterable[Metric] = openmetrics_parser.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    return found


def exposed(metrics: Metrics, accept: str = "") -> str:
    return metrics.exposition(accept)[0].decode()


@pytest.mark.parametrize("process", sorted(PROCESSES))
def test_every_process_is_readable_in_both_formats(process: str) -> None:
    metrics = Metrics(process).with_process()
    metrics.set(shown.BUILD_INFO, 1, "1.2.3", process)
    plain = {family.name for family in prometheus(exposed(metrics))}
    open_ = {family.name for family in openmetrics(exposed(metrics, OPENMETRICS))}
    assert plain == open_
    assert {"faultline_build_info", "faultline_ready", "process_resident_memory_bytes"} <= plain


def test_the_accept_header_chooses_the_format() -> None:
    metrics = Metrics("detector")
    body, content_type = metrics.exposition(OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
    body, content_type = metrics.exposition("text/html,*/*")
    assert content_type.startswith("text/plain; version=0.0.4")
    assert b"# EOF" not in body


def test_names_and_units_follow_the_convention() -> None:
    names = [family.exposed for family in shown.FAMILIES]
    assert len(set(names)) == len(names)
    for family in shown.FAMILIES:
        assert re.fullmatch(r"faultline_[a-z]+(_[a-z]+)*", family.exposed), family.exposed
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket", "_ms", "_millis")), (
            family.name
        )
        assert family.help.endswith("."), family.name
        assert (family.kind == "histogram") == bool(family.buckets), family.name
        assert family.kind != "histogram" or family.name.endswith("_seconds"), family.name
        assert family.processes <= set(PROCESSES), family.name
        for label in family.labels:
            assert bool(label.values) != bool(label.most), f"{family.name}: {label.name} has no bound"
            assert label.name not in ("node", "pod", "job", "incident", "user", "cluster", "le"), family.name


def test_a_histogram_and_all_other_families_have_names_of_their_own() -> None:
    """A gauge and a counter of one name would be one family with two types, which OpenMetrics forbids."""
    assert len({family.name for family in shown.FAMILIES}) == len(shown.FAMILIES)


def test_ten_thousand_hostile_label_values_make_one_series() -> None:
    metrics = Metrics("detector")
    for number in range(10_000):
        metrics.add(shown.SIGNALS, 1, f"gpu.xid\n{number}")
        metrics.add(shown.UNKNOWN_CODES, 1, str(number))
    assert metrics.value(shown.SIGNALS, OTHER) == metrics.value(shown.UNKNOWN_CODES, OTHER) == 10_000
    lines = [line for line in exposed(metrics).splitlines() if line.startswith("faultline_signals_total")]
    assert len(lines) == len(SignalKind) + 1


def test_labels_without_a_table_take_so_many_values_and_no_more() -> None:
    metrics = Metrics("detector")
    metrics.set(shown.SHIPPER_LAST_RECORD, 5, "raw.node-logs")
    for number in range(10_000):
        metrics.set(shown.SHIPPER_LAST_RECORD, number, f"topic-{number}")
    metrics.set(shown.SHIPPER_LAST_RECORD, 7, "raw.node-logs")
    lines = [
        line for line in exposed(metrics).splitlines() if line.startswith("faultline_shipper_last_record")
    ]
    assert len(lines) == shown.SHIPPER_LAST_RECORD.labels[0].most + 1
    assert metrics.value(shown.SHIPPER_LAST_RECORD, "raw.node-logs") == 7
    assert metrics.value(shown.SHIPPER_LAST_RECORD, OTHER) == 9_999


def test_a_value_of_any_length_or_content_keeps_the_exposition_readable() -> None:
    metrics = Metrics("notifier")
    metrics.set(shown.SINK_BACKLOG, 1, 'a"b\\c\nd')
    metrics.set(shown.SINK_BACKLOG, 2, "x" * (LONGEST_VALUE + 1))
    found = {
        sample.labels["sink"]: sample.value
        for family in prometheus(exposed(metrics))
        for sample in family.samples
        if sample.name == "faultline_sink_backlog"
    }
    assert found == {'a"b\\c\nd': 1.0, OTHER: 2.0}


def test_all_label_values_at_once_are_bounded_for_every_process() -> None:
    """What one process can expose at the very most, every bucket included: a small Prometheus takes a hundred times that."""
    for process in PROCESSES:
        most = sum(
            family.most_series * (len(family.buckets) + 3 if family.buckets else 1)
            for family in shown.FAMILIES
            if (not family.processes or process in family.processes)
            # Bounded by the topics a process reads and the partitions that `kafka.*_partitions` gives them.
            and not {"partition", "loop"} & {label.name for label in family.labels}
        )
        assert most < 6_000, process


def test_two_processes_in_one_interpreter_share_nothing() -> None:
    one, other = Metrics("detector"), Metrics("detector")
    one.add(shown.SIGNALS, 3, "gpu.xid")
    assert (one.value(shown.SIGNALS, "gpu.xid"), other.value(shown.SIGNALS, "gpu.xid")) == (3, 0)


def test_a_process_shows_only_what_it_has() -> None:
    metrics = Metrics("chat")
    metrics.add(shown.SIGNALS, 1, "gpu.xid")
    assert "faultline_signals" not in exposed(metrics)
    assert "faultline_sink_backlog" in exposed(metrics)


def test_series_of_a_table_are_there_before_the_first_of_them_is_counted() -> None:
    """`increase()` of a series that appears with its first event is 0."""
    assert 'faultline_dead_letters_total{reason="unreadable"' not in exposed(Metrics("inventory"))
    assert 'faultline_signals_total{kind="gpu.xid"} 0.0' in exposed(Metrics("detector"))
    assert 'faultline_mode{mode="shadow"} 0.0' in exposed(Metrics("responder"))


def test_series_of_two_tables_are_there_too_and_the_first_dead_letters_are_an_increase() -> None:
    detector = Metrics("detector")
    before = exposed(detector)
    assert 'faultline_dead_letters_total{reason="unreadable",stage="detector"} 0.0' in before
    assert "faultline_records_total{" not in before, "topics are no table"


def test_an_action_that_was_confirmed_has_its_other_outcomes_at_zero() -> None:
    """Its first unknown outcome would be no increase otherwise, and FaultlineEffectsUnknown would stay silent."""
    responder = Metrics("responder")
    responder.add(shown.EFFECTS, 1.0, "cordon", "confirmed")
    text = exposed(responder)
    assert 'faultline_effects_total{action="cordon",outcome="confirmed"} 1.0' in text
    assert 'faultline_effects_total{action="cordon",outcome="unknown"} 0.0' in text
    assert 'action="drain"' not in text
    responder.add(shown.EFFECTS, 1.0, "cordon", "unknown")
    assert responder.value(shown.EFFECTS, "cordon", "unknown") == 1.0
    assert responder.value(shown.EFFECTS, "cordon", "confirmed") == 1.0


def test_what_can_be_counted_is_shown_at_zero_once_it_is_known() -> None:
    responder = Metrics("responder")
    for family in (shown.EFFECTS, shown.EFFECT_DELAY, shown.SIGNALS):
        responder.begin(family, "cordon_node")
    text = exposed(responder)
    for outcome in shown.EFFECT_OUTCOMES:
        assert f'faultline_effects_total{{action="cordon_node",outcome="{outcome}"}} 0.0' in text
    assert 'faultline_effect_delay_seconds_count{action="cordon_node"} 0.0' in text
    assert "faultline_signals_total" not in text, "a responder has none"


def test_what_is_shown_at_zero_has_the_bounds_of_its_labels_and_takes_nothing_back() -> None:
    responder = Metrics("responder")
    responder.add(shown.EFFECTS, 1.0, "cordon_node", "confirmed")
    for number in range(10_000):
        responder.begin(shown.EFFECTS, f"action-{number}")
    responder.begin(shown.EFFECTS, "cordon_node")
    assert responder.value(shown.EFFECTS, "cordon_node", "confirmed") == 1.0
    lines = [line for line in exposed(responder).splitlines() if line.startswith("faultline_effects_total{")]
    assert len(lines) == (shown.EFFECTS.labels[0].most + 1) * len(shown.EFFECT_OUTCOMES)


def test_a_histogram_counts_what_is_observed_and_no_negative_times() -> None:
    metrics = Metrics("detector")
    for seconds in (-5.0, 0.004, 0.02, 7200.0):
        metrics.observe(shown.SIGNAL_DELAY, seconds)
    found = {
        (sample.name.removeprefix(PREFIX + "signal_delay_seconds"), sample.labels.get("le")): sample.value
        for family in openmetrics(exposed(metrics, OPENMETRICS))
        if family.name == "faultline_signal_delay_seconds"
        for sample in family.samples
    }
    assert found["_bucket", "0.005"] == 2
    assert found["_bucket", "0.02"] == 3  # a bound belongs to its own bucket
    assert found["_bucket", "3600.0"] == 3
    assert found["_bucket", "+Inf"] == found["_count", None] == 4
    assert found["_sum", None] == pytest.approx(7200.024)


def test_an_exemplar_leads_from_a_bucket_to_a_trace() -> None:
    metrics = Metrics("detector")
    metrics.observe(shown.SIGNAL_DELAY, 0.03, trace_id="0af7651916cd43dd8448eb211c80319c")
    assert '# {trace_id="0af7651916cd43dd8448eb211c80319c"} 0.03' in exposed(metrics, OPENMETRICS)
    assert "trace_id" not in exposed(metrics)


def test_what_stands_no_longer_goes_to_zero_and_stays() -> None:
    metrics = Metrics("correlator")
    metrics.replace(shown.INCIDENTS, {("open", "gpu_fault"): 2})
    metrics.replace(shown.INCIDENTS, {("open", "hang"): 1})
    assert 'faultline_incidents{family="gpu_fault",state="open"} 0.0' in exposed(metrics)
    assert metrics.value(shown.INCIDENTS, "open", "hang") == 1


def test_one_reading_that_fails_does_not_fail_the_scrape() -> None:
    metrics = Metrics("detector")

    def broken() -> dict[tuple[str, ...], float]:
        raise RuntimeError("changed during iteration")

    metrics.read_at_scrape(shown.STALLED, broken)
    metrics.read_at_scrape(shown.READY, lambda: {(): 1.0})
    assert "faultline_ready 1.0" in exposed(metrics)


def test_a_family_is_given_exactly_its_labels() -> None:
    metrics = Metrics("detector", (*shown.FAMILIES, Family("odd", "gauge", "Odd.", (Label("x", most=1),))))
    with pytest.raises(ValueError, match="faultline_signals_total has the labels"):
        metrics.add(shown.SIGNALS, 1, "gpu.xid", "more")


def test_scrapes_beside_counting_see_every_series_whole() -> None:
    metrics = Metrics("detector")
    stop, failures = threading.Event(), list[Exception]()

    def scrape() -> None:
        while not stop.is_set():
            try:
                list(openmetrics(exposed(metrics, OPENMETRICS)))
            except Exception as error:  # noqa: BLE001 - whatever it is, the test fails with it
                failures.append(error)
                return

    scraping = threading.Thread(target=scrape)
    scraping.start()
    for number in range(20_000):
        metrics.observe(shown.SIGNAL_DELAY, number % 7)
        metrics.set(shown.SHIPPER_LAST_RECORD, number, f"topic-{number % 50}")
    stop.set()
    scraping.join()
    assert not failures


async def test_a_look_that_fails_ends_nothing_and_keeps_no_other_from_being_taken() -> None:
    metrics, looked = Metrics("detector"), list[str]()

    async def broken() -> None:
        raise RuntimeError("the client was closed meanwhile")

    async def whole() -> None:
        looked.append("whole")

    metrics.watch(broken)
    metrics.watch(whole)
    await metrics.look_around()
    assert looked == ["whole"]


def test_the_first_observation_is_an_increase() -> None:
    """A series that begins with its first observation has not increased, so no rate and no objective counts that one."""
    correlator = Metrics("correlator")
    families = shown.INCIDENT_DELAY.labels[0].values
    empty = [f'faultline_incident_delay_seconds_count{{family="{one}"}} 0.0' for one in families]
    assert families
    assert set(empty) <= set(exposed(correlator).splitlines())
