"""What `guard status` says is used is what the guardrails count."""

from __future__ import annotations

from dataclasses import replace

from runbooks.engine.guardrails.limits import limit_usage
from streams.config.settings import BlastRadius, Cap
from streams.model.facts import NodeFact
from streams.model.run import Mode
from tests.runbooks.scenes import CLUSTER, NOW, Play, at, cluster, incident, policy

NODE = "node-03"


def test_an_idle_cluster_uses_nothing() -> None:
    used = limit_usage(cluster(), (), policy(), NOW)
    assert [(b.used, b.allowed) for b in used] == [(0, 2), (0, 6)]


def test_a_run_that_acts_uses_what_it_was_let_in_with_and_one_in_shadow_nothing() -> None:
    play = Play(incident())
    play.play(until="suspend_job")
    closed, steps = limit_usage(play.view, [play.run], play.settings, at(5))
    assert (closed.used, closed.detail) == (1, NODE)
    assert steps.used == sum(step.destructive for step in play.run.plan.steps)
    assert "expires at" in steps.detail
    would = Play(incident(), settings=policy(mode=Mode.SHADOW))
    would.tick()
    assert [b.used for b in limit_usage(would.view, [would.run], would.settings, at(5))] == [0, 0]


def test_a_place_with_a_cap_is_told_once_something_in_it_is_closed() -> None:
    view = cluster()
    for name, fact in list(view.nodes.items()):
        view.put(replace(fact, pool="a100", leaf=f"leaf-{name[-1]}"))
    caps = policy(blast_radius=BlastRadius(per_pool=Cap(max_nodes=2), per_leaf=Cap(max_share=0.5)))
    assert len(limit_usage(view, (), caps, NOW)) == 2
    view.put(
        NodeFact(
            CLUSTER, NODE, "uid-3", NOW, gpus=8, pool="a100", leaf="leaf-3",
            unschedulable=True, owner_incident="inc-1", taints=("faultline.dev/incident=inc-1:NoSchedule",),
        )
    )  # fmt: skip
    places = [(b.name, b.used, b.allowed) for b in limit_usage(view, (), caps, NOW)[2:]]
    assert places == [("nodes closed in pool a100", 1, 2), ("nodes closed in leaf leaf-3", 1, 1)]
