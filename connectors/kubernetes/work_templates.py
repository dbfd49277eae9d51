"""Jobs that work on a node: the operator's template, and the Job that Faultline makes from it for one effect. Pure.

The operator's file is a plain `batch/v1` Job: its image, its command and its privileges are theirs. Faultline adds what
must be guaranteed: the name (the same for the same effect, so it is created at most once), the one node, a single try, and
the facts of the incident as environment variables. They are data: no text of an incident ever becomes part of a command.

    FAULTLINE_NODE, FAULTLINE_BOOT_ID                            the node, and its boot id when the work was planned
    FAULTLINE_GPU_PCI, FAULTLINE_GPU_UUID, FAULTLINE_GPU_INDEX   the GPU, empty where it is not known
    FAULTLINE_INCIDENT, FAULTLINE_RUN, FAULTLINE_EFFECT          what it is done for
    FAULTLINE_PARAM_*                                            the step's parameters, in capitals
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connectors.base import Effect
from connectors.kubernetes.annotations import EFFECT, INCIDENT, NODE_WORK, RUN, WORK_BOOT_ID, WORK_NODE
from connectors.kubernetes.client import Object
from connectors.kubernetes.template_files import yaml_in
from streams.model.digest import digest
from streams.model.errors import ConfigError
from streams.model.message import plain

MAX_VALUE = 256
"""Characters of one environment variable: names and ids, never log text."""

TIMEOUT_S = 600
"""How long a Job may take where its template sets no `activeDeadlineSeconds`."""
KEPT_S = 7 * 86400
"""How long a finished Job is kept where its template does not say. Its name prevents a second execution."""
KEPT_AT_LEAST_S = 86400

PREFLIGHT = "faultline.dev/preflight"
"""Taint of a node that has to pass a session before anything is scheduled there."""

TOLERATED = (
    INCIDENT,
    PREFLIGHT,
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
)
"""Taints of a node that is cordoned or being rebooted."""

_OWN = "FAULTLINE_"
_SPACE = re.compile(r"\s")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_]")


@dataclass(frozen=True, slots=True)
class Template:
    """The validated Job template of one action."""

    action: str
    job: Object


def read_template(action: str, file: Path) -> Template:
    """One template from its file.

    Raises:
        ConfigError: the file cannot be read, or sets a field that Faultline has to set.
    """
    where = f"node_work.{action}: {file}"
    content = yaml_in(file, where)
    if not isinstance(content, dict):
        raise ConfigError(f"{where}: the top level must be a mapping of keys")
    if faults := list(faults_of(content)):
        raise ConfigError("\n".join(f"{where}: {fault}" for fault in faults))
    return Template(action, content)


def job_name(effect: Effect) -> str:
    """The name of the Job of an effect: always the same, and of no other effect."""
    return f"faultline-{effect.action.replace('_', '-')}-{digest(effect.key, size=10)}"


def bound(
    template: Template, effect: Effect, namespace: str, boot_id: str, name: str | None = None
) -> Object:
    """The Job to create for one effect on its node; `name` where the effect has several."""
    job = copy.deepcopy(template.job)
    spec, pod = job["spec"], job["spec"]["template"]
    job["metadata"] = _marked(job.get("metadata"), effect, boot_id) | {
        "name": name or job_name(effect),
        "namespace": namespace,
    }
    pod["metadata"] = _marked(pod.get("metadata"), effect, boot_id)
    spec |= {"parallelism": 1, "completions": 1, "backoffLimit": 0}
    spec.setdefault("activeDeadlineSeconds", TIMEOUT_S)
    spec.setdefault("ttlSecondsAfterFinished", KEPT_S)
    pinned = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [effect.target.name]}]}
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pinned]}}
    }
    inside = pod["spec"]
    inside["restartPolicy"] = "Never"
    inside["affinity"] = {**(inside.get("affinity") or {}), **affinity}
    inside["tolerations"] = [
        *(inside.get("tolerations") or []),
        *({"key": key, "operator": "Exists"} for key in TOLERATED),
    ]
    variables = [{"name": name, "value": _inert(value)} for name, value in _environment(effect, boot_id)]
    for container in (*inside["containers"], *(inside.get("initContainers") or [])):
        container["env"] = [*variables, *(container.get("env") or [])]
        # The end of its log is then in the pod's status, so that no permission to read logs is needed.
        container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    return job


def bound_to_pair(
    template: Template, effect: Effect, namespace: str, name: str, pair: tuple[str, str]
) -> Object:
    """The Job of two pods for a pair of nodes, one on each. `FAULTLINE_PAIR` names both.

    `JOB_COMPLETION_INDEX` tells the pods apart.
    """
    job = bound(template, effect, namespace, "", name)
    job["spec"] |= {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}
    for about in (job["metadata"], job["spec"]["template"]["metadata"]):
        about["annotations"][WORK_NODE] = ",".join(pair)
    inside = job["spec"]["template"]["spec"]
    either = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in pair
    ]
    inside["affinity"]["nodeAffinity"] = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": either}
    }
    apart = {
        "labelSelector": {"matchLabels": {"batch.kubernetes.io/job-name": name}},
        "topologyKey": "kubernetes.io/hostname",
    }
    inside["affinity"]["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    for container in (*inside["containers"], *(inside.get("initContainers") or [])):
        container["env"] = [
            {"name": "FAULTLINE_PAIR", "value": ",".join(map(_inert, pair))},
            *container["env"],
        ]
    return job


def _marked(metadata: Any, effect: Effect, boot_id: str) -> Object:
    about: Object = dict(metadata or {})
    about["labels"] = {
        **(about.get("labels") or {}),
        "app.kubernetes.io/managed-by": "faultline",
        NODE_WORK: effect.action,
    }
    about["annotations"] = {
        **(about.get("annotations") or {}),
        INCIDENT: effect.incident,
        EFFECT: effect.key,
        RUN: effect.run,
        WORK_NODE: effect.target.name,
        WORK_BOOT_ID: boot_id,
    }
    return about


def _environment(effect: Effect, boot_id: str) -> Iterator[tuple[str, str]]:
    yield "FAULTLINE_NODE", effect.target.name
    yield "FAULTLINE_BOOT_ID", boot_id
    for name in ("gpu_pci", "gpu_uuid", "gpu_index"):
        yield _OWN + name.upper(), str(effect.context.get(name, ""))
    yield "FAULTLINE_INCIDENT", effect.incident
    yield "FAULTLINE_RUN", effect.run
    yield "FAULTLINE_EFFECT", effect.key
    for name, value in sorted(effect.params.items()):
        yield f"{_OWN}PARAM_{_NOT_IN_A_NAME.sub('_', name).upper()}", str(value)


def _inert(value: str) -> str:
    """Bounded, printable, in one line, and nothing that Kubernetes would take for a reference to another variable."""
    return _SPACE.sub(" ", plain(value, MAX_VALUE)).replace("$", "$$")


_Rule = tuple[tuple[str, ...], Callable[[Any], bool], str]

_POD = ("spec", "template", "spec")
_RULES: tuple[_Rule, ...] = (
    (("apiVersion",), lambda v: v == "batch/v1", "must be batch/v1"),
    (("kind",), lambda v: v == "Job", "must be Job"),
    ((*_POD, "containers"), lambda v: isinstance(v, list) and bool(v), "must be a list of containers"),
    ((*_POD, "restartPolicy"), lambda v: v in (None, "Never"), "must be Never: the work is tried once"),
    ((*_POD, "nodeName"), lambda v: v is None, "is Faultline's to set"),
    ((*_POD, "affinity", "nodeAffinity"), lambda v: v is None, "is Faultline's to set"),
    (("spec", "parallelism"), lambda v: v in (None, 1), "must be 1"),
    (("spec", "completions"), lambda v: v in (None, 1), "must be 1"),
    (("spec", "backoffLimit"), lambda v: v in (None, 0), "must be 0: the work is tried once"),
    (("spec", "suspend"), lambda v: v in (None, False), "must be false"),
    (("spec", "activeDeadlineSeconds"), lambda v: v is None or (_whole(v) and v > 0), "must be a number of seconds"),
    (
        ("spec", "ttlSecondsAfterFinished"),
        lambda v: v is None or (_whole(v) and v >= KEPT_AT_LEAST_S),
        f"must be at least {KEPT_AT_LEAST_S}: the finished Job prevents a second execution",
    ),
)  # fmt: skip


def faults_of(job: Object) -> Iterator[str]:
    """What is wrong with a Job template: fields that are missing, or that are Faultline's to set."""
    for path, is_right, message in _RULES:
        if not is_right(_at(job, path)):
            yield f"{'.'.join(path)}: {message}"
    inside = _at(job, _POD) or {}
    for group in ("containers", "initContainers"):
        listed = inside.get(group) if isinstance(inside, Mapping) else None
        for number, container in enumerate(listed if isinstance(listed, list) else ()):
            where = f"{'.'.join(_POD)}.{group}.{number}"
            if not isinstance(container, dict) or not container.get("image"):
                yield f"{where}: must name an image"
                continue
            names = [str(_at(variable, ("name",))) for variable in container.get("env") or []]
            for name in (name for name in names if name.startswith(_OWN)):
                yield f"{where}.env: {name} is Faultline's to set"


def _at(thing: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        thing = thing.get(key) if isinstance(thing, Mapping) else None
    return thing


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
