"""Samples as text: InfluxDB line protocol and Prometheus' exposition format, and logs that look like either."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.detect import Detector
from streams.ingest import Opened, RecordContext, open_record
from streams.model.record import LogLine, Sample
from tests.effort import tries
from tests.streams.detect.lines import record

NOW = datetime(2026, 11, 21, 7, 13, 20, tzinfo=UTC)
AT = datetime(2026, 11, 21, 7, 13, 15, tzinfo=UTC)
SECONDS = int(AT.timestamp())
NANOS = SECONDS * 10**9
OUTSIDE = RecordContext(NOW, "from-key")


def opened(text: str) -> Opened:
    return open_record(text.encode(), OUTSIDE)


def samples(text: str) -> list[Any]:
    result = opened(text)
    assert not result.unreadable
    assert all(isinstance(one, Sample) for one in result.observations)
    return list(result.observations)


def values(text: str) -> list[tuple[str, float]]:
    return [(one.name, one.value) for one in samples(text)]


def test_each_field_of_each_line_is_a_sample() -> None:
    found = samples(
        f"ethtool,driver=mlx5_core,host=n1,interface=eth2 rx_prio3_pause=12i,tx_prio3_pause_duration=7u {NANOS}\n"
        f"DCGM_FI_DEV_GPU_TEMP,gpu=0,UUID=GPU-1,host=n1 gauge=61.5 {NANOS}\n"
    )
    assert [(one.name, one.value) for one in found] == [
        ("rx_prio3_pause", 12.0),
        ("tx_prio3_pause_duration", 7.0),
        ("DCGM_FI_DEV_GPU_TEMP", 61.5),
    ]
    assert {one.node for one in found} == {"n1"}
    assert {one.at for one in found} == {AT}
    assert found[0].labels == {"driver": "mlx5_core", "host": "n1", "interface": "eth2"}


@pytest.mark.parametrize("digits", [10, 13, 16, 19])
def test_a_time_is_read_in_whatever_unit_it_is(digits: int) -> None:
    assert samples(f"m,host=n1 v=1 {str(NANOS)[:digits]}")[0].at == AT


def test_a_line_without_a_time_has_none() -> None:
    assert samples("m,host=n1 v=1")[0].at is None


def test_escapes_are_undone_in_names_tags_and_texts() -> None:
    line = (
        r'my\ metric,model=NVIDIA\ H100\ 80GB,a\,b=c\=d,host=n1 le\ vel=3,note="he said \"x=1, y 2\"",on=t '
        + str(NANOS)
    )
    (found,) = samples(line)
    assert (found.name, found.value) == ("le vel", 3.0)
    assert found.labels == {"model": "NVIDIA H100 80GB", "a,b": "c=d", "host": "n1"}


def test_numbers_are_read_in_every_form_and_texts_are_no_samples() -> None:
    line = f'm,host=n1 a=-1i,b=1.5e3,c=.5,d=7u,e=true,f=F,g="text",h=+2 {NANOS}'
    assert values(line) == [("a", -1.0), ("b", 1500.0), ("c", 0.5), ("d", 7.0), ("h", 2.0)]


def test_a_syslog_line_is_a_line_of_the_switch_and_may_hold_line_feeds() -> None:
    line = (
        "syslog,appname=swss#orchagent,facility=local0,host=telegraf-7,hostname=leaf-2,severity=notice "
        'facility_code=16i,message="first, \\"quoted\\"\nsecond",severity_code=5i '
        f"{NANOS}\nm,host=n1 v=1 {NANOS}"
    )
    one, two, last = opened(line).observations
    assert isinstance(one, LogLine)
    assert isinstance(two, LogLine)
    assert isinstance(last, Sample)
    assert (one.text, one.node, one.source, two.text) == (
        'first, "quoted"',
        "leaf-2",
        "swss#orchagent",
        "second",
    )


def test_a_damaged_line_among_others_is_told_and_the_others_are_read() -> None:
    result = opened(f"m,host=n1 v=1 {NANOS}\nm,host=n1 v= \nm,host=n1 v=2 {NANOS}\n")
    assert [one.value for one in result.observations if isinstance(one, Sample)] == [1.0, 2.0]
    assert result.unreadable == ["not line protocol: 'm,host=n1 v='"]


SCRAPE = """\
# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{gpu="3",UUID="GPU-1",pci_bus_id="00000000:1B:00.0",Hostname="n1",err_msg="a \\"b\\", {c}\\n"} 79
# TYPE node_load1 gauge
node_load1 0.5
go_info{version="go1.22"} NaN
big{le="+Inf"} 1.5e+10 %d
"""


def test_a_scrape_is_its_samples() -> None:
    found = samples(SCRAPE % (SECONDS * 1000))
    assert [one.name for one in found] == ["DCGM_FI_DEV_XID_ERRORS", "node_load1", "go_info", "big"]
    assert (found[0].value, found[0].node, found[0].at) == (79.0, "n1", None)
    assert found[0].labels["err_msg"] == 'a "b", {c}\n'
    assert (found[1].value, found[1].labels) == (0.5, {})
    assert found[2].value != found[2].value
    assert (found[3].value, found[3].at, found[3].labels) == (1.5e10, AT, {"le": "+Inf"})


def test_openmetrics_has_exemplars_seconds_and_an_end() -> None:
    found = samples(
        f'# TYPE x counter\nx_total{{a="1"}} 17 {SECONDS}.000 # {{trace_id="ab c"}} 0.67 {SECONDS}.0\n# EOF\n'
    )
    assert [(one.name, one.value, one.at) for one in found] == [("x_total", 17.0, AT)]


def test_one_bare_series_is_a_scrape_when_it_has_labels() -> None:
    assert values('DCGM_FI_DEV_XID_ERRORS{gpu="3"} 79\n') == [("DCGM_FI_DEV_XID_ERRORS", 79.0)]


def test_a_scrape_that_was_cut_says_so() -> None:
    result = opened('a{b="1"} 1\n' * 30 + 'a{b="1')
    assert len(result.observations) == 30
    assert result.unreadable == ["not a line of a scrape: 'a{b=\"1'"]


@pytest.mark.parametrize(
    "text",
    [
        "Nov 21 07:13:15 n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "level=info msg=done count=3",
        "step=12 loss=2.5",
        "step 12, loss=2.5",
        "done took=3ms 12",
        "loss value=2.5 12",
        "node_load1 0.5",
        '{"not": "json',
        "DCGM_FI_DEV_XID_ERRORS{gpu=3} went to 79 last night",
        'Our alert was DCGM_FI_DEV_XID_ERRORS{gpu="3"} 79',
        'what is this?\nDCGM_FI_DEV_XID_ERRORS{gpu="3"} 79',
        "# a comment of a configuration file\nnode_load1 0.5",
        "# HELP\nwrites the help",
        "iteration 12, time=3.5",
        "gpu,3 fell off",
    ],
)
def test_a_log_is_no_list_of_samples(text: str) -> None:
    result = opened(text)
    assert not any(isinstance(one, Sample) for one in result.observations)


NAMES = st.from_regex(re.compile(r"[a-z_][a-z0-9_]{0,9}", re.ASCII), fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)


def escaped(text: str) -> str:
    return re.sub(r"([,= \\])", r"\\\1", text)


@settings(max_examples=tries(100))
@given(
    NAMES,
    st.dictionaries(NAMES, TEXTS.filter(lambda text: "\\" not in text), max_size=4),
    st.dictionaries(
        NAMES.filter(lambda n: n != "message"), st.floats(allow_nan=False, allow_infinity=False), min_size=1
    ),
)
def test_metrics_written_as_line_protocol_are_read_again(
    name: str, tags: dict[str, str], fields: dict[str, float]
) -> None:
    tags = {key: value for key, value in tags.items() if key not in ("source", "path", "agent_host")}
    head = "".join([name, *(f",{key}={escaped(value)}" for key, value in tags.items())])
    found = samples(f"{head} {','.join(f'{key}={value!r}' for key, value in fields.items())} {NANOS}\n")
    unnamed = {"gauge", "counter", "value", "untyped"}
    assert [(one.name, one.value) for one in found] == [
        (name if key in unnamed else key, value) for key, value in fields.items()
    ]
    assert all(one.labels == tags for one in found)


@settings(max_examples=tries(100))
@given(
    st.lists(
        st.tuples(NAMES, st.dictionaries(NAMES, TEXTS, min_size=1, max_size=4), st.floats(allow_nan=False)),
        min_size=1,
        max_size=5,
    )
)
def test_series_written_as_a_scrape_are_read_again(series: list[tuple[str, dict[str, str], float]]) -> None:
    def label(name: str, value: str) -> str:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'{name}="{value}"'

    def number(value: float) -> str:
        return repr(value).replace("inf", "Inf") if value not in (float("inf"),) else "+Inf"

    text = "".join(
        f"{name}{{{','.join(label(*pair) for pair in labels.items())}}} {number(value)}\n"
        for name, labels, value in series
    )
    assert [(one.name, one.labels, one.value) for one in samples(text)] == series


@settings(max_examples=tries(300))
@given(
    st.sampled_from(
        ["m,host=n1 v=1", 'a{b="1"} 1', "# TYPE a gauge", 'm x="', "a{", "m,", "DCGM_FI_DEV_XID_ERRORS{"]
    ),
    st.text(st.sampled_from('ab1,= \\"{}#\n\r\t.+-'), max_size=60),
)
def test_any_text_that_begins_like_samples_is_read(begin: str, rest: str) -> None:
    for text in (begin + rest, rest + begin, f"{begin}\n{rest}\n{begin}"):
        assert len(opened(text).observations) <= len(text)


@pytest.mark.parametrize(
    "text",
    [
        'a{b="' + "x" * 60_000,
        "a{" + 'b="x",' * 10_000,
        "a{" + "b" * 16_000 + '="1"} 1',
        "m," + "a=b," * 15_000 + " v=1",
        "m v=" + '"x' * 20_000,
        "m,a=b " + 'v="\\' * 15_000,
        "m,a=b " + "v=1," * 16_000,
        "m" + "\\ " * 16_000,
        ("# HELP a\n" * 7000),
    ],
    ids=lambda text: text[:12],
)
def test_a_hostile_text_is_read(text: str) -> None:
    assert len(opened(text).unreadable) <= 21


def test_only_the_metrics_that_rules_read_are_opened() -> None:
    detector = Detector("c1")
    noise = "".join(f"cpu,cpu=cpu{n},host=n1 usage_idle=9.5,usage_user=0.5 {NANOS}\n" for n in range(200))
    line = f"DCGM_FI_DEV_XID_ERRORS,gpu=3,UUID=GPU-1,host=n1 gauge=%d {NANOS + 15 * 10**9}\n"
    assert detector.detect(record((noise + line % 0).encode())).observations == 1
    scrape = "".join(f'go_gc{{quantile="{n}"}} 1\n' for n in range(200)) + SCRAPE % 0
    found = detector.detect(record(scrape.encode()))
    assert (found.observations, found.dead) == (1, ())
