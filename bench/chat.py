"""How a flood of incidents comes through Slack's limit of one message a second: what the limit allows, and what was measured.

    .venv/bin/python -m bench.chat [--incidents 500] [--over-s 60] [--posts-per-s 1]

The chat process runs as it does in production, on the embedded broker and the stand-in for Slack, on loopback. The stand-in
refuses what is over the limit. One incident in ten is critical, and one ends while the flood is told.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from pydantic import SecretStr

from bench.figures import progress, report
from connectors.chat.slack import Slack
from faultline.chat.process import Chat
from sandbox.emulated import broker
from sandbox.fake_services.slack import Posting, SlackStandin
from streams.config.connector_settings import SlackSettings
from streams.kafka import clients
from streams.kafka.topics import INCIDENTS, partition_of
from streams.model.clock import utc_now
from streams.model.codec import encode
from streams.model.entity import Entity
from streams.model.incident import Certainty, Impact, Incident, IncidentState, incident_id
from streams.model.signal import Severity
from tests.testbed.waiting import eventually

CHANNEL = "C0INCIDENTS"
BURST = 3
"""Messages that the connector sends at once before it keeps to the rate."""
CRITICAL_EVERY = 10
LONGEST_S = 3600.0


def allowed_s(messages: int, posts_per_s: float) -> float:
    """Seconds that so many messages take at the limit, however fast everything else is."""
    return max(0, messages - BURST) / posts_per_s


def node_down(number: int) -> Incident:
    """One of the flood; every tenth is critical."""
    now, root = utc_now(), Entity("c1", node=f"gpu-{number:04}")
    critical = number % CRITICAL_EVERY == CRITICAL_EVERY - 1
    return Incident(
        id=incident_id("c1", root, "node_down", 1),
        cluster="c1",
        family="node_down",
        root=root,
        incarnation=1,
        revision=1,
        state=IncidentState.OPEN,
        severity=Severity.CRITICAL if critical else Severity.ERROR,
        certainty=Certainty.DECISIVE if critical else Certainty.LIKELY,
        title=f"gpu-{number:04} is not ready",
        reason="its kubelet stopped reporting",
        fault_at=now - timedelta(seconds=40),
        opened_at=now,
        updated_at=now,
        nodes=(f"gpu-{number:04}",),
        impact=Impact(nodes=1, gpus=8),
    )


async def until(condition: Callable[[], object], what: str) -> None:
    """Return once it holds."""

    async def look() -> object:
        return condition()

    await eventually(look, what, timeout_s=LONGEST_S)


async def main(incidents: int, over_s: float, posts_per_s: float) -> None:
    """Write the flood, wait until all of it is told, and print the figures."""
    settings = SlackSettings(
        token=SecretStr("xoxb-standin"), channel=CHANNEL, posts_per_s=posts_per_s, calls_per_minute=50.0
    )
    with tempfile.TemporaryDirectory() as folder:
        async with broker.running(log=Path(folder) / "broker.log") as embedded, SlackStandin() as server:
            server.per_minute = {"chat.postMessage": round(60 * posts_per_s) + BURST, "chat.update": 60}
            slack = Slack(settings.model_copy(update={"base_url": server.base_url}))
            chat = Chat(embedded.settings, slack, channel=CHANNEL, lease_s=30.0)
            running = asyncio.create_task(chat.run())
            producer = await clients.started(clients.producer(embedded.settings), embedded.settings)
            partition = partition_of("c1", embedded.settings.cluster_partitions)

            async def write(incident: Incident) -> None:
                key = incident.id.encode()
                await producer.send(INCIDENTS.name, encode(incident), key=key, partition=partition)

            def replies() -> list[Posting]:
                roots = server.roots()
                return [reply for root in roots for reply in server.thread(root.ts)]

            began = time.monotonic()
            flood: list[Incident] = []
            for number in range(incidents):
                flood.append(node_down(number))
                await write(flood[-1])
                await asyncio.sleep(max(0.0, began + (number + 1) * over_s / incidents - time.monotonic()))
            written_s = time.monotonic() - began
            progress(f"{incidents} incidents written in {written_s:.0f} s")
            ended = replace(flood[0], revision=2, state=IncidentState.RESOLVED, closed_at=utc_now())
            changed = time.monotonic()
            await write(ended)
            critical = sum(one.severity is Severity.CRITICAL for one in flood)
            await until(
                lambda: any("resolved" in one.text for one in [*server.roots(), *replies()]), "the end"
            )
            state_s = time.monotonic() - changed
            await until(lambda: _told(server, flood, Severity.CRITICAL) >= critical, "the critical ones")
            critical_s = time.monotonic() - began
            await until(lambda: _told(server, flood) == incidents, "all")
            all_s = time.monotonic() - began
            await producer.stop()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await slack.close()
            keys = Counter(message.key for message in server.channels[CHANNEL] if not message.deleted)
            roots, posts = len(server.roots()), len(server.channels[CHANNEL])
            report(
                {
                    "incidents": incidents,
                    "written_in_s": written_s,
                    "limit_posts_per_s": posts_per_s,
                    "roots": roots,
                    "messages": posts,
                    "messages_one_thread_each": 2 * incidents,
                    "allowed_by_the_limit_s": allowed_s(posts, posts_per_s),
                    "allowed_one_thread_each_s": allowed_s(2 * incidents, posts_per_s),
                    "all_told_s": all_s,
                    "critical_told_s": critical_s,
                    "first_end_shown_s": state_s,
                    "not_told": incidents - _told(server, flood),
                    "told_twice": sum(count - 1 for count in keys.values()),
                    "edits": sum(message.edits for message in server.channels[CHANNEL]),
                    "refused_by_the_limit": len(server.calls("chat.")) - posts - _edits(server),
                },
                packages=("aiohttp", "aiokafka"),
            )


def _told(server: SlackStandin, flood: list[Incident], severity: Severity | None = None) -> int:
    """Incidents that the channel tells of by a message of their own, at the top or in a thread."""
    told = {
        str((message.metadata or {})["event_payload"]["incident"]) for message in server.channels[CHANNEL]
    }
    return sum(one.id in told for one in flood if severity in (None, one.severity))


def _edits(server: SlackStandin) -> int:
    return sum(message.edits for message in server.channels[CHANNEL])


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--incidents", type=int, default=500)
    options.add_argument("--over-s", type=float, default=60.0)
    options.add_argument("--posts-per-s", type=float, default=1.0)
    chosen = options.parse_args()
    asyncio.run(main(chosen.incidents, chosen.over_s, chosen.posts_per_s))
