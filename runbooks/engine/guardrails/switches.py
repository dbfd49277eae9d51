"""What stops a whole cluster, or a part of it: the kill switch, the breaker, freezes and windows, the mode."""

from __future__ import annotations

from collections.abc import Container

from runbooks.engine.guardrails.context import GuardContext, Ruling, RulingKind
from streams.config.settings import ClosedTime
from streams.model.clock import to_the_second
from streams.model.run import Mode


def kill_switch(context: GuardContext) -> Ruling | None:
    """One setting, or one command, stops every destructive step, running ones included at their next step."""
    if context.policy.kill_switch:
        return Ruling(
            RulingKind.HOLD, "kill switch", "responder.kill_switch is on", "switching it off lifts it"
        )
    switch = context.control.kill_switch if context.control else None
    if switch is None:
        return None
    why = f": {switch.reason}" if switch.reason else ""
    return Ruling(
        RulingKind.HOLD,
        "kill switch",
        f"{switch.actor} threw it at {to_the_second(switch.at)}{why}",
        "the command unkill lifts it",
    )


def breaker(context: GuardContext) -> Ruling | None:
    """What trips by itself, when acting does not help or too much is broken at once, is reset by a person."""
    trip = context.control.breaker if context.control else None
    if trip is None:
        return None
    return Ruling(
        RulingKind.HOLD,
        "breaker",
        f"tripped by {trip.rule} at {to_the_second(trip.at)}: {trip.reason}",
        "a person's reset lifts it",
    )


def closed_time(context: GuardContext) -> Ruling | None:
    """A change freeze or a maintenance window in the settings that is on now and covers what the run acts on."""
    for window in context.policy.closed_times:
        until = window.until(context.now)
        if until is not None and _covers(window, context):
            return Ruling(
                RulingKind.HOLD,
                "freeze" if window.kind == "freeze" else "maintenance window",
                f"{window.name} is on until {to_the_second(until)}",
                "its end or a change of responder.closed_times lifts it",
            )
    return None


def frozen(context: GuardContext) -> Ruling | None:
    """A freeze that a person has commanded."""
    for freeze in context.control.freezes if context.control else ():
        if freeze.until is not None and freeze.until <= context.now:
            continue
        kind, _, name = freeze.scope.partition(":")
        if kind and name not in (_pools(context) if kind == "pool" else _namespaces(context)):
            continue
        what = freeze.scope or f"cluster {context.run.cluster}"
        until = f" until {to_the_second(freeze.until)}" if freeze.until else ""
        why = f": {freeze.reason}" if freeze.reason else ""
        return Ruling(
            RulingKind.HOLD,
            "freeze",
            f"{freeze.actor} froze {what} at {to_the_second(freeze.at)}{until}{why}",
            "the command thaw lifts it" + (", or its end" if freeze.until else ""),
        )
    return None


def mode(context: GuardContext) -> Ruling | None:
    """Whoever tames the installation also tames the runs that were planned before. In shadow nothing is ever called."""
    planned, now = context.run.plan.mode, context.policy.mode
    order = (Mode.SHADOW, Mode.APPROVE, Mode.AUTO)
    if order.index(now) >= order.index(planned):
        return None
    reason = f"responder.mode is {now}, the run was planned in {planned}"
    if now is Mode.SHADOW:
        return Ruling(RulingKind.HOLD, "mode", reason, f"responder.mode approve or {planned} lifts it")
    return Ruling(RulingKind.ASK, "mode", reason, "an approval of this plan lifts it")


def _covers(window: ClosedTime, context: GuardContext) -> bool:
    return (
        (not window.clusters or context.run.cluster in window.clusters)
        and (not window.pools or _any_in(_pools(context), window.pools))
        and (not window.namespaces or _any_in(_namespaces(context), window.namespaces))
    )


def _any_in(found: set[str], wanted: Container[str]) -> bool:
    return any(name in wanted for name in found)


def _pools(context: GuardContext) -> set[str]:
    """Pools of the nodes that the run acts on."""
    facts = (context.view.nodes.get(name) for name in context.nodes)
    return {fact.pool for fact in facts if fact is not None and fact.pool is not None}


def _namespaces(context: GuardContext) -> set[str]:
    """Namespaces of the jobs that the run acts on, that its incident names, or that run on its nodes."""
    found = {s.target.namespace for s in context.run.plan.steps if s.destructive and s.target}
    found |= {job.namespace for job in context.incident.jobs}
    found |= {
        job.job.namespace
        for node in context.nodes
        for key in context.view.jobs_on(node)
        if (job := context.view.jobs.get(key)) is not None
    }
    return {name for name in found if name}
