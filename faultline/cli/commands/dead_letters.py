"""`faultline dead-letters`: lists, groups and shows what could not be read, writes it back after a fix, deletes it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultline.cli.groups import Group, examples
from faultline.cli.main import EXIT_NO
from faultline.cli.output import output_option, record, show, table
from streams.model.counted import many
from streams.model.errors import BadInput, Fenced

if TYPE_CHECKING:
    from faultline.dead_letters.letter import Choice, Letter
    from faultline.dead_letters.outlook import TodaysCode
    from faultline.dead_letters.purge import Loss
    from faultline.runtime.settings import Settings

_SHOWN_BYTES = 64 * 1024
_STAGES = ("detector", "correlator", "responder", "chat", "notifier")
"""The processes that put records aside."""
_SHOWN_OUTCOMES = 20
"""How many letters a retry shows of each outcome; the others are counted."""


def _choice_options(function: Callable[..., None]) -> Callable[..., None]:
    """Adds `--since`, `--until`, `--stage`, `--topic` and `--grep`; the function gets them as one parameter, `choice`."""

    @wraps(function)
    def with_choice(
        *args: Any, since: str | None, until: str | None, stage: str | None, topic: str | None, grep: str | None,
        **more: Any,
    ) -> None:  # fmt: skip
        function(*args, choice=_choice(since, until, stage, topic, grep), **more)

    decorated: Callable[..., None] = with_choice
    for option in (
        click.option("--grep", help="Only where this regular expression is found in the reason or the text."),
        click.option("--topic", help="Only of this source topic, without prefix: raw.node-logs."),
        click.option("--stage", help=f"Only of this process: {', '.join(_STAGES)}."),
        click.option("--until", help="Only letters written before this time, or so long ago."),
        click.option("--since", help="Only letters written since: 90m, 12h, 7d ago, or a time."),
    ):
        decorated = option(decorated)
    return decorated


def _choice(
    since: str | None, until: str | None, stage: str | None, topic: str | None, grep: str | None
) -> Choice:
    from faultline.cli.names import require_known
    from faultline.cli.since import since_of
    from faultline.dead_letters.letter import Choice
    from streams.kafka.topics import ALL
    from streams.model.clock import utc_now

    require_known("stage", stage or "", _STAGES)
    require_known("topic", topic or "", [known.name for known in ALL])
    try:
        pattern = re.compile(grep) if grep else None
    except re.error as error:
        raise BadInput(f"--grep: {error}") from error
    now = utc_now()
    return Choice(
        since_of(since, now) if since else None,
        since_of(until, now) if until else None,
        stage,
        topic,
        pattern,
    )


@click.group(
    "dead-letters",
    cls=Group,
    epilog=examples(
        ("faultline dead-letters groups --since 1d", "what could not be read, and why"),
        ("faultline dead-letters retry 5c1f09ab", "after a fix: a dry run"),
    ),
)
def command() -> None:
    """Records that a process could not read: what they are, and what to do about them. They are kept for 14 days."""


@command.command(
    "list",
    epilog=examples(
        "faultline dead-letters list --since 2h",
        "faultline dead-letters list --topic raw.metrics --grep 'unknown message' --limit 500",
    ),
)
@_choice_options
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Letters at most."
)
@output_option
@click.pass_obj
def list_command(config: Path | None, choice: Choice, limit: int, output: str) -> None:
    """List dead letters, newest first."""
    from faultline.runtime.settings import load

    letters, more = asyncio.run(_newest(load(config), choice, limit))

    def for_people() -> None:
        head = ("letter", "group", "written", "stage", "source", "bytes", "retried", "reason")
        rows = [
            (one.coordinates, one.group, _second(one.at), one.why.stage, _source(one),
             one.why.size_bytes, "yes" if retried else "", one.why.reason[:300])
            for one, retried in letters
        ]  # fmt: skip
        table(head, rows, empty="no dead letters")

    show(output, (_summary(letter, retried) for letter, retried in letters), for_people)
    if more:
        click.echo(f"there are more than {limit}: see --limit, or `faultline dead-letters groups`", err=True)


async def _newest(settings: Settings, choice: Choice, limit: int) -> tuple[list[tuple[Letter, bool]], bool]:
    from faultline.dead_letters.letter import Retried
    from faultline.dead_letters.reading import backwards, reader, spans

    found: list[tuple[Letter, bool]] = []
    retried: set[str] = set()
    async with reader(settings.kafka) as client:
        # Marks lie behind their letters: read to the end, whatever `--until` says.
        within = await spans(client, settings.kafka, since=choice.since)
        async for one in backwards(client, within):
            if isinstance(one, Retried):
                retried.add(one.letter)
            elif choice.takes(one):
                if len(found) == limit:
                    return found, True
                found.append((one, one.coordinates in retried))
                retried.discard(one.coordinates)
    return found, False


@command.command(
    "groups",
    epilog=examples("faultline dead-letters groups", "faultline dead-letters groups --since 1d -o json"),
)
@_choice_options
@click.option("--limit", type=click.IntRange(1, 5000), default=50, show_default=True, help="Groups at most.")
@output_option
@click.pass_obj
def groups_command(config: Path | None, choice: Choice, limit: int, output: str) -> None:
    """Count dead letters by process, topic and reason; numbers and ids in reasons make no difference."""
    from faultline.runtime.settings import load

    counted = asyncio.run(_counted(load(config), choice))
    listed = counted.largest_first()

    def for_people() -> None:
        head = ("group", "letters", "retried", "stage", "topic", "first", "last", "example", "reason")
        rows = [
            (
                g.id,
                g.letters,
                g.retried,
                g.stage,
                g.topic,
                _second(g.first),
                _second(g.last),
                g.example,
                g.reason,
            )
            for g in listed[:limit]
        ]
        table(head, rows, empty="no dead letters")

    show(output, (group.document() for group in listed[:limit]), for_people)
    click.echo(
        f"{many(counted.letters, 'letter')} in {many(len(listed), 'group')}" + _foreign(counted.foreign),
        err=True,
    )


async def _counted(settings: Settings, choice: Choice) -> Any:
    from faultline.dead_letters.counting import Groups
    from faultline.dead_letters.letter import Letter
    from faultline.dead_letters.reading import forwards, reader, spans

    groups = Groups()
    async with reader(settings.kafka) as client:
        async for one in forwards(client, await spans(client, settings.kafka, since=choice.since)):
            if not isinstance(one, Letter) or choice.takes(one):
                groups.add(one)
    return groups


@command.command(
    "show",
    epilog=examples(
        "faultline dead-letters show 0:1289",
        ("faultline dead-letters show 0:1289 --raw > record.bin", "the original bytes"),
    ),
)
@click.argument("letter")
@click.option("--raw", is_flag=True, help="Write only the original bytes to standard output.")
@output_option
@click.pass_obj
def show_command(config: Path | None, letter: str, raw: bool, output: str) -> None:
    """Show a dead letter, PARTITION:OFFSET as `list` prints it: reason, original key, headers and bytes, and what the code of
    this version says of it.

    Bytes that are no text are shown in hexadecimal, at most 64 KiB of them; `--raw` writes them all as they are.
    """
    from faultline.dead_letters.letter import place_of
    from faultline.runtime.settings import load

    partition, offset = place_of(letter)
    found, outlook = asyncio.run(_shown(load(config), partition, offset))
    if raw:
        click.get_binary_stream("stdout").write(found.record.value or b"")
        return
    value = found.record.value
    document = {
        **_summary(found, None),
        "verdict": outlook.verdict,
        "today": outlook.why,
        "key": None if found.record.key is None else _readable(found.record.key),
        "headers": {name: _readable(held) for name, held in found.record.headers},
        "value": None if value is None else _readable(value[:_SHOWN_BYTES]),
    }

    def for_people() -> None:
        text, headers = document["value"], [(f"header {n}", _readable(v)) for n, v in found.record.headers]
        rows = [
            (n, shown) for n, shown in document.items() if shown is not None and n not in ("value", "headers")
        ]
        table(("field", "value"), [*rows, *headers], empty="")
        click.echo()
        click.echo("a tombstone: the record has no value" if text is None else _printable(str(text)))

    show(output, [document], for_people)
    if value is not None and len(value) > _SHOWN_BYTES:
        click.echo(f"{len(value) - _SHOWN_BYTES} more bytes: --raw writes them", err=True)


async def _shown(settings: Settings, partition: int, offset: int) -> Any:
    from faultline.dead_letters.reading import letter_at, reader
    from faultline.dead_letters.source_topics import source_topics
    from streams.model.clock import utc_now

    async with reader(settings.kafka) as client:
        letter = await letter_at(client, settings.kafka, partition, offset)
        topics = await source_topics(client, settings.kafka, [letter.why.topic])
    return letter, topics.judged(letter, _code(settings).outlook(letter), utc_now())


@command.command(
    "retry",
    epilog=examples(
        ("faultline dead-letters retry 5c1f09ab", "a group, dry run"),
        ("faultline dead-letters retry 5c1f09ab --yes", "and written back"),
        ("faultline dead-letters retry 0:1289 0:1290 --yes", "two letters"),
        "faultline dead-letters retry --topic raw.metrics --since 6h --yes --rate 20",
        exits="0 something was or would be written back, 1 nothing was",
    ),
)
@click.argument("what", nargs=-1, metavar="[GROUP|PARTITION:OFFSET]…")
@_choice_options
@click.option("--all", "everything", is_flag=True, help="Try every letter there is.")
@click.option("--yes", is_flag=True, help="Write them back. Without it nothing is written.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=1000,
    show_default=True,
    help="Letters written back at most.",
)
@click.option(
    "--rate", "per_s", type=click.FloatRange(0.1, 10_000), default=100.0, show_default=True,
    help="Records written back in a second at most.",
)  # fmt: skip
@output_option
@click.pass_context
def retry_command(
    ctx: click.Context, what: tuple[str, ...], choice: Choice, everything: bool, yes: bool, limit: int, per_s: float,
    output: str,
) -> None:  # fmt: skip
    """Write letters back to their topics, after a fix. Without `--yes` it only says which it would.

    Each is tried with the code of this version first: what it still cannot read is not written back. Only records of `raw.*` and
    `signals` are, with their own time, so that an old record leads to no action without an approval. A letter is written back
    once, whoever tries again, and two people at once do not write it twice.
    """
    from dataclasses import replace

    from faultline.dead_letters.letter import place_of
    from faultline.runtime.settings import load

    letters = frozenset(":".join(map(str, place_of(one))) for one in what if ":" in one)
    groups = tuple(one for one in what if ":" not in one)
    if letters and groups:
        raise BadInput("name groups or letters, not both")
    if any(not re.fullmatch(r"[0-9a-f]{1,8}", one) for one in groups):
        raise BadInput(
            "a group is named as `faultline dead-letters groups` prints it, or by its first characters"
        )
    choice = replace(choice, letters=letters, groups=groups)
    if choice.is_all != everything:
        raise BadInput("name what to try, or --all" if choice.is_all else "--all leaves nothing to choose")
    try:
        counts = asyncio.run(_retry(load(ctx.obj), choice, yes, limit, per_s, output))
    except Fenced as error:
        click.echo(f"faultline: {error}", err=True)
        ctx.exit(EXIT_NO)
    chosen = counts.get("retried", 0) + counts.get("would retry", 0)
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) or "no such letters"
    click.echo(told + (f"; stopped at --limit {limit}" if chosen >= limit else ""), err=True)
    if chosen and not yes:
        click.echo("nothing is written yet: --yes writes them back", err=True)
    ctx.exit(0 if chosen else EXIT_NO)


async def _retry(
    settings: Settings, choice: Choice, yes: bool, limit: int, per_s: float, output: str
) -> dict[str, int]:
    import getpass
    from collections import Counter

    from faultline.dead_letters.reading import reader
    from faultline.dead_letters.retry import opened
    from streams.model.clock import utc_now

    counts: Counter[str] = Counter()
    async with (
        reader(settings.kafka) as client,
        opened(
            settings.kafka, client, _code(settings), write=yes, by=getpass.getuser(), clock=utc_now
        ) as run,
    ):
        async for tried in run.run(choice, limit=limit, per_s=per_s):
            counts[tried.outcome] += 1
            if output != "table":
                record(output, {"outcome": tried.outcome, "why": tried.why, **_summary(tried.letter, None)})
            elif counts[tried.outcome] <= _SHOWN_OUTCOMES:
                place = f"{tried.letter.coordinates} ({_source(tried.letter)})"
                click.echo(_printable(f"{place}: {tried.outcome}: {tried.why}"))
            elif counts[tried.outcome] == _SHOWN_OUTCOMES + 1:
                click.echo(
                    f"… more that are {tried.outcome!r} are only counted; --output json prints all", err=True
                )
    return dict(counts)


@command.command(
    "purge",
    epilog=examples(
        ("faultline dead-letters purge --before 3d", "what would be lost"),
        ("faultline dead-letters purge --before-offset 0:1289", "what lies before a letter of one partition"),
    ),
)
@click.option("--before", help="Delete what was written before this time, or longer ago than 7d, 12h.")
@click.option(
    "--before-offset",
    metavar="PARTITION:OFFSET",
    help="Delete what lies before this offset of one partition.",
)
@click.option("--yes", is_flag=True, help="Delete. Without it nothing is deleted.")
@output_option
@click.pass_obj
def purge_command(
    config: Path | None, before: str | None, before_offset: str | None, yes: bool, output: str
) -> None:
    """Delete old dead letters, for good. Without `--yes` it only says what would be lost."""
    from faultline.cli.since import since_of
    from faultline.dead_letters.letter import place_of
    from faultline.runtime.settings import load
    from streams.model.clock import utc_now

    if (before is None) == (before_offset is None):
        raise BadInput("give either --before or --before-offset")
    at = since_of(before, utc_now()) if before else None
    lost = asyncio.run(_purge(load(config), at, place_of(before_offset) if before_offset else None, yes))
    groups = lost.groups.largest_first()
    spans = [{"partition": s.place.partition, "begin": s.begin, "end": s.end} for s in lost.spans]
    summary = {"deleted": yes, "letters": lost.groups.letters, "spans": spans}

    def for_people() -> None:
        head = ("group", "letters", "never retried", "topic", "last", "reason")
        rows = [(g.id, g.letters, g.letters - g.retried, g.topic, _second(g.last), g.reason) for g in groups]
        table(head, rows, empty="nothing to delete")

    show(output, [*(group.document() for group in groups), summary], for_people)
    ranges = ", ".join(f"{span.place.partition}:{span.begin} to before {span.end}" for span in lost.spans)
    what = (
        many(lost.groups.letters, "letter")
        + _foreign(lost.groups.foreign)
        + (f" ({ranges})" if ranges else "")
    )
    click.echo(f"{what}: deleted" if yes else f"{what} would be lost for good: --yes deletes them", err=True)


async def _purge(
    settings: Settings, before: datetime | None, before_offset: tuple[int, int] | None, yes: bool
) -> Loss:
    from faultline.dead_letters.purge import loss, purge
    from faultline.dead_letters.reading import reader

    async with reader(settings.kafka) as client:
        lost = await loss(client, settings.kafka, before=before, before_offset=before_offset)
    if yes:
        await purge(settings.kafka, lost)
    return lost


def _code(settings: Settings) -> TodaysCode:
    from faultline.dead_letters.outlook import TodaysCode

    return TodaysCode(settings.cluster, settings.detector.cluster_header, settings.kafka.cluster_partitions)


def _summary(letter: Letter, retried: bool | None) -> dict[str, object]:
    from streams.model.clock import rfc3339

    why = letter.why
    found: dict[str, object] = {
        "letter": letter.coordinates,
        "group": letter.group,
        "written": rfc3339(letter.at),
        "stage": why.stage,
        "source": _source(letter),
        "time": rfc3339(why.timestamp),
        "bytes": why.size_bytes,
        "truncated": why.truncated,
        "reason": why.reason,
    }
    return found if retried is None else {**found, "retried": retried}


def _source(letter: Letter) -> str:
    return f"{letter.why.topic}:{letter.why.partition}:{letter.why.offset}"


def _second(at: datetime) -> str:
    from streams.model.clock import moment

    return moment(at)


def _readable(raw: bytes) -> str:
    """Text where it is some, else hexadecimal."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "0x" + raw.hex()


def _printable(text: str) -> str:
    from streams.model.message import plain

    return "\n".join(plain(line, _SHOWN_BYTES * 2) for line in text.split("\n"))


def _foreign(count: int) -> str:
    return f", and {many(count, 'record')} that are no dead letters" if count else ""
