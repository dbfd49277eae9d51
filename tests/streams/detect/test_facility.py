"""Lines of coolant units: they count at the unit, and not where somebody else prints them."""

from __future__ import annotations

import pytest

from tests.streams.detect.lines import is_unknown, signals


@pytest.mark.parametrize(
    ("line", "unit"),
    [
        ("Nov 21 07:13:13 cdu-9 loopd[7]: ALARM 4 loop flow low 31 LPM", "cdu-9"),
        ("Nov 21 07:13:13 bms-1 gw[7]: row-2 CDU-09: ALARM 4 loop flow low 31 LPM", "CDU-09"),
        ("<12>Nov 21 07:13:13 10.9.0.4 CDU-09: ALARM 4 loop flow low 31 LPM", "CDU-09"),
        ("<12>Nov 21 07:13:13 10.9.0.4 CDU-09 WARNING: loop flow 61 LPM under the minimum 75 LPM", "CDU-09"),
        ("Nov 21 07:13:13 gpu-7 agent[7]: ALARM 4 loop flow low 31 LPM on cdu-9", None),
        ("Nov 21 07:13:13 gpu-7 kernel: ALARM 4 loop flow low 31 LPM", None),
    ],
)
def test_an_alarm_is_of_the_unit_that_tells_it_or_is_named_before_it(line: str, unit: str | None) -> None:
    found = [s for s in signals(line) if s.kind == "node.thermal" and not is_unknown(s)]
    assert [s.entity.node for s in found] == ([unit] if unit else [])


def test_a_pump_that_stops_while_another_runs_is_context_and_tells_whom_the_unit_serves() -> None:
    (pump,) = signals("Nov 21 07:13:13 cdu-9 loopd[7]: FAULT 7 pump 1 drive tripped. Racks: K11-K13")
    assert (pump.severity.value, pump.attributes["serves"]) == ("info", "K11-K13")
