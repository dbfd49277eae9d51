"""Jobs of general kinds that train by what they log: whatever their object usually is for.

Of a LeaderWorkerSet the inventory can only guess that it serves a model. One whose pods hold half a node each and count steps for
minutes, past what a request takes, trains: it suffers from a fault as any training job does. What may be done to a job is not
decided here; for that the inventory's word counts (`inventory/workloads.yaml`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from streams.correlate.state.rows import JobRow, PodRow
from streams.inventory.workload_table import workloads
from streams.model.facts import JobFact, PodFact
from streams.model.kinds import WorkloadClass

Described = TypeVar("Described", PodFact, JobFact)

_MINUTES = 5
"""In so many minutes it must have logged a step: servers count batches while they load a model, for a minute or two."""
_STEPS = 100
"""As far it must have come: a picture takes fifty steps."""
_GUESSES = frozenset({WorkloadClass.INFERENCE, WorkloadClass.BATCH, WorkloadClass.UNKNOWN})
"""What may be corrected, where it is guessed. Notebooks train in their cells, and stay notebooks."""


def trains_by_its_log(pod: PodRow, job: JobRow | None) -> bool:
    """Whether a pod counts steps as only training does, and is one of several that are as large as a training job's."""
    if pod.progress_step is None or pod.progress_step < _STEPS or len(pod.moves) < _MINUTES:
        return False
    if job is None or job.fact is None or not may_be_training(job.fact):
        return False
    least = workloads().gang.gpus_in_a_pod
    return any(_is_guessed(t.fact) and t.fact.gpus >= least for t in pod.tenancies)


def may_be_training(job: JobFact) -> bool:
    """Whether a job of several pods is only guessed to be none."""
    return (job.pods or 0) > 1 and _is_guessed(job)


def corrected(fact: Described, job: JobRow | None) -> Described:
    """The fact of a job, or of a pod of it, as what the job's log makes of it."""
    if job is None or job.logs_training is None or not _is_guessed(fact):
        return fact
    return replace(fact, workload=WorkloadClass.TRAINING)


def _is_guessed(fact: PodFact | JobFact) -> bool:
    return fact.workload_guessed is True and fact.workload in _GUESSES
