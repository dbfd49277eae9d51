"""Makes what reads Slurm and what acts on it, from the settings."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

from connectors.base import Connector
from connectors.slurm.api import SlurmApi
from connectors.slurm.commands import Commands
from connectors.slurm.connector import Slurm, beside
from connectors.slurm.rest import Rest
from connectors.slurm.watch import FactsOf, SlurmWatch
from streams.config.slurm_settings import SlurmSettings


def api_of(settings: SlurmSettings) -> SlurmApi:
    """The way to Slurm that is set. Sends nothing yet."""
    commands = Commands(settings.commands_folder, settings.config_file, settings.timeout_s)
    if settings.url is None:
        return commands
    assert settings.token_file is not None, "checked by the settings"
    return Rest(
        settings.url,
        user=settings.user,
        token_file=settings.token_file,
        version=settings.api_version,
        timeout_s=settings.timeout_s,
        requeues=commands if settings.commands else None,
    )


def slurm_watch(settings: SlurmSettings, facts: FactsOf, stack: AsyncExitStack) -> SlurmWatch:
    """What the inventory reads; its connections are closed with `stack`."""
    api = api_of(settings)
    stack.push_async_callback(api.close)
    return SlurmWatch(api, facts, every_s=settings.poll_s)


def with_slurm(
    settings: SlurmSettings, others: Sequence[Connector], stack: AsyncExitStack
) -> list[Connector]:
    """The connectors of a responder that acts on Slurm, too; its connections are closed with `stack`."""
    slurm = Slurm(api_of(settings))
    stack.push_async_callback(slurm.close)
    return beside(slurm, others)
