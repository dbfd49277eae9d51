"""Who set what last, on every object of a cluster, and whether Faultline kept its hands off what others set.

The ledger knows nothing of Faultline's code. It sees each change of the store with its author, keeps for every field of nodes and
jobs who gave it its value, and judges Faultline's changes by that alone:

    foreign_undone    Faultline takes away, or resets, only values that it has set itself: a cordon, a taint, a suspension, a mark
    foreign_touched   it writes no field but `unschedulable`, `suspend`, and taints and annotations of its own domain
    opted_out         it changes no node and no job that is opted out
    done_again        what a person has reverted is not done again for the same incident
    deleted           it deletes nothing, and evicts only from a node that was closed when its call began

One deliberate weakness: an eviction cannot be made conditional on the node, only on the pod's uid. So a node that a person opens
while a call is under way may still lose the pods that this very call is about: the node's state when the call began counts.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
Field = tuple[str, str]
"""A group (`spec`, `taint`, `annotation`, `label`) and a name in it."""

US = "faultline"
DOMAIN = "faultline.dev/"
INCIDENTS = ("annotation", f"{DOMAIN}incident")
MANAGED = ("label", f"{DOMAIN}managed")
UNSCHEDULABLE, SUSPEND = ("spec", "unschedulable"), ("spec", "suspend")
OURS_TO_SET = (UNSCHEDULABLE, SUSPEND)
SPEC = ("unschedulable", "suspend", "parallelism", "completions", "priorityClassName")


def fields_of(kind: str, thing: Object) -> dict[Field, Any]:
    """What of an object somebody may have set, by field; a field that is not set, or is false, is left out."""
    meta, spec = thing["metadata"], thing.get("spec") or {}
    found: dict[Field, Any] = {("spec", name): spec[name] for name in SPEC if spec.get(name)}
    if (policy := spec.get("runPolicy") or {}).get("suspend"):
        found[SUSPEND] = policy["suspend"]
    for role, about in (spec.get("pytorchReplicaSpecs") or {}).items():
        found["spec", f"replicas of {role}"] = about.get("replicas")
    for taint in spec.get("taints") or []:
        found["taint", f"{taint['key']}:{taint['effect']}"] = taint.get("value", "")
    found |= {("annotation", key): value for key, value in (meta.get("annotations") or {}).items()}
    found |= {("label", key): value for key, value in (meta.get("labels") or {}).items()}
    return found if kind != "Pod" else {("pod", "leaving"): True} if meta.get("deletionTimestamp") else {}


@dataclass
class Entry:
    """One object: its values, who set each, and what others have reverted on it."""

    kind: str
    thing: Object
    values: dict[Field, Any]
    by: dict[Field, str]
    reverted: set[tuple[Field, str]] = field(default_factory=set)
    """What somebody else took back, and for which incident it had been done."""
    changed_by_others: set[str] = field(default_factory=set)
    """Who changed a field that Faultline had set, or opened a node that it held, whoever had closed that."""

    @property
    def name(self) -> str:
        """Kind and name."""
        return f"{self.kind} {self.thing['metadata']['name']}"

    @property
    def ours(self) -> dict[Field, Any]:
        """What stands as Faultline set it."""
        return {name: value for name, value in self.values.items() if self.by[name] == US}


@dataclass
class Ledger:
    """All objects, live ones by uid. Feed it every change of the store, in order."""

    entries: dict[str, Entry] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    closed_at_call: set[str] = field(default_factory=set)
    """Names of the nodes that were closed when Faultline's present call began."""

    def call_begins(self) -> None:
        """Faultline begins a call: what it reads from now on may have changed by the time it writes."""
        self.closed_at_call = set(self.closed())

    def closed(self) -> Iterator[str]:
        """Names of the nodes that are closed now, whoever closed them."""
        for entry in self.entries.values():
            if entry.kind == "Node" and entry.values.get(UNSCHEDULABLE):
                yield entry.thing["metadata"]["name"]

    def take(self, author: str, what: str, kind: str, thing: Object) -> None:
        """One change, as it is in the store now."""
        uid = thing["metadata"]["uid"]
        values = fields_of(kind, thing)
        known = self.entries.get(uid)
        if known is None:
            if author == US:
                self._wrong("foreign_touched", f"{kind} {thing['metadata']['name']} was created")
            self.entries[uid] = Entry(kind, copy.deepcopy(thing), values, dict.fromkeys(values, author))
            return
        if author == US:
            self._judge(known, what, values)
        if what == "DELETED":
            del self.entries[uid]
            return
        self._write(known, author, values)
        known.thing = copy.deepcopy(thing)

    def _judge(self, known: Entry, what: str, values: Mapping[Field, Any]) -> None:
        if what == "DELETED" or ("pod", "leaving") in values.keys() - known.values.keys():
            node = known.thing.get("spec", {}).get("nodeName")
            if known.kind != "Pod" or node not in self.closed_at_call | set(self.closed()):
                self._wrong("deleted", f"{known.name} on {node}, which was not closed")
            return
        changed = {
            name for name in values.keys() | known.values.keys() if values.get(name) != known.values.get(name)
        }
        if changed and known.values.get(MANAGED) == "false":
            self._wrong("opted_out", f"{known.name}: {sorted(changed)}")
        for name in sorted(changed):
            before, after, author = known.values.get(name), values.get(name), known.by.get(name)
            if name not in OURS_TO_SET and not (
                name[0] in ("taint", "annotation") and name[1].startswith(DOMAIN)
            ):
                self._wrong("foreign_touched", f"{known.name}: {name} from {before} to {after}")
            if before is not None and after is None and author != US:
                self._wrong("foreign_undone", f"{known.name}: {name} was {before!r} by {author}")
        self._done_again(known, values)

    def _done_again(self, known: Entry, values: Mapping[Field, Any]) -> None:
        for name in OURS_TO_SET:
            if not values.get(name) or known.values.get(name):
                continue
            for incident in _incidents(values):
                if (name, incident) in known.reverted:
                    self._wrong("done_again", f"{known.name}: {name} for {incident}")

    def _write(self, known: Entry, author: str, values: dict[Field, Any]) -> None:
        for name in sorted(values.keys() | known.values.keys()):
            before, after = known.values.get(name), values.get(name)
            if before == after:
                continue
            if author != US and name == UNSCHEDULABLE and after is None and _incidents(known.values):
                known.changed_by_others.add(author)
            if author != US and known.by.get(name) == US:
                known.changed_by_others.add(author)
                if name in OURS_TO_SET and after is None:
                    known.reverted |= {(name, incident) for incident in _incidents(known.values)}
            if after is None:
                known.by.pop(name, None)
            else:
                known.by[name] = author
        known.values = values

    def _wrong(self, rule: str, text: str) -> None:
        self.problems.append(f"{rule}: {text}")


def _incidents(values: Mapping[Field, Any]) -> list[str]:
    return [one for one in str(values.get(INCIDENTS) or "").split(",") if one]
