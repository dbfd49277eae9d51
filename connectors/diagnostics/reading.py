"""The result of one diagnostic: what was measured, what is wrong, and whether that passes.

The output of a diagnostic leaves its pod in the termination message, of which the kubelet keeps the last 4096 bytes. Longer
output is packed by the template (`gzip -9 | base64`); it is unpacked here, within limits: a pod's words are untrusted. Output
that is cut off, or says nothing about what was asked, is a failed diagnostic: a node comes back on proof, not for lack of it.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

MAX_UNPACKED = 512 * 1024
"""Bytes of unpacked output that are read: dcgmi's JSON of eight GPUs at level 4 has about 60 KB."""
_PACKED = "H4sI"
"""How base64 of any gzip stream begins."""
MAX_FAULTS = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """What the operator expects of the figures, by name: at least, and at most. `gpus`: how many have to be in the result."""

    at_least: Mapping[str, float] = field(default_factory=dict)
    at_most: Mapping[str, float] = field(default_factory=dict)
    gpus: int | None = None
    warnings_fail: bool = True
    skips_fail: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """What a diagnostic found. `figures` are by name, with the unit in it; `faults` are empty when it passed."""

    figures: Mapping[str, float] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    gpus: int | None = None
    """How many GPUs the result names; None where it names none."""
    summary: str = ""

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults

    def __str__(self) -> str:
        parts = [self.summary] if self.summary else []
        parts += [f"{name} {value:g}" for name, value in self.figures.items() if "[" not in name]
        if self.faults:
            more = f" and {len(self.faults) - MAX_FAULTS} more" if len(self.faults) > MAX_FAULTS else ""
            parts.append("; ".join(self.faults[:MAX_FAULTS]) + more)
        return ", ".join(parts) or "no figures"


def unreadable(why: str) -> Reading:
    """The reading of output that proves nothing."""
    return Reading(faults=(f"its result cannot be read: {why}",))


def unpacked(message: str) -> str:
    """The output in a termination message, unpacked where it is packed.

    Raises:
        ValueError: it is packed and damaged, cut off, or too long.
    """
    text = message.strip()
    if not text.startswith(_PACKED):
        return message
    try:
        packed = base64.b64decode("".join(text.split()), validate=True)
        stream = zlib.decompressobj(wbits=31)
        plain = stream.decompress(packed, MAX_UNPACKED)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"packed output is damaged: {error}") from error
    if stream.unconsumed_tail:
        raise ValueError(f"more than {MAX_UNPACKED} bytes of output")
    if not stream.eof:
        raise ValueError("packed output is cut off: a termination message has at most 4096 bytes")
    return plain.decode("utf-8", "replace")


def against(reading: Reading, limits: Limits) -> Reading:
    """The reading with a fault for every limit that it does not keep to. A figure that is missing keeps to none."""
    faults = [*reading.faults, *_out_of_limits(reading.figures, limits)]
    if limits.gpus is not None and reading.gpus != limits.gpus:
        faults.append(f"{reading.gpus or 0} GPUs in the result, {limits.gpus} expected")
    return Reading(reading.figures, tuple(faults), reading.gpus, reading.summary)


def _out_of_limits(figures: Mapping[str, float], limits: Limits) -> Iterable[str]:
    for name, bound in limits.at_least.items():
        if (value := figures.get(name)) is None:
            yield f"no {name} in the result"
        elif not value >= bound:
            yield f"{name} is {value:g}, at least {bound:g} expected"
    for name, bound in limits.at_most.items():
        if (value := figures.get(name)) is None:
            yield f"no {name} in the result"
        elif not value <= bound:
            yield f"{name} is {value:g}, at most {bound:g} expected"
