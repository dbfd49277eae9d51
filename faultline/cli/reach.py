"""The settings of commands that need nothing but the broker: they work while a settings file is broken."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streams.model.errors import Unreachable

if TYPE_CHECKING:
    from faultline.runtime.settings import Settings
    from streams.config.settings import KafkaSettings

_CHECKS_S = 5.0


def settings_to_reach(config: Path | None) -> Settings:
    """The settings, or `cluster` and `kafka` alone where others are not usable, which is said on stderr.

    Processes go on with what they had when a changed file is refused as a whole; then the kill switch must not be refused, too.

    Raises:
        ConfigError: where the broker or the cluster is not told.
    """
    return reached(config)[0]


def reached(config: Path | None) -> tuple[Settings, bool]:
    """The same, and whether all of them are usable: the others have their defaults where not, which nobody has set.

    Raises:
        ConfigError: where the broker or the cluster is not told.
    """
    from faultline.runtime.settings import load_reach

    settings, faults = load_reach(config)
    if faults:
        click.echo("settings are not usable; of them only cluster and kafka are used:", err=True)
        for fault in faults:
            click.echo(fault, err=True)
    return settings, not faults


async def require_ours(settings: KafkaSettings, cluster: str) -> None:
    """Refuse topics of another cluster, and a copy of ours: a list would show somebody else's calm. Where it cannot be told in
    time, that is said, and it goes on.

    Raises:
        ConfigError: they belong to another cluster, or to another Kafka.
        Unreachable: when no broker answers.
    """
    if not await are_ours(settings, cluster, _CHECKS_S):
        say_not_checked()


async def are_ours(settings: KafkaSettings, cluster: str, within_s: float) -> bool:
    """True for topics of this cluster, or of none yet; False where Kafka does not tell in time, or does not tell this user.

    Raises:
        ConfigError: they belong to another cluster, or to another Kafka: a command would be stored there and never read.
        Unreachable: when no broker answers.
    """
    from streams.kafka import installation
    from streams.kafka.plain_errors import is_denial

    try:
        async with asyncio.timeout(within_s):
            await installation.refuse_others(settings, cluster)
    except TimeoutError:
        return False
    except Unreachable as error:
        if not is_denial(error):
            raise
        return False
    return True


def say_not_checked() -> None:
    """Tell on stderr that what is shown or done may be of another cluster."""
    click.echo("not checked whose topics these are: Kafka did not tell", err=True)
