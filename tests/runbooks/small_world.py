"""A whole outside in memory: an API server with nodes, jobs and pods, and a ticket system, as a responder's calls meet them.

What a call does to a node or a job is decided by the connectors' own pure functions over the object as it is when the call
lands, as a write with a resourceVersion would have it. The ticket system is not idempotent, on purpose: a second call makes
a second ticket. Everything that was ever changed is in `audit`, whether or not its answer ever arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from connectors.base import Absent, AlreadyDone, Blocked, Done, Effect, Outcome, Refused, Waiting
from connectors.jobs import suspension
from connectors.kubernetes import cordon_ownership
from connectors.kubernetes.guarded_patch import GuardedChange
from runbooks.engine.run.transition import LOOKUPS, CallKind
from streams.inventory.jobs import job_fact
from streams.inventory.nodes import node_fact
from streams.job_kinds.kind import End
from streams.job_kinds.pytorch_job import PYTORCH_JOB
from streams.model.entity import JobRef
from streams.model.facts import Fact, JobFact, NodeFact, PodFact
from tests.runbooks.scenes import CLUSTER, JOB, NOW, OTHER_JOB

Object = dict[str, Any]

LEVER = PYTORCH_JOB
EVAL = JobRef("PyTorchJob", OTHER_JOB.namespace, OTHER_JOB.name, OTHER_JOB.uid)
PLACES = {JOB.key: (2, 3, 4, 5), EVAL.key: (5, 6)}
NODES = 12


@dataclass(frozen=True, slots=True)
class Landed:
    """One change that was really made."""

    at: datetime
    verb: str
    """The action, `undo ACTION`, or what a person did."""
    target: str
    incident: str
    key: str
    run: str


@dataclass
class SmallWorld:
    """Nodes `node-00`…, the job `llm` on 2 to 5 and `eval` on 5 and 6; `faulty` nodes make no progress."""

    faulty: set[str] = field(default_factory=set)
    nodes: dict[str, Object] = field(default_factory=dict)
    jobs: dict[str, Object] = field(default_factory=dict)
    pods: dict[str, set[str]] = field(default_factory=dict)
    tickets: list[Effect] = field(default_factory=list)
    audit: list[Landed] = field(default_factory=list)
    seen: dict[str, tuple[str, NodeFact | JobFact]] = field(default_factory=dict)
    told: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for i in range(NODES):
            name = f"node-{i:02}"
            self.nodes[name] = {
                "kind": "Node",
                "metadata": {"name": name, "uid": f"uid-{i}", "annotations": {}, "labels": {}},
                "spec": {},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }
        for job in (JOB, EVAL):
            self.jobs[job.key] = {
                "apiVersion": LEVER.api_versions[0],
                "kind": job.kind,
                "metadata": {
                    "name": job.name,
                    "namespace": job.namespace,
                    "uid": job.uid,
                    "annotations": {},
                    "labels": {},
                },
                "spec": {"runPolicy": {"suspend": False}, "pytorchReplicaSpecs": {}},
                "status": {"conditions": []},
            }
            self.pods[job.key] = {f"node-{i:02}" for i in PLACES[job.key]}

    # ── calls ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def carry_out(self, kind: CallKind, effect: Effect, at: datetime) -> Outcome:
        """What the connector would return, and what it does."""
        if kind in LOOKUPS:
            return self.lookup(effect)
        if kind == "undo":
            return self._undo(effect, at)
        return self._apply(effect, at)

    def lookup(self, effect: Effect) -> Outcome:
        name, job = effect.target.name, self.jobs.get(_key(effect))
        match effect.action:
            case "cordon_node":
                return cordon_ownership.find(self.nodes[name], effect)
            case "uncordon_node":
                hold = cordon_ownership.ownership_of(self.nodes[name])
                return Absent() if hold and hold.by_incident(effect.incident) else AlreadyDone()
            case "drain_node":
                return Absent() if self._left_on(name) else AlreadyDone()
            case "suspend_job" | "resume_job":
                if job is None:
                    return Absent("there is no such job")
                found = suspension.find(job, effect)
                if (
                    effect.action == "suspend_job"
                    and isinstance(found, AlreadyDone)
                    and self.pods[_key(effect)]
                ):
                    return Waiting(2.0, "pods are going") if LEVER.is_suspended(job) else found
                return found
            case "verify_job":
                found = self._verify(effect)
                return Absent() if isinstance(found, Refused | Blocked) else found
            case "open_ticket":
                made = [t for t in self.tickets if t.key == effect.key]
                return AlreadyDone({"ticket": f"T-{self.tickets.index(made[0])}"}) if made else Absent()
        raise AssertionError(effect.action)

    def _apply(self, effect: Effect, at: datetime) -> Outcome:
        name, job = effect.target.name, self.jobs.get(_key(effect))
        match effect.action:
            case "cordon_node":
                return self._change(
                    self.nodes[name], cordon_ownership.cordon(self.nodes[name], effect), effect, at
                )
            case "uncordon_node":
                decided = cordon_ownership.release(
                    self.nodes[name], effect, lambda o: o.incident == effect.incident
                )
                return self._change(self.nodes[name], decided, effect, at)
            case "drain_node":
                if not self._left_on(name):
                    return Done()
                self._note(effect, at, "drain_node")
                for placed in self.pods.values():
                    placed.discard(name)
                return Waiting(2.0, "pods are going")
            case "suspend_job" | "resume_job" if job is None:
                return Refused(f"there is no {effect.target}", moot=True)
            case "suspend_job":
                assert job is not None
                turned = self._change(job, suspension.suspend(job, LEVER, effect), effect, at)
                gone = not self.pods[_key(effect)] or not LEVER.is_suspended(job)
                return Done() if isinstance(turned, AlreadyDone | Waiting) and gone else turned
            case "resume_job":
                assert job is not None
                return self._change(job, suspension.resume(job, LEVER, effect), effect, at)
            case "verify_job":
                return self._verify(effect)
            case "open_ticket":
                self.tickets.append(effect)
                self._note(effect, at, "open_ticket")
                return Done({"ticket": f"T-{len(self.tickets) - 1}"})
        raise AssertionError(effect.action)

    def _undo(self, effect: Effect, at: datetime) -> Outcome:
        match effect.action:
            case "cordon_node":
                node = self.nodes[effect.target.name]
                decided = cordon_ownership.release(node, effect, lambda o: o.key == effect.key)
                return self._change(node, decided, effect, at, "undo ")
            case "suspend_job":
                job = self.jobs.get(_key(effect))
                if job is None:
                    return AlreadyDone(detail="there is no such job")
                return self._change(job, suspension.take_back(job, LEVER, effect), effect, at, "undo ")
        raise AssertionError(f"undo of {effect.action}")

    def _verify(self, effect: Effect) -> Outcome:
        job, key = self.jobs.get(_key(effect)), _key(effect)
        if job is None:
            return Refused(f"there is no {effect.target}", moot=True)
        if LEVER.end(job) == End("Succeeded", failed=False):
            return AlreadyDone(detail="it has ended well")
        if LEVER.is_suspended(job):
            marks, text = suspension.suspend_annotations_of(job), "it is suspended"
            return Blocked("Faultline", text) if marks.held else suspension.not_ours(marks, text)
        unfit = [n for n in self.pods[key] if cordon_ownership.is_marked(self.nodes[n])]
        if len(self.pods[key]) < len(PLACES[key]) or unfit:
            return Waiting(3.0, "its pods are not ready")
        return Done({"pods": len(self.pods[key])})

    def _change(
        self, thing: Object, decided: GuardedChange | Outcome, effect: Effect, at: datetime, before: str = ""
    ) -> Outcome:
        if not isinstance(decided, GuardedChange):
            return decided
        merge(thing, decided.patch)
        self._note(effect, at, before + effect.action)
        return decided.then

    def _note(self, effect: Effect, at: datetime, verb: str) -> None:
        self.audit.append(Landed(at, verb, effect.target.name, effect.incident, effect.key, effect.run))

    def _left_on(self, node: str) -> bool:
        return any(node in placed for placed in self.pods.values())

    # ── what goes on by itself, and what people do ──────────────────────────────────────────────────────────────────

    def settle(self) -> None:
        """The controllers do their work: pods of suspended jobs go, those of others are placed on open nodes."""
        for key, job in self.jobs.items():
            placed = self.pods[key]
            if LEVER.is_suspended(job) or LEVER.end(job):
                placed.clear()
                continue
            free = [n for n, node in sorted(self.nodes.items()) if not node["spec"].get("unschedulable")]
            free = [n for n in free if n not in placed]
            while len(placed) < len(PLACES[key]) and free:
                placed.add(free.pop())

    def trains(self, job: JobRef) -> bool:
        """Whether the job moves forward now."""
        thing, placed = self.jobs.get(job.key), self.pods[job.key]
        if thing is None or LEVER.is_suspended(thing) or LEVER.end(thing):
            return False
        return len(placed) == len(PLACES[job.key]) and not placed & self.faulty

    def finish(self, job: JobRef) -> None:
        """The job ends well by itself."""
        thing = self.jobs[job.key]
        if not LEVER.is_suspended(thing):
            thing["status"]["conditions"] = [{"type": "Succeeded", "status": "True"}]
            self.pods[job.key].clear()

    def person_turns_node(self, name: str, closed: bool, at: datetime) -> None:
        """`kubectl cordon` or `uncordon`."""
        spec = self.nodes[name]["spec"]
        if bool(spec.get("unschedulable")) is not closed:
            spec["unschedulable"] = closed
            self.audit.append(Landed(at, "person " + ("cordon" if closed else "uncordon"), name, "", "", ""))

    def person_turns_job(self, job: JobRef, suspended: bool, at: datetime) -> None:
        """Somebody edits `spec.runPolicy.suspend`."""
        policy = self.jobs[job.key]["spec"]["runPolicy"]
        if policy["suspend"] is not suspended:
            policy["suspend"] = suspended
            verb = "person " + ("suspend" if suspended else "resume")
            self.audit.append(Landed(at, verb, job.name, "", "", ""))

    # ── what others see of it ───────────────────────────────────────────────────────────────────────────────────────

    def facts(self, at: datetime) -> list[tuple[str, Fact | None]]:
        """All of the inventory. What has not changed was seen when it last did, or when its node last told of itself."""
        found: list[tuple[str, Fact | None]] = []
        for thing in (*self.nodes.values(), *self.jobs.values()):
            name, state = thing["metadata"]["name"], repr(thing)
            seen = self.seen.get(name)
            if seen is None or seen[0] != state or at - seen[1].observed_at > HEARTBEAT:
                about = deepcopy(thing)
                made: NodeFact | JobFact = (
                    node_fact(CLUSTER, about, at) if thing["kind"] == "Node" else job_fact(CLUSTER, about, at)
                )
                seen = self.seen[name] = (state, made)
            found.append((seen[1].key, seen[1]))
        for job in (JOB, EVAL):
            for number, name in enumerate(self.nodes):
                uid = f"{job.name}-{number}"
                pod = PodFact(CLUSTER, job.namespace, uid, f"p-{uid}", NOW, node=name, job=job)
                found.append((pod.key, pod if name in self.pods[job.key] else None))
        return found

    def news(self, at: datetime) -> list[tuple[str, Fact | None]]:
        """What of the inventory has changed since the last time this was asked."""
        fresh = [(key, fact) for key, fact in self.facts(at) if self.told.get(key, ...) != fact]
        self.told.update(fresh)
        return fresh

    def holders(self, node: str) -> set[str]:
        """The incidents that hold a node closed."""
        hold = cordon_ownership.ownership_of(self.nodes[node])
        return {owner.incident for owner in hold.owners} if hold else set()

    def held_job(self, job: JobRef) -> str | None:
        """The incident that holds a job suspended."""
        marks = suspension.suspend_annotations_of(self.jobs[job.key])
        return marks.incident if marks.held and LEVER.is_suspended(self.jobs[job.key]) else None

    def count(self, verb: str, pick: Callable[[Landed], bool] = lambda _: True) -> int:
        """How many such changes were made."""
        return sum(1 for line in self.audit if line.verb == verb and pick(line))


def merge(thing: Object, patch: Object) -> None:
    """A JSON merge patch (RFC 7386)."""
    for name, value in patch.items():
        if value is None:
            thing.pop(name, None)
        elif isinstance(value, dict):
            merge(thing.setdefault(name, {}), value)
        else:
            thing[name] = value


def _key(effect: Effect) -> str:
    return f"{effect.target.kind}/{effect.target.namespace}/{effect.target.name}"


HEARTBEAT = timedelta(minutes=5)
"""How often a kubelet tells of a node in which nothing changes."""
