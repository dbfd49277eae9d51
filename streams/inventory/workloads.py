"""What a pod or a job object is for: training, a notebook, batch, inference, a build, the system. Names are in `workloads.yaml`.

Declared counts before a controller's kind, that before labels, and what only a size, an image or a command tells is a guess and
marked as one. What nothing tells of is `unknown`, and unknown work is nobody's training job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from streams.config.yaml_tables import Strict, load_table
from streams.inventory.jobs import Workload, env_of, pod_specs, roles
from streams.inventory.names import names
from streams.inventory.objects import gpus_requested, identity, kind_of
from streams.inventory.owners import Lookup, chain, controller_of
from streams.model.entity import JobRef
from streams.model.kinds import WorkloadClass
from streams.model.kube_objects import KubeObject, annotations_of, items, labels_of, part, text

_FILE = Path(__file__).with_name("workloads.yaml")
_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
_MAX_COMMAND = 20_000


class _Gang(Strict):
    kinds: frozenset[str]
    gpus_in_a_pod: int
    indexed_pods: int


class Workloads(Strict):
    """The whole table."""

    declared: tuple[str, ...]
    kinds: Mapping[str, frozenset[str]]
    labels: Mapping[WorkloadClass, tuple[str, ...]]
    images: Mapping[WorkloadClass, tuple[str, ...]]
    commands: Mapping[WorkloadClass, frozenset[str]]
    training_env: tuple[str, ...]
    general: Mapping[WorkloadClass, frozenset[str]]
    gang: _Gang

    def knows(self, kind: str) -> bool:
        """Whether the table has a row for a kind of owner."""
        rows = (*self.kinds.values(), *self.general.values())
        return any(kind in kinds for kinds in rows)

    def by_kind(self, kind: str, gpus: bool) -> WorkloadClass | None:
        """What a kind of owner says by itself; None where it says nothing."""
        for name, kinds in self.kinds.items():
            if kind in kinds:
                if name != "training_with_gpus":
                    return WorkloadClass(name)
                return WorkloadClass.TRAINING if gpus else WorkloadClass.BATCH
        return None


UNKNOWN = Workload(WorkloadClass.UNKNOWN)


@cache
def workloads() -> Workloads:
    """The table.

    Raises:
        ConfigError: when the shipped file is damaged.
    """
    return load_table(_FILE, Workloads)


class Classifier:
    """Classes by the shipped table and a site's own declarations.

    `training_labels` are labels or annotations, `key` or `key=value`, that declare training. `training_kinds` are kinds that a
    site names as those of its jobs (`group/version/Kind`): training, where the table does not know better.
    """

    def __init__(self, training_labels: Sequence[str] = (), training_kinds: Collection[str] = ()) -> None:
        self._training_labels = tuple(training_labels)
        named = (kind_of(*kind.rpartition("/")[::2]) for kind in training_kinds)
        self._training_kinds = frozenset(kind for kind in named if not workloads().knows(kind))

    def of_job(self, job: KubeObject, lookup: Lookup) -> Workload:
        """What a job object is for."""
        who = identity(job)
        owners = chain(job, who.namespace, lookup)
        known = [obj for ref in owners if (obj := lookup(ref)) is not None]
        kinds = [*(ref.kind for ref in reversed(owners)), who.kind, *_started_by((job, *known))]
        template = part(job, "spec", "template")
        return self._class((job, template, *known), kinds, pod_specs(job), _indexed_pods(job))

    def of_pod(
        self, pod: KubeObject, owners: Sequence[JobRef], top: JobRef | None, lookup: Lookup
    ) -> Workload:
        """What a pod is for, by itself and by its owners (`owners.chain`, `owners.top_owner`)."""
        refs = {(ref.kind, ref.name): ref for ref in (*owners, top) if ref is not None}
        objects = [obj for ref in refs.values() if (obj := lookup(ref)) is not None]
        kinds = [*(ref.kind for ref in reversed(refs.values())), *_started_by((pod, *objects))]
        written = (labels_of(pod), annotations_of(pod))
        indexed = 2 if any(_COMPLETION_INDEX in labels for labels in written) and not objects else 0
        indexed = max([indexed, *map(_indexed_pods, objects)])
        specs = [part(pod, "spec"), *(spec for obj in objects for spec in pod_specs(obj))]
        return self._class((pod, *objects), kinds, specs, indexed)

    def _class(
        self,
        objects: Sequence[KubeObject],
        kinds: Sequence[str],
        specs: Sequence[Mapping[str, Any]],
        indexed: int,
    ) -> Workload:
        """`kinds` from the top down; `indexed` is how many counted pods with GPUs it runs at once."""
        table = workloads()
        if (declared := self._declared(objects)) is not None:
            return Workload(declared)
        gpus = max((gpus_requested(spec) for spec in specs), default=0)
        seen = any(True for spec in specs for _ in items(spec, "containers"))
        for kind in kinds:
            if kind in table.kinds["training_with_gpus"] and not seen:
                return Workload(
                    WorkloadClass.TRAINING, guessed=True
                )  # until a pod of it shows what it asks for
            if (found := table.by_kind(kind, gpus > 0)) is not None:
                return Workload(found)
            if kind in self._training_kinds:
                return Workload(WorkloadClass.TRAINING)
        written = [part for obj in objects for part in (labels_of(obj), annotations_of(obj)) if part]
        for found, wanted in table.labels.items():
            if any(says(part, label) for part in written for label in wanted):
                return Workload(found)
        return self._guess(kinds, specs, gpus, indexed)

    def _declared(self, objects: Iterable[KubeObject]) -> WorkloadClass | None:
        for obj in objects:
            for written in (labels_of(obj), annotations_of(obj)):
                for key in workloads().declared:
                    if (value := text(written, key)) in frozenset(WorkloadClass):
                        return WorkloadClass(str(value))
            if any(_bears(obj, label) for label in self._training_labels):
                return WorkloadClass.TRAINING
        return None

    def _guess(
        self, kinds: Sequence[str], specs: Sequence[Mapping[str, Any]], gpus: int, indexed: int
    ) -> Workload:
        table = workloads()
        words = [word for spec in specs for word in _words(spec)]
        for found, wanted in table.commands.items():
            if not wanted.isdisjoint(words) and (found is not WorkloadClass.TRAINING or gpus):
                return Workload(found, guessed=True)
        images = [
            str(container.get("image") or "") for spec in specs for container in items(spec, "containers")
        ]
        for found, parts in table.images.items():
            if any(piece in image for image in images for piece in parts):
                return Workload(found, guessed=True)
        if gpus and any(env_of(spec, name) for spec in specs for name in table.training_env):
            return Workload(WorkloadClass.TRAINING, guessed=True)
        gang = gpus >= table.gang.gpus_in_a_pod or (gpus > 0 and indexed >= table.gang.indexed_pods)
        if gang and not table.gang.kinds.isdisjoint(kinds):
            return Workload(WorkloadClass.TRAINING, guessed=True)
        for found, general in table.general.items():
            if not general.isdisjoint(kinds):
                return Workload(found, guessed=True)
        return UNKNOWN


def _started_by(objects: Sequence[KubeObject]) -> list[str]:
    """Kinds that own any of these but are no part of the job: a CronJob merely starts it, a DaemonSet is no job."""
    references = (reference for obj in objects if (reference := controller_of(obj)) is not None)
    kinds = (kind_of(str(r.get("apiVersion") or ""), str(r["kind"])) for r in references)
    return [kind for kind in kinds if kind in names().starters or kind in names().not_jobs]


def _bears(obj: KubeObject, label: str) -> bool:
    """Whether an object has a label or annotation `key`, or `key=value`."""
    return says(labels_of(obj), label) or says(annotations_of(obj), label)


def says(written: Mapping[str, Any], label: str) -> bool:
    """Whether labels or annotations have `key`, or `key=value`."""
    key, valued, value = label.partition("=")
    return key in written and (not valued or written[key] == value)


def _indexed_pods(job: KubeObject) -> int:
    """How many counted pods with GPUs a batch Job runs at once; 0 for other kinds and uncounted ones."""
    if identity(job).kind != "Job" or part(job, "spec").get("completionMode") != "Indexed":
        return 0
    return sum(role.pods for role in roles(job) if gpus_requested(role.pod_spec))


def _words(spec: Mapping[str, Any]) -> Iterable[str]:
    """The words of the containers' command lines, each also without the folders before it."""
    for container in items(spec, "containers"):
        said = " ".join(str(w) for key in ("command", "args") for w in container.get(key) or [])[
            :_MAX_COMMAND
        ]
        for word in said.split():
            yield word
            if "/" in word:
                yield word.rpartition("/")[2]
