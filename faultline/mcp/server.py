"""The server over standard input and output: five tools that read, and a reader of Kafka that keeps trying.

A client starts this as its child and keeps it for hours, so a broker that is away is told in an answer and ends nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.metadata import version
from typing import NoReturn

import structlog
from aiokafka.errors import KafkaError
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from faultline.live_view.follow import follow
from faultline.live_view.view import LiveView
from faultline.mcp.fenced_text import INSTRUCTIONS
from faultline.mcp.tools import Explain, Tools
from streams.config.settings import KafkaSettings
from streams.model.errors import BadInput, ConfigError, Unreachable
from streams.model.pulse import Pulse

log = structlog.get_logger(__name__)

READY_WITHIN_S = 60.0
"""How long a question waits for the topics to be read."""
_LOOK_EVERY_S = 0.1
_TRY_AGAIN_S = 5.0

_READS = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)


class Reader:
    """Keeps a view up to date. `trouble` says why it was not, when it last was not."""

    def __init__(self, settings: KafkaSettings, view: LiveView) -> None:
        self.trouble = ""
        self._settings = settings
        self._view = view

    async def run(self) -> NoReturn:
        """Follow the topics, and begin again when no broker answers, a topic is missing or Kafka fails otherwise."""
        pulse = Pulse()
        while True:
            try:
                await follow(self._settings, self._view, pulse=pulse)
            except (Unreachable, ConfigError, KafkaError) as error:
                self._is_old(f"the topics cannot be read: {error}")
                log.warning("cannot read the topics", reason=str(error))
            await asyncio.sleep(_TRY_AGAIN_S)

    async def ready(self) -> None:
        """Return once everything written before the start has been read.

        Raises:
            Unreachable: with the reason, when that does not come about, or what is known may be old.
        """
        deadline = asyncio.get_running_loop().time() + READY_WITHIN_S
        while not self._view.ready:
            if self.trouble or asyncio.get_running_loop().time() > deadline:
                raise Unreachable(self.trouble or "the topics are still being read; ask again in a minute")
            await asyncio.sleep(_LOOK_EVERY_S)

    def ended(self, running: asyncio.Task[NoReturn]) -> None:
        """Called when `run` is over: unless it was cancelled, that is an error of ours, and every answer says so."""
        if not running.cancelled() and (error := running.exception()) is not None:
            self._is_old(f"the reader has failed: {error!r}; restart it")
            log.error("the reader has failed", exc_info=error)

    def _is_old(self, why: str) -> None:
        """What is known is old from now on: until all is read again, and not only until it is tried again."""
        self.trouble, self._view.ready = why, False


def build(reader: Reader, tools: Tools) -> MCPServer:
    """The server with its tools."""
    server = MCPServer(
        "faultline",
        title="Faultline",
        instructions=INSTRUCTIONS,
        version=version("faultline"),
        log_level="WARNING",
    )

    async def ask(question: Callable[[], str]) -> str:
        try:
            await reader.ready()
            return question()
        except (BadInput, Unreachable) as error:
            raise ToolError(str(error)) from error

    @server.tool(title="List incidents", annotations=_READS, structured_output=False)
    async def list_incidents(cluster: str = "", include_resolved: bool = False, limit: int = 50) -> str:
        """List incidents: id, state, severity, root cause, and what each waits for. Open ones first. Reads only.

        `cluster` limits them to one cluster; `include_resolved` adds those that are over; `limit` is at most 200.
        """
        return await ask(
            lambda: tools.list_incidents(cluster, include_resolved=include_resolved, limit=limit)
        )

    @server.tool(title="Get an incident", annotations=_READS, structured_output=False)
    async def get_incident(incident: str) -> str:
        """One incident by its id (or a unique beginning of it): facts, affected jobs and nodes, steps of its runs. Reads only."""
        return await ask(lambda: tools.get_incident(incident))

    @server.tool(title="Explain an incident", annotations=_READS, structured_output=False)
    async def explain_incident(incident: str) -> str:
        """Why this is the root cause: evidence with the log lines, the rule, what was ruled out, what is done. Reads only."""
        return await ask(lambda: tools.explain_incident(incident))

    @server.tool(title="Get a timeline", annotations=_READS, structured_output=False)
    async def get_timeline(incident: str, limit: int = 100) -> str:
        """What happened in an incident and who did it, oldest first. `limit` is at most 200. Reads only."""
        return await ask(lambda: tools.get_timeline(incident, limit))

    @server.tool(title="List nodes", annotations=_READS, structured_output=False)
    async def list_nodes(cluster: str = "", include_healthy: bool = False, limit: int = 100) -> str:
        """Nodes that are cordoned, not Ready, short of GPUs or held by an incident; with `include_healthy` all. Reads only."""
        return await ask(lambda: tools.list_nodes(cluster, include_healthy=include_healthy, limit=limit))

    return server


async def serve(settings: KafkaSettings, explain: Explain) -> None:
    """Serve on standard input and output until the client closes them."""
    view = LiveView()
    reader = Reader(settings, view)
    reading = asyncio.create_task(reader.run())
    reading.add_done_callback(reader.ended)
    try:
        await build(reader, Tools(view, explain)).run_stdio_async()
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
