"""A what-if made by hand, to be written in every format."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from faultline.replay.decisions import DecidedStep, Decision
from faultline.replay.difference import differences, with_causes
from faultline.replay.due_pages import Page
from faultline.replay.what_if.causes import causes_of
from faultline.replay.what_if.decide import Decided
from faultline.replay.what_if.edits import Edit, EditKind
from faultline.replay.what_if.outages import Held
from faultline.replay.what_if.result import WhatIf
from faultline.replay.what_if.summary import summary_of

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
CORDON = DecidedStep(
    "gpu", "cordon", "cordon_node", "Node a", destructive=True, verdict="would", reason="keep pods off"
)
DECISION = Decision(
    incident="inc-1", cluster="c", family="gpu_off_bus", root="GPU 0 on a", root_key="c/a/0", certainty="decisive",
    severity="critical", state="open", merged_into="", title="GPU fell <b>off</b> | the bus", reason="XID 79",
    rule="hardware evidence", rule_means="a code of the device", fault_at=NOON, opened_at=NOON, jobs=("Job ml/x",),
    nodes=("a",), evidence=frozenset({"raw.node-logs:0:1"}), runbooks=("gpu",), runbook_why="gpu matches",
    mode="auto", steps=(CORDON,), page=None, gpu_hours=2.0, replayed=None,
)  # fmt: skip
EDITS = (
    Edit(EditKind.SETTING, "responder.blast_radius.max_nodes", "3 → 1"),
    Edit(EditKind.RUNBOOK, "gpu steps.cordon.deadline_s", "60 → 90", "runbooks/gpu.yaml"),
)


def many(number: int) -> list[Decision]:
    """So many incidents that have nothing in common."""
    return [
        replace(
            DECISION, incident=f"inc-{n}", root_key=f"c/{n}", nodes=(f"n{n}",), jobs=(), evidence=frozenset({f"r:0:{n}"}),
            fault_at=NOON + timedelta(minutes=n), steps=(replace(CORDON, target=f"Node n{n}"),),
        )
        for n in range(1, number + 1)
    ]  # fmt: skip


def held(one: Decision) -> Decision:
    """The same with its cordon held by the blast radius, and a page for it."""
    reason = "blast radius: 1 of 40 nodes is cordoned by Faultline, limit 1; clears when one is back"
    step = replace(one.steps[0], verdict="needs_approval", reason=reason, details=(("deadline", "90 s"),))
    return replace(one, steps=(step,), page=Page(NOON, "approval", "nobody has answered"))


def made(before: list[Decision], after: list[Decision]) -> WhatIf:
    """The comparison of two sides."""
    one, other = (
        Decided(tuple(side), (), Held(()), f"hash-{number}", 10, 5, NOON)
        for number, side in enumerate((before, after))
    )
    pairs = tuple(
        with_causes(pair, lambda pair, one: causes_of(pair, one, EDITS))
        for pair in differences(before, after)
    )
    return WhatIf("captures/march", EDITS, one, other, pairs, summary_of(pairs, timedelta(minutes=5)))
