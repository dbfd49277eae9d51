"""What a site's own recording rules call what they make of a node's GPUs."""

from __future__ import annotations

import pytest

from streams.detect.metrics.recorded_gauges import LEAST, MOST, RecordedGauge

CLOCKS, HEAT = RecordedGauge(("sm_clock",), LEAST), RecordedGauge(("gpu_temp",), MOST)


@pytest.mark.parametrize(
    ("name", "clock", "heat"),
    [
        ("node:dcgm_sm_clock:min", True, False),
        ("instance:DCGM_FI_DEV_SM_CLOCK:avg5m", True, False),
        ("instance:nvidia_gpu_temp:max_over_time_5m", False, True),
        # Of more than a node, or what is least of what must be most.
        ("cluster:dcgm_sm_clock:min", False, False),
        ("node:dcgm_sm_clock:max", False, False),
        ("node:dcgm_gpu_temp:min", False, False),
        ("node:dcgm_sm_clock_limit:min", False, False),
        ("DCGM_FI_DEV_SM_CLOCK", False, False),
    ],
)
def test_a_recorded_name_tells_level_metric_and_operation(name: str, clock: bool, heat: bool) -> None:
    assert (CLOCKS.is_name(name), HEAT.is_name(name)) == (clock, heat)
