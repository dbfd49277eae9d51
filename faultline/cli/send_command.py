"""Sends an operator's command to the `commands` topic and follows the timeline for the responder's answer.

A command is durable once written: a responder that is down now applies it when it is back. So the wait for an answer is bounded,
and without one the command is reported as stored, never as accepted.
"""

from __future__ import annotations

import asyncio
import getpass
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

import click
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import BrokerResponseError, KafkaError

from faultline.cli.main import EXIT_NO
from faultline.cli.output import record
from faultline.cli.reach import are_ours, say_not_checked
from faultline.cli.read_topics import readable
from faultline.cli.send_options import SendOptions
from streams.config.settings import KafkaSettings
from streams.kafka.clients import consumer, partitions_of, producer, started, stopped, topic_name
from streams.kafka.plain_errors import is_denial, plain
from streams.kafka.topics import COMMANDS, TIMELINE, partition_of
from streams.model.clock import rfc3339, utc_now
from streams.model.codec import encode
from streams.model.conversation import Command, TimelineEntry, Verb
from streams.model.errors import Denied, FaultlineError, Unreachable


def command_of(verb: Verb, cluster: str, options: SendOptions, *, incident: str = "", **more: Any) -> Command:
    """A command with the current time and a new id."""
    name, actor = f"cmd-{uuid.uuid4().hex}", options.actor or getpass.getuser()
    return Command(name, incident, cluster, verb, actor, utc_now(), reason=options.reason, **more)


SEND_S = 10.0
"""How long the broker has to confirm a command."""

LOOK_FIRST_S = 2.0
"""How long the first command waits for what is only read: whose topics these are, and where the timeline ends."""

_STOP_S = 1.0
_LATE_RECORDS = 10_000
"""How far before its end the timeline is read where that end was only found after a command was sent."""


@dataclass(slots=True)
class CommandSession:
    """Sends commands to the responder of one cluster and collects the timeline entries written since it was opened.

    Reads get `LOOK_FIRST_S` before the first command, and it is written whatever became of them: it may be the kill switch, on a
    broker that takes writes and does not answer reads.
    """

    settings: KafkaSettings
    cluster: str
    reader: AIOKafkaConsumer
    entries: list[TimelineEntry] = field(default_factory=list)
    _placing: asyncio.Task[None] = field(init=False)
    _is_checked: bool = field(init=False, default=False)
    _is_late: bool = field(init=False, default=False)

    async def open(self) -> None:
        """Begin to read.

        Raises:
            ConfigError: the topics belong to another cluster, or are a copy, of which nobody reads the commands.
        """
        self._placing = asyncio.create_task(self._place())
        deadline = asyncio.get_running_loop().time() + LOOK_FIRST_S
        with suppress(Unreachable):  # sending tells it, with what that means
            self._is_checked = await are_ours(self.settings, self.cluster, LOOK_FIRST_S)
        await asyncio.wait({self._placing}, timeout=max(0.0, deadline - asyncio.get_running_loop().time()))

    async def close(self) -> None:
        """End what still reads."""
        self._placing.cancel()
        await asyncio.wait({self._placing})
        if not self._placing.cancelled():
            self._placing.exception()  # `answers` has raised it, or nobody asked
        await stopped(self.reader)

    async def send(self, command: Command) -> None:
        """Write the command. It is durable when this returns.

        Raises:
            Unreachable: nothing was stored, or it was not confirmed in time; the message says which, and what to do.
        """
        self._is_late |= not self._placing.done()
        client, is_handed_over = producer(self.settings, request_timeout_ms=int(SEND_S * 1000)), False
        try:
            async with asyncio.timeout(SEND_S):
                await started(client, self.settings)
                name = topic_name(self.settings, COMMANDS)
                partition = partition_of(command.cluster, len(await client.partitions_for(name)))
                key = (command.incident or command.cluster).encode()
                delivered = await client.send(name, encode(command), key=key, partition=partition)
                is_handed_over = True
                await delivered
        except (TimeoutError, KafkaError, Unreachable) as error:
            why = plain(error, user=self.settings.sasl_username or "", operation="Write")
            if not isinstance(error, Unreachable):
                why = f"Kafka at {self.settings.bootstrap}: {why}"
            is_lost = not is_handed_over or (isinstance(error, BrokerResponseError) and not error.retriable)
            kind = Denied if is_denial(error) else Unreachable
            raise kind(_not_in_force(command, why, is_lost=is_lost)) from error
        finally:
            # Bounded: it would wait for a broker that is not answering, and nothing is left to flush.
            await asyncio.wait({asyncio.create_task(client.stop())}, timeout=_STOP_S)
        if not self._is_checked:
            say_not_checked()
            self._is_checked = True  # said once

    async def answers(self, fits: Callable[[TimelineEntry], bool], wait_s: float) -> list[TimelineEntry]:
        """The entries that match, as soon as there is one; empty after `wait_s`. Entries read earlier are checked too.

        Raises:
            Unreachable: the timeline cannot be read.
        """
        deadline = asyncio.get_running_loop().time() + wait_s
        await asyncio.wait({self._placing}, timeout=wait_s)
        if not self._placing.done():
            return []
        try:
            self._placing.result()
        except (KafkaError, FaultlineError) as error:
            kind = Denied if is_denial(error) else Unreachable
            why = plain(error, user=self.settings.sasl_username or "", operation="Read")
            raise kind(f"sent, but whether it is accepted cannot be read: {why}") from error
        while not (found := [entry for entry in self.entries if fits(entry)]):
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                break
            batches = await self.reader.getmany(timeout_ms=max(1, min(200, int(left_s * 1000))))
            for records in batches.values():
                self.entries += [entry for r in records if (entry := readable(TimelineEntry, r)) is not None]
        return found

    async def _place(self) -> None:
        """Put the reader at the end of the timeline, or before it where a command was sent meanwhile."""
        await started(self.reader, self.settings)
        name = topic_name(self.settings, TIMELINE)
        numbers = await partitions_of(self.reader, name)
        where = TopicPartition(name, partition_of(self.cluster, len(numbers)))
        self.reader.assign([where])
        end = (await self.reader.end_offsets([where]))[where]
        self.reader.seek(where, max(0, end - _LATE_RECORDS) if self._is_late else end)


