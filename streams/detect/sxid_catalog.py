"""The SXid catalog: what an NVSwitch error means and what to do about it."""

from __future__ import annotations

from functools import cache

from streams.config.vocabularies import ActionName, DeviceFamily
from streams.config.yaml_tables import Strict
from streams.detect.catalog import load_catalog
from streams.detect.matching.log_patterns import PatternSample
from streams.model.signal import Severity


class SxidEffect(Strict):
    """Codes with the same effect. `fatal` counts when the line does not say."""

    codes: tuple[int, ...]
    effect: str
    action: ActionName
    fatal: bool
    severity: Severity


class Unit(Strict):
    """The part of the switch whose codes lie between `first` and `last`."""

    first: int
    last: int
    mnemonic: str
    family: DeviceFamily


class SxidCatalog(Strict):
    """`catalog/sxid.yaml`."""

    effects: tuple[SxidEffect, ...]
    unknown: SxidEffect
    units: tuple[Unit, ...]
    samples: tuple[PatternSample, ...]
    look_alikes: tuple[str, ...]


class SxidCode(Strict):
    """One code: its effect and the part of the switch."""

    mnemonic: str
    family: str
    effect: SxidEffect

    @property
    def attributes(self) -> dict[str, str]:
        """What the catalog adds to a signal of the code."""
        return {"mnemonic": self.mnemonic, "action": self.effect.action, "family": self.family}


@cache
def catalog() -> SxidCatalog:
    """The catalog, read once."""
    return load_catalog("sxid", SxidCatalog)


@cache
def _effects() -> dict[int, SxidEffect]:
    return {code: row for row in catalog().effects for code in row.codes}


def is_known(number: object) -> bool:
    """Whether a code has a row of its own; the part of the switch is known of any."""
    return number in _effects()


@cache
def code(number: int) -> SxidCode:
    """The code; for an unlisted one, the part of the switch its range belongs to."""
    units = catalog().units
    unit = next((row for row in units if row.first <= number <= row.last), units[-1])
    return SxidCode(
        mnemonic=unit.mnemonic, family=unit.family, effect=_effects().get(number, catalog().unknown)
    )


def severity(row: SxidCode, printed: str) -> Severity:
    """The severity: what the line says (`Fatal`, `Non-fatal` or empty) counts before the table."""
    table = row.effect.severity
    if printed == "Fatal":
        return (
            max(table, Severity.ERROR, key=lambda level: level.rank) if row.effect.fatal else Severity.ERROR
        )
    if printed == "Non-fatal" and row.effect.fatal:
        return Severity.WARNING
    return table
