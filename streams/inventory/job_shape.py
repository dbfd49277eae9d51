"""What the pods of a job take from its object: roles, templates, owners, marks. Worked out once for each state of the object.

An inventory holds nothing else of a job. Two shapes are equal where no pod can tell the difference: most changes of a job are of
its status, and its pods need not be looked at again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streams.inventory.mpirun import fills_hosts
from streams.inventory.objects import Identity, identity
from streams.inventory.owners import Owners, OwnerTable
from streams.inventory.pod_templates import PodTemplate, PodTemplates, command_line
from streams.job_kinds import kubeflow
from streams.job_kinds.kind import Role
from streams.job_kinds.known import KNOWN
from streams.model.entity import JobRef
from streams.model.kube_objects import KubeObject, annotations_of, items, labels_of, part, text, whole

FIRST_ROLES = ("master", "chief")
"""Roles that hold rank 0, wherever the spec lists them."""
RANKLESS_ROLES = frozenset({"launcher", "ps", "evaluator", "scheduler", "server"})

_MPI = "MPIJob"
_DEEPEST = 8
"""How far down in a spec pods are looked for: no kind nests them deeper."""

Marks = tuple[Mapping[str, Any], Mapping[str, Any]]
"""The labels and the annotations of an object."""


@dataclass(frozen=True, slots=True)
class PlacedRole:
    """Pods of one kind within a job: `pods` of them, the first at position `start` of those that hold ranks.

    `per_job` is how many pods one child Job of the role has (JobSet), else `pods`. `trains` is False for launchers.
    """

    name: str
    pods: int
    template: PodTemplate
    per_job: int
    start: int = 0
    trains: bool = True


@dataclass(frozen=True, slots=True)
class JobShape:
    """A job object, as its pods see it."""

    who: Identity
    uid: str
    owners: Owners
    marks: Marks
    template_marks: Marks
    """Those of its pod template."""
    roles: tuple[PlacedRole, ...]
    """In the order of their ranks; empty when its kind does not say."""
    templates: tuple[PodTemplate, ...]
    """Of its pods: by its roles, else wherever in its spec there are containers."""
    indexed_pods: int
    """How many counted pods with GPUs a batch Job runs at once; 0 for other kinds and uncounted ones."""
    pods: int | None
    """How many pods it runs at once, all roles together."""
    world: int | None
    """How many ranks it has; None when it is elastic or does not say."""
    in_order: bool
    """Whether ranks follow the numbers of its pods: not where a rendezvous or its launcher hands them out otherwise."""
    ranks_per_pod: int
    """Processes of the collective in each pod, where the job says it, else 0."""
    made: JobRef | None
    """The job that says what the pods are, where the job makes that one and its own object does not."""
    inner: JobShape | None
    """The job inside an object that only wraps it."""

    @property
    def asks_for_gpus(self) -> bool:
        """Whether any of its pods does, as far as its kind says what its pods are."""
        return any(template.gpus for template in self.templates)

    @property
    def innermost(self) -> JobShape:
        """The job that says what the pods are: the one inside an object that only wraps it, else itself."""
        return self.inner.innermost if self.inner is not None else self


def shape_of(
    job: KubeObject, templates: PodTemplates | None = None, owners: OwnerTable | None = None
) -> JobShape:
    """The shape of a job object, with the templates and owners that these tables know.

    Raises:
        BadInput: when the object, or the one it wraps, has no kind or no name.
    """
    templates, owners = templates or PodTemplates(), owners or OwnerTable()
    who, spec = identity(job), part(job, "spec")
    kind = KNOWN.get(who.kind)
    wrapped = kind.wraps(job) if kind is not None else None
    inner = shape_of(wrapped, templates, owners) if wrapped is not None else None
    found = inner.roles if inner is not None else _roles(job, who, templates)
    template = part(spec, "template")
    elastic, per_pod = bool(part(spec, "elasticPolicy")), _ranks_per_pod(spec)
    indexed = who.kind == "Job" and spec.get("completionMode") == "Indexed"
    return JobShape(
        who=who,
        uid=text(part(job, "metadata"), "uid") or "",
        owners=owners.of(job, who.namespace),
        marks=(labels_of(job), annotations_of(job)),
        template_marks=(labels_of(template), annotations_of(template)),
        roles=found,
        templates=tuple(role.template for role in found)
        or tuple(templates.of(one) for one in _specs_in(spec, _DEEPEST)),
        indexed_pods=sum(role.pods for role in found if role.template.gpus) if indexed else 0,
        pods=_pods(job, who, found),
        world=inner.world if inner is not None else None if elastic else _world(spec, found, per_pod),
        in_order=not elastic and (who.kind != _MPI or _fills_pods(spec, found)),
        ranks_per_pod=per_pod,
        made=inner.made if inner is not None else _made(job, who),
        inner=inner,
    )


def _roles(job: KubeObject, who: Identity, templates: PodTemplates) -> tuple[PlacedRole, ...]:
    kind = KNOWN.get(who.kind)
    known = kind.roles(job) if kind is not None else kubeflow.roles(job) if _is_kubeflow(job) else ()
    found: list[tuple[Role, PodTemplate]] = [
        (role, templates.of(role.pod_spec))
        for role in sorted(known, key=lambda role: role.name not in FIRST_ROLES)
    ]
    with_gpus = any(template.gpus for _, template in found)
    launcher_works = part(job, "spec").get("runLauncherAsWorker") is True
    placed, start = [], 0
    for role, template in found:
        # A kubeflow replica takes part whatever it asks for; elsewhere a role without GPUs beside one with GPUs does not.
        takes_part = role.name not in RANKLESS_ROLES or (role.name == "launcher" and launcher_works)
        trains = takes_part and (_is_kubeflow(job) or not with_gpus or template.gpus > 0)
        placed.append(PlacedRole(role.name, role.pods, template, role.per_job, start, trains))
        start += role.pods if trains else 0
    return tuple(placed)


def _specs_in(spec: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    if isinstance(spec, Mapping):
        if isinstance(spec.get("containers"), list):
            yield spec
        elif depth:
            for value in spec.values():
                yield from _specs_in(value, depth - 1)
    elif isinstance(spec, list) and depth:
        for value in spec:
            yield from _specs_in(value, depth - 1)


def _pods(job: KubeObject, who: Identity, found: tuple[PlacedRole, ...]) -> int | None:
    if found:
        return sum(role.pods for role in found)
    kind = KNOWN.get(who.kind)
    if kind is not None and kind.all_pods is not None:
        return kind.all_pods(job) or None
    return whole(part(job, "spec", "trainer").get("numNodes"))


def _world(spec: Mapping[str, Any], found: tuple[PlacedRole, ...], per_pod: int) -> int | None:
    trains = [role for role in found if role.trains]
    if trains:
        return sum(role.pods * (per_pod or role.template.ranks) for role in trains)
    trainer = part(spec, "trainer")
    nodes, per_node = whole(trainer.get("numNodes")), whole(trainer.get("numProcPerNode"))
    return nodes * per_node if nodes and per_node else None


def _ranks_per_pod(spec: Mapping[str, Any]) -> int:
    said = (
        spec.get("nprocPerNode"),
        spec.get("slotsPerWorker"),
        part(spec, "trainer").get("numProcPerNode"),
    )
    return next((count for value in said if (count := whole(value))), 0)


def _fills_pods(spec: Mapping[str, Any], found: tuple[PlacedRole, ...]) -> bool:
    """Whether the launcher of an MPIJob starts a process for each GPU of its workers, on one worker after the other."""
    slots = whole(spec.get("slotsPerWorker")) or 1
    workers = [role for role in found if role.name == "worker"]
    if len(workers) != 1 or any(role.trains for role in found if role not in workers):
        return False
    commands = (
        command_line(container)
        for replicas in part(spec, "mpiReplicaSpecs").items()
        if str(replicas[0]).lower() == "launcher"
        for container in items(part(replicas[1], "template", "spec"), "containers")
    )
    # Where a worker has more GPUs than slots, a launcher of its own (torchrun) starts the ranks there.
    fits = workers[0].template.gpus in (0, slots)
    return fits and all(fills_hosts(command, workers[0].pods, slots) for command in commands)


def _made(job: KubeObject, who: Identity) -> JobRef | None:
    kind = KNOWN.get(who.kind)
    made = kind.made_of(job) if kind is not None else ()
    return JobRef(made[0][0], who.namespace, made[0][1]) if made else None


def _is_kubeflow(job: KubeObject) -> bool:
    return str(job.get("apiVersion") or "").startswith("kubeflow.org/")
