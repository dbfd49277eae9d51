"""Captures that somebody wrote by hand are judged like those of the simulator."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from bench.captures import judged, truth_of
from bench.verdicts import verdict
from faultline.replay import capture
from faultline.replay.replay import replay_capture
from sandbox.simulation.campaign import simulate
from sandbox.simulation.scenario import load
from sandbox.simulation.truth import TRUTH
from streams.model.errors import BadInput

SCENARIOS = Path(__file__).parents[2] / "bench/scenarios.yaml"


def test_a_simulated_capture_is_judged_the_same_from_its_files(tmp_path: Path) -> None:
    simulated = simulate(load(SCENARIOS)["gpu_off_bus"].sized(8), seed=1)
    capture.write(tmp_path, simulated.capture)
    (tmp_path / TRUTH).write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in simulated.truth.lines()))
    assert truth_of(tmp_path).faults == simulated.truth.faults
    here = verdict(simulated, replay_capture(simulated.capture), "a scenario")
    there = judged(tmp_path)
    assert (there.faults, there.top1, there.jobs) == (here.faults, here.top1, here.jobs)
    assert there.top1 > 0


def test_only_what_is_needed_must_be_there(tmp_path: Path) -> None:
    line = {
        "record": "fault",
        "id": "f1",
        "at": "2026-03-02T06:00:00Z",
        "until": "2026-03-02T07:00:00Z",
        "family": "gpu",
        "root": {"node": "n1"},
    }
    (tmp_path / TRUTH).write_bytes(orjson.dumps(line) + b"\n")
    (fault,) = truth_of(tmp_path).faults
    assert (fault.root.node, fault.may_cordon, fault.jobs) == ("n1", (), ())


@pytest.mark.parametrize("line", [b"{}", b"nonsense", b'{"record":"fault","id":"f1"}'])
def test_what_is_no_truth_is_named_with_its_line(tmp_path: Path, line: bytes) -> None:
    (tmp_path / TRUTH).write_bytes(b'{"record":"background"}\n' + line + b"\n")
    with pytest.raises(BadInput, match=r"truth\.jsonl:2"):
        truth_of(tmp_path)
