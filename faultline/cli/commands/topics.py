"""`faultline topics apply|diff`: creates, alters and compares the Kafka topics of `streams.kafka.topics`."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultline.cli.groups import Group, examples
from faultline.cli.main import EXIT_NO
from faultline.cli.output import output_option, show, table

if TYPE_CHECKING:
    from faultline.runtime.settings import Settings
    from streams.kafka.provisioning import TopicChange


@click.group(
    "topics",
    cls=Group,
    epilog=examples(
        ("faultline topics diff", "what is missing or differs"),
        ("faultline topics apply", "create and alter them"),
        ("faultline topics acls", "what each process may do with them"),
    ),
)
def command() -> None:
    """Create, alter or compare the Kafka topics, and print who needs which rights on them. Nothing is ever deleted."""


@command.command(
    "apply",
    epilog=examples(
        "faultline topics apply",
    ),
)
@click.option(
    "--rename-from",
    "old",
    default=None,
    metavar="CLUSTER",
    help="Previous cluster name, for a rename; stop all processes first.",
)
@click.option(
    "--adopt-kafka",
    is_flag=True,
    help="The topics are a copy, and the Kafka cluster they came from is not used any more: bind them to this one.",
)
@output_option
@click.pass_obj
def apply(config: Path | None, old: str | None, output: str, *, adopt_kafka: bool) -> None:
    """Create missing topics, alter those that differ, wait for the brokers, and bind the topics to `cluster` of the settings.

    Topics bound to another cluster, or copied from another Kafka cluster, are left unchanged, with exit code 2.
    """
    from faultline.runtime.settings import load

    settings = load(config)
    changes = asyncio.run(_apply(settings, old, adopt_kafka=adopt_kafka))
    _show(changes, output)


async def _apply(settings: Settings, old: str | None, *, adopt_kafka: bool) -> list[TopicChange]:
    from streams.kafka import installation, provisioning

    by = f"topics apply on {socket.gethostname()}"
    if old is not None:
        await installation.rename(settings.kafka, old, settings.cluster, by)
    if adopt_kafka:
        _tell_adoption(settings, await installation.adopt_kafka(settings.kafka, settings.cluster, by))
    await installation.refuse_others(settings.kafka, settings.cluster)
    changes = await provisioning.apply(settings.kafka)
    await installation.claim(settings.kafka, settings.cluster, by)
    # A claim of an earlier release does not say which Kafka it is of: it is completed, once.
    await installation.adopt_kafka(settings.kafka, settings.cluster, by)
    return changes


def _tell_adoption(settings: Settings, ids: tuple[str, str] | None) -> None:
    """On stderr: what is on stdout are the changes of topics, for scripts."""
    if ids is None:
        told = "nothing to adopt: the topics are bound to this Kafka cluster, or to none yet"
    else:
        former, now = ids
        told = (
            f"the topics of cluster {settings.cluster} are bound to the Kafka cluster {now} from now on, no more to "
            f"{former or 'one that was not written down'}"
        )
    click.echo(told, err=True)


@command.command(
    "diff",
    epilog=examples(
        "faultline topics diff",
        "faultline topics diff -o json",
        exits="0 no difference, 1 a difference, 2 bad input, 3 Kafka is unreachable",
    ),
)
@output_option
@click.pass_context
def diff(ctx: click.Context, output: str) -> None:
    """Print the differences; exit code 1 when there are any."""
    from faultline.runtime.settings import load
    from streams.kafka import provisioning

    changes = asyncio.run(provisioning.diff(load(ctx.obj).kafka))
    _show(changes, output)
    if any(change.kind != "advice" for change in changes):
        ctx.exit(EXIT_NO)


@command.command(
    "acls",
    epilog=examples(
        "faultline topics acls",
        "faultline topics acls --principal 'User:CN=faultline-{name}' detector correlator",
        "faultline topics acls --format strimzi --kafka my-cluster --login tls",
        exits="0 printed, 2 bad input",
    ),
)
@click.argument("names", nargs=-1, metavar="[PROCESS|USER]...")
@click.option(
    "--format",
    "form",
    type=click.Choice(["kafka-acls", "strimzi", "json"]),
    default="kafka-acls",
    show_default=True,
    help="Commands of Kafka's own tool, Strimzi's KafkaUsers, or JSON.",
)
@click.option(
    "--principal",
    default="User:faultline-{name}",
    show_default=True,
    help="How principals are called; {name} is the process or user. With mTLS often User:CN=...",
)
@click.option(
    "--kafka", "cluster", default="kafka", show_default=True, help="Strimzi: the name of the Kafka."
)
@click.option(
    "--login",
    type=click.Choice(["tls", "scram-sha-512"]),
    default="scram-sha-512",
    show_default=True,
    help="Strimzi: how the users log in.",
)
@click.pass_obj
def acls(
    config: Path | None, names: tuple[str, ...], form: str, principal: str, cluster: str, login: str
) -> None:
    """Print the ACLs of every process, and of those who look, decide, ship and repair; all of them without a name.

    Each principal gets what it does and nothing more; nothing on the cluster itself. `$BOOTSTRAP` and `$ADMIN` in the commands
    are the broker's address and the properties file of a user who may alter ACLs.
    """
    import json

    from faultline.checks.kafka_acls import acls_of, as_commands, as_json, as_strimzi
    from faultline.checks.kafka_rights import EVERYBODY
    from faultline.runtime.settings import load
    from streams.model.errors import BadInput
    from streams.model.similar import suggestion

    if "{name}" not in principal:
        raise BadInput("--principal: expected {name} in it, or all processes would share one principal")
    for name in names:
        if name not in EVERYBODY:
            meant = suggestion(name, EVERYBODY) or f"; known are {', '.join(EVERYBODY)}"
            raise BadInput(f"{name} is no process and no user{meant}")
    settings = load(config).kafka
    wanted = names or tuple(EVERYBODY)
    if form == "strimzi":
        click.echo(as_strimzi(wanted, settings, cluster=cluster, login=login), nl=False)
        return
    found = [acl for name in wanted for acl in acls_of(name, settings)]
    if form == "json":
        click.echo(json.dumps(as_json(found, principal), indent=2))
    else:
        click.echo("\n".join(as_commands(found, principal)))


def _show(changes: list[TopicChange], output: str) -> None:
    records = ({"topic": c.topic, "change": c.kind, "detail": c.detail} for c in changes)
    rows = ((c.topic, c.kind, c.detail) for c in changes)
    headings = ("topic", "change", "detail")
    show(
        output,
        records,
        lambda: table(headings, rows, empty="all topics match the expected configuration"),
    )
