"""What a pod or a job object is for: training, a notebook, batch, inference, a build, the system. Names are in `workloads.yaml`.

Declared counts before a controller's kind, that before labels, and what only a size, an image or a command tells is a guess and
marked as one. What nothing describes is `unknown`, and unknown work is nobody's training job.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from streams.inventory.job_shape import JobShape, Marks
from streams.inventory.jobs import Workload
from streams.inventory.known_pod import KnownPod
from streams.inventory.objects import kind_of
from streams.inventory.owners import Owners, chain
from streams.inventory.pod_templates import PodTemplate
from streams.inventory.workload_table import workloads
from streams.model.entity import JobRef
from streams.model.kinds import WorkloadClass
from streams.model.kube_objects import text

_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"

Lookup = Callable[[JobRef], JobShape | None]
"""The job that is meant, or None, as in `owners`."""

UNKNOWN = Workload(WorkloadClass.UNKNOWN)
_CLASSES = frozenset(WorkloadClass)


class Classifier:
    """Classes by the shipped table and a site's own declarations.

    `training_labels` are labels or annotations, `key` or `key=value`, that declare training. `training_kinds` are kinds that a
    site names as those of its jobs (`group/version/Kind`): training, where the table does not know better.
    """

    def __init__(self, training_labels: Sequence[str] = (), training_kinds: Collection[str] = ()) -> None:
        self._training_labels = tuple(training_labels)
        named = (kind_of(*kind.rpartition("/")[::2]) for kind in training_kinds)
        self._training_kinds = frozenset(kind for kind in named if not workloads().knows(kind))
        told = [label for labels in workloads().labels.values() for label in labels]
        marks = (*workloads().declared, *told, *self._training_labels)
        self._telling = frozenset(mark.partition("=")[0] for mark in marks)

    def of_job(self, job: JobShape, lookup: Lookup) -> Workload:
        """What a job object is for."""
        owners = chain(job.owners, lookup)
        known = [found for ref in owners if (found := lookup(ref)) is not None]
        kinds = [
            *(ref.kind for ref in reversed(owners)),
            job.who.kind,
            *_started_by((job.owners, *(one.owners for one in known))),
        ]
        marks = (job.marks, job.template_marks, *(one.marks for one in known))
        return self._class(marks, kinds, job.templates, job.indexed_pods)

    def of_pod(self, pod: KnownPod, owners: Sequence[JobRef], top: JobRef | None, lookup: Lookup) -> Workload:
        """What a pod is for, by itself and by its owners (`owners.chain`, `owners.top_owner`)."""
        refs = {(ref.kind, ref.name): ref for ref in (*owners, top) if ref is not None}
        known = [found for ref in refs.values() if (found := lookup(ref)) is not None]
        kinds = [
            *(ref.kind for ref in reversed(refs.values())),
            *_started_by((pod.owners, *(one.owners for one in known))),
        ]
        indexed = 2 if _is_counted(pod) and not known else 0
        return self._class(
            ((pod.labels, pod.annotations), *(one.marks for one in known)),
            kinds,
            (pod.template, *(template for one in known for template in one.templates)),
            max([indexed, *(one.indexed_pods for one in known)]),
        )

    def telling(self, pod: KnownPod) -> tuple[tuple[tuple[str, str], ...], ...]:
        """What `of_pod` reads of a pod besides its template and its owners: where all three are equal, so is the class."""
        return (
            *(
                ()
                if self._telling.isdisjoint(marks)
                else tuple((key, str(marks[key])) for key in sorted(self._telling & marks.keys()))
                for marks in (pod.labels, pod.annotations)
            ),
            (("", ""),) if _is_counted(pod) else (),
        )

    def _class(
        self, marks: Sequence[Marks], kinds: Sequence[str], templates: Sequence[PodTemplate], indexed: int
    ) -> Workload:
        """`kinds` from the top down; `indexed` is how many counted pods with GPUs it runs at once."""
        table = workloads()
        if (declared := self._declared(marks)) is not None:
            return Workload(declared)
        if any(template.slurmd for template in templates):
            return Workload(WorkloadClass.SYSTEM)  # whoever made it: what runs in it are jobs of Slurm
        gpus = max((template.gpus for template in templates), default=0)
        seen = any(template.has_containers for template in templates)
        for kind in kinds:
            if kind in table.kinds["training_with_gpus"] and not seen:
                return Workload(
                    WorkloadClass.TRAINING, guessed=True
                )  # until a pod of it shows what it asks for
            if (found := table.by_kind(kind, gpus > 0)) is not None:
                return Workload(found)
            if kind in self._training_kinds:
                return Workload(WorkloadClass.TRAINING)
        written = [some for both in marks for some in both if some and not self._telling.isdisjoint(some)]
        for found, wanted in table.labels.items():
            if any(says(some, label) for some in written for label in wanted):
                return Workload(found)
        return _guess(kinds, templates, gpus, indexed)

    def _declared(self, marks: Iterable[Marks]) -> WorkloadClass | None:
        for both in marks:
            for written in both:
                for key in workloads().declared:
                    if (value := text(written, key)) in _CLASSES:
                        return WorkloadClass(str(value))
            if any(says(written, label) for label in self._training_labels for written in both):
                return WorkloadClass.TRAINING
        return None


def _guess(kinds: Sequence[str], templates: Sequence[PodTemplate], gpus: int, indexed: int) -> Workload:
    table = workloads()
    words = frozenset().union(*(template.commands for template in templates))
    for found, wanted in table.commands.items():
        if not wanted.isdisjoint(words) and (found is not WorkloadClass.TRAINING or gpus):
            return Workload(found, guessed=True)
    for found in table.images:
        may_be = found is not WorkloadClass.TRAINING or (gpus and not table.worlds.isdisjoint(kinds))
        if may_be and any(found in template.images for template in templates):
            return Workload(found, guessed=True)
    if gpus and any(template.trains for template in templates):
        return Workload(WorkloadClass.TRAINING, guessed=True)
    gang = gpus >= table.gang.gpus_in_a_pod or (gpus > 0 and indexed >= table.gang.indexed_pods)
    if gang and not table.gang.kinds.isdisjoint(kinds):
        return Workload(WorkloadClass.TRAINING, guessed=True)
    for found, general in table.general.items():
        if not general.isdisjoint(kinds):
            return Workload(found, guessed=True)
    return UNKNOWN


def _started_by(owners: Iterable[Owners]) -> list[str]:
    """Kinds that own any of these but are no part of the job."""
    return [one.started_by for one in owners if one.started_by is not None]


def _is_counted(pod: KnownPod) -> bool:
    return _COMPLETION_INDEX in pod.labels or _COMPLETION_INDEX in pod.annotations


def says(written: Mapping[str, Any], label: str) -> bool:
    """Whether labels or annotations have `key`, or `key=value`."""
    key, valued, value = label.partition("=")
    return key in written and (not valued or written[key] == value)
