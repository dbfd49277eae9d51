"""Sends an operator's command to the `commands` topic and follows the timeline for the responder's answer.

A command is durable once written: a responder that is down now applies it when it is back. So the wait for an answer is bounded,
and without one the command is reported as stored, never as accepted.
"""

from __future__ import annotations

import asyncio
import getpass
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import click
from aiokafka import AIOKafkaConsumer, TopicPartition

from faultline.cli.main import EXIT_NO
from faultline.cli.output import record
from faultline.cli.reach import require_ours
from faultline.cli.read_topics import readable
from faultline.cli.send_options import SendOptions
from streams.config.settings import KafkaSettings
from streams.kafka.clients import consumer, partitions_of, producer, started, topic_name
from streams.kafka.topics import COMMANDS, TIMELINE, partition_of
from streams.model.clock import rfc3339, utc_now
from streams.model.codec import encode
from streams.model.conversation import Command, TimelineEntry, Verb
from streams.model.errors import Unreachable


def command_of(verb: Verb, cluster: str, options: SendOptions, *, incident: str = "", **more: Any) -> Command:
    """A command with the current time and a new id."""
    name, actor = f"cmd-{uuid.uuid4().hex}", options.actor or getpass.getuser()
    return Command(name, incident, cluster, verb, actor, utc_now(), reason=options.reason, **more)


@dataclass(slots=True)
class CommandSession:
    """Sends commands to the responder of one cluster and collects the timeline entries written since it was opened."""

    settings: KafkaSettings
    cluster: str
    reader: AIOKafkaConsumer
    entries: list[TimelineEntry] = field(default_factory=list)

    async def send(self, command: Command) -> None:
        """Write the command. It is durable when this returns."""
        client = await started(producer(self.settings), self.settings)
        try:
            name = topic_name(self.settings, COMMANDS)
            partition = partition_of(command.cluster, len(await client.partitions_for(name)))
            key = (command.incident or command.cluster).encode()
            await client.send_and_wait(name, encode(command), key=key, partition=partition)
        finally:
            await client.stop()

    async def answers(self, fits: Callable[[TimelineEntry], bool], wait_s: float) -> list[TimelineEntry]:
        """The entries that match, as soon as there is one; empty after `wait_s`. Entries read earlier are checked too."""
        deadline = asyncio.get_running_loop().time() + wait_s
        while not (found := [entry for entry in self.entries if fits(entry)]):
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                break
            batches = await self.reader.getmany(timeout_ms=max(1, min(200, int(left_s * 1000))))
            for records in batches.values():
                self.entries += [entry for r in records if (entry := readable(TimelineEntry, r)) is not None]
        return found


@asynccontextmanager
async def command_session(settings: KafkaSettings, cluster: str) -> AsyncIterator[CommandSession]:
    """Open a session that reads the timeline of a cluster from its current end.

    Raises:
        ConfigError: the topics belong to another cluster, or are a copy, of which nobody reads the commands.
        Unreachable: when no broker answers.
    """
    reader = consumer(settings, group=None, fetch_max_wait_ms=100)
    try:
        await started(reader, settings)
        await require_ours(settings, cluster)
        name = topic_name(settings, TIMELINE)
        numbers = await partitions_of(reader, name)
        where = TopicPartition(name, partition_of(cluster, len(numbers)))
        reader.assign([where])
        reader.seek(where, (await reader.end_offsets([where]))[where])
        yield CommandSession(settings, cluster, reader)
    finally:
        await reader.stop()


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
