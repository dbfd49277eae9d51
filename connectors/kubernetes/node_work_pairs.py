"""`diagnose_nodes`: which node of a job is slow? Bandwidth is measured between pairs of its nodes, then they vote.

Each pair is one Job of two pods, from a diagnostic of the operator's (`node_work.pairs`): indexed, one pod on each of the nodes.
The first pod with a readable result speaks for the pair. The Jobs of a round run at the same time, rounds one after another.
Nothing is begun while anything uses the GPUs of the nodes: the job has to be suspended before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connectors.base import (
    Absent,
    AlreadyDone,
    Blocked,
    Done,
    Effect,
    LeaseHeld,
    Outcome,
    Refused,
    Result,
    Waiting,
)
from connectors.diagnostics.programs import read
from connectors.diagnostics.reading import Limits
from connectors.kubernetes.annotations import DOMAIN, opted_out
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.errors import AlreadyExists, NotFound
from connectors.kubernetes.guarded_patch import attempted
from connectors.kubernetes.node_work import NAMED, PODS_PAUSE_S, using_gpus
from connectors.kubernetes.objects import is_ready
from connectors.kubernetes.work_diagnostics import Diagnostic
from connectors.kubernetes.work_pairs import Pair, Vote, rounds, vote
from connectors.kubernetes.work_results import LOOK_AGAIN_S, is_of, state_of
from connectors.kubernetes.work_session import last_words, stalled
from connectors.kubernetes.work_templates import bound_to_pair
from streams.config.connector_settings import NodeWorkSettings
from streams.model.clock import Clock, utc_now
from streams.model.digest import digest
from streams.model.message import some
from streams.model.signal import Attribute

ACTION = "diagnose_nodes"
FIGURES = ("busbw_avg_gb_s", "bw_avg_gbit_s")
"""The figure that pairs are compared by: of nccl-tests, else of perftest."""


NO_LIMITS = Limits()
PAIRS_OF = f"{DOMAIN}/pairs-of"
"""Label of the Jobs of one diagnosis."""


class PairDiagnosis:
    """Diagnoses of the nodes of one cluster. The target is a job; its nodes are in `params.nodes`, separated by commas."""

    def __init__(
        self, cluster: Cluster, settings: NodeWorkSettings, diagnostic: Diagnostic, clock: Clock = utc_now
    ) -> None:
        self._cluster = cluster
        self._namespace = settings.namespace
        self._diagnostic = diagnostic
        self._clock = clock

    @property
    def actions(self) -> frozenset[str]:
        """`diagnose_nodes`."""
        return frozenset({ACTION})

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Take the diagnosis one step further: `Waiting`, finally `Done` with the slow nodes, which may be none.

        `Blocked` while pods use the nodes' GPUs.

        Raises:
            Fenced: the lease has expired; nothing was sent.
        """
        try:
            planned = rounds(_nodes(effect))
        except ValueError as error:
            return Refused(f"the nodes of {effect.target} cannot be compared: {error}")

        async def once() -> Outcome:
            jobs = await self._jobs(effect, planned)
            if not isinstance(jobs, dict):
                return jobs
            for number, pairs in enumerate(planned, start=1):
                missing = [pair for pair in pairs if pair not in jobs]
                running = [pair for pair in pairs if pair in jobs and self._runs(jobs[pair])]
                if missing:
                    return await self._begin(effect, number, missing, lease, _result(jobs))
                if running:
                    what = f"round {number} of {len(planned)}: {len(running)} of {len(pairs)} pairs are being measured"
                    return Waiting(LOOK_AGAIN_S, what, _result(jobs))
            return await self._voted(jobs, effect)

        return await attempted(once)

    async def lookup(self, effect: Effect) -> Outcome:
        """Look for the Jobs of the diagnosis by their names."""
        try:
            planned = rounds(_nodes(effect))
        except ValueError as error:
            return Absent(str(error))

        async def once() -> Outcome:
            jobs = await self._jobs(effect, planned)
            if not isinstance(jobs, dict):
                return jobs
            if not jobs:
                return Absent(f"no pair of {effect.target} was measured for this effect")
            if len(jobs) < sum(map(len, planned)) or any(map(self._runs, jobs.values())):
                return Waiting(0.0, f"{len(jobs)} pairs were begun", _result(jobs))
            return await self._voted(jobs, effect)

        return await attempted(once)

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        """Always `Refused`: it changes nothing that could be taken back."""
        return Refused(f"{effect.action} cannot be undone")

    async def close(self) -> None:
        """Close connections."""
        await self._cluster.close()

    def _runs(self, job: Object) -> bool:
        """Whether a pair is still measured. One that has stalled counts as not measured."""
        return state_of(job) == "running" and not stalled(self._diagnostic, job, self._clock())

    async def _jobs(self, effect: Effect, planned: Sequence[Sequence[Pair]]) -> dict[Pair, Object] | Outcome:
        jobs: dict[Pair, Object] = {}
        begun = effect.prior.get("pairs")
        for pairs in planned:  # read by name: to list Jobs is a right that nothing else here needs
            paths = {self._path(pair_job_name(effect, pair)): pair for pair in pairs}
            there = await self._cluster.get_each(paths)
            for path, job in there.items():
                if not is_of(job, effect):
                    return Refused(f"the Job {job['metadata']['name']} was not made for this effect")
                jobs[paths[path]] = job
            if not there:
                break  # nor is there anything of the rounds after it
        if isinstance(begun, int) and len(jobs) < begun:
            return Blocked.person(f"someone deleted Jobs of the diagnosis of {effect.target}")
        return jobs

    async def _begin(
        self, effect: Effect, number: int, pairs: Sequence[Pair], lease: LeaseHeld, known: Result
    ) -> Outcome:
        for name in sorted({node for pair in pairs for node in pair}):
            try:
                node = await self._cluster.get(path_of("v1", "nodes", name=name))
            except NotFound:
                return Refused(
                    f"there is no node {name} any more: the nodes of {effect.target} cannot be compared"
                )
            if opted_out(node) or not is_ready(node):
                return Refused(
                    f"{name} is opted out or not ready: the nodes of {effect.target} cannot be compared"
                )
            on = {"fieldSelector": f"spec.nodeName={name}"}
            using = using_gpus(await self._cluster.list_all(path_of("v1", "pods"), query=on))
            if using:
                why = f"{some(sorted(using), NAMED)} use GPUs of {name}: suspend what runs there first"
                return Blocked("pods on its GPUs", why, PODS_PAUSE_S, known)
        begun = known.get("pairs")
        count = begun if isinstance(begun, int) else 0
        for pair in pairs:
            job = bound_to_pair(
                self._diagnostic.template, effect, self._namespace, pair_job_name(effect, pair), pair
            )
            job["metadata"]["labels"][PAIRS_OF] = _mark(effect)
            lease.check()
            try:
                await self._cluster.create(self._path(), job)
            except AlreadyExists:
                continue
            count += 1
        return Waiting(
            LOOK_AGAIN_S, f"round {number}: {len(pairs)} pairs are being measured", {"pairs": count}
        )

    async def _voted(self, jobs: Mapping[Pair, Object], effect: Effect) -> Outcome:
        measured: dict[Pair, float | None] = {}
        for pair, job in jobs.items():
            measured[pair] = await self._bandwidth(job)
        found = vote(measured, next(iter(self._diagnostic.limits.at_least.values()), None))
        result = _result(jobs) | {"slow": found.slow, "unclear": found.unclear, "limit": found.limit}
        result["measured"] = sum(value is not None for value in measured.values())
        detail = f"{_told(found)}; {result['measured']} of {len(jobs)} pairs were measured"
        if not result["measured"]:
            return Refused(f"no pair of {effect.target} could be measured")
        return Done(result, detail) if effect.prior.get("pairs") else AlreadyDone(result, detail)

    async def _bandwidth(self, job: Object) -> float | None:
        """The figure of a pair; None where it was not measured. A slow pair is no failed one, so limits do not count here."""
        of_job = {"labelSelector": f"batch.kubernetes.io/job-name={job['metadata']['name']}"}
        pods = await self._cluster.list_all(path_of("v1", "pods", namespace=self._namespace), query=of_job)
        for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"])):
            message, code = last_words([pod])
            found = read(self._diagnostic.reads, message, code, NO_LIMITS)
            value = next((found.figures[name] for name in FIGURES if name in found.figures), None)
            if found.passed and value is not None:
                return value
        return None

    def _path(self, name: str | None = None) -> str:
        return path_of("batch/v1", "jobs", namespace=self._namespace, name=name)


def pair_job_name(effect: Effect, pair: Pair) -> str:
    """The name of the Job of one pair: always the same."""
    return f"faultline-pair-{digest(effect.key, *pair, size=10)}"


def _nodes(effect: Effect) -> list[str]:
    return [name for name in str(effect.params.get("nodes", "")).split(",") if name]


def _mark(effect: Effect) -> str:
    return digest(effect.key, size=10)


def _result(jobs: Mapping[Pair, Object]) -> dict[str, Attribute]:
    return {"pairs": len(jobs)}


def _told(found: Vote) -> str:
    return f"{found} (a pair is slow below {found.limit:g})"
