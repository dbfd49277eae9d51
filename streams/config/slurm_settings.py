"""Settings of Slurm. Without `commands` and `url` nothing is asked of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from streams.config.section import Contradiction, Section
from streams.config.setting_types import Url

ApiVersion = Annotated[str, StringConstraints(pattern=r"^v0\.0\.[0-9]{2,3}$")]


class SlurmSettings(Section):
    """Slurm: its nodes and jobs are read and acted on by its commands, by slurmrestd, or by both."""

    commands: bool = Field(
        False, description="by scontrol, squeue and sinfo, where this process is a client of Slurm"
    )
    commands_folder: Path | None = Field(
        None, description="where they lie; the PATH is searched when not set"
    )
    config_file: Path | None = Field(None, description="Slurm's own configuration (SLURM_CONF)")
    url: Url | None = Field(
        None,
        description="slurmrestd; with commands as well, these only put jobs back into the queue, which it cannot do",
    )
    user: str = Field("", description="user of Slurm whom the token is for")
    token_file: Path | None = Field(
        None, description="file with the JSON Web Token, read again when it has changed"
    )
    api_version: ApiVersion | None = Field(
        None, description="version of slurmrestd's API, e.g. v0.0.41; the newest that is known when not set"
    )
    timeout_s: float = Field(
        10.0, gt=0, le=60, description="longest duration of one command, timeout of one request"
    )
    poll_s: float = Field(10.0, ge=1, le=600, description="how often the inventory reads all nodes and jobs")
    partitions: tuple[str, ...] = Field(
        (),
        description="which partition is the pool of a node that is in several: the first of these; else its first",
    )
    slinky: bool = Field(
        False,
        description="Slurm runs on this Kubernetes by Slinky: a cordon tells slurm-operator the incident as its reason",
    )
    alone: bool = Field(
        False, description="a site without Kubernetes: inventory and responder do not look for an API server"
    )

    @property
    def on(self) -> bool:
        """Whether Slurm is read and acted on."""
        return self.commands or self.url is not None

    def contradictions(self) -> Iterator[Contradiction]:
        """A site with Slurm alone that does not say how to reach it, and a slurmrestd without a token."""
        for key, value in (("user", self.user), ("token_file", self.token_file)):
            if self.url is not None and not value:
                yield (key, "url"), "not set, and slurm.url needs it"
        if self.alone and not self.on:
            yield ("commands", "alone"), "not set, and slurm.alone leaves nothing else to act on"
        if self.slinky and self.on:
            yield (
                ("slinky", "commands", "url"),
                "its nodes are pods of Kubernetes, whose nodes are closed instead: leave slurm.commands and slurm.url unset",
            )
