"""A revision is published when it says something new to its reader."""

from __future__ import annotations

from streams.model.incident import Certainty
from tests.streams.correlate.world import FOUR, World, cluster, not_ready, sign, timeouts, xid


def test_more_lines_of_the_same_kind_are_told_at_intervals() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 79, 0))
    for i in range(100):
        world.see(xid("n2", 79, 1 + i))
    assert len(world.revisions) == 1
    world.pass_to(400)
    assert len(world.revisions) <= 3
    assert world.only().proofs[0].count == 12, "the last of them is told at last"


def test_ranks_that_report_one_after_the_other_are_told_once_and_then_at_intervals() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 79, 0))
    for line in timeouts("llama", [r for r in range(32) if r // 8 != 1], 600):
        world.see(line)
    told = len(world.revisions)
    assert told <= 3, "the incident, the kind of its symptoms"
    world.pass_to(900)
    assert len(world.revisions) <= told + 1
    assert sum(p.count for p in world.only().proofs if p.role == "symptom") == 24


def test_what_changes_a_decision_is_told_at_once() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 74, 0))
    world.pass_to(6)
    assert world.only().certainty is Certainty.LIKELY
    world.see(xid("n2", 154, 7, action="reset_gpu"))
    assert world.only().certainty is Certainty.DECISIVE
    world.see(sign("node.kernel", "n2", 8, "oops"), not_ready("n2", 9))
    assert world.only().facts["node_not_ready"] is True


def test_what_was_put_off_is_told_by_a_new_process_too() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 79, 0))
    world.see(xid("n2", 79, 10), xid("n2", 79, 20))
    world.restart()
    world.pass_to(300)
    assert world.only().proofs[0].count == 3


def test_a_sign_that_several_devices_give_is_named_once() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 79, 0))
    for number in range(4):
        device = f"nvidia-nvswitch{number}"
        world.see(sign("gpu.sxid", "n2", 1 + number, sxid=20034, device=device, action="restart_bm"))
    reason = world.only().reason
    assert (reason.count("SXid 20034"), "nvidia-nvswitch0" in reason) == (1, True)
    assert len(world.revisions) == 2, "the others say nothing new"
    world.see(sign("gpu.sxid", "n2", 6, sxid=22013, device="nvidia-nvswitch0", action="restart_bm"))
    assert "SXid 22013" in world.only().reason
