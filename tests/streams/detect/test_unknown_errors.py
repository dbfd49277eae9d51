"""The last resort: a machine author's own error about a place, in words that no row knows."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from streams.detect import Detector
from streams.detect.unknown_errors import sheet
from streams.model.signal import Signal
from tests.streams.detect.lines import NOW, firm, is_unknown, record, signals

FLUX = "Nov 21 07:13:13 {} kernel: NVRM: GPU 0000:{}:00.0: the flux table could not be aligned"


@pytest.mark.parametrize("sample", sheet().samples, ids=lambda sample: sample.author)
def test_an_unknown_error_of_a_known_author_is_told_with_its_place(sample: object) -> None:
    (signal,) = signals(sample.text)  # type: ignore[attr-defined]
    assert is_unknown(signal)
    assert signal.attributes["author"] == sample.author  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", sheet().look_alikes, ids=lambda text: text[:60])
def test_what_is_no_error_of_a_place_stays_silent(text: str) -> None:
    assert not firm(signals(text))


def told(*lines: tuple[str, timedelta]) -> list[Signal]:
    detector = Detector("c1")
    return [
        signal
        for number, (text, after) in enumerate(lines)
        for signal in detector.detect(record(text, at=NOW + after, offset=number)).signals
    ]


def test_the_gpu_the_nic_and_the_port_are_the_place() -> None:
    (gpu,) = signals(FLUX.format("gpu-7", "3b"))
    assert gpu.entity.gpu is not None
    assert (gpu.entity.node, gpu.entity.gpu.pci) == ("gpu-7", "0000:3b:00")
    (port,) = signals(
        "Nov 21 07:13:13.1 leaf-2 ERR syncd#syncd: :- alignQuark: quark of Ethernet12 is out of its table"
    )
    assert (port.entity.switch, port.entity.port) == ("leaf-2", "Ethernet12")


def test_an_author_is_heard_of_a_place_once_in_a_while() -> None:
    one = [(f"[{second}.1] NVRM: GPU 0000:3b:00.0: the flux table could not be aligned", timedelta(seconds=second))
           for second in (0, 1, 300, 700)]  # fmt: skip
    assert len(told(*one)) == 2


def test_an_author_is_heard_of_so_many_places_of_a_node() -> None:
    many = [(FLUX.format("gpu-7", f"{bus:02x}"), timedelta()) for bus in range(32)]
    other = (FLUX.format("gpu-8", "3b"), timedelta())
    assert [signal.entity.node for signal in told(*many, other)] == ["gpu-7"] * sheet().places_each + [
        "gpu-8"
    ]


def test_what_a_row_knows_and_leaves_out_is_not_unknown() -> None:
    repeats = (
        ("[ 99.1] nvme nvme4: failed nvme_keep_alive_end_io error=-5", timedelta()),
        ("[ 99.2] nvme nvme4: starting error recovery", timedelta()),
        ("[ 99.3] nvme nvme4: Reconnecting in 10 seconds...", timedelta()),
    )
    assert not any(is_unknown(signal) for signal in told(*repeats))


OTLP = {"key": "appname", "value": {"stringValue": "kernel"}}
FLUX_ALONE = "fluxdrv 0000:3b:00.0: the table is of another age"
BY_LEVEL: dict[str, dict[str, object]] = {
    "journald": {"PRIORITY": "3", "_TRANSPORT": "kernel", "_HOSTNAME": "gpu-7", "MESSAGE": FLUX_ALONE},
    "rsyslog": {"severity": "err", "facility": "kern", "hostname": "gpu-7", "message": FLUX_ALONE},
    "gelf": {"level": 3, "_facility": "kern", "host": "gpu-7", "short_message": FLUX_ALONE},
    "otlp": {
        "resourceLogs": [
            {
                "resource": {"attributes": [{"key": "host.name", "value": {"stringValue": "gpu-7"}}]},
                "scopeLogs": [
                    {
                        "logRecords": [
                            {"severityNumber": 17, "body": {"stringValue": FLUX_ALONE}, "attributes": [OTLP]}
                        ]
                    }
                ],
            }
        ]
    },
}


@pytest.mark.parametrize("record_of", BY_LEVEL.values(), ids=list(BY_LEVEL))
def test_what_the_kernel_calls_an_error_needs_no_words(record_of: dict[str, object]) -> None:
    (signal,) = signals(json.dumps(record_of))
    assert (is_unknown(signal), signal.entity.node) == (True, "gpu-7")


@pytest.mark.parametrize(
    "change",
    [
        {"PRIORITY": "6"},
        {"_TRANSPORT": "syslog", "SYSLOG_IDENTIFIER": "trainer"},
        {"MESSAGE": FLUX_ALONE + ", recovered"},
        {"kubernetes_pod_name": "web-1", "kubernetes_namespace_name": "team-a"},
    ],
)
def test_a_level_alone_makes_no_error_of_other_lines(change: dict[str, str]) -> None:
    assert not signals(json.dumps({**BY_LEVEL["journald"], **change}))


def test_a_daemon_is_known_by_its_shippers_word_for_it() -> None:
    entry = {
        "SYSLOG_IDENTIFIER": "ptp4l",
        "_HOSTNAME": "gpu-7",
        "PRIORITY": "4",
        "MESSAGE": "quark clock timed out",
    }
    (signal,) = signals(json.dumps(entry))
    assert signal.attributes["author"] == "clock"


def on(topic: str, text: str) -> list[Signal]:
    return list(Detector("c1").detect(record(text, topic=topic)).signals)


@pytest.mark.parametrize(
    "text",
    [
        "<187>Nov 21 07:13:13 leaf-9 Quarkd: spinner: lane et-9 of the quark is out of its table",
        "Nov 21 07:13:13 leaf-9 relay: QuarkMon: %QUARK-4-STUCK_LANE: lane 9 of Ethernet12 was found so",
        "Nov 21 07:13:13 leaf-9 QUARKMGR: %QUARK-3-LANES: Ethernet12 stands (disabled by the error of a quark)",
        '{"host": "leaf-9", "severity": "error", "msg": "[quark] lane event, device 9"}',
    ],
)
def test_an_error_on_the_fabrics_topic_is_a_devices_whatever_its_program(text: str) -> None:
    (signal,) = on("raw.fabric", text)
    assert is_unknown(signal)
    assert "leaf-9" in (signal.entity.switch, signal.entity.node)


@pytest.mark.parametrize(
    "text",
    [
        "<187>Nov 21 07:13:13 leaf-9 Aaa: %AAA-3-LOGIN_FAILED: user quark failed to login from 10.9.9.9",
        "<187>Nov 21 07:13:13 leaf-9 loginmgr[81]: error: invalid user quark from 10.9.9.9",
        "<190>Nov 21 07:13:13 leaf-9 QuarkMon: %QUARK-6-LANE: lane 9 failed over and is back",
        "<189>Nov 21 07:13:13 leaf-9 QuarkMon: %QUARK-5-LANE: lane 9 of Ethernet12 changed to up",
    ],
)
def test_logins_and_information_on_the_fabrics_topic_stay_silent(text: str) -> None:
    assert not on("raw.fabric", text)


def test_a_daemon_is_known_by_the_tag_behind_a_relays() -> None:
    line = "Nov 21 07:13:13 leaf-9 cumulus: switchd[81]: quark.c:9 ERR swp9: lane fault"
    (signal,) = on("raw.node-logs", line)
    assert is_unknown(signal)
    assert not on("raw.node-logs", line.replace("switchd", "quarkd"))


@pytest.mark.parametrize("program", ["XCC", "iLO6", "bmc", "ipmi-log"])
def test_a_controllers_name_with_a_version_is_a_controllers(program: str) -> None:
    (signal,) = on(
        "raw.alerts", f"Nov 21 07:13:13 gpu-7-bmc {program}: Processor 1 IERR asserted (CPU1, IERR)"
    )
    assert signal.attributes["subtype"] == "ierr"
    (unknown,) = on("raw.alerts", f"Nov 21 07:13:13 gpu-7-bmc {program}: Quark tray 2 fault detected")
    assert is_unknown(unknown)


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("gpu-7-bmc: Memory #0x87 | Uncorrectable ECC | CPU2_DIMM_C1 | Asserted", "gpu-7"),
        ("gpu7: SEL 0x0191 Memory #0x87 | Uncorrectable ECC | P2-DIMMB1 | Asserted", "gpu7"),
        ("gpu7: Quark tray 2 fault detected", "gpu7"),
        ("PSU1: Power Supply AC lost", "relay-1"),
        ("CPU2: IERR asserted", "relay-1"),
    ],
)
def test_a_relay_of_controllers_speaks_of_the_host_that_it_names(text: str, node: str) -> None:
    """Who polls the controllers of a hundred hosts is not ill with each of them."""
    (signal,) = on("raw.node-logs", f"<28>Nov 21 07:13:13 relay-1 ipmi-sel[81]: {text}")
    assert signal.entity.node == node
