"""The responder as it ships, with a real Jira connector and a folder for a cluster, and its probes: for tests of a storm.

python -m tests.runbooks.engine.storm_child '{"bootstrap": …, "prefix": …, "folder": …, "jira": URL, "user": …, …}'
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from connectors.tickets.jira import Jira
from faultline.runtime import logging_setup
from faultline.runtime.health import health_server
from runbooks.engine.process import Responder
from runbooks.language.loader import load
from streams.config.settings import Breaker, KafkaSettings, ResponderSettings
from streams.config.ticket_settings import JiraSettings
from streams.model.pulse import Pulse
from streams.model.run import Mode
from tests.runbooks.engine.responder_child import FolderWorld

POLICY = ResponderSettings(
    mode=Mode.AUTO,
    lease_s=9.0,
    breaker=Breaker(failures=0, mass_min_nodes=0),
    tickets_per_10_min=100_000,
)
"""The breaker has tests of its own; here nothing but its own work may keep the responder from acting."""


class FolderCluster(FolderWorld):
    """Everything but tickets."""

    actions = FolderWorld.actions - {"open_ticket"} | {"verify_job"}


async def main(options: dict[str, Any]) -> None:
    """Run until killed."""
    logging_setup.configure("responder", level="info", form="json")
    settings = KafkaSettings(
        bootstrap=options["bootstrap"], topic_prefix=options["prefix"], session_timeout_ms=12_000
    )
    jira = Jira(
        JiraSettings(
            base_url=options["jira"],
            user=options["user"],
            token=SecretStr(options["token"]),
            search_lag_s=0.2,
        )
    )
    pulse = Pulse()
    responder = Responder(
        settings, POLICY, [FolderCluster(Path(options["folder"])), jira], load(), pulse=pulse
    )
    async with health_server(pulse, host="127.0.0.1", port=options["port"]):
        await responder.run()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
