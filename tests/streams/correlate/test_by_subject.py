"""What no row knows and only its nouns name is no cause of anything, whatever its kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from streams.correlate.policy.families import families
from streams.correlate.sightings import sighting
from streams.model.entity import Entity
from streams.model.kinds import SignalKind
from streams.model.signal import BY_SUBJECT, Severity, Signal
from tests.streams.correlate.world import (
    CLUSTER,
    World,
    checkpoint,
    cluster,
    failed,
    link,
    nccl_error,
    not_ready,
    off_bus,
    port,
    sign,
    storm,
    timeouts,
)

NODES = [f"n{number:02d}" for number in range(40)]


def marked(signal: Signal) -> Signal:
    """The signal as it would be if no row had known its line."""
    return replace(signal, attributes={**signal.attributes, BY_SUBJECT: "error"}, severity=Severity.CRITICAL)


def world() -> World:
    return World([*cluster({"llama": NODES[:8]}, spare=NODES), link("leaf-1", "Ethernet4", "n01", "mlx5_0")])


def of_every_rule(second: float) -> Iterator[Signal]:
    """From a second on, each kind and subtype that the table of families asks for, on nodes, GPUs, switches and ports."""
    for rule in families().signals:
        for kind in rule.kinds:
            for subtype in (*sorted(rule.subtypes), ""):
                second += 0.2
                node = NODES[int(second * 5) % len(NODES)]
                where: dict[str, Any] = {
                    name: values[0] if values else "there" for name, values in rule.where.items()
                }
                yield sign(kind, node, second, subtype, index=1, **where)
                yield sign(kind, node, second, subtype, **where)
                for place in (
                    Entity(CLUSTER, switch="leaf-1"),
                    Entity(CLUSTER, switch="leaf-1", port="Ethernet4"),
                ):
                    yield replace(sign(kind, node, second, subtype, **where), entity=place)


def told_firmly() -> list[Signal]:
    """What opens incidents by rules that ask no table."""
    return [
        *timeouts("llama", range(31), 600),
        *(nccl_error("llama", rank, 620) for rank in range(32)),
        *(not_ready(node, 300) for node in NODES),
        *(off_bus(node, 320, 1) for node in NODES),
        *(storm("leaf-1", "Ethernet4", 330 + step) for step in range(4)),
        *(port("leaf-1", "Ethernet4", 340 + step) for step in range(4)),
        *(failed("llama", pod, 350) for pod in range(8)),
        *(checkpoint("llama", 360 + step, step) for step in range(4)),
        *(sign("node.power", node, 370, "psu") for node in NODES),
        *(sign("fabric.link", "n01", 380, subtype) for subtype in ("switch_reload", "switch_failing")),
    ]


def test_a_storm_of_them_on_all_nodes_opens_nothing() -> None:
    waves = [of_every_rule(900 + 7.1 * wave) for wave in range(5)]
    signals = [marked(one) for one in (*told_firmly(), *chain.from_iterable(waves))]
    assert len({one.id for one in signals}) >= 2_000
    tried = world()
    tried.see(*signals)
    tried.pass_to(1_800, step=30)
    assert not tried.published


def test_the_same_signals_without_the_mark_open_incidents() -> None:
    tried = world()
    tried.see(*told_firmly())
    tried.pass_to(1_800, step=30)
    assert len(tried.published) > 3


@pytest.mark.parametrize("subtype", ["resolver_crash", "driver_rollout", "switch_failing", "psu"])
def test_neither_kind_nor_subtype_is_what_a_rule_may_ask_for(subtype: str) -> None:
    seen = sighting(marked(sign("node.power", "n01", 0, subtype)))
    assert seen is not None
    assert (seen.kind, seen.text("subtype"), seen.text("about")) == (
        SignalKind.UNKNOWN,
        "",
        f"node.power {subtype}",
    )
    assert families().role(seen) == "context"
    assert f"node.power {subtype}" in families().says(seen)
