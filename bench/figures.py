"""How every bench speaks: progress to standard error, one JSON object with the figures at the very end of standard output."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from statistics import median

import orjson

Figure = float | int | str | None | Mapping[str, "Figure"]


def progress(text: str) -> None:
    """Tell a person what is being done."""
    print(text, file=sys.stderr, flush=True)


def report(figures: Mapping[str, Figure], *, packages: Iterable[str] = ()) -> None:
    """Print the figures with the machine and the versions they were taken on; call it once, last.

    Args:
        figures: Values by name, units in the names. Floats are rounded to four significant digits.
        packages: Installed packages whose versions matter to the figures, besides Python itself.
    """
    versions = {"python": platform.python_version(), **{name: version(name) for name in packages}}
    everything = {**_rounded(figures), "machine": machine(), "versions": versions}
    print(orjson.dumps(everything).decode(), flush=True)


def machine() -> dict[str, str | int]:
    """What the figures were taken on: processor, cores, memory in GiB and how busy the machine was (1 min load)."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count() or 0,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "load": f"{os.getloadavg()[0]:.1f}",
        "system": f"{platform.system()} {platform.release()}",
    }


def middle(rounds: Iterable[float]) -> float:
    """The median of the rounds, which is what counts."""
    return float(median(rounds))


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )


def _rounded(figures: Mapping[str, Figure]) -> dict[str, Figure]:
    return {
        name: _rounded(value)
        if isinstance(value, Mapping)
        else float(f"{value:.4g}")
        if isinstance(value, float)
        else value
        for name, value in figures.items()
    }
