"""The SXid catalog as values: what an NVSwitch error means and what is to be done about it."""

from __future__ import annotations

from functools import cache

from streams.config.yaml_tables import Strict
from streams.detect.catalog import load_catalog
from streams.detect.matching.log_patterns import PatternSample
from streams.model.signal import Severity


class SxidEffect(Strict):
    """Codes that have the same effect; `fatal` is what counts when the line does not say."""

    codes: tuple[int, ...]
    effect: str
    action: str
    fatal: bool
    severity: Severity


class Unit(Strict):
    """The part of the switch whose codes lie between `first` and `last`."""

    first: int
    last: int
    mnemonic: str
    family: str


class SxidCatalog(Strict):
    """`catalog/sxid.yaml`."""

    effects: tuple[SxidEffect, ...]
    unknown: SxidEffect
    units: tuple[Unit, ...]
    samples: tuple[PatternSample, ...]
    look_alikes: tuple[str, ...]


class SxidCode(Strict):
    """One code: its effect, and which part of the switch it is about."""

    mnemonic: str
    family: str
    effect: SxidEffect

    @property
    def action(self) -> str:
        """What is to be done."""
        return self.effect.action


@cache
def catalog() -> SxidCatalog:
    """The catalog, read once."""
    return load_catalog("sxid", SxidCatalog)


@cache
def _effects() -> dict[int, SxidEffect]:
    return {code: row for row in catalog().effects for code in row.codes}


@cache
def code(number: int) -> SxidCode:
    """What is known of a code; for one that no table lists, what is known of its range."""
    units = catalog().units
    unit = next((row for row in units if row.first <= number <= row.last), units[-1])
    return SxidCode(
        mnemonic=unit.mnemonic, family=unit.family, effect=_effects().get(number, catalog().unknown)
    )


def severity(row: SxidCode, said: str) -> Severity:
    """The line's own word counts before the table: `Fatal`, `Non-fatal` or empty."""
    table = row.effect.severity
    if said == "Fatal":
        return (
            max(table, Severity.ERROR, key=lambda level: level.rank) if row.effect.fatal else Severity.ERROR
        )
    if said == "Non-fatal" and row.effect.fatal:
        return Severity.WARNING
    return table
