"""The diagnostics of `validate_node` and `faultline preflight`: files of the operator, each a Job and what its result has to be.

    diagnostic: dcgm-level-3
    reads: dcgmi              # dcgmi, nccl-tests, perftest, gpu-burn or exit-code
    expect: {gpus: 8, at_least: {busbw_avg_gb_s: 350}, warnings_fail: true}
    stall_s: 3600             # without an end after that, the session has stalled
    job: {apiVersion: batch/v1, kind: Job, spec: ...}

They run in the order of their file names, one at a time: each takes all GPUs of the node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from connectors.diagnostics.programs import PROGRAMS
from connectors.diagnostics.reading import Limits
from connectors.kubernetes.client import Object
from connectors.kubernetes.template_files import checked, files_in, yaml_in
from connectors.kubernetes.work_templates import Template, faults_of
from streams.model.errors import ConfigError

MAX_DIAGNOSTICS = 10
STALL_S = 3600.0


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One diagnostic: its Job, how its output is read, and what is expected of it."""

    name: str
    template: Template
    reads: str = "exit-code"
    limits: Limits = field(default_factory=Limits)
    stall_s: float = STALL_S


class _Expect(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    gpus: int | None = Field(None, ge=1, le=1024)
    at_least: dict[str, float] = Field(default_factory=dict)
    at_most: dict[str, float] = Field(default_factory=dict)
    warnings_fail: bool = True
    skips_fail: bool = False


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    diagnostic: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$")
    reads: str = "exit-code"
    expect: _Expect = Field(default_factory=_Expect)
    stall_s: float = Field(STALL_S, gt=0, le=86400)
    job: dict[str, Any]


def read_diagnostics(folder: Path, setting: str = "node_work.diagnostics") -> tuple[Diagnostic, ...]:
    """The diagnostics in a folder, in the order of their file names.

    Raises:
        ConfigError: it cannot be read, has none or too many, or one is invalid.
    """
    files = files_in(folder, setting, "diagnostics", MAX_DIAGNOSTICS)
    found = [read_diagnostic(file, setting) for file in files]
    names = [one.name for one in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"{setting}: {folder}: two diagnostics are named {', '.join(twice)}")
    return tuple(found)


def read_diagnostic(file: Path, setting: str = "node_work.diagnostics") -> Diagnostic:
    """One diagnostic from its file.

    Raises:
        ConfigError: it cannot be read or is invalid.
    """
    where = f"{setting}: {file}"
    given = checked(_File, yaml_in(file, where), where)
    if faults := list(_faults(given)):
        raise ConfigError("\n".join(f"{where}: {fault}" for fault in faults))
    want = given.expect
    limits = Limits(dict(want.at_least), dict(want.at_most), want.gpus, want.warnings_fail, want.skips_fail)
    job: Object = given.job
    return Diagnostic(given.diagnostic, Template("validate_node", job), given.reads, limits, given.stall_s)


def _faults(given: _File) -> Iterator[str]:
    yield from (f"job.{fault}" for fault in faults_of(given.job))
    if given.reads not in PROGRAMS:
        yield f"reads: {given.reads} is not known; known are {', '.join(sorted(PROGRAMS))}"
    if given.reads == "exit-code" and (given.expect.at_least or given.expect.at_most or given.expect.gpus):
        yield "expect: an exit code has no figures"
    deadline = (
        (given.job.get("spec") or {}).get("activeDeadlineSeconds")
        if isinstance(given.job.get("spec"), dict)
        else None
    )
    if isinstance(deadline, int) and given.stall_s <= deadline:
        yield f"stall_s: must be more than the Job's activeDeadlineSeconds ({deadline}), which counts from its start"
