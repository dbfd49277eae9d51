"""Further fields of a new ticket, from `tickets.fields`: assignment group, components, assignees, whatever the system has.

The names in braces were checked when the settings were read (`streams/config/ticket_settings.py`). What is filled in is
untrusted: one line, bounded, and nothing that a spreadsheet takes for a formula.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.base import Effect
from connectors.tickets.inert import value as inert_value
from streams.config.ticket_settings import TICKET_FACTS

MAX_VALUE = 255


class TicketFields:
    """The mapping of the settings, to be filled in for one effect."""

    def __init__(self, mapping: Mapping[str, Any]) -> None:
        self._mapping = mapping

    def filled(self, effect: Effect) -> dict[str, Any]:
        """The fields. A value that is empty once it is filled in (a GPU without a known UUID) is left out."""
        own = {
            "incident": effect.incident,
            "cluster": effect.cluster,
            "run": effect.run,
            "step": effect.step,
        }
        facts = {name: str(own.get(name) or effect.context.get(name, "")) for name in TICKET_FACTS}
        fields = {name: _filled(value, facts) for name, value in self._mapping.items()}
        return {name: value for name, value in fields.items() if value not in ("", [], {})}


def _filled(value: Any, facts: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        # A fixed text is the operator's own and stays as it is written.
        return inert_value(value.format_map(facts), MAX_VALUE) if set("{}") & set(value) else value
    if isinstance(value, Mapping):
        inner = {name: _filled(one, facts) for name, one in value.items()}
        return {name: one for name, one in inner.items() if one != ""}
    if isinstance(value, list):
        return [one for one in (_filled(one, facts) for one in value) if one not in ("", {})]
    return value
