"""Entries of management controllers' logs, by the samples of `catalog/sel.yaml`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from streams.detect import Detector
from streams.detect.sel import SelSample, sheet
from tests.streams.detect.lines import record, signals


@pytest.mark.parametrize("sample", sheet().samples, ids=lambda sample: sample.text[:60])
def test_an_entry_is_read_in_any_layout(sample: SelSample) -> None:
    (signal,) = signals(sample.text)
    assert (signal.kind, signal.state) == (sample.kind, sample.state)
    assert {name: signal.attributes.get(name) for name in sample.expect} == sample.expect


@pytest.mark.parametrize("text", sheet().look_alikes, ids=lambda text: text[:60])
def test_an_entry_of_no_fault_raises_nothing(text: str) -> None:
    assert not signals(text)


def test_an_entry_is_dated_by_its_own_clock_unless_that_was_never_set() -> None:
    row = "1 | {} | 07:13:13 | Power Supply #0x51 | Failure detected () | Asserted"
    (signal,) = signals(row.format("11/21/2026"))
    assert signal.occurred_at == datetime(2026, 11, 21, 7, 13, 13, tzinfo=UTC)
    (unset,) = signals(row.format("13/45/1970"))
    assert unset.occurred_at == unset.observed_at


POWER_SUPPLY = {"@odata.type": "#PowerSupply.v1_5_0.PowerSupply", "Id": "PSU_9", "Name": "Power Supply 9"}


@pytest.mark.parametrize(
    ("resource", "kinds"),
    [
        (POWER_SUPPLY | {"Status": {"State": "Enabled", "Health": "Critical"}}, ["node.power"]),
        (POWER_SUPPLY | {"Status": {"State": "Absent", "Health": "Critical"}}, []),
        (POWER_SUPPLY | {"Status": {"State": "Enabled", "Health": "OK"}}, []),
        (POWER_SUPPLY | {"Status": "Critical"}, []),
        (
            {
                "@odata.type": "#Thermal.v1_6_0.Thermal",
                "Name": "Thermal",
                "Fans": [
                    {"Name": "Fan 9A", "Status": {"State": "Enabled", "Health": "Critical"}},
                    {"Name": "Fan 9B", "Status": {"State": "Enabled", "Health": "OK"}},
                ],
            },
            ["node.thermal"],
        ),
        (
            {
                "@odata.type": "#LeakDetector.v1_0_1.LeakDetector",
                "Name": "Tray 9",
                "DetectorState": "Critical",
            }
            | {"Status": {"State": "Enabled", "Health": "Critical"}},
            ["node.thermal"],
        ),
        (
            {"@odata.type": "#Chassis.v1_22_0.Chassis", "Name": "Chassis"}
            | {"Status": {"State": "Enabled", "Health": "Critical"}},
            [],
        ),
    ],
    ids=["failed", "absent", "well", "no status", "a list", "a leak", "a sum of others"],
)
def test_a_part_that_was_polled_and_is_critical_is_an_entry(
    resource: dict[str, Any], kinds: list[str]
) -> None:
    found = Detector("c1").detect(record(orjson.dumps(resource), topic="raw.metrics", key=b"bmc-7")).signals
    assert [signal.kind for signal in found] == kinds


def test_what_a_controller_says_under_its_own_name_is_its_hosts_and_says_so() -> None:
    line = "{} ipmievd: Processor 1 IERR asserted (CPU1, IERR)"
    ((own,), (of_host,)) = (
        signals(f"Nov 21 07:13:13 {line.format(name)}") for name in ("gpu-7-ilo", "gpu-7")
    )
    assert (own.entity.node, own.attributes["controller"]) == ("gpu-7", "gpu-7-ilo")
    assert (of_host.entity.node, "controller" in of_host.attributes) == ("gpu-7", False)
