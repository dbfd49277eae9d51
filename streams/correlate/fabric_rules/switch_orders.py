"""Work on a switch that somebody ordered: what it takes away is no fault, unless a job suffers or it does not come back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.policy.config import Config
from streams.correlate.policy.link_parts import is_order
from streams.correlate.sightings import Sighting, distinct, order
from streams.correlate.state.rows import PortRow
from streams.model.incident import Certainty

_NEARLY_ALL = 0.9
"""Of many links that a switch takes away some other one always fails at that moment for a reason of its own."""

OrderAt = Callable[[datetime, str | None], Sighting | None]
"""The order that explains why a link is lost at a time, on a host or at a port; None when there is none."""


def no_orders(at: datetime, host: str | None) -> None:
    """Where nobody ordered anything."""


@dataclass(slots=True)
class SwitchOrders:
    """What was ordered for which switch; kept up to date switch by switch."""

    _at: dict[str, tuple[Sighting, ...]] = field(default_factory=dict)

    def put(self, switch: str, row: PortRow) -> bool:
        """Replace the orders for one switch. Returns whether they changed."""
        orders = sorted((s for group in row.seen.values() for s in group if is_order(s)), key=order)
        before, after = self._at.pop(switch, ()), tuple(orders)
        if after:
            self._at[switch] = after
        return before != after

    def of(self, switch: str, config: Config) -> OrderAt:
        """Those for one switch."""
        return lambda at, host: _latest(self._at.get(switch, ()), at, config)

    def anywhere(
        self, hosts_of: Callable[[str], Collection[str]], is_host: Callable[[str], bool], config: Config
    ) -> OrderAt:
        """Those for any switch that a link may lead to of which nobody knows where it ends.

        A switch of which it is known which hosts hang on it (`hosts_of`) has no cable to another one. A host whose cables are
        known may have some that are not: those of its front end. `is_host` tells nodes, on which people order reboots too.
        """
        if not self._at:
            return no_orders
        orders = {switch: found for switch, found in self._at.items() if not is_host(switch)}

        def at_host(at: datetime, host: str | None) -> Sighting | None:
            mine = [
                s
                for switch, found in orders.items()
                if not host or not (known := hosts_of(switch)) or host in known
                for s in found
            ]
            return _latest(mine, at, config)

        return at_host


def _latest(orders: Sequence[Sighting], at: datetime, config: Config) -> Sighting | None:
    near = (s for s in orders if s.at - config.slack <= at <= s.at + config.switch_notice)
    return max(near, key=order, default=None)


def held_back(
    h: Hypothesis, lost: Sequence[tuple[datetime, str | None]], ordered: OrderAt, config: Config
) -> Hypothesis:
    """The fault of a switch, untold until it is overdue if somebody ordered what took (nearly all of) its links away.

    `lost` are the times at which links were lost, each with its host.
    """
    found = [(at, said) for at, host in lost if (said := ordered(at, host)) is not None]
    if not found or len(found) < _NEARLY_ALL * len(lost):
        return h
    until = max(at for at, _ in found) + config.switch_back
    orders = distinct(said for _, said in found)
    said = orders[0]
    by = f" by {said.text('by')}" if said.text("by") else ""
    why = f"{h.why}. Work on {said.entity.switch} was ordered at {said.at:%H:%M} UTC{by}; it is expected back by {until:%H:%M}"
    return unfelt(replace(h, why=why, context=(*h.context, *orders)), until)


def unfelt(h: Hypothesis, until: datetime) -> Hypothesis:
    """The fault of a switch that may only be restarting: it is told when it lasts until then, or a job suffers."""
    until = max(until, h.brief_until or until)
    brief = replace(h, brief_until=until, was_brief=h.cleared_at is not None and h.cleared_at < until)
    if h.certainty is not Certainty.DECISIVE and h.sure_at is None:
        return brief
    return replace(
        brief, certainty=Certainty.LIKELY, sure_at=until, sure=f"it is not back by {until:%H:%M} UTC"
    )
