"""One case's corner of the cluster: nodes, pods and a job of its own, the incident about them, and how it all ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from connectors.jobs.suspension import suspend_annotations_of
from connectors.kubernetes.annotations import NODE_WORK, WORK_NODE, annotations_of, labels_of
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.cordon_ownership import is_marked, ownership_of
from connectors.kubernetes.errors import NotFound
from connectors.kubernetes.spares import RELEASED_FOR, SPARE
from connectors.kubernetes.work_results import state_of
from sandbox.fake_services.redfish import UUID
from streams.job_kinds.kind import Lever
from streams.model.clock import rfc3339
from streams.model.entity import Entity, JobRef
from streams.model.facts import Fact, JobFact, NodeFact, PodFact
from streams.model.incident import Certainty, Incident, IncidentState, incident_id
from streams.model.signal import Attribute, Severity
from tests.connectors.kube_world import has_come_up
from tests.crash_matrix.witness import Place, Sight, Witness, Work, works_in
from tests.testbed import workloads
from tests.testbed.control_plane import unique
from tests.testbed.simulators.lws import LeaderWorkerSets, is_known, leader_worker_set
from tests.testbed.waiting import eventually

NODES = path_of("v1", "nodes")
SETS = ("leaderworkerset.x-k8s.io/v1", "leaderworkersets")
GPUS = 8
PODS_TO_DRAIN = 2
JOB = "train"
OCCUPIED = ("node", "mend", "boot", "stay", "hand", "again", "redone")
"""Books that find pods on the bad node."""
WORKED_ON = ("mend", "boot", "stay", "work", "session", "pairs", "power", "redone")
"""Books with Jobs that work on it."""
ON_TWO = ("move", "back", "spare")
"""Books whose job has a second node to go to."""
ON_THREE = ("evict", "pairs")
ASKED_FOR = ("announce", "replace")
"""Books in which another controller is asked to do something."""
MAINTENANCE = "nvsentinel-maintenance"
HOLDS = "example.com/instance"
"""The finalizer of a machine whose instance is still there."""
PODS_END_AFTER = "1s"
"""How long a pod of those still uses its GPU when it is to end."""


def planned(now: datetime, *, over: bool = False) -> dict[str, Attribute]:
    """The facts of planned work that lasts longer than any case."""
    return {"by": "ada", "until": rfc3339(now + timedelta(days=1)), "work_over": over, "work_over_by": "ada"}


@dataclass
class World:
    """What a book acts on. `roles` maps the names of nodes and the uids of pods to what they are called in a history."""

    admin: Cluster
    book: str
    name: str = field(default_factory=lambda: unique("cm"))
    work_namespace: str = ""
    """Where the Jobs are that work on nodes."""
    namespace: str = "default"
    nodes: list[str] = field(default_factory=list)
    bad: str | None = None
    job: JobRef | None = None
    told_of: JobRef | None = None
    """A job that only the inventory tells of."""
    facts: list[Fact] = field(default_factory=list)
    roles: dict[str, str] = field(default_factory=dict)
    _witness: Witness | None = None
    _boots: list[asyncio.Task[None]] = field(default_factory=list)
    """The machine goes down and comes back, once for every pod that reboots it."""
    _rebooting: set[str] = field(default_factory=set)
    _operators: AsyncExitStack = field(default_factory=AsyncExitStack)
    """Controllers that this world has of its own."""

    @property
    def claim(self) -> str:
        """The machine of the bad node, where it has one."""
        return f"claim-{self.name}"

    async def build(self) -> None:
        """Make the objects and wait until all of them run."""
        if self.book == "tickets":
            return
        if self.book == "replace":
            await self._add_claim()
        for number in range(3 if self.book in ON_THREE else 2 if self.book in ON_TWO else 1):
            await self._add_node(f"{self.name}-{number}")
        if self.book in ON_TWO:
            await self._add_job()
        elif self.book == "evict":
            await self._add_set()
        else:
            self.bad = self.nodes[0]
        if self.book in OCCUPIED:
            for number in range(PODS_TO_DRAIN):
                await self._add_pod(f"{self.name}-{number}", f"pod {number}")
        assert self.bad is not None
        others = [node for node in self.nodes if node != self.bad]
        self.roles |= {self.bad: "bad"}
        self.roles |= {node: f"other {n}" if n > 1 else "other" for n, node in enumerate(others, start=1)}
        if self.book == "pairs":
            self._tell_of_job()
        if self.book == "spare":
            await self._reserve(next(node for node in self.nodes if node != self.bad))

    @asynccontextmanager
    async def witnessed(self) -> AsyncIterator[None]:
        """See what Jobs do to the nodes, and boot a node that one of them reboots, until the block ends."""
        async with AsyncExitStack() as stack:
            if self.book in ASKED_FOR:
                places = [Place("object", await self._collection(), "")]
                self._witness = await stack.enter_async_context(
                    Witness.watching(self.admin, places, self._control)
                )
            elif self.book in WORKED_ON:
                of_world, work = f"{workloads.POOL}={self.name}", self.work_namespace
                places = [
                    Place("node", NODES, of_world),
                    Place("pod", path_of("v1", "pods", namespace=self.namespace), of_world),
                    Place("job", path_of("batch/v1", "jobs", namespace=work), NODE_WORK),
                    Place("pod", path_of("v1", "pods", namespace=work), f"{NODE_WORK}=reboot_node"),
                ]
                watching = Witness.watching(self.admin, places, self._boot_if_told)
                self._witness = await stack.enter_async_context(watching)
            try:
                yield
            finally:
                await asyncio.gather(*self._boots)

    async def works(self, incident: str) -> tuple[Work, ...]:
        """The Jobs that there were."""
        if self._witness is None:
            return ()
        await self._witness.catch_up()
        return tuple(works_in(self._witness.sights, incident, self.roles))

    def incident(self) -> Incident:
        """The incident that this book is for, at its first revision."""
        now = datetime.now(UTC)
        root = Entity(self.name, node=self.bad) if self.bad else Entity(self.name)
        return Incident(
            id=incident_id(self.name, root, self.book, 1),
            cluster=self.name,
            family=self.book,
            root=root,
            incarnation=1,
            revision=1,
            state=IncidentState.OPEN,
            severity=Severity.CRITICAL,
            certainty=Certainty.DECISIVE,
            title=f"{self.book} on {self.bad or self.name}",
            reason="for the sake of a test",
            fault_at=now,
            opened_at=now,
            updated_at=now,
            jobs=tuple(job for job in (self.job or self.told_of,) if job is not None),
            nodes=(self.bad,) if self.bad else (),
            facts=planned(now) if self.book == "work" else {},
        )

    async def end(self) -> Mapping[str, Any]:
        """How everything stands now, in the names of roles."""
        found = await self._ends_of_nodes()
        if self.book in ASKED_FOR:
            found["objects"] = len(await self._objects())
        if self.book == "evict":
            assert self.job is not None
            marks = suspend_annotations_of(await self.admin.get(self._job_path))
            found["job"] = ("held" if marks.held else "not held", "marked" if marks.suspended else "unmarked")
            found["pods"] = len(await eventually(self._groups, "all groups run"))
        elif self.job is not None:
            job = await self.admin.get(self._job_path)
            marks = suspend_annotations_of(job)
            found["job"] = (
                "suspended" if job["spec"].get("suspend") else "running",
                "held" if marks.held else "not held",
                "marked" if marks.suspended else "unmarked",
            )
            if not job["spec"].get("suspend"):
                place = self.roles[await eventually(self._placed, "the job's pod runs")]
                # Where the node was given back it is the scheduler's choice, and how late a giver died decides it.
                given_back = found["bad node"][0] == "open"
                found["job's pod"] = "any node" if given_back else place
        if self.book in OCCUPIED:
            found["pods"] = len(await self._pods())
        if self.book in WORKED_ON:
            found["work"] = sorted(
                [(labels_of(job)[NODE_WORK], await self._ended(job)) for job in await self._work()]
            )
            found["boots"] = len(self._boots)
        return found

    async def _ends_of_nodes(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in self.nodes:
            try:
                node = await self.admin.get(f"{NODES}/{name}")
            except NotFound:
                found[f"{self.roles[name]} node"] = "gone"
                continue
            hold = ownership_of(node)
            found[f"{self.roles[name]} node"] = (
                "closed" if node["spec"].get("unschedulable") else "open",
                "marked" if is_marked(node) else "unmarked",
                len(hold.owners) if hold else 0,
            )
            if self.book == "spare":
                found[f"{self.roles[name]} node"] += _reserve_of(node)
        return found

    async def remove(self) -> None:
        """Take everything away again."""
        if self.job is not None:
            await self._gone(self._job_path)
        for thing in await self._objects() if self.book in ASKED_FOR else ():
            path = f"{await self._collection()}/{thing['metadata']['name']}"
            await self.admin.patch(path, {"metadata": {"finalizers": None}})
            await self._gone(path)
        await self._operators.aclose()
        for job in await self._work() if self.book in WORKED_ON else ():
            await self._gone(self._work_path(job["metadata"]["name"]))
        await self.end_pods()
        for name in self.nodes:
            await self._gone(f"{NODES}/{name}")

    async def end_pods(self) -> None:
        """Have all pods end."""
        for pod in await self._pods():
            await self._gone(path_of("v1", "pods", namespace=self.namespace, name=pod["metadata"]["name"]))

    async def has_no_pods(self) -> bool:
        """Whether all of them have ended."""
        return not await self._pods()

    async def _gone(self, path: str) -> None:
        try:
            await self.admin.delete(path, propagation="Background")
        except NotFound:
            return

    async def _add_node(self, name: str) -> None:
        node = workloads.gpu_node(name, pool=self.name, gpus=GPUS)
        if self.book == "replace":
            claim = await self.admin.get(f"{await self._collection()}/{self.claim}")
            owner = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": self.claim}
            node["metadata"]["ownerReferences"] = [owner | {"uid": claim["metadata"]["uid"]}]
        made = await self.admin.create(NODES, node)
        self.nodes.append(name)

        async def ready() -> bool:
            return has_come_up(await self.admin.get(f"{NODES}/{name}"))

        await eventually(ready, f"{name} is ready")
        if self.book in WORKED_ON:
            await self._boot(name)
        now = datetime.now(UTC)
        about = NodeFact(self.name, name, made["metadata"]["uid"], now, gpus=GPUS, gpus_allocatable=GPUS)
        self.facts.append(about)

    async def _reserve(self, name: str) -> None:
        """Put a node in reserve, and let the inventory show it."""
        taint = {"key": SPARE, "effect": "NoSchedule"}
        patch = {"metadata": {"labels": {SPARE: "true"}}, "spec": {"taints": [taint]}}
        await self.admin.patch(f"{NODES}/{name}", patch)
        self.facts = [
            replace(fact, taints=(f"{SPARE}:NoSchedule",))
            if isinstance(fact, NodeFact) and fact.name == name
            else fact
            for fact in self.facts
        ]

    async def _add_job(self) -> None:
        made = workloads.indexed_job(f"{JOB}-{self.name}", self.namespace, pool=self.name, pods=1, gpus=GPUS)
        job = await self.admin.create(path_of("batch/v1", "jobs", namespace=self.namespace), made)
        self.job = JobRef("Job", self.namespace, made["metadata"]["name"], job["metadata"]["uid"])
        self.facts.append(JobFact(self.name, self.job, datetime.now(UTC)))
        self.bad = await eventually(self._placed, "the job's pod runs")

    async def _add_set(self) -> None:
        """A job without a suspend field, two groups of two on two of the nodes, with its controller."""
        self.namespace = self.name
        await self.admin.create(path_of("v1", "namespaces"), {"metadata": {"name": self.name}})
        await self._operators.enter_async_context(LeaderWorkerSets.running(self.admin, self.name))
        made = leader_worker_set(JOB, self.namespace, pool=self.name, gpus=GPUS // 2)
        job = await self.admin.create(path_of(*SETS, namespace=self.namespace), made)
        self.job = JobRef("LeaderWorkerSet", self.namespace, JOB, job["metadata"]["uid"])
        self.facts.append(JobFact(self.name, self.job, datetime.now(UTC), lever=Lever.EVICT))
        pods = await eventually(self._groups, "all groups run")
        self.roles |= {pod["metadata"]["uid"]: f"pod {pod['metadata']['name']}" for pod in pods}
        self.bad = str(pods[0]["spec"]["nodeName"])

    async def _groups(self) -> list[Object] | None:
        """The pods of the set, once all of them run, in the order of their names."""
        pods = await self.admin.list_all(path_of("v1", "pods", namespace=self.namespace))
        fine = [
            pod
            for pod in pods
            if pod["status"].get("phase") == "Running"
            and not pod["metadata"].get("deletionTimestamp")
            and is_known(pod)
        ]
        return (
            sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))
            if len(fine) == len(pods) == 4
            else None
        )

    def _tell_of_job(self) -> None:
        """A job whose pods were on all nodes and are gone, as the inventory tells of one that is suspended."""
        now = datetime.now(UTC)
        self.told_of = JobRef("PyTorchJob", self.namespace, f"{JOB}-{self.name}", "uid")
        self.facts.append(JobFact(self.name, self.told_of, now, suspended=True))
        self.facts += [
            PodFact(
                self.name, self.namespace, f"{JOB}-{n}", f"{self.name}-{n}", now, node=node, job=self.told_of
            )
            for n, node in enumerate(self.nodes)
        ]

    async def _add_claim(self) -> None:
        about: Object = {"metadata": {"name": self.claim, "finalizers": [HOLDS]}}
        about |= {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim"}
        await self.admin.create(await self._collection(), about)

    async def _collection(self) -> str:
        """Where the objects are that the controller of this book works on."""
        plural = {
            "announce": "nvsentinel.dgxc.nvidia.com/v1/MaintenanceRequest",
            "replace": "karpenter.sh/v1/NodeClaim",
        }
        return (await self.admin.resource(plural[self.book])).path()

    async def _objects(self) -> list[Object]:
        return [
            thing for thing in await self.admin.list_all(await self._collection()) if self._is_ours(thing)
        ]

    def _is_ours(self, thing: Object) -> bool:
        return thing["metadata"]["name"] == self.claim or annotations_of(thing).get(WORK_NODE) in self.nodes

    def _control(self, sight: Sight) -> None:
        """The controller of what was asked for does its work once it sees it."""
        thing = sight.thing
        if thing is None or not self._is_ours(thing):
            return
        leaves = bool(thing["metadata"].get("deletionTimestamp"))
        if self.book == "announce" and not thing.get("status"):
            self._boots.append(asyncio.create_task(self._announce(thing), name=f"announce {self.name}"))
        elif self.book == "replace" and leaves and sight.uid not in self._rebooting:
            self._rebooting.add(sight.uid)
            self._boots.append(asyncio.create_task(self._replace(), name=f"replace {self.name}"))

    async def _announce(self, thing: Object) -> None:
        said = {"type": "HealthEventEmitted", "status": "True", "reason": "Emitted", "message": ""}
        said["lastTransitionTime"] = rfc3339(datetime.now(UTC).replace(microsecond=0))
        path = f"{await self._collection()}/{thing['metadata']['name']}/status"
        try:
            await self.admin.patch(path, {"status": {"conditions": [said]}})
        except NotFound:
            return  # taken off before the controller came to it

    async def _replace(self) -> None:
        """The machine goes, its node with it, and then its claim."""
        for name in self.nodes:
            await self._gone(f"{NODES}/{name}")
        path = f"{await self._collection()}/{self.claim}"
        await self.admin.patch(path, {"metadata": {"finalizers": None}})

    async def _placed(self) -> str | None:
        """The node of the job's pod, once it runs there."""
        running = [
            pod
            for pod in await self._pods()
            if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        ]
        return str(running[0]["spec"]["nodeName"]) if running else None

    async def _add_pod(self, name: str, role: str) -> None:
        limits = {"resources": {"limits": {workloads.GPU: "1"}}}
        pod: Object = {
            "metadata": {
                "name": name,
                "labels": {workloads.POOL: self.name},
                "annotations": {"testbed.faultline.dev/delete-after": PODS_END_AFTER}
                if self.book in WORKED_ON
                else {},
            },
            "spec": {
                "nodeName": self.bad,
                "containers": [{"name": "train", "image": "training:1", **limits}],
            },
        }
        path = path_of("v1", "pods", namespace=self.namespace)
        made = await self.admin.create(path, pod)
        self.roles[made["metadata"]["uid"]] = role

        async def runs() -> bool:
            found = await self.admin.get(f"{path}/{name}")
            return bool(found["status"].get("phase") == "Running")

        await eventually(runs, f"{name} runs")

    async def _pods(self) -> list[Object]:
        selector = f"{workloads.POOL}={self.name}"
        if self.job is not None:
            selector = f"batch.kubernetes.io/job-name={self.job.name}"
        path = path_of("v1", "pods", namespace=self.namespace)
        return await self.admin.list_all(path, query={"labelSelector": selector})

    def _boot_if_told(self, sight: Sight) -> None:
        """A pod that reboots its node runs: the machine does as it is told, every time."""
        pod = sight.thing
        if sight.kind != "pod" or pod is None or NODE_WORK not in labels_of(pod):
            return
        runs_here = pod["spec"].get("nodeName") in self.nodes and pod["status"].get("phase") == "Running"
        if runs_here and sight.uid not in self._rebooting:
            self._rebooting.add(sight.uid)
            boot = self._boot(pod["spec"]["nodeName"])
            self._boots.append(asyncio.create_task(boot, name=f"boot {self.name}"))

    def power_returns(self) -> None:
        """The bad node's machine has been without power, and boots."""
        assert self.bad is not None
        self._boots.append(asyncio.create_task(self._boot(self.bad), name=f"boot {self.name}"))

    async def _boot(self, node: str) -> None:
        boot = {"status": {"nodeInfo": {"bootID": unique("boot"), "systemUUID": UUID}}}
        await self.admin.patch(f"{NODES}/{node}/status", boot)

    async def _work(self) -> list[Object]:
        """The Jobs that are there for the nodes."""
        found = await self.admin.list_all(self._work_path(), query={"labelSelector": NODE_WORK})
        return [job for job in found if annotations_of(job)[WORK_NODE].split(",")[0] in self.nodes]

    async def _ended(self, job: Object) -> str:
        """How a Job has ended; one that reboots may do so after its node is back."""
        path = self._work_path(job["metadata"]["name"])

        async def end() -> str | None:
            state = state_of(await self.admin.get(path))
            return state if state != "running" else None

        return await eventually(end, f"{path} ends")

    def _work_path(self, name: str | None = None) -> str:
        return path_of("batch/v1", "jobs", namespace=self.work_namespace, name=name)

    @property
    def _job_path(self) -> str:
        assert self.job is not None
        version, plural = SETS if self.book == "evict" else ("batch/v1", "jobs")
        return path_of(version, plural, namespace=self.namespace, name=self.job.name)


def _reserve_of(node: Object) -> tuple[str, ...]:
    """Whether a node is in reserve, and whether it is marked as given out of it."""
    tainted = any(taint["key"] == SPARE for taint in node["spec"].get("taints") or [])
    return (
        "in reserve" if SPARE in labels_of(node) and tainted else "in service",
        "given" if RELEASED_FOR in annotations_of(node) else "not given",
    )
