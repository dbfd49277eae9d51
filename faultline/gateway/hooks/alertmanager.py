"""`/hooks/alertmanager`: Alertmanager's webhook, version 4, as a record of `raw.alerts`.

The whole group is one record, as Alertmanager sends it: it is written or it is not. Alertmanager sends again after a 5xx and
gives up after any other status (notify/webhook and notify/util.go), so whatever may succeed later has to be a 503.
"""

from __future__ import annotations

from faultline.gateway.authentication import Basic, Bearer, HeadProof, given
from faultline.gateway.hooks.hook import Delivery, Hook
from faultline.gateway.parts import GatewayParts
from faultline.gateway.raw_records import RawValue
from faultline.gateway.refusal import RequestRefused

MAX_KEY = 500
"""Characters of a group's key that become the record's."""


class AlertmanagerWebhook(Hook):
    """Takes groups of alerts."""

    name = "alertmanager"

    def __init__(self, parts: GatewayParts) -> None:
        wanted = parts.settings.alertmanager
        heads: list[HeadProof] = [Bearer(given(wanted.token, wanted.token_next))]
        if wanted.password is not None:
            heads.append(Basic(wanted.user, wanted.password))
        self.most_bytes = parts.settings.max_body_bytes
        super().__init__(parts, heads, ())

    async def take(self, delivery: Delivery) -> str:
        """Write the group as one record."""
        group = delivery.json()
        if not isinstance(group, dict) or not isinstance(alerts := group.get("alerts"), list):
            raise RequestRefused(400, "the body is no group of alerts: it has no list of alerts")
        if group.get("version") != "4":
            raise RequestRefused(400, f"webhook version {str(group.get('version'))[:20]!r}, not '4'")
        if any(not isinstance(alert, dict) or not isinstance(alert.get("labels"), dict) for alert in alerts):
            raise RequestRefused(400, "one of the alerts has no labels")
        if alerts:
            key = str(group.get("groupKey") or "")[:MAX_KEY].encode(errors="replace")
            await self.parts.records.write([RawValue(delivery.body, key or None)])
        return f"{len(alerts)} alerts"
