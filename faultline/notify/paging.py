"""Who is woken, as `paging.yaml` says it: the first row that fits an incident's situation."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from faultline.notify.situations import Situation, Standing
from streams.config.yaml_tables import Strict, load_table
from streams.model.incident import Certainty, Incident
from streams.model.kinds import IncidentFamily
from streams.model.signal import Severity


class Kind(StrEnum):
    """What kind of fault a family is, as far as paging goes."""

    DEVICE = "device"
    SHARED = "shared"
    JOB = "job"
    NOTICE = "notice"


class FamilyRow(Strict):
    """The kind of a family, and why."""

    kind: Kind
    why: str = Field(min_length=10)


class PageRow(Strict):
    """Whether such an incident wakes somebody, after how long, and why."""

    situation: Situation
    kinds: tuple[Kind, ...] = tuple(Kind)
    certainty: tuple[Certainty, ...] = tuple(Certainty)
    severity: Severity = Severity.INFO
    jobs: int = Field(0, ge=0)
    page: Literal["always", "never", "if_asked"]
    after_s: float = Field(0.0, ge=0)
    why: str = Field(min_length=5)

    def fits(self, incident: Incident, situation: Situation, kind: Kind) -> bool:
        """Whether the row is about such an incident."""
        return (
            self.situation is situation
            and kind in self.kinds
            and incident.certainty in self.certainty
            and incident.severity.rank >= self.severity.rank
            and incident.impact.jobs >= self.jobs
        )


class Paging(Strict):
    """The whole table."""

    families: dict[IncidentFamily, FamilyRow]
    rows: tuple[PageRow, ...]

    @model_validator(mode="after")
    def _ends_every_situation(self) -> Paging:
        if missing := [family for family in IncidentFamily if family not in self.families]:
            raise ValueError(f"families without a row: {', '.join(missing)}")
        for situation in Situation:
            last = [row for row in self.rows if row.situation is situation][-1:]
            if not last or last[0] != PageRow(situation=situation, page=last[0].page, why=last[0].why):
                raise ValueError(f"the last row of {situation} has to fit every incident")
        return self

    def row(self, incident: Incident, situation: Situation) -> PageRow:
        """The row that decides. A family that a newer version writes counts as `unknown`."""
        known = incident.family in IncidentFamily._value2member_map_
        kind = self.families[IncidentFamily(incident.family) if known else IncidentFamily.UNKNOWN].kind
        return next(row for row in self.rows if row.fits(incident, situation, kind))

    def due(self, incident: Incident, standing: Standing, *, shadow: bool) -> datetime | None:
        """When somebody is to be woken about it, in the past where it is time; None for never."""
        row = self.row(incident, standing.situation)
        if row.page == "never" or (row.page == "if_asked" and not shadow):
            return None
        return standing.since + timedelta(seconds=row.after_s)


@cache
def paging() -> Paging:
    """The table that ships.

    Raises:
        ConfigError: naming the first key that is wrong.
    """
    return load_table(Path(__file__).parent / "paging.yaml", Paging)
