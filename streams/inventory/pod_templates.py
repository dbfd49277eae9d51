"""What is read of a pod's spec. Most of it is the same for all pods of a job, and for the template in the job's own object.

The rest of a spec (volumes, nearly all of the environment) is never looked at, and is most of a pod.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import Any
from weakref import WeakValueDictionary

import orjson

from streams.inventory.names import names
from streams.inventory.objects import gpus_requested
from streams.inventory.workload_table import workloads
from streams.model.kinds import WorkloadClass
from streams.model.kube_objects import items, text, whole
from streams.model.slurmd_pod import DAEMON, runs_slurmd

_NPROC_FLAG = re.compile(r"--nproc[-_]per[-_]node(?:[= ]|\Z)\s*(\S+)?", re.ASCII)
_MOST_OF_A_COMMAND = 20_000
"""Characters of a command line that are read."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class PodTemplate:
    """What many pods have in common. Two are the same where they are one object: `PodTemplates` has each once."""

    gpus: int
    """GPUs that a pod holds while it runs."""
    ranks: int
    """Processes of the collective in one pod, as the pod itself says it, else one per GPU, else one."""
    has_containers: bool
    commands: frozenset[str]
    """Those words of its command lines that the table of workloads asks for."""
    images: frozenset[WorkloadClass]
    """What the names of its images speak for."""
    trains: bool
    """Whether an environment variable is set that starts a world of ranks."""
    slurmd: bool = False
    """Whether the pod is a node of Slurm."""


class PodTemplates:
    """The templates that some pod or job holds, one of each; a template goes with the last that holds it."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[bytes, PodTemplate] = WeakValueDictionary()

    def of(self, spec: Mapping[str, Any], env: Mapping[str, str] | None = None) -> PodTemplate:
        """The template of a pod's spec. `env` is what `variables` says of it, where that is known."""
        if env is None:
            env = variables(spec)
        table = names()
        ranks = [env.get(name) for name in table.ranks_per_pod_env]
        trains = any(name in env for name in workloads().training_env)
        containers = [
            (
                one.get("name") == DAEMON,
                one.get("image"),
                one.get("command"),
                one.get("args"),
                one.get("resources"),
            )
            for one in items(spec, "containers")
        ]
        first = [one.get("resources") for one in items(spec, "initContainers")]
        # Pods bear names of their own in what is not read (a volume of their token): of a spec as a whole no two are alike.
        digest = blake2b(orjson.dumps((containers, first, ranks, trains)), digest_size=16).digest()
        found = self._known.get(digest)
        if found is None:
            found = self._known[digest] = _template(spec, ranks, trains)
        return found


def _template(spec: Mapping[str, Any], ranks: list[str | None], trains: bool) -> PodTemplate:
    table = workloads()
    containers = list(items(spec, "containers"))
    lines = [command_line(container) for container in containers]
    said = [*ranks, *(flag[1] if (flag := _NPROC_FLAG.search(line)) else None for line in lines)]
    gpus = gpus_requested(spec)
    images = [str(container.get("image") or "") for container in containers]
    return PodTemplate(
        gpus=gpus,
        ranks=next((count for value in said if (count := whole(value))), 0) or gpus or 1,
        has_containers=bool(containers),
        commands=frozenset(word for line in lines for word in _words(line)) & _telling_words(),
        images=frozenset(
            found
            for found, pieces in table.images.items()
            if any(piece in image for image in images for piece in pieces)
        ),
        trains=trains,
        slurmd=any(map(runs_slurmd, containers)),
    )


def variables(spec: Mapping[str, Any]) -> dict[str, str]:
    """Environment variables by which ranks and kinds of work are told.

    Each has the literal value of the first container that has one; references count as unset.
    """
    telling = _telling_variables()
    found: dict[str, str] = {}
    for container in items(spec, "containers"):
        for variable in items(container, "env"):
            name = variable.get("name")
            if name in telling and (value := text(variable, "value")) is not None:
                found.setdefault(str(name), value)
    return found


def command_line(container: Mapping[str, Any]) -> str:
    """The command of a container with its arguments."""
    words = [str(word) for key in ("command", "args") for word in container.get(key) or []]
    return " ".join(words)[:_MOST_OF_A_COMMAND]


def _words(line: str) -> list[str]:
    """The words of a command line, each also without the folders before it."""
    words = line.split()
    return words + [word.rpartition("/")[2] for word in words if "/" in word]


@cache
def _telling_words() -> frozenset[str]:
    return frozenset().union(*workloads().commands.values())


@cache
def _telling_variables() -> frozenset[str]:
    table = names()
    told = (table.node_rank_env, table.node_list_env, table.ranks_per_pod_env, workloads().training_env)
    return frozenset({"RANK", *(name for group in told for name in group)})
