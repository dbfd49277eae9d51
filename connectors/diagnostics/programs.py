"""The diagnostics whose output is understood, by the name that a template gives in `reads`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from connectors.diagnostics.dcgm import read_dcgm
from connectors.diagnostics.gpu_burn import read_gpu_burn
from connectors.diagnostics.nccl_tests import read_nccl_tests
from connectors.diagnostics.perftest import read_perftest
from connectors.diagnostics.reading import Limits, Reading, against, unpacked, unreadable
from streams.model.message import plain

MAX_WORDS = 300


def _by_exit_code(text: str, _limits: Limits) -> Reading:
    return Reading(summary=" ".join(plain(text, MAX_WORDS).split()))


PROGRAMS: Mapping[str, Callable[[str, Limits], Reading]] = {
    "dcgmi": read_dcgm,
    "nccl-tests": read_nccl_tests,
    "perftest": read_perftest,
    "gpu-burn": read_gpu_burn,
    "exit-code": _by_exit_code,
}


def read(program: str, message: str, exit_code: int | None, limits: Limits) -> Reading:
    """The verdict about a diagnostic that has ended: its exit code counts, whatever its output says.

    `exit_code` is None where the pod ended without one (evicted, node lost).
    """
    try:
        found = against(PROGRAMS[program](unpacked(message), limits), limits)
    except ValueError as error:
        found = unreadable(str(error))
    if exit_code == 0:
        return found
    how = "its container has no exit code" if exit_code is None else f"exit code {exit_code}"
    # What cannot be read of a program that failed is no second fault: the exit code says enough.
    told = found.faults if not any("cannot be read" in fault for fault in found.faults) else ()
    words = " ".join(plain(message, MAX_WORDS).split()) if not told and not message.startswith("H4sI") else ""
    return Reading(
        found.figures, (how, *told, *((words,) if words else ())), found.gpus, found.summary if told else ""
    )
