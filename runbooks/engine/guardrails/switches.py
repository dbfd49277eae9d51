"""Guardrails that stop a cluster or a part of it: kill switch, breaker, freezes, maintenance windows, mode."""

from __future__ import annotations

from runbooks.engine.guardrails.context import GuardContext, Ruling, ask, hold
from streams.config.settings import ClosedTime
from streams.model.clock import to_the_second
from streams.model.run import Mode


def kill_switch(context: GuardContext) -> Ruling | None:
    """A setting or a command stops every destructive step, also in runs that have started."""
    if context.policy.kill_switch:
        return hold("kill switch", "responder.kill_switch is on", "clears when it is switched off")
    switch = context.control.kill_switch if context.control else None
    if switch is None:
        return None
    why = f": {switch.reason}" if switch.reason else ""
    return hold(
        "kill switch",
        f"engaged by {switch.actor} at {to_the_second(switch.at)}{why}",
        "clears with `faultline guard unkill`",
    )


def breaker(context: GuardContext) -> Ruling | None:
    """It trips by itself when acting does not help or too much is broken at once; an approver resets it."""
    trip = context.control.breaker if context.control else None
    if trip is None:
        return None
    return hold(
        "breaker",
        f"tripped by {trip.rule} at {to_the_second(trip.at)}: {trip.reason}",
        "clears with `faultline guard reset`",
    )


def closed_time(context: GuardContext) -> Ruling | None:
    """An active change freeze or maintenance window of the settings that covers a target of the run."""
    for window in context.policy.closed_times:
        until = window.until(context.now)
        if until is not None and _covers(window, context):
            return hold(
                "freeze" if window.kind == "freeze" else "maintenance window",
                f"{window.name} is active until {to_the_second(until)}",
                "clears when it ends or responder.closed_times changes",
            )
    return None


def frozen(context: GuardContext) -> Ruling | None:
    """A freeze started by command."""
    for freeze in context.control.freezes if context.control else ():
        if freeze.has_ended(context.now):
            continue
        kind, _, name = freeze.scope.partition(":")
        if kind and name not in (_pools(context) if kind == "pool" else _namespaces(context)):
            continue
        what = freeze.scope or f"cluster {context.run.cluster}"
        until = f" until {to_the_second(freeze.until)}" if freeze.until else ""
        why = f": {freeze.reason}" if freeze.reason else ""
        return hold(
            "freeze",
            f"{freeze.actor} froze {what} at {to_the_second(freeze.at)}{until}{why}",
            "clears with `faultline guard thaw`" + (" or when it ends" if freeze.until else ""),
        )
    return None


def snoozed(context: GuardContext) -> Ruling | None:
    """A person said "not now" about this run. What has begun is not interrupted."""
    snooze = context.run.snooze
    begun = context.run.step(context.step.id).effect is not None
    if snooze is None or snooze.until <= context.now or begun:
        return None
    until = to_the_second(snooze.until)
    return hold("snooze", f"{snooze.actor} snoozed it until {until}", "clears when it ends")


def mode(context: GuardContext) -> Ruling | None:
    """A stricter responder.mode also applies to runs planned before. In shadow mode nothing is ever called."""
    planned, now = context.run.plan.mode, context.policy.mode
    order = (Mode.SHADOW, Mode.APPROVE, Mode.AUTO)
    if order.index(now) >= order.index(planned):
        return None
    reason = f"responder.mode is {now}, the run was planned in {planned}"
    if now is Mode.SHADOW:
        return hold("mode", reason, f"clears with responder.mode approve or {planned}")
    return ask("mode", reason, "clears by approving this plan")


def _covers(window: ClosedTime, context: GuardContext) -> bool:
    """Whether a window applies to the run: a list that is empty covers everything."""
    scopes = (
        (window.clusters, {context.run.cluster}),
        (window.pools, _pools(context)),
        (window.namespaces, _namespaces(context)),
    )
    return all(not names or not found.isdisjoint(names) for names, found in scopes)


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
