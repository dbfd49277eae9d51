"""A person's decision from the command line: it is written to `commands`, and what became of it is read off the timeline.

The word is safe once it is written, whether or not anybody hears it now: a responder that comes back reads it. So the wait for
its answer is bounded, and when none comes that is what is said, never that the word was taken.
"""

from __future__ import annotations

import asyncio
import getpass
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import click
from aiokafka import AIOKafkaConsumer, TopicPartition

from faultline.cli.arguments import Finite
from faultline.cli.main import EXIT_NO
from faultline.cli.output import json_line, output_option
from faultline.cli.read_topics import partitions_of, readable
from streams.config.settings import KafkaSettings
from streams.kafka.clients import consumer, producer, started, topic_name
from streams.kafka.topics import COMMANDS, TIMELINE, partition_of
from streams.model.clock import rfc3339, utc_now
from streams.model.codec import encode
from streams.model.conversation import Command, TimelineEntry, Verb
from streams.model.errors import Unreachable

F = TypeVar("F", bound=Callable[..., Any])

WAIT_S = 15.0
"""How long an answer is waited for: longer than a turn of the responder, and about as long as a partition changes hands."""


def decision_options(function: F) -> F:
    """`--reason`, `--as`, `--wait` and `--output`, which every decision takes."""
    for option in (
        click.option("--reason", default="", help="Why; it goes on the timeline."),
        click.option("--as", "actor", default=None, help="Who decides (default: the user name)."),
        click.option(
            "--wait", "wait_s", type=Finite(min=0, max=3600), default=WAIT_S, show_default=True,
            help="Seconds to wait for the responder's answer; 0 only sends.",
        ),
        output_option,
    ):  # fmt: skip
        function = option(function)
    return function


def command_of(
    verb: Verb, cluster: str, actor: str | None, *, incident: str = "", reason: str = "", **more: Any
) -> Command:
    """A decision of this moment, with an id of its own."""
    who = actor or getpass.getuser()
    return Command(f"cmd-{uuid.uuid4().hex}", incident, cluster, verb, who, utc_now(), reason=reason, **more)


@dataclass(slots=True)
class Talk:
    """An open line to the responder of one cluster: what is said on its timeline from now on."""

    settings: KafkaSettings
    cluster: str
    reader: AIOKafkaConsumer
    heard: list[TimelineEntry] = field(default_factory=list)

    async def say(self, command: Command) -> None:
        """Write the decision; once this returns, it is kept."""
        client = await started(producer(self.settings), self.settings)
        try:
            name = topic_name(self.settings, COMMANDS)
            partition = partition_of(command.cluster, len(await client.partitions_for(name)))
            key = (command.incident or command.cluster).encode()
            await client.send_and_wait(name, encode(command), key=key, partition=partition)
        finally:
            await client.stop()

    async def answers(self, fits: Callable[[TimelineEntry], bool], wait_s: float) -> list[TimelineEntry]:
        """The entries that fit, as soon as there is one; none when the time is up. Earlier ones are looked at too."""
        deadline = asyncio.get_running_loop().time() + wait_s
        while not (found := [entry for entry in self.heard if fits(entry)]):
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                break
            batches = await self.reader.getmany(timeout_ms=max(1, min(200, int(left_s * 1000))))
            for records in batches.values():
                self.heard += [entry for r in records if (entry := readable(TimelineEntry, r)) is not None]
        return found


@asynccontextmanager
async def talk(settings: KafkaSettings, cluster: str) -> AsyncIterator[Talk]:
    """Listen to the timeline of a cluster from now on."""
    reader = consumer(settings, group=None, fetch_max_wait_ms=100)
    try:
        await started(reader, settings)
        name = topic_name(settings, TIMELINE)
        numbers = await partitions_of(reader, name)
        where = TopicPartition(name, partition_of(cluster, len(numbers)))
        reader.assign([where])
        reader.seek(where, (await reader.end_offsets([where]))[where])
        yield Talk(settings, cluster, reader)
    finally:
        await reader.stop()


def answers_to(command: Command) -> Callable[[TimelineEntry], bool]:
    """Whether an entry says what became of the command."""
    return lambda entry: entry.attributes.get("command") == command.id


def is_refusal(entry: TimelineEntry) -> bool:
    """Whether an answer says that the word did not count."""
    return entry.event.endswith("refused")


async def decide(settings: KafkaSettings, command: Command, wait_s: float) -> list[TimelineEntry]:
    """Write the decision and wait for what becomes of it; nothing when nobody answers in time."""
    async with talk(settings, command.cluster) as line:
        await line.say(command)
        return await line.answers(answers_to(command), wait_s)


def tell(command: Command, answers: list[TimelineEntry], wait_s: float, output: str, **more: Any) -> None:
    """Print what became of a decision and leave with its exit code: 0 taken, 1 refused, 3 nobody answered.

    Where a word went to several runs of an incident, one that took it is enough. `more` goes into the JSON besides.
    """
    taken = [entry for entry in answers if not is_refusal(entry)]
    told = taken or answers
    text = "; ".join(dict.fromkeys(entry.text for entry in told))
    if output == "json":
        about = {"incident": command.incident, "scope": command.scope, "step": command.step}
        json_line(
            {
                "command": command.id, "verb": command.verb.value, "cluster": command.cluster, "actor": command.actor,
                **{name: value for name, value in about.items() if value},
                "answered": bool(answers), "accepted": bool(taken) if answers else None, "text": text,
                **({"at": rfc3339(told[0].at)} if told else {}), **more,
            }
        )  # fmt: skip
    elif told:
        click.echo(f"{'accepted' if taken else 'refused'}: {text}")
    if not answers:
        _unanswered(command, wait_s)
    if not taken:
        raise SystemExit(EXIT_NO)


def _unanswered(command: Command, wait_s: float) -> NoReturn:
    kept = f"{command.verb.value} is written down as {command.id}"
    if wait_s == 0:
        click.echo(f"{kept}; nobody was asked whether it counts", err=True)
        raise SystemExit(0)
    raise Unreachable(
        f"{kept}, and no responder has answered within {wait_s:g} s: it is not known to be taken. It is heard "
        f"once a responder is there; the timeline tells then what became of it"
    )
