"""The rollout of a pool: watch first, then act on a few nodes, then on all; and back, never on, by itself.

A run on a node that its pool's stage leaves alone is planned in shadow mode, so that people see what would have happened. A run
that was planned before the stage fell back is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase

from runbooks.engine.guardrails.context import GuardContext, Ruling, hold
from streams.config.rollout_settings import EVERY_POOL, PoolRollout, Stage
from streams.inventory.cluster_view import ClusterView
from streams.model.clock import to_the_second
from streams.model.control import Control

_NAMED = 3


@dataclass(frozen=True, slots=True)
class Held:
    """Why a node is left alone: its pool's stage, and what would lift that."""

    node: str
    reason: str
    lifts: str


def held_by_rollout(
    node: str, view: ClusterView, rows: Sequence[PoolRollout], control: Control | None, now: datetime
) -> Held | None:
    """Why a destructive step on this node is only shown; None where its pool's stage allows it."""
    fact = view.nodes.get(node)
    pool = fact.pool if fact is not None else None
    called = f"pool {pool}" if pool is not None else "a node without a pool"
    back = next((one for one in (control.rolled_back if control else ()) if one.pool == pool), None)
    if back is not None:
        why = f": {back.reason}" if back.reason else ""
        return Held(
            node,
            f"{back.actor} put {called} back to stage observe at {to_the_second(back.at)}{why}",
            f"lifts with `faultline rollout lift {pool}`",
        )
    row = _row_of(pool, rows)
    if row is None:
        return None
    stage = row.stage_at(now)
    if stage is Stage.ACT:
        return None
    fell = row.until is not None and now >= row.until
    since = f", since its stage {row.stage} ended at {to_the_second(row.until)}" if fell and row.until else ""
    setting = f"responder.rollout for {row.pool}"
    if stage is Stage.OBSERVE:
        return Held(
            node, f"{called} is in stage observe{since}", f"lifts with stage canary or act in {setting}"
        )
    # Patterns are looked at first: every step of a storm asks, and the whole list is for whoever reads the answer.
    if fact is not None and fact.gpus and _is_named(node, row):
        return None
    chosen = canaries(row, view)
    if node in chosen:
        return None
    named = ", ".join(chosen[:_NAMED]) + (f" and {len(chosen) - _NAMED} more" if len(chosen) > _NAMED else "")
    return Held(
        node,
        f"{called} is in stage canary{since}, and {node} is none of its canaries ({named or 'no node fits'})",
        f"lifts with stage act, or {node} among canary_nodes, in {setting}",
    )


def canaries(row: PoolRollout, view: ClusterView) -> list[str]:
    """Names of the nodes of a row's pool that may be acted on in stage canary, in order."""
    members = sorted(
        fact.name for fact in view.nodes.values() if row.pool in (fact.pool, EVERY_POOL) and fact.gpus
    )
    wanted = row.canary_nodes
    if isinstance(wanted, int):
        return members[:wanted]
    return [name for name in members if _is_named(name, row)]


def _is_named(node: str, row: PoolRollout) -> bool:
    wanted = row.canary_nodes
    return not isinstance(wanted, int) and any(fnmatchcase(node, pattern) for pattern in wanted)


def rollout(context: GuardContext) -> Ruling | None:
    """A run that was planned when its pool's stage went further waits. What a run in shadow mode would do is shown instead."""
    if context.shadow:
        return None
    for node in sorted(context.nodes):
        rows = context.policy.rollout
        if (held := held_by_rollout(node, context.view, rows, context.control, context.now)) is not None:
            what = context.step.action.replace("_", " ")
            return hold("rollout", f"it would {what} ({context.step.target}), but {held.reason}", held.lifts)
    return None


def stage_of(context: GuardContext) -> str:
    """The stages of the pools that a run acts on, in words."""
    facts = (context.view.nodes.get(name) for name in sorted(context.nodes))
    pools = dict.fromkeys(fact.pool for fact in facts if fact is not None)
    rows = {pool: _row_of(pool, context.policy.rollout) for pool in pools}
    stages = (
        f"{pool or 'no pool'}: {row.stage_at(context.now)}" for pool, row in rows.items() if row is not None
    )
    return ", ".join(stages) or "no stages are set"


def _row_of(pool: str | None, rows: Sequence[PoolRollout]) -> PoolRollout | None:
    own = next((row for row in rows if row.pool == pool), None)
    return own or next((row for row in rows if row.pool == EVERY_POOL), None)
