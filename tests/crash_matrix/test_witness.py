"""What the witness makes of what it saw, on a cluster in miniature whose changes are numbered by hand."""

from __future__ import annotations

from connectors.kubernetes.annotations import EFFECT, INCIDENT, NODE_WORK, WORK_NODE
from tests.crash_matrix.witness import Kind, Sight, Work, works_in

ROLES = {"gpu-07": "bad", "p0": "pod 0"}


def node(at: int, *, held: str = "inc-1", boot: str = "boot-1") -> Sight:
    marks = {INCIDENT: held} if held else {}
    thing = {
        "metadata": {"name": "gpu-07", "annotations": marks},
        "spec": {"unschedulable": True} if held else {},
        "status": {"nodeInfo": {"bootID": boot}},
    }
    return Sight(at, "node", "n", thing)


def pod(at: int, phase: str = "Running") -> Sight:
    return Sight(at, "pod", "p0", {"metadata": {"name": "p0"}, "status": {"phase": phase}})


def gone(at: int, kind: Kind, uid: str) -> Sight:
    return Sight(at, kind, uid, None)


def job(at: int, action: str, *, on: str = "gpu-07", ended: bool = False) -> Sight:
    about = {
        "name": "job",
        "creationTimestamp": "2026-03-01T12:00:00Z",
        "labels": {NODE_WORK: action},
        "annotations": {WORK_NODE: on, EFFECT: "key-1"},
    }
    status = {"conditions": [{"type": "Complete", "status": "True"}]} if ended else {}
    return Sight(at, "job", "j", {"metadata": about, "status": status})


def seen(*sights: Sight) -> Work:
    (work,) = works_in(sights, "inc-1", ROLES)
    return work


def test_work_on_a_held_and_empty_node_until_its_job_ends() -> None:
    work = seen(
        node(1), pod(2), gone(3, "pod", "p0"), job(4, "reset_gpu"), job(5, "reset_gpu", ended=True), node(6, held="")
    )  # fmt: skip
    assert (work.verb, work.thing, work.key) == ("reset", "bad", "key-1")
    assert (work.held, work.let_go, work.over, work.pods) == (True, False, True, ())


def test_the_order_is_that_of_the_store_and_not_that_of_the_watches() -> None:
    work = seen(job(4, "reset_gpu"), gone(3, "pod", "p0"), pod(2), node(1))
    assert work.pods == ()
    assert seen(job(4, "reset_gpu"), gone(5, "pod", "p0"), pod(2), node(1)).pods == ("pod 0",)


def test_a_pod_that_has_ended_uses_nothing() -> None:
    assert seen(node(1), pod(2), pod(3, "Succeeded"), job(4, "reset_gpu")).pods == ()


def test_a_node_that_is_open_or_held_for_another_is_not_held() -> None:
    assert not seen(node(1, held=""), job(2, "validate_node")).held
    assert not seen(node(1, held="inc-2"), job(2, "validate_node")).held
    assert seen(node(1, held="inc-2,inc-1"), job(2, "validate_node")).held


def test_a_node_that_is_given_back_before_the_job_ends_was_let_go() -> None:
    ended = job(4, "validate_node", ended=True)
    assert seen(node(1), job(2, "validate_node"), node(3, held=""), ended).let_go
    assert seen(
        node(1), job(2, "validate_node"), node(3, held=""), node(4), job(5, "validate_node", ended=True)
    ).let_go


def test_a_reboot_is_over_with_the_new_boot_and_not_with_its_job() -> None:
    told = (node(1), job(2, "reboot_node"), job(3, "reboot_node", ended=True))
    assert not seen(*told).over
    assert seen(*told, node(4, held="")).let_go
    after = seen(*told, node(4, boot="boot-2"), node(5, held="", boot="boot-2"))
    assert (after.over, after.let_go) == (True, False)


def test_work_on_nodes_of_others_is_not_ours_to_judge() -> None:
    assert list(works_in([node(1), job(2, "reset_gpu", on="gpu-08")], "inc-1", ROLES)) == []
