"""gpu-burn: each GPU is `OK` or `FAULTY`, with its rate while it was burned.

10.0%  proc'd: 2790 (53184 Gflop/s) - 2790 (52310 Gflop/s)   errors: 0 - 0   temps: 61 C - 63 C
Tested 2 GPUs:
    GPU 0: OK
    GPU 1: FAULTY
"""

from __future__ import annotations

import re

from connectors.diagnostics.reading import Limits, Reading, unreadable

_TESTED = re.compile(r"^\s*Tested (\d{1,4}) GPUs?:", re.MULTILINE)
_GPU = re.compile(r"^\s*GPU (\d{1,4}): (OK|FAULTY)\b", re.MULTILINE)
_RATE = re.compile(r"\(([0-9.]{1,16}) Gflop/s\)")


def read_gpu_burn(text: str, _limits: Limits) -> Reading:
    """Figures: `gflops_min` and `gflops_avg` over the GPUs, of the last line of progress, and `gflops[N]` of each."""
    gpus = {int(number): state for number, state in _GPU.findall(text)}
    tested = _TESTED.search(text)
    if not gpus or tested is None:
        return unreadable("gpu-burn did not come to its end")
    faults = [f"GPU {number} is faulty" for number, state in sorted(gpus.items()) if state != "OK"]
    if len(gpus) != int(tested[1]):
        faults.append(f"{tested[1]} GPUs were tested, and {len(gpus)} have a result")
    figures: dict[str, float] = {}
    for line in re.split(r"[\r\n]+", text):
        rates = [float(rate) for rate in _RATE.findall(line) if rate.count(".") <= 1 and rate != "."]
        if len(rates) == len(gpus):
            figures = {f"gflops[{number}]": rate for number, rate in zip(sorted(gpus), rates, strict=True)}
            figures |= {"gflops_min": min(rates), "gflops_avg": sum(rates) / len(rates)}
    return Reading(figures, tuple(faults), len(gpus))
