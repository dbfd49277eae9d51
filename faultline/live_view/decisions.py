"""Sends people's commands to the responder and waits for its answer on the timeline.

A command is durable once written: a responder that is down now applies it when it is back. So without an answer it is reported
as stored, never as accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from faultline.live_view.view import LiveView
from streams.config.settings import KafkaSettings
from streams.kafka.durable_writer import DurableWriter
from streams.kafka.topics import COMMANDS, partition_of
from streams.model.codec import encode
from streams.model.conversation import Command, TimelineEntry


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of a command. `accepted` is None while no responder has answered."""

    command: Command
    answers: tuple[TimelineEntry, ...] = ()

    @property
    def accepted(self) -> bool | None:
        """True when a run accepted it, False when all that answered refused it, None without an answer."""
        if not self.answers:
            return None
        return any(not is_refusal(entry) for entry in self.answers)

    @property
    def text(self) -> str:
        """The answer for people; a refusal only where nothing accepted it."""
        if not self.answers:
            return (
                f"{self.command.verb} is stored, but no responder has answered yet; it will be applied when one is back. "
                "The timeline shows the result."
            )
        shown = [entry for entry in self.answers if not is_refusal(entry)] or list(self.answers)
        return "; ".join(dict.fromkeys(entry.text for entry in shown))


def is_refusal(entry: TimelineEntry) -> bool:
    """Whether an answer rejects the command."""
    return entry.event.endswith("refused")


class Decisions:
    """Sends commands. `start` before the first, `close` after the last; the view must be followed meanwhile."""

    def __init__(
        self,
        settings: KafkaSettings,
        view: LiveView,
        *,
        timeout_s: float = 5.0,
        on_sent: Callable[[Command], None] = lambda command: None,
    ) -> None:
        """`on_sent` is called with each command once it is durable."""
        self._view = view
        self._on_sent = on_sent
        self._writer = DurableWriter(settings, timeout_s=timeout_s)

    async def start(self) -> None:
        """Connect. Raises Unreachable when no broker answers."""
        await self._writer.start()

    async def close(self) -> None:
        """Close the connection."""
        await self._writer.close()

    async def send(self, command: Command) -> None:
        """Write the command. It is durable when this returns.

        Raises:
            Temporary: when Kafka does not confirm it in time; it may be written nevertheless.
        """
        await self._writer.write(
            COMMANDS,
            encode(command),
            key=(command.incident or command.cluster).encode(),
            partition=partial(partition_of, command.cluster),
        )
        self._on_sent(command)

    async def decide(self, command: Command, wait_s: float) -> Decision:
        """Send the command and wait for the answer; `Decision.accepted` is None when none comes in time."""
        await self.send(command)
        return Decision(command, await self._view.answers(command.id, wait_s))
