"""A switch of one rail loses packets, and nobody knows which NIC hangs where: NICs of one name show it, the others do not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streams.model.incident import Certainty, IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.test_resending_hosts import (
    JOBS,
    NODES,
    bare,
    facts,
    given_up,
    hangs,
    seen,
    shows,
    slow,
)
from tests.streams.correlate.world import job, port

LLAMA = JOBS["llama"]
RAIL = "part/rail/mlx5_2"


def lose(
    nodes: Sequence[str] = LLAMA, seconds: float = 0, device: str = "mlx5_2", **more: object
) -> list[Signal]:
    return shows(nodes, seconds, device=device, **{"count_per_minute": 9000, **more})  # type: ignore[arg-type]


SUFFERS = {
    "all ranks wait": [*lose(), *hangs()],
    "connections fail": [
        *lose(), given_up("llama", "n01", "n09", 900, "mlx5_2"), given_up("llama", "n10", "n02", 901, "mlx5_2"),
    ],
    "queue pairs run out of time": [*lose(subtype="retransmits"), *hangs()],
    "one of its nodes shows nothing": [*lose(LLAMA[:7]), *hangs()],
    "a node shows it on another NIC as well": [*lose(), *lose(LLAMA[:1], 30, "mlx5_5"), *hangs()],
    "a node of another job does, too": [*lose(), *lose(["n14"], 40, "mlx5_5"), *hangs()],
    "the first NIC of hosts whose others are known": [*lose(device="mlx5_0"), *lose(LLAMA[:1], -5000, "mlx5_3"), *hangs()],
}  # fmt: skip


@pytest.mark.parametrize("how", SUFFERS)
def test_a_job_whose_nodes_lose_packets_on_one_rail_is_the_victim_of_its_switch(how: str) -> None:
    incident = seen(SUFFERS[how], facts(bare)).only()
    nic = "mlx5_0" if "first NIC" in how else "mlx5_2"
    assert (incident.family, incident.root.key) == ("fabric_fault", f"part/rail/{nic}")
    assert (incident.certainty, incident.jobs) == (Certainty.LIKELY, (job("llama"),))
    assert "the switch of that rail" in incident.reason


def test_a_job_that_is_only_slower_is_affected_and_not_stopped() -> None:
    incident = seen([*lose(), slow()], facts(bare)).only()
    assert (incident.root.key, incident.jobs, incident.impact.gpus) == (RAIL, (job("llama"),), 0)


def test_jobs_of_which_half_the_nodes_lose_packets_are_victims_together() -> None:
    signals = [*lose([*LLAMA[:5], *JOBS["qwen"][:5]]), *hangs(), slow("qwen")]
    incident = seen(signals, facts(bare)).only()
    assert (incident.root.key, incident.jobs) == (RAIL, (job("llama"), job("qwen")))


def test_it_is_over_when_most_of_its_nodes_are_quiet() -> None:
    incident = seen([*lose(), *hangs(), *lose(LLAMA, 1500, cleared=True)], facts(bare)).only()
    assert incident.state is IncidentState.RESOLVED


NOT_THE_RAIL = {
    "one node loses most by far": [
        *lose(LLAMA[1:], count_per_minute=400), *lose(LLAMA[:1], count_per_minute=9000), *hangs(),
    ],
    "their other NICs do as well": [*lose(), *lose(LLAMA[:4], 10, "mlx5_3"), *hangs()],
    "nodes of other jobs do as well": [*lose(), *lose(JOBS["phi"][:4], 20, "mlx5_5"), *hangs()],
    "half of its nodes": [*lose(LLAMA[:4]), *hangs()],
    "three nodes": [*lose(JOBS["gemma"][:3]), *hangs("gemma")],
    "only congestion": [*lose(subtype="congestion"), *hangs()],
    "one after the other": [*(s for i, n in enumerate(LLAMA) for s in lose([n], -7200 + 900 * i)), *hangs()],
    "the first NIC, and no others are known": [*lose(device="mlx5_0"), *hangs()],
}  # fmt: skip


@pytest.mark.parametrize("why", NOT_THE_RAIL)
def test_it_is_not_the_rail_where(why: str) -> None:
    found = seen(NOT_THE_RAIL[why], facts(bare)).incidents()
    assert found
    assert all(i.root.key.startswith("job/") for i in found)


def test_nobody_is_called_as_long_as_no_job_suffers() -> None:
    assert not seen(lose(), facts(bare)).incidents()


@pytest.mark.parametrize("suffers", [hangs(), [slow()]], ids=["hangs", "is slow"])
def test_a_switch_whose_counters_show_it_is_named_and_not_the_rail(suffers: list[Signal]) -> None:
    drops = [
        port("leaf-9", f"Ethernet{i}", 0.1 * i, subtype="drops", counter="out-discards") for i in range(20)
    ]
    incident = seen([*drops, *lose(), *suffers], facts(bare)).only()
    assert incident.root.key == "switch/leaf-9"


def test_a_known_leaf_is_named_and_not_its_rail() -> None:
    under = [*NODES[:4], *NODES[4:8]]
    incident = seen([*lose(under), *hangs()]).only()
    assert incident.root.key == "switch/leaf-0"
