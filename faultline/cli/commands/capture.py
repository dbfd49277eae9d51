"""`faultline capture DIR`: takes what the topics hold of a time out of Kafka, with all that a replay of it needs."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultline.cli.capture_summary import doubts, lines, show_table
from faultline.cli.output import output_option, show
from faultline.cli.since import since_of, span_of
from streams.model.clock import EPOCH, rfc3339, utc_now
from streams.model.errors import BadInput, ConfigError

if TYPE_CHECKING:
    from faultline.replay.kafka_capture.take import Order
    from faultline.replay.manifest import Manifest
    from faultline.replay.redaction.redaction import Learning
    from faultline.runtime.settings import Settings
    from streams.kafka.topics import Topic


@click.command(
    "capture",
    epilog="""\b
Examples:
  faultline capture monday --from 2026-03-02T03:00:00Z --to 2026-03-02T05:00:00Z
  faultline capture last-hours --from 6h                       # until now
  faultline capture short --from 2h --lead 30m --topics raw.node-logs,raw.job-logs,inventory
  faultline capture to-give-away --from 2h --redact --redaction-key key.hex
  faultline replay monday                                      # decide it again

\b
The same command goes on after Ctrl-C or a crash, and says so when all is there.
Exit codes: 0 complete, 1 a name is left with --redact, or a replay fails or decides another incident,
2 bad input or another capture in DIR, 3 no Kafka.""",
)
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--from",
    "begin_text",
    default=None,
    help="Where it begins: 90m, 12h, 7d ago, or a time (RFC 3339). Needed without --incident.",
)
@click.option("--to", "end_text", default=None, help="Where it ends, likewise (default: now).")
@click.option(
    "--lead",
    "lead_text",
    default=None,
    help="Begin the records this much earlier, for what a running pipeline knows by then (default: 2h; 15m with --incident).",
)
@click.option(
    "--incident",
    "incident_id",
    default=None,
    help="Only what the decision of this incident needs, for a ticket; replayed at the end to see that it is enough.",
)
@click.option(
    "--redact",
    is_flag=True,
    help="Replace the names of hosts, users, jobs, pods, namespaces, addresses and serial numbers by pseudonyms.",
)
@click.option(
    "--redaction-key",
    "key_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with the key of the pseudonyms; made when it is not there. Without it the key is printed once.",
)
@click.option(
    "--topics", default=None, help="Only these topics, with commas between (default: all but bookkeeping)."
)
@output_option
@click.pass_obj
def command(
    config: Path | None,
    directory: Path,
    begin_text: str | None,
    end_text: str | None,
    lead_text: str | None,
    incident_id: str | None,
    key_file: Path | None,
    topics: str | None,
    output: str,
    *,
    redact: bool,
) -> None:
    """Take what the topics hold of a time into DIRECTORY: raw records, signals, inventory, incidents, runs, timeline and all that
    people said, what compacted topics stood at when it begins, settings without secrets, runbooks and topology.

    Records are those with a Kafka time in the range. What is not there any more is said, and stands in manifest.json.
    """
    from faultline.runtime.settings import load

    settings = load(config)
    if key_file is not None and not redact:
        raise BadInput("--redaction-key goes with --redact")
    asked = {"from": begin_text or "", "to": end_text or "now", "lead": lead_text or ""}
    order = _order(settings, asked, incident_id, _topics(topics) if topics else None)
    if redact:
        order = replace(order, learning=learning_of(settings.cluster, directory, key_file))
    manifest = asyncio.run(_take(settings, directory, order))
    for line in doubts(manifest):
        click.echo(f"faultline: {line}", err=True)
    show(output, lines(directory, manifest), lambda: show_table(directory, manifest))
    if order.learning is not None:
        _say_what_is_left(order.learning)
    if not _can_be_replayed(settings, directory) or (
        incident_id and not _decides_the_same(settings, directory, manifest)
    ):
        sys.exit(1)


def _order(
    settings: Settings, asked: dict[str, str], incident_id: str | None, topics: tuple[Topic, ...] | None
) -> Order:
    from faultline.replay.kafka_capture.take import CAPTURED, Order

    now = utc_now()
    begin = since_of(asked["from"], now, "--from") if asked["from"] else None
    end = _until(asked["to"], now)
    lead = span_of(asked["lead"] or ("15m" if incident_id else "2h"), "--lead")
    if incident_id is not None:
        order = asyncio.run(_order_of_incident(settings, incident_id, begin, end, lead, asked))
        return replace(order, topics=topics or CAPTURED)
    if begin is None:
        raise BadInput("--from has to say where to begin, or --incident what for")
    if begin >= end:
        raise BadInput(f"--from {rfc3339(begin)} is not before --to {rfc3339(end)}")
    return Order(begin, end, _records_from(begin, lead), topics or CAPTURED, asked=asked)


def _until(text: str, now: datetime) -> datetime:
    """Where it ends: what is still to come cannot be taken."""
    end = since_of(text, now, "--to") if text != "now" else now
    if end > now:
        click.echo(
            f"faultline: --to {rfc3339(end)} is still to come: taking what there is until {rfc3339(now)}",
            err=True,
        )
    return min(end, now)


def _records_from(begin: datetime, lead: timedelta) -> datetime:
    """Where the records begin: Kafka knows no time before 1970."""
    if begin < EPOCH:
        raise BadInput(f"--from {rfc3339(begin)} is before 1970")
    return EPOCH + max(begin - EPOCH - lead, timedelta())


async def _order_of_incident(
    settings: Settings,
    prefix: str,
    begin: datetime | None,
    end: datetime,
    lead: timedelta,
    asked: dict[str, str],
) -> Order:
    from faultline.cli.read_topics import read_incident, read_raw, read_runs, readable
    from faultline.replay.kafka_capture.incident import NeededBy, involved, span_of_incident
    from faultline.replay.kafka_capture.take import Order
    from streams.kafka.topics import INVENTORY
    from streams.model.facts import FactRecord

    incident = await read_incident(settings.kafka, prefix)
    runs = await read_runs(settings.kafka, incident)
    told = (await read_raw(settings.kafka, INVENTORY, cluster=incident.cluster))[INVENTORY.name]
    facts = [found.fact for record in told if (found := readable(FactRecord, record)) is not None]
    first, last = span_of_incident(incident, runs, end)
    begin = begin or first
    if begin >= last:
        raise BadInput(f"--from {rfc3339(begin)} is not before the end of {incident.id}, {rfc3339(last)}")
    needed = NeededBy(incident, runs, involved(incident, facts))
    return Order(begin, last, _records_from(begin, lead), record=needed, incident=incident.id, asked=asked)


def learning_of(cluster: str, directory: Path, key_file: Path | None) -> Learning:
    """With the key of the file; a new one without it, which is written to it, or printed."""
    from faultline.replay.manifest import MANIFEST
    from faultline.replay.redaction.pseudonyms import KEY_BYTES
    from faultline.replay.redaction.redaction import Learning

    if key_file is not None and key_file.resolve().is_relative_to(directory.resolve()):
        raise BadInput(f"--redaction-key {key_file}: would lie in {directory}, and be given away with it")
    if key_file is not None and key_file.exists():
        try:
            return Learning(cluster, bytes.fromhex(key_file.read_text(encoding="utf-8").strip()))
        except (OSError, ValueError) as error:
            raise BadInput(f"{key_file}: no key of {KEY_BYTES} bytes in hex") from error
    if (directory / MANIFEST).exists():
        raise BadInput(f"{directory} was begun: name the file with its key with --redaction-key")
    key = secrets.token_bytes(KEY_BYTES)
    if key_file is None:
        click.echo(f"faultline: the key of the pseudonyms, printed once: {key.hex()}", err=True)
    else:
        key_file.touch(mode=0o600)
        key_file.write_text(key.hex() + "\n")
    return Learning(cluster, key)


def _say_what_is_left(learning: Learning) -> None:
    redaction = learning.learned()
    text = redaction.text
    for topic, count in sorted(redaction.left_out.items()):
        click.echo(f"faultline: left out, because nobody can read them: {count} records of {topic}", err=True)
    if text.left:
        click.echo(f"faultline: left as they are, words of the documents: {', '.join(text.left)}", err=True)
    if text.words:
        what = "left in plain text, words that rules look for"
        click.echo(f"faultline: {what}: {', '.join(text.words)}", err=True)


def _can_be_replayed(settings: Settings, directory: Path) -> bool:
    """Read what a replay reads besides the records, as it does, and say what is wrong with it."""
    from faultline.cli.replay_runs import ReplayOrder
    from faultline.replay.capture import read

    try:
        ReplayOrder(settings, None, None).check(read(directory))
    except (BadInput, ConfigError) as error:
        click.echo(f"faultline: {directory} CANNOT BE REPLAYED: {error}", err=True)
        return False
    return True


def _decides_the_same(settings: Settings, directory: Path, manifest: Manifest) -> bool:
    """Replay the capture of an incident, and say whether it decides the same."""
    from faultline.cli.replay_runs import ReplayOrder
    from faultline.replay.capture import read
    from faultline.replay.kafka_capture.incident import compared

    taken = read(directory)
    decided = ReplayOrder(settings, None, None).replayed(taken)
    found = compared(taken, manifest.lineage.incident, decided)
    if found.is_same:
        click.echo(
            f"faultline: a replay of {directory} decides {manifest.lineage.incident} the same", err=True
        )
        return True
    click.echo(
        f"faultline: A REPLAY OF {directory} DOES NOT DECIDE {manifest.lineage.incident} THE SAME.\n"
        f"  production: {_words_of(found.recorded)}\n  replay:     {_words_of(found.replayed)}\n"
        "  Give a longer --lead, or take all of the time with --from and without --incident.",
        err=True,
    )
    return False


def _words_of(decision: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in decision.items()) or "no such incident"


def _topics(names: str) -> tuple[Topic, ...]:
    from faultline.replay.kafka_capture.take import CAPTURED

    known = {topic.name: topic for topic in CAPTURED}
    wanted = list(dict.fromkeys(name for name in map(str.strip, names.split(",")) if name))
    if unknown := [name for name in wanted if name not in known]:
        raise BadInput(f"--topics: {', '.join(unknown)}: not one of {', '.join(known)}")
    return tuple(known[name] for name in wanted)


async def _take(settings: Settings, directory: Path, order: Order) -> Manifest:
    from faultline.cli.progress import progress
    from faultline.replay.integrity import differences
    from faultline.replay.kafka_capture.proof import NamesLeft
    from faultline.replay.kafka_capture.take import begun, take

    before = begun(directory, order, settings.cluster)
    if before is not None and before.complete:
        if wrong := list(differences(directory, before)):
            raise BadInput(f"{directory} is complete, but not what its manifest says: {'; '.join(wrong)}")
        click.echo(
            f"faultline: {directory} is complete already; its files are what its manifest says", err=True
        )
        return before
    if before is not None:
        click.echo(f"faultline: going on with {directory}", err=True)
    with progress("taking records", unit="offsets") as bar:
        try:
            return await take(settings, directory, order, bar)
        except NamesLeft as error:
            click.echo(f"faultline: {directory}: {error}", err=True)
            sys.exit(1)
        except OSError as error:
            raise BadInput(f"{directory}: {error.strerror or error}; the same command goes on") from error
