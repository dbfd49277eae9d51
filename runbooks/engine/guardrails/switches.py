"""What stops a whole cluster, or a part of it: the kill switch, the breaker, freezes and windows, the mode."""

from __future__ import annotations

from collections.abc import Container

from runbooks.engine.guardrails.context import Case, Kind, Ruling
from streams.config.settings import ClosedTime
from streams.model.clock import to_the_second
from streams.model.run import Mode


def kill_switch(case: Case) -> Ruling | None:
    """One setting, or one command, stops every destructive step, running ones included at their next step."""
    if case.policy.kill_switch:
        return Ruling(Kind.HOLD, "kill switch", "responder.kill_switch is on", "switching it off lifts it")
    switch = case.control.kill_switch if case.control else None
    if switch is None:
        return None
    why = f": {switch.reason}" if switch.reason else ""
    return Ruling(
        Kind.HOLD,
        "kill switch",
        f"{switch.actor} threw it at {to_the_second(switch.at)}{why}",
        "the command unkill lifts it",
    )


def breaker(case: Case) -> Ruling | None:
    """What trips by itself, when acting does not help or too much is broken at once, is reset by a person."""
    trip = case.control.breaker if case.control else None
    if trip is None:
        return None
    return Ruling(
        Kind.HOLD,
        "breaker",
        f"tripped by {trip.rule} at {to_the_second(trip.at)}: {trip.reason}",
        "a person's reset lifts it",
    )


def closed_time(case: Case) -> Ruling | None:
    """A change freeze or a maintenance window in the settings that is on now and covers what the run acts on."""
    for window in case.policy.closed_times:
        until = window.until(case.now)
        if until is not None and _covers(window, case):
            return Ruling(
                Kind.HOLD,
                "freeze" if window.kind == "freeze" else "maintenance window",
                f"{window.name} is on until {to_the_second(until)}",
                "its end or a change of responder.closed_times lifts it",
            )
    return None


def frozen(case: Case) -> Ruling | None:
    """A freeze that a person has commanded."""
    for freeze in case.control.freezes if case.control else ():
        if freeze.until is not None and freeze.until <= case.now:
            continue
        kind, _, name = freeze.scope.partition(":")
        if kind and name not in (_pools(case) if kind == "pool" else _namespaces(case)):
            continue
        what = freeze.scope or f"cluster {case.run.cluster}"
        until = f" until {to_the_second(freeze.until)}" if freeze.until else ""
        why = f": {freeze.reason}" if freeze.reason else ""
        return Ruling(
            Kind.HOLD,
            "freeze",
            f"{freeze.actor} froze {what} at {to_the_second(freeze.at)}{until}{why}",
            "the command thaw lifts it" + (", or its end" if freeze.until else ""),
        )
    return None


def mode(case: Case) -> Ruling | None:
    """Whoever tames the installation also tames the runs that were planned before. In shadow nothing is ever called."""
    planned, now = case.run.plan.mode, case.policy.mode
    order = (Mode.SHADOW, Mode.APPROVE, Mode.AUTO)
    if order.index(now) >= order.index(planned):
        return None
    reason = f"responder.mode is {now}, the run was planned in {planned}"
    if now is Mode.SHADOW:
        return Ruling(Kind.HOLD, "mode", reason, f"responder.mode approve or {planned} lifts it")
    return Ruling(Kind.ASK, "mode", reason, "an approval of this plan lifts it")


def _covers(window: ClosedTime, case: Case) -> bool:
    return (
        (not window.clusters or case.run.cluster in window.clusters)
        and (not window.pools or _any_in(_pools(case), window.pools))
        and (not window.namespaces or _any_in(_namespaces(case), window.namespaces))
    )


def _any_in(found: set[str], wanted: Container[str]) -> bool:
    return any(name in wanted for name in found)


def _pools(case: Case) -> set[str]:
    """Pools of the nodes that the run acts on."""
    facts = (case.view.nodes.get(name) for name in case.nodes)
    return {fact.pool for fact in facts if fact is not None and fact.pool is not None}


def _namespaces(case: Case) -> set[str]:
    """Namespaces of the jobs that the run acts on, that its incident names, or that run on its nodes."""
    found = {s.target.namespace for s in case.run.plan.steps if s.destructive and s.target}
    found |= {job.namespace for job in case.incident.jobs}
    found |= {
        job.job.namespace
        for node in case.nodes
        for key in case.view.jobs_on(node)
        if (job := case.view.jobs.get(key)) is not None
    }
    return {name for name in found if name}
