"""Parts of a storage in whose place others answer: that one is gone is a fault only where something stands still with it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from streams.model.signal import Signal
from tests.streams.correlate.world import FOUR, World, cluster, sign, timeouts

CLIENTS = [f"n{i}" for i in range(1, 9)]


def gone(
    part: str,
    names: Sequence[str],
    seconds: float = 0,
    *,
    back: float | None = None,
    hosts: Sequence[str] = (),
) -> list[Signal]:
    """What kernels of all clients say of these OSDs, monitors or metadata servers; where they name a host, one of each."""
    found = []
    for (i, node), (k, name) in product(enumerate(CLIENTS), enumerate(names)):
        more: dict[str, Any] = {part: int(name[3:]), "device": name}
        if hosts:
            more["peer"] = f"(1){hosts[k]}:680{k}"
        for at, over in ((seconds, False), (back, True)):
            if at is not None:
                found.append(sign("node.storage", node, at + 0.3 * i + 0.1 * k, "ceph", cleared=over, **more))
    return found


def told(*groups: list[Signal], until: float = 3000) -> World:
    world = World(cluster({"llama": FOUR}, spare=[*CLIENTS, *(f"n{i}" for i in range(20, 30))]))
    world.play([s for group in groups for s in group], until, None)
    return world


OSDS = ["osd7", "osd8", "osd9"]


@pytest.mark.parametrize("back", [40, 240, 1500, None], ids=str)
def test_osds_of_a_host_that_restarts_are_no_incident_while_nothing_stands_still(back: float | None) -> None:
    assert told(gone("osd", OSDS, back=back)).incidents() == []


def test_a_monitor_that_is_lost_is_no_incident() -> None:
    assert told(gone("mon", ["mon1"])).incidents() == []


def test_osds_with_which_tasks_hang_on_several_nodes_are_a_fault() -> None:
    hung = [sign("node.kernel", node, 150 + 70 * i, "hung_task") for node in CLIENTS[:3] for i in range(2)]
    incident = told(gone("osd", OSDS), hung).only()
    assert (incident.family, incident.root.key) == ("storage_fault", "storage/ceph")
    assert incident.facts.get("others_answer") is None


def test_osds_with_which_a_job_hangs_are_a_fault() -> None:
    hang = timeouts("llama", [r for r in range(32) if not 8 <= r < 16], 660)
    incident = told(gone("osd", OSDS, 30), hang).only()
    assert (incident.family, [job.name for job in incident.jobs]) == ("storage_fault", ["llama"])


def test_osds_of_more_hosts_than_there_are_replicas_are_a_fault() -> None:
    three = told(gone("osd", OSDS, hosts=["10.4.0.1", "10.4.0.2", "10.4.0.3"])).only()
    assert three.family == "storage_fault"
    assert told(gone("osd", OSDS, hosts=["10.4.0.1", "10.4.0.1", "10.4.0.2"])).incidents() == []


def test_a_metadata_server_is_told_as_ever() -> None:
    assert told(gone("mds", ["mds0"])).only().family == "storage_fault"
    assert told(gone("mds", ["mds0"]), gone("osd", OSDS)).only().family == "storage_fault"
