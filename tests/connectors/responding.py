"""What the responder does with an effect, in small: it calls again until the effect is over."""

from __future__ import annotations

from dataclasses import replace

from connectors.base import Blocked, Connector, Effect, NoLease, Outcome, Retry, Waiting
from tests.testbed.waiting import eventually


async def until_over(connector: Connector, effect: Effect, *, timeout_s: float = 120) -> Outcome:
    """Call `apply` until it is over, with what was said before as `prior`, and return the last outcome.

    A `Retry` is called again as well: other controllers write to the same objects, and may be quicker several times in a row.
    """

    async def over() -> Outcome | None:
        nonlocal effect
        outcome = await connector.apply(effect, NoLease())
        if isinstance(outcome, Waiting | Blocked):
            effect = replace(effect, prior=outcome.result)
        return None if isinstance(outcome, Waiting | Blocked | Retry) else outcome

    return await eventually(over, f"{effect.action} is over", timeout_s=timeout_s)
