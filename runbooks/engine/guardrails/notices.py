"""Guardrails for nodes that go at a known time: not before it has to be, and what is too late is not begun.

Nothing is won by stopping a job five hours before its node goes. So what a notice asks for waits until the last sensible moment:
the deadline minus what such moves took here, plus a margin. What no longer fits is left to the cloud's own SIGTERM.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from runbooks.engine.guardrails.context import GuardContext, Ruling, hold
from runbooks.engine.guardrails.run_counts import RunCounts
from streams.config.notice_settings import NoticeSettings
from streams.inventory.cluster_view import ClusterView
from streams.model.clock import span, to_the_second
from streams.model.facts import NodeFact
from streams.model.incident import Incident
from streams.model.kinds import IncidentFamily
from streams.model.node_notice import NODE_ENDS, deadline_in, remaining
from streams.model.planned_work import work_of
from streams.model.run import Mode, PlannedStep

_STOPS = frozenset({"suspend_job", "drain_node"})
"""Actions that take as long as what runs on the node takes to stop."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A node that goes, when, and by when to begin with it."""

    node: str
    due: datetime
    close_by: datetime
    move_s: float
    learned: int
    """How many moves that time was learned from."""

    @property
    def took(self) -> str:
        """The time that a move takes, and where that comes from."""
        if self.learned:
            return f"moves took up to {span(self.move_s)} here"
        return f"a move is given {span(self.move_s)} (responder.notices.move_s)"


def departure(about: Incident, policy: NoticeSettings, counts: RunCounts | None) -> Departure | None:
    """When the incident's node goes, and the last sensible moment to close it; None without a deadline."""
    due = deadline_in(about.facts) if about.family == IncidentFamily.PREEMPTION else None
    if due is None or about.root.node is None:
        return None
    usual, learned = counts.usual_move() if counts is not None else (None, 0)
    move_s = usual if usual is not None else policy.move_s
    close_by = due - timedelta(seconds=move_s + policy.margin_s)
    return Departure(about.root.node, due, close_by, move_s, learned)


def not_yet(context: GuardContext) -> Ruling | None:
    """What a notice asks for waits until it has to be; where somebody must approve it, they are asked before."""
    leaves = departure(context.incident, context.policy.notices, context.run_counts)
    if leaves is None or context.run.step(context.step.id).effect is not None:
        return None
    asks = context.step.approval or context.run.plan.mode is Mode.APPROVE
    ahead_s = context.policy.approval_expiry_s - context.policy.notices.margin_s / 2 if asks else 0.0
    begins = leaves.close_by - timedelta(seconds=max(0.0, ahead_s))
    if context.now >= begins:
        return None
    what = "you are asked" if asks else "it begins"
    return hold(
        "notice",
        f"{leaves.node} goes {remaining(leaves.due, context.now)}; {leaves.took}, so it can be used until "
        f"{to_the_second(leaves.close_by)}",
        f"{what} at {to_the_second(begins)}, or ends when the notice is taken back",
    )


def too_late(planned: PlannedStep, about: Incident, policy: NoticeSettings, now: datetime) -> str:
    """Why a step of a node that goes is not begun any more; empty when it still fits."""
    leaves = departure(about, policy, None)
    if leaves is None or planned.action not in _STOPS:
        return ""
    left_s = (leaves.due - now).total_seconds()
    if left_s >= policy.stop_s:
        return ""
    if left_s <= 0:
        return f"too late: {leaves.node} went {remaining(leaves.due, now)}; its jobs are left to their controllers"
    return (
        f"too late: {leaves.node} goes {remaining(leaves.due, now)}, and a job is given {span(policy.stop_s)} to stop "
        "(responder.notices.stop_s); it saves itself on the SIGTERM that it gets from the cloud"
    )


def is_marked_by_notice(context: GuardContext, node: NodeFact) -> bool:
    """Whether what says that somebody works on the node is the notice that the run is about, and no person's mark.

    Handlers of notices cordon a node that goes for good, too. Of one that comes back, whoever cordoned it wants to give it back.
    """
    leaves = departure(context.incident, context.policy.notices, None)
    work = node.work
    return (
        leaves is not None
        and leaves.node == node.name
        and node.notice is not None
        and work is not None
        and work.ends != "held"
        and (not node.unschedulable or context.incident.facts.get(NODE_ENDS) == "gone")
    )


def still_announced(about: Incident, view: ClusterView) -> bool:
    """Whether the node of the incident bears its notice now: then it is fresh, however long ago it was read first.

    So is planned work that is not done yet: its nodes wait for each other as long as the limits have it.
    """
    if about.family == IncidentFamily.PLANNED_WORK:
        work = work_of(about.facts)
        return work is not None and not work.over
    node = view.nodes.get(about.root.node or "")
    return deadline_in(about.facts) is not None and node is not None and node.notice is not None
