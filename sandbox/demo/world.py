"""The demo's cluster: read from the API server a few times a second, with the records that its shippers would write."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from aiokafka import AIOKafkaProducer

from connectors.kubernetes.client import Cluster, Object, path_of
from sandbox.demo import stories
from sandbox.demo.shippers import Record, RunningPod
from sandbox.demo.training import Training, Workload
from sandbox.simulation.topology import GPUS
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.model.clock import utc_now

POLL_S = 0.3
JOBS = ("team-language/llm-pretrain", "team-speech/asr-large", "team-research/moe-scaling")


@dataclass(slots=True)
class World:
    """Nodes and pods as last read, the progress of the jobs, and a producer for records."""

    api: Cluster
    settings: KafkaSettings
    workload: Workload = field(
        default_factory=lambda: Workload(
            {job: Training(job, step=10_000 + 7 * n) for n, job in enumerate(JOBS)}
        )
    )
    nodes: Mapping[str, Object] = field(default_factory=dict)
    pods: tuple[RunningPod, ...] = ()
    _producer: AIOKafkaProducer | None = None
    _cordoned: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Poll the cluster, let the jobs train and write what they print, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(POLL_S)

    async def look(self) -> None:
        """Poll the cluster once."""
        nodes = await self.api.list_all(path_of("v1", "nodes"))
        pods = await self.api.list_all(path_of("v1", "pods"))
        self.nodes = {node["metadata"]["name"]: node for node in nodes}
        self.pods = tuple(pod for thing in pods if (pod := training_pod(thing)) is not None)
        now = utc_now()
        cordoned = frozenset(name for name, node in self.nodes.items() if node["spec"].get("unschedulable"))
        echoes = [stories.not_schedulable(name, now) for name in sorted(cordoned - self._cordoned)]
        self._cordoned = cordoned
        await self.write([*self.workload.look(self.pods, now), *echoes])

    async def write(self, records: list[Record]) -> None:
        """Write records and wait until the broker has them."""
        assert self._producer is not None, "use the world as a context manager"
        sent = []
        for record in records:
            name = clients.topic_name(self.settings, record.topic)
            key = record.key.encode() if record.key is not None else None
            sent.append(await self._producer.send(name, record.value, key=key))
        await asyncio.gather(*sent)

    async def perform(self, scene: stories.Scene, begin: datetime) -> None:
        """Write a story's records when they are due."""
        for cue in sorted(scene.cues, key=lambda cue: cue.after_s):
            late_s = cue.after_s - (utc_now() - begin).total_seconds()
            if late_s > 0:
                await asyncio.sleep(late_s)
            await self.write([cue.record])

    def placed(self, job: str) -> dict[str, str]:
        """Node by pod of a job."""
        return {pod.name: pod.node for pod in self.pods if pod.job == job}

    def pod_uids(self) -> dict[str, frozenset[str]]:
        """The uids of every job's pods."""
        return {job: frozenset(pod.uid for pod in self.pods if pod.job == job) for job in JOBS}

    async def __aenter__(self) -> World:
        self._producer = await clients.started(clients.producer(self.settings), self.settings)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._producer is not None
        await self._producer.stop()


def training_pod(thing: Object) -> RunningPod | None:
    """A Running pod of a training job, with its first rank; None for every other pod."""
    about, labels = thing["metadata"], thing["metadata"].get("labels") or {}
    job = labels.get("training.kubeflow.org/job-name") or labels.get("batch.kubernetes.io/job-name")
    running = thing["status"].get("phase") == "Running" and "deletionTimestamp" not in about
    if job is None or not running:
        return None
    place = int(labels.get("batch.kubernetes.io/job-completion-index", 0))
    if labels.get("training.kubeflow.org/replica-type") == "worker":
        place = 1 + int(labels["training.kubeflow.org/replica-index"])
    return RunningPod(
        namespace=about["namespace"],
        name=about["name"],
        uid=about["uid"],
        node=thing["spec"]["nodeName"],
        ip=thing["status"].get("podIP", ""),
        job=f"{about['namespace']}/{job}",
        rank=place * GPUS,
    )
