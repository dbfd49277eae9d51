"""Checks what settings refer to: files, folders, runbooks, logins. A process checks what it uses, `config check` everything.

Separate from the settings, because a file mounted into one pod is missing in another.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from faultline.runtime.processes import PROCESSES
from faultline.runtime.settings import Settings
from streams.config.table_overlay import VARIABLE as CATALOG_DIR
from streams.config.table_overlay import unknown_files
from streams.model.errors import BadInput, ConfigError


def require(settings: Settings, process: str) -> None:
    """Check that everything a process needs exists.

    Raises:
        ConfigError: with a line for each problem.
    """
    if found := faults(settings, (process,)):
        raise ConfigError(
            f"the settings of the {process} are not usable:\n" + "\n".join(f"  {f}" for f in found)
        )


def faults(settings: Settings, processes: tuple[str, ...] = tuple(PROCESSES)) -> list[str]:
    """The problems for any of the processes, without duplicates."""
    found = [*_kafka(settings), *_catalog()]
    for name in processes:
        if name in _CHECKS:
            found += _CHECKS[name](settings)
    return list(dict.fromkeys(found))


def _kafka(settings: Settings) -> Iterator[str]:
    for key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        yield from _file(f"kafka.{key}", getattr(settings.kafka, key))


def _catalog() -> Iterator[str]:
    if folder := os.environ.get(CATALOG_DIR):
        try:
            yield from unknown_files(Path(folder))
        except ConfigError as error:
            yield f"{CATALOG_DIR}: {error}; name the folder of your rows, or unset it"


def _inventory(settings: Settings) -> Iterator[str]:
    from streams.inventory.topology_file import read_topology
    from streams.model.clock import utc_now

    yield from _kubernetes(settings)
    wanted = settings.inventory
    missing = list(_file("inventory.topology_file", wanted.topology_file))
    yield from missing
    if wanted.topology_file is not None and not missing:
        try:
            read_topology(settings.cluster, wanted.topology_file.read_text(encoding="utf-8"), utc_now())
        except (BadInput, UnicodeDecodeError) as error:
            yield f"inventory.topology_file: {wanted.topology_file}: {error}"
    if wanted.lldp_folder is not None and not wanted.lldp_folder.is_dir():
        yield f"inventory.lldp_folder: {wanted.lldp_folder} is not a directory; make it, or take the key out"


def _responder(settings: Settings) -> Iterator[str]:
    from connectors.kubernetes.node_work import diagnostics_of, read_templates
    from connectors.kubernetes.work_diagnostics import read_diagnostic
    from connectors.kubernetes.work_object_templates import objects_of
    from connectors.power.bmc_address import file_faults
    from faultline.runtime.runbook_files import of_responder

    yield from _kubernetes(settings)
    for read in (
        lambda: of_responder(settings.responder),
        lambda: read_templates(settings.node_work),
        lambda: diagnostics_of(settings.node_work),
        lambda: objects_of(settings.node_work),
        lambda: settings.node_work.pairs and read_diagnostic(settings.node_work.pairs, "node_work.pairs"),
    ):
        try:
            read()
        except ConfigError as error:
            yield from str(error).splitlines()
    yield from file_faults(settings.node_work.redfish)
    if settings.tickets.system == "jira-dc" and not settings.jira.base_url:
        yield "jira.base_url: not set, but required because tickets.system is jira-dc"
    if settings.jira.base_url and settings.tickets.system in ("jira", "jira-dc"):
        for key in ("user", "token"):
            # Data Center takes a personal access token without a user.
            needless = key == "user" and settings.tickets.system == "jira-dc"
            if not needless and not getattr(settings.jira, key):
                yield f"jira.{key}: not set, but required because jira.base_url is set"


def _slurm(settings: Settings) -> Iterator[str]:
    wanted = settings.slurm
    yield from _file("slurm.config_file", wanted.config_file)
    yield from _file("slurm.token_file", wanted.token_file)
    if wanted.commands:
        for program in ("scontrol", "squeue", "sinfo"):
            if (
                shutil.which(program, path=str(wanted.commands_folder) if wanted.commands_folder else None)
                is None
            ):
                where = wanted.commands_folder or "the PATH"
                yield f"slurm.commands: there is no {program} in {where} (slurm.commands_folder)"


def _kubernetes(settings: Settings) -> Iterator[str]:
    from connectors.kubernetes.kubeconfig import check

    yield from _slurm(settings)
    wanted = settings.kubernetes
    if wanted.kubeconfig is None:
        if wanted.context is not None:
            yield "kubernetes.context: ignored, because kubernetes.kubeconfig is not set"
        return
    try:
        check(wanted.kubeconfig, wanted.context)
    except ConfigError as error:
        yield str(error)


def _file(key: str, path: Path | None) -> Iterator[str]:
    if path is None:
        return
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        yield f"{key}: cannot read {path}: {error.strerror}; mount or create it where this runs, or take the key out"


_CHECKS: Mapping[str, Callable[[Settings], Iterator[str]]] = {
    "inventory": _inventory,
    "responder": _responder,
}
