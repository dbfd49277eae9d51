"""Settings of evidence that is collected in a job's pods before the job is stopped."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from streams.config.section import Section

HookName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,39}$")]
Word = Annotated[str, StringConstraints(min_length=1, max_length=500)]


class EvidenceHook(Section):
    """One command whose output is evidence: a stack, a dump of a recorder. It goes through no shell."""

    name: HookName = Field(description="how it is called in the run, e.g. py-spy")
    command: tuple[Word, ...] = Field(
        min_length=1,
        max_length=32,
        description='program and arguments, e.g. ["py-spy", "dump", "--pid", "1"]',
    )
    container: str | None = Field(None, description="container it runs in; the pod's first one when not set")
    families: tuple[str, ...] = Field((), description="families of incidents it is for; all when empty")
    timeout_s: float = Field(10.0, gt=0, le=30, description="after so long it is given up")
    max_bytes: int = Field(16_384, ge=1, le=262_144, description="how much of its output is read")


class EvidenceSettings(Section):
    """Commands that are run in the pods of a job on the faulty node, before the job is stopped. Off until there is one."""

    hooks: tuple[EvidenceHook, ...] = Field((), max_length=8, description="the commands, in their order")
    max_pods: int = Field(4, ge=1, le=16, description="how many pods of the node each is run in")

    @model_validator(mode="after")
    def _unique(self) -> EvidenceSettings:
        names = [hook.name for hook in self.hooks]
        if len(set(names)) < len(names):
            raise ValueError("two hooks have the same name")
        return self
