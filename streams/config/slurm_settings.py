"""Settings of Slurm. Without `commands` nothing is asked of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from streams.config.section import Contradiction, Section


class SlurmSettings(Section):
    """Slurm: its nodes and jobs are read and acted on by its commands."""

    commands: bool = Field(
        False, description="by scontrol, squeue and sinfo, where this process is a client of Slurm"
    )
    commands_folder: Path | None = Field(
        None, description="where they lie; the PATH is searched when not set"
    )
    config_file: Path | None = Field(None, description="Slurm's own configuration (SLURM_CONF)")
    timeout_s: float = Field(10.0, gt=0, le=60, description="longest duration of one command")
    poll_s: float = Field(10.0, ge=1, le=600, description="how often the inventory reads all nodes and jobs")
    partitions: tuple[str, ...] = Field(
        (),
        description="which partition is the pool of a node that is in several: the first of these; else its first",
    )
    alone: bool = Field(
        False, description="a site without Kubernetes: inventory and responder do not look for an API server"
    )

    @property
    def on(self) -> bool:
        """Whether Slurm is read and acted on."""
        return self.commands

    def contradictions(self) -> Iterator[Contradiction]:
        """A site with Slurm alone that does not say how to reach it."""
        if self.alone and not self.on:
            yield ("commands", "alone"), "not set, and slurm.alone leaves nothing else to act on"
