"""Whom to tell about a job: by what the job says of its owner, else by a file of the site. Nobody is guessed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import Field, model_validator

from streams.config.yaml_tables import Strict, load_table
from streams.model.entity import JobRef
from streams.model.facts import JobFact

_SLACK_ID = re.compile(r"[UWS][A-Z0-9]{6,20}", re.ASCII)
"""A person (U…, W…) or a group of people (S…)."""


class OwnerRow(Strict):
    """Jobs and whom to mention about them. Patterns are shell patterns; a row counts where all that it names fit."""

    owner: str | None = Field(None, description="what the job says of its owner")
    namespace: str | None = Field(None, description="pattern of the job's namespace")
    job: str | None = Field(None, description="pattern of the job's name")
    slack: str = Field(pattern=_SLACK_ID.pattern, description="id of a person or of a user group")

    @model_validator(mode="after")
    def _is_about_something(self) -> OwnerRow:
        if self.owner is self.namespace is self.job is None:
            raise ValueError("a row needs owner, namespace or job")
        if not _SLACK_ID.fullmatch(self.slack):
            raise ValueError("slack is no id of a person or a user group")
        return self

    def fits(self, job: JobRef, owner: str) -> bool:
        """Whether the row is about a job whose object names this owner (empty where it names none)."""
        return (
            (self.owner is None or self.owner == owner)
            and (self.namespace is None or fnmatchcase(job.namespace, self.namespace))
            and (self.job is None or fnmatchcase(job.name, self.job))
        )


class JobOwners:
    """Owners as Slack knows them."""

    def __init__(self, rows: Sequence[OwnerRow] = ()) -> None:
        self._rows = tuple(rows)

    @classmethod
    def load(cls, path: Path | None) -> JobOwners:
        """The owners of a file; without one, only ids that jobs name themselves count.

        Raises:
            ConfigError: naming the first row that is wrong.
        """
        return cls() if path is None else cls(load_table(path, list[OwnerRow]))

    def slack_id(self, job: JobRef, fact: JobFact | None) -> str | None:
        """Whom to mention: the id that the job names, else the first row that fits, else nobody."""
        named = ((fact.owner if fact is not None else None) or "").strip()
        if _SLACK_ID.fullmatch(named):
            return named
        return next((row.slack for row in self._rows if row.fits(job, named)), None)
