"""The XID catalog: what a code means, what NVIDIA recommends, and how NVLink 5 errors are decoded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from pydantic import Field

from streams.config.vocabularies import ActionName, FamilyName
from streams.config.yaml_tables import Strict
from streams.detect.catalog import load_catalog
from streams.detect.matching import re2_patterns
from streams.detect.matching.log_patterns import PatternSample
from streams.model.signal import Severity


class XidCode(Strict):
    """One code, or several that mean the same. `action` and `investigatory` are NVIDIA's buckets."""

    codes: tuple[int, ...]
    mnemonic: str
    action: ActionName
    investigatory: ActionName
    severity: Severity
    family: FamilyName
    cause: str
    eval_154: bool = Field(
        False, description="a 154 for the same GPU usually follows and overrides the action"
    )
    sample: str | None = None

    @property
    def attributes(self) -> dict[str, str]:
        """What the catalog adds to a signal of the code."""
        return {"mnemonic": self.mnemonic, "action": self.action, "family": self.family}


class Recovery(Strict):
    """A recovery action that a 154 may ask for."""

    value: int
    words: str
    action: ActionName
    severity: Severity


class Nvlink5Rule(Strict):
    """The action for errors of one unit; the first rule that fits counts. `unit` is a prefix of the printed name."""

    unit: str
    status: tuple[int, ...] = ()
    reset_bits: tuple[int, int] | None = None
    down_reasons: tuple[int, ...] = ()
    action: ActionName


class LinkDown(Strict):
    """Why a link went down."""

    codes: tuple[int, ...]
    means: str


class Body(Strict):
    """The fields in the message of these codes: RE2 patterns with named groups."""

    codes: tuple[int, ...]
    fields: tuple[str, ...]


class RegisterBits(Strict):
    """The meaning of bits in one register of a 74."""

    word: int
    bits: tuple[int, ...]
    means: str


class GluedSample(Strict):
    """Two messages on one line and the codes they hold."""

    text: str
    xids: tuple[int, ...]


class XidCatalog(Strict):
    """`catalog/xid.yaml`."""

    codes: tuple[XidCode, ...]
    unknown: XidCode
    recovery: tuple[Recovery, ...]
    nvlink5: tuple[Nvlink5Rule, ...]
    nvlink5_subcodes: dict[str, tuple[int | None, int | None]]
    link_down: tuple[LinkDown, ...]
    integers: tuple[str, ...]
    bodies: tuple[Body, ...]
    nvlink_registers: tuple[RegisterBits, ...]
    samples: tuple[PatternSample, ...]
    glued: tuple[GluedSample, ...]
    look_alikes: tuple[str, ...]


@cache
def catalog() -> XidCatalog:
    """The catalog, read once."""
    return load_catalog("xid", XidCatalog)


@cache
def _by_code() -> dict[int, XidCode]:
    return {code: row for row in catalog().codes for code in row.codes}


def code(number: int) -> XidCode:
    """The row of a code, `unknown` for an unlisted one."""
    return _by_code().get(number, catalog().unknown)


def is_known(number: object) -> bool:
    """Whether a code has a row of its own."""
    return number in _by_code()


@cache
def body(number: int) -> tuple[re2_patterns.Pattern, ...]:
    """The patterns for the message of a code."""
    rows = catalog().bodies
    return tuple(re2_patterns.compile(field) for row in rows if number in row.codes for field in row.fields)


def register_meanings(registers: Sequence[int]) -> tuple[str, ...]:
    """The meanings of the registers of a 74, the most specific first, without bits that are safe to ignore."""
    found: dict[str, None] = {}
    for row in catalog().nvlink_registers:
        word = registers[row.word] if row.word < len(registers) else 0
        if any(word >> bit & 1 for bit in row.bits):
            found[row.means] = None
    return tuple(found)


def recovery(words: str, value: int) -> Recovery | None:
    """The recovery a 154 asks for, by its words, else by its number; None for an unknown number."""
    rows = catalog().recovery
    by_words = next((row for row in rows if row.words.lower() == words.strip().lower()), None)
    return by_words or next((row for row in rows if row.value == value), None)


_UNIT_IDS = {"SAW": 1, "RLW": 2, "TLW": 3, "TREX": 4, "NVLPW": 5, "NETIR": 6}


def subcode(unit: str, interrupt: int) -> int:
    """The sub-code in intrInfo: bits 9 to 5 before driver R575, bits 6 to 0 since."""
    return interrupt >> 5 & 0x1F if is_before_r575(unit, interrupt) else interrupt & 0x7F


def is_before_r575(unit: str, interrupt: int) -> bool:
    """True for the older layout of intrInfo, which has the unit's number in its lowest five bits.

    Some words fit both layouts; then the one whose sub-code is known for the unit counts.
    """
    repeats = any(unit.startswith(name) and interrupt & 0x1F == number for name, number in _UNIT_IDS.items())
    if (known := catalog().nvlink5_subcodes.get(unit)) is None:
        return repeats
    older, newer = known
    if repeats and interrupt >> 5 & 0x1F == older:
        return True
    return repeats and interrupt & 0x7F != newer


def link_down_reason(unit: str, interrupt: int) -> int | None:
    """Bits 25 to 20 of intrInfo, for the two events that carry a link-down reason; else None."""
    return interrupt >> 20 & 0x3F if unit.startswith("NETIR_LINK") else None


def link_down_meaning(reason: int) -> str | None:
    """The meaning of a link-down reason, None for an unlisted one."""
    return next((row.means for row in catalog().link_down if reason in row.codes), None)


def nvlink5_action(unit: str, fatal: bool, words: Sequence[int]) -> str:
    """The action for an NVLink 5 error of `unit`; `words` are intrInfo, errorStatus … as far as the line holds them."""
    interrupt = words[0] if words else None
    status = words[1] if len(words) > 1 else None
    for rule in catalog().nvlink5:
        if rule.unit != "*" and not unit.startswith(rule.unit):
            continue
        if rule.status and status not in rule.status:
            continue
        if rule.reset_bits and not (interrupt is not None and _bit_set(rule.reset_bits, unit, interrupt)):
            continue
        if rule.down_reasons and (
            interrupt is None or link_down_reason(unit, interrupt) not in rule.down_reasons
        ):
            continue
        return rule.action
    return "reset_gpu" if fatal else "ignore"


def _bit_set(bits: tuple[int, int], unit: str, interrupt: int) -> bool:
    older, newer = bits
    return bool(interrupt >> (older if is_before_r575(unit, interrupt) else newer) & 1)
