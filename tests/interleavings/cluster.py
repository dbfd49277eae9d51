"""A small emulated cluster whose store names the author of each change, and the people and controllers that change it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count
from random import Random
from typing import Any
from uuid import UUID

from sandbox.emulated.controllers import Controllers
from sandbox.emulated.store import JOBS, NODES, PODS, PYTORCH_JOBS, Kind, Object, Store
from streams.model.clock import Clock
from tests.interleavings.ledger import MANAGED, US, Ledger
from tests.testbed import workloads

NAMESPACE, POOL = "team-a", "pool"
NODE_COUNT = 5
MAINTENANCE = "example.com/maintenance"
OWN_TAINT = "faultline.dev/incident"
BEGIN = datetime.fromisoformat("2026-03-01T12:00:00+00:00")


SWITCHES = (("spec", "unschedulable"), ("spec", "suspend"), ("spec", "runPolicy", "suspend"))


def _at(thing: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        thing = thing.get(step) if isinstance(thing, dict) else None
    return thing


def _marked(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"f:{step}" for step in path)


def _entry(manager: str, path: tuple[str, ...]) -> Object:
    fields: Object = {}
    for step in reversed(_marked(path)):
        fields = {step: fields}
    return {"manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields}


class AttributedStore(Store):
    """A store that tells a ledger of each change. What comes over HTTP is Faultline's; everybody else says who they are."""

    def __init__(self, clock: Clock, ledger: Ledger) -> None:
        numbers = count(1)
        super().__init__(clock, lambda: UUID(int=next(numbers)))  # the same in each story of a seed
        self._ledger = ledger
        self._author = US

    @contextmanager
    def by(self, author: str) -> Iterator[None]:
        """Changes of this block, which must not wait for anything, are of this author."""
        self._author = author
        try:
            yield
        finally:
            self._author = US

    def put(self, kind: Kind, thing: Object) -> Object:
        """As the store does it, and note as a real server does who gave a switch the value that it has."""
        about = thing["metadata"]
        now = self.get(kind, about.get("namespace") if kind.namespaced else None, about["name"])
        entries = now["metadata"].get("managedFields") or []
        for path in SWITCHES:
            if _at(now, path) != (value := _at(thing, path)):
                entries = [entry for entry in entries if _at(entry["fieldsV1"], _marked(path)) is None]
                entries += [_entry(self._author, path)] if value is not None else []
        if entries:
            about["managedFields"] = entries
        return super().put(kind, thing)

    def _record(self, kind: Kind, what: str, thing: Object) -> None:
        super()._record(kind, what, thing)
        self._ledger.take(self._author, what, kind.kind, thing)


