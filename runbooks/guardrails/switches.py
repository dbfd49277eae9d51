"""What people have switched off."""

from __future__ import annotations

from runbooks.guardrails.case import Case, Kind, Ruling


def kill_switch(case: Case) -> Ruling | None:
    """One setting stops every destructive step, running ones included at their next step."""
    if not case.policy.kill_switch:
        return None
    return Ruling(Kind.HOLD, "kill switch", "responder.kill_switch is on", "switching it off lifts it")
