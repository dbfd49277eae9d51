"""The table of families in `families.yaml`, and the part an XID plays: cause, application fault, symptom or context."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from streams.correlate.sightings import Sighting
from streams.model.errors import ConfigError
from streams.model.incident import Certainty
from streams.model.signal import Severity

_FILE = Path(__file__).with_name("families.yaml")

Role = Literal["cause", "application", "symptom", "context"]

RECOVERY_ACTION = 154
"""GPU_RECOVERY_ACTION_CHANGED: no fault by itself, it carries what the driver requires (Xid catalog, 154)."""


class Family(BaseModel):
    """One row: how a family ranks and how it is told."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rank: int
    domain: str
    severity: Severity
    title: str
    reason: str
    explains: tuple[str, ...]
    cap: Certainty = Certainty.DECISIVE


class _Actions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    decisive: frozenset[str]
    context: frozenset[str]


class Families(BaseModel):
    """The whole table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    families: Mapping[str, Family]
    actions: _Actions
    symptoms: frozenset[int]
    quiet_alone: frozenset[int]

    def __getitem__(self, name: str) -> Family:
        return self.families[name]

    def in_domain(self, domain: str) -> tuple[str, ...]:
        """Names of the families that share their count of incarnations."""
        return tuple(name for name, family in self.families.items() if family.domain == domain)

    @property
    def domains(self) -> frozenset[str]:
        """Every domain in which incarnations are counted."""
        return frozenset(family.domain for family in self.families.values())

    def role(self, sighting: Sighting) -> Role:
        """What an XID or an off-bus line can be at most."""
        if sighting.kind == "gpu.off_bus":
            return "cause"
        if sighting.code in self.symptoms:
            return "symptom"
        if self.family_of(sighting) == "application":
            return "application"
        return "context" if sighting.text("action") in self.actions.context else "cause"

    def family_of(self, sighting: Sighting) -> str:
        """The family its catalog row names; a name that this table lacks is `unknown`."""
        if sighting.kind == "gpu.off_bus":
            return "gpu_off_bus"
        named = sighting.text("family") or ("gpu_fault" if sighting.code == RECOVERY_ACTION else "unknown")
        if sighting.code == RECOVERY_ACTION and named in ("unknown", "application"):
            return "gpu_fault"
        return named if named in self.families else "unknown"

    def certainty(self, sighting: Sighting) -> Certainty:
        """How far one cause goes by itself."""
        family = self.family_of(sighting)
        if family == "unknown":
            return Certainty.WEAK
        if sighting.kind == "gpu.off_bus":
            return Certainty.DECISIVE
        if sighting.text("action") not in self.actions.decisive:
            return Certainty.LIKELY
        return self[family].cap


_LEVELS = [Certainty.WEAK, Certainty.LIKELY, Certainty.DECISIVE]


def at_most(certainty: Certainty, cap: Certainty) -> Certainty:
    """The lower of two certainties."""
    return min(certainty, cap, key=_LEVELS.index)


def level(certainty: Certainty) -> int:
    """0 for weak up to 2 for decisive."""
    return _LEVELS.index(certainty)


@cache
def families() -> Families:
    """The table that ships.

    Raises:
        ConfigError: when the file is damaged.
    """
    try:
        return Families.model_validate(yaml.safe_load(_FILE.read_text()))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise ConfigError(f"{_FILE.name}: {error}") from error
