"""One line of Slurm's controller speaks of many nodes."""

from __future__ import annotations

import pytest

from streams.detect.slurm import MAX_NODES, hosts_in
from tests.streams.detect.lines import signals

DOWN = "[2026-11-21T07:13:13.101] error: Nodes {} not responding, setting DOWN"


@pytest.mark.parametrize(
    ("hostlist", "hosts"),
    [
        ("gpu-1", ["gpu-1"]),
        ("gpu-[08-10]", ["gpu-08", "gpu-09", "gpu-10"]),
        ("a[1,3-4]-ib,login1", ["a1-ib", "a3-ib", "a4-ib", "login1"]),
    ],
)
def test_a_host_list_is_its_hosts(hostlist: str, hosts: list[str]) -> None:
    assert list(hosts_in(hostlist)) == hosts


def test_each_node_of_the_list_has_its_signal_and_the_controller_none() -> None:
    found = signals(
        "Nov 21 07:13:13 ctl-1 slurmctld[7]: error: Nodes gpu-[017-018] not responding, setting DOWN"
    )
    assert [signal.entity.node for signal in found] == ["gpu-017", "gpu-018"]
    assert all("nodes" not in signal.attributes for signal in found)


def test_a_list_without_end_is_cut() -> None:
    assert len(signals(DOWN.format("gpu-[0-999999999]"))) == MAX_NODES