class SmallCluster:
    """Five nodes of eight GPUs and two jobs of two pods each, with their controllers, on a clock that only moves when told."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = BEGIN
        self.ledger = Ledger()
        self.store = AttributedStore(lambda: self.now, self.ledger)
        self.controllers = Controllers(self.store)
        self.story: list[str] = []
        with self.store.by("site"):
            for number in range(NODE_COUNT):
                self._add_node(f"gpu-{number}")
            for kind, job in self._jobs():
                self.store.create(kind, NAMESPACE, job)
        self.pass_s(5)

    def pass_s(self, seconds: float) -> None:
        """Let the controllers work for a while."""
        for _ in range(max(1, int(seconds))):
            self.now += timedelta(seconds=min(seconds, 1.0))
            with self.store.by("controllers"):
                self.controllers.step()

    def say(self, text: str) -> None:
        """A line of the story, for whoever reads a failure."""
        self.story.append(f"{(self.now - BEGIN).total_seconds():8.1f} {text}")

    def disturb(self) -> None:
        """Somebody does something."""
        author = self.random.choice(("person", "person", "robot"))
        (act,) = self.random.choices(list(ACTS), weights=list(ACTS.values()))
        with self.store.by(author):
            done = act(self)
        if done:
            self.say(f"{author}: {done}")

    def pick(self, kind: Kind) -> Object | None:
        """Some object of a kind, to be changed."""
        found = self.store.list(kind)
        return copy.deepcopy(self.random.choice(found)) if found else None

    def pick_job(self) -> tuple[Kind, Object] | None:
        """Some job of either kind."""
        kind = self.random.choice((JOBS, PYTORCH_JOBS))
        job = self.pick(kind)
        return (kind, job) if job is not None else None

    def _add_node(self, name: str) -> None:
        self.store.create(NODES, None, workloads.gpu_node(name, pool=POOL) | {"spec": {}})

    def _jobs(self) -> list[tuple[Kind, Object]]:
        made: list[tuple[Kind, Object]] = [
            (JOBS, workloads.indexed_job("eval", NAMESPACE, pool=POOL, pods=2)),
            (PYTORCH_JOBS, workloads.pytorch_job("llm", NAMESPACE, pool=POOL, workers=1)),
        ]
        return made


Act = Callable[[SmallCluster], str | None]


def _on_node(change: Callable[[Object], str | None]) -> Act:
    def act(cluster: SmallCluster) -> str | None:
        node = cluster.pick(NODES)
        if node is None or (done := change(node)) is None:
            return None
        cluster.store.put(NODES, node)
        return f"{done} {node['metadata']['name']}"

    return act


def _on_job(change: Callable[[Object], str | None]) -> Act:
    def act(cluster: SmallCluster) -> str | None:
        found = cluster.pick_job()
        if found is None or (done := change(found[1])) is None:
            return None
        cluster.store.put(*found)
        return f"{done} {found[1]['metadata']['name']}"

    return act


def _cordon(node: Object) -> str:
    node["spec"]["unschedulable"] = True
    return "cordons"


def _uncordon(node: Object) -> str:
    node["spec"].pop("unschedulable", None)
    return "uncordons"


def _taint(node: Object) -> str:
    taints = [t for t in node["spec"].get("taints") or [] if t["key"] != MAINTENANCE]
    node["spec"]["taints"] = [*taints, {"key": MAINTENANCE, "value": "yes", "effect": "NoSchedule"}]
    return "taints"


def _untaint(key: str) -> Callable[[Object], str | None]:
    def change(node: Object) -> str | None:
        before = node["spec"].get("taints") or []
        node["spec"]["taints"] = [taint for taint in before if taint["key"] != key]
        return f"takes {key} off" if len(node["spec"]["taints"]) < len(before) else None

    return change


def _retaint(node: Object) -> str | None:
    for taint in node["spec"].get("taints") or []:
        if taint["key"] == OWN_TAINT:
            taint["value"] = "mine"
            return f"changes {OWN_TAINT} of"
    return None


def _label(value: str | None) -> Callable[[Object], str | None]:
    def change(thing: Object) -> str | None:
        labels = thing["metadata"].setdefault("labels", {})
        if labels.get(MANAGED[1]) == value:
            return None
        labels.pop(MANAGED[1], None)
        if value is not None:
            labels[MANAGED[1]] = value
        return f"sets {MANAGED[1]}={value} on"

    return change


def _annotate(thing: Object) -> str:
    thing["metadata"].setdefault("annotations", {})["example.com/note"] = "seen"
    return "annotates"


def _drop_marks(thing: Object) -> str | None:
    before = thing["metadata"].get("annotations") or {}
    kept = {key: value for key, value in before.items() if not key.startswith("faultline.dev/")}
    thing["metadata"]["annotations"] = kept
    return "takes Faultline's annotations off" if len(kept) < len(before) else None


def _where_suspended(job: Object) -> dict[str, Any]:
    spec: dict[str, Any] = job["spec"]
    return spec.setdefault("runPolicy", {}) if "pytorchReplicaSpecs" in spec else spec


def _suspend(job: Object) -> str:
    _where_suspended(job)["suspend"] = True
    return "suspends"


def _resume(job: Object) -> str:
    _where_suspended(job)["suspend"] = False
    return "resumes"


def _scale(job: Object) -> str:
    if "pytorchReplicaSpecs" in job["spec"]:
        worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
        worker["replicas"] = 3 - worker["replicas"]
    else:
        job["spec"]["parallelism"] = job["spec"]["completions"] = 4 - job["spec"]["completions"] or 1
    return "scales"


def _delete(kind: Kind) -> Act:
    def act(cluster: SmallCluster) -> str | None:
        thing = cluster.pick(kind)
        if thing is None:
            return None
        meta = thing["metadata"]
        cluster.store.delete(kind, meta.get("namespace"), meta["name"])
        return f"deletes {kind.kind} {meta['name']}"

    return act


def _make_again(cluster: SmallCluster) -> str | None:
    there = {node["metadata"]["name"] for node in cluster.store.list(NODES)}
    for number in range(NODE_COUNT):
        if f"gpu-{number}" not in there:
            cluster._add_node(f"gpu-{number}")
            return f"adds another machine as gpu-{number}"
    for kind, job in cluster._jobs():
        if not cluster.store.list(kind):
            cluster.store.create(kind, NAMESPACE, job)
            return f"submits {job['metadata']['name']} again"
    return None


ACTS: dict[Act, float] = {
    _on_node(_cordon): 10,
    _on_node(_uncordon): 10,
    _on_node(_taint): 5,
    _on_node(_untaint(MAINTENANCE)): 5,
    _on_node(_untaint(OWN_TAINT)): 2,
    _on_node(_retaint): 1,
    _on_node(_drop_marks): 1,
    _on_node(_annotate): 8,
    _on_node(_label("false")): 1,
    _on_node(_label(None)): 3,
    _on_job(_suspend): 6,
    _on_job(_resume): 6,
    _on_job(_scale): 3,
    _on_job(_annotate): 5,
    _on_job(_drop_marks): 1,
    _on_job(_label("false")): 1,
    _on_job(_label(None)): 3,
    _delete(PODS): 5,
    _delete(JOBS): 1,
    _delete(PYTORCH_JOBS): 1,
    _delete(NODES): 1,
    _make_again: 6,
}
"""What people and other controllers do, and how often."""
