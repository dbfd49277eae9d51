"""A warm spare takes the place of a lost node when a job needs it, the nearest first; half a gang gets none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runbooks.engine.run.plan import plan
from runbooks.engine.spares import SPARE, choice
from streams.inventory.cluster_view import ClusterView
from streams.model.facts import PodFact
from streams.model.run import Mode
from tests.runbooks.scenes import ACTIONS, CLUSTER, JOB, LIBRARY, NOW, cluster, incident

LOST = "node-03"
TAINT = f"{SPARE}:NoSchedule"
WITH_SPARES = ACTIONS | {"release_spare", "return_spare"}


def full(*spares: str, **places: dict[str, str]) -> ClusterView:
    """A cluster in which every node that is no spare is used; `places` are changes to nodes, `node_03={"leaf": …}`."""
    view = cluster()
    for name, fact in list(view.nodes.items()):
        changed = replace(fact, taints=(TAINT,)) if name in spares else fact
        view.put(replace(changed, **places.get(name.replace("-", "_"), {})))  # type: ignore[arg-type]
        if name not in spares and not any(view.pods_on(name)):
            view.put(PodFact(CLUSTER, "others", f"busy-{name}", f"busy-{name}", NOW, node=name, gpus=8))
    return view


def chosen(view: ClusterView) -> list[tuple[str, str]]:
    return [(spare.node, spare.place) for spare in choice(LOST, (JOB,), view).spares]


def test_without_spares_nothing_is_said() -> None:
    assert choice(LOST, (JOB,), full()) == choice("node-99", (JOB,), full("node-10"))
    assert not choice(LOST, (JOB,), full()).why_none


def test_the_nearest_spare_comes_first_and_says_what_its_place_costs() -> None:
    view = full(
        "node-10", "node-11", "node-12",
        node_03={"leaf": "leaf-1", "rack": "r1"},
        node_10={"leaf": "leaf-9", "rack": "r9"},
        node_11={"leaf": "leaf-2", "rack": "r1"},
        node_12={"leaf": "leaf-1", "rack": "r1"},
    )  # fmt: skip
    assert chosen(view) == [
        ("node-12", "same leaf leaf-1"),
        ("node-11", "leaf leaf-2 instead of leaf-1: its traffic crosses a spine, expect slower collectives"),
        ("node-10", "leaf leaf-9 instead of leaf-1: its traffic crosses a spine, expect slower collectives"),
    ]


def test_a_node_outside_the_nvlink_domain_is_the_last_resort() -> None:
    view = full(
        "node-10", "node-11",
        node_03={"nvlink_domain": "d4", "leaf": "leaf-1"},
        node_10={"nvlink_domain": "d5", "leaf": "leaf-1"},
        node_11={"nvlink_domain": "d4", "leaf": "leaf-2"},
    )  # fmt: skip
    assert [node for node, _ in chosen(view)] == ["node-11", "node-10"]
    assert "outside the NVLink domain d4" in chosen(view)[1][1]


def test_a_free_node_that_is_as_near_keeps_the_reserve_whole() -> None:
    view = full("node-10")
    busy = next(view.pods_on("node-12"))
    view.forget(busy.key)
    assert choice(LOST, (JOB,), view).why_none == "nodes as near as the spares are free"


@pytest.mark.parametrize(
    "unfit",
    [
        {"ready": False},
        {"unschedulable": True},
        {"gpus_allocatable": 7},
        {"managed": False},
        {"protected_by": "site/keep"},
        {"owner_incident": "inc-9"},
        {"taints": (TAINT, "site/burn-in:NoSchedule")},
    ],
)
def test_a_spare_that_is_not_sound_or_not_ours_to_give_is_left_in_reserve(unfit: dict[str, str]) -> None:
    view = full("node-10", node_10=unfit)
    assert choice(LOST, (JOB,), view).why_none == "none of 1 spares is ready and like node-03"


def test_half_a_gang_gets_no_spare() -> None:
    view = full("node-10", node_04={"ready": False})  # type: ignore[dict-item]
    assert (
        choice(LOST, (JOB,), view).why_none
        == "the job lacks 2 nodes and there are 1 spares and 0 free nodes: all or none"
    )
    view = full("node-10", "node-11", node_04={"ready": False})  # type: ignore[dict-item]
    assert len(chosen(view)) == 2


def test_a_job_that_is_over_needs_no_spare() -> None:
    view = full("node-10")
    view.put(replace(view.jobs[JOB.key], finished=True))
    assert choice(LOST, (JOB,), view).why_none == "no job needs a node in its place"


def test_the_plan_names_the_spares_and_restarts_the_job_after_one_is_released() -> None:
    about = incident()
    book = next(one for one in LIBRARY if one.id == "gpu-off-bus")
    steps = {step.id: step for step in plan(about, book, full("node-10"), Mode.AUTO, WITH_SPARES).steps}
    assert steps["spare"].params == {"spares": "node-10=its place in the network is not known"}
    assert steps["spare"].describe.endswith(": node-10 (its place in the network is not known)")
    assert "spare" in steps[f"resume:{JOB.key}"].needs
    assert not steps["spare"].destructive
    without = plan(about, book, full(), Mode.AUTO, WITH_SPARES)
    assert "spare" not in {step.id for step in without.steps}
    assert without.left_out == plan(about, book, full(), Mode.AUTO, ACTIONS).left_out


def test_the_reserve_is_only_filled_up_again_where_a_spare_was_released() -> None:
    about = incident()
    book = next(one for one in LIBRARY if one.id == "gpu-off-bus")
    all_actions = WITH_SPARES | {"reboot_node", "validate_node"}
    ids = [step.id for step in plan(about, book, full("node-10"), Mode.AUTO, all_actions).steps]
    assert ids[-1] == "refill"
    assert "refill" not in {step.id for step in plan(about, book, full(), Mode.AUTO, all_actions).steps}