@asynccontextmanager
async def command_session(settings: KafkaSettings, cluster: str) -> AsyncIterator[CommandSession]:
    """Open a session that reads the timeline of a cluster from its current end.

    Raises:
        ConfigError: the topics belong to another cluster, or are a copy, of which nobody reads the commands.
    """
    session = CommandSession(settings, cluster, consumer(settings, group=None, fetch_max_wait_ms=100))
    try:
        await session.open()
        yield session
    finally:
        await session.close()


_WITHOUT_KAFKA = "kubectl -n faultline scale deploy/responder --replicas=0"


def _not_in_force(command: Command, why: str, *, is_lost: bool) -> str:
    """One line: whoever wants to stop everything must see at once that nothing has stopped, and how it is done all the same."""
    stored = "nothing is stored" if is_lost else "not known to be stored"
    match command.verb:
        case Verb.KILL:
            switch = "kubectl -n faultline set env deploy/responder FAULTLINE_RESPONDER__KILL_SWITCH=true"
            return f"the kill switch is NOT in force, {stored}: {why}. Without Kafka: {switch}, or {_WITHOUT_KAFKA}"
        case Verb.FREEZE:
            return f"the freeze is NOT in force, {stored}: {why}. Without Kafka: {_WITHOUT_KAFKA}"
        case _:
            return f"{command.verb.value}: {stored}: {why}"


def answers_to(command: Command) -> Callable[[TimelineEntry], bool]:
    """Whether an entry is an answer to the command."""
    return lambda entry: entry.attributes.get("command") == command.id


def is_refusal(entry: TimelineEntry) -> bool:
    """Whether an answer rejects the command."""
    return entry.event.endswith("refused")


async def decide(settings: KafkaSettings, command: Command, wait_s: float) -> list[TimelineEntry]:
    """Send the command and wait for answers; empty when none comes in time."""
    async with command_session(settings, command.cluster) as session:
        await session.send(command)
        return await session.answers(answers_to(command), wait_s)


def report_answer(command: Command, answers: list[TimelineEntry], options: SendOptions, **more: Any) -> None:
    """Print the answer to a command and set the exit code: 0 accepted, 1 refused, 3 no answer.

    A command that goes to several runs of an incident is accepted when one accepts it. `more` is added to the JSON.
    """
    accepted = [entry for entry in answers if not is_refusal(entry)]
    shown = accepted or answers
    text = "; ".join(dict.fromkeys(entry.text for entry in shown))
    if options.output != "table":
        about = {"incident": command.incident, "scope": command.scope, "step": command.step}
        record(
            options.output,
            {
                "command": command.id, "verb": command.verb.value, "cluster": command.cluster, "actor": command.actor,
                **{name: value for name, value in about.items() if value},
                "answered": bool(answers), "accepted": bool(accepted) if answers else None, "text": text,
                **({"at": rfc3339(shown[0].at)} if shown else {}), **more,
            },
        )  # fmt: skip
    elif shown:
        click.echo(f"{'accepted' if accepted else 'refused'}: {text}")
    if not answers:
        _report_no_answer(command, options.wait_s)
    if not accepted:
        raise SystemExit(EXIT_NO)


def _report_no_answer(command: Command, wait_s: float) -> NoReturn:
    stored = f"{command.verb.value} stored as {command.id}"
    if wait_s == 0:
        click.echo(f"{stored}; sent without waiting for the responder's answer", err=True)
        raise SystemExit(0)
    raise Unreachable(
        f"{stored}, but no responder answered within {wait_s:g} s; it will be applied when a responder is back. "
        "The timeline shows the result"
    )
