"""The ground truth: one line for each injected fault and each look-alike, beside the capture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from streams.model.clock import parse_rfc3339, rfc3339

TRUTH = "truth.jsonl"
"""The file of a capture that holds it."""


@dataclass(frozen=True, slots=True)
class TrueRoot:
    """Where a fault sits. Only the faulty component is set: a fault of a node names no GPU."""

    node: str | None = None
    gpu: Mapping[str, str | int] | None = None
    """`pci`, `uuid`, `index`."""
    nic: str | None = None
    switch: str | None = None
    port: str | None = None
    job: Mapping[str, str] | None = None
    """`kind`, `namespace`, `name`."""
    rack: str | None = None
    storage: str | None = None
    shared: str | None = None
    """What several nodes share and no other field has a word for: a power feed, a coolant loop, an NVLink switch tray."""
    cluster: str | None = None
    """Its name, for a fault of the whole cluster."""

    def plain(self) -> dict[str, Any]:
        """The fields that are set, as `truth.jsonl` has them."""
        return {name: part for name, part in asdict(self).items() if part is not None}


@dataclass(frozen=True, slots=True)
class Fault:
    """One injected fault.

    `accepted` are families that the evidence cannot tell from the right one; `roots` are alternatives to `root` for the same
    reason. `may_cordon` are all nodes that a careful operator might cordon because of it; any other is healthy.
    """

    id: str
    kind: str
    at: datetime
    until: datetime
    """Until when it, or its symptoms, may still show."""
    family: str
    root: TrueRoot
    accepted: tuple[str, ...] = ()
    roots: tuple[TrueRoot, ...] = ()
    jobs: tuple[Mapping[str, str], ...] = ()
    nodes: tuple[str, ...] = ()
    """The nodes and jobs affected."""
    stopped: tuple[Mapping[str, str], ...] = ()
    """Those of `jobs` that it stopped: they hung, died, or did not start."""
    may_cordon: tuple[str, ...] = ()
    note: str = ""

    def line(self) -> dict[str, Any]:
        """The line of `truth.jsonl`."""
        return {
            "record": "fault",
            "id": self.id,
            "kind": self.kind,
            "at": rfc3339(self.at),
            "until": rfc3339(self.until),
            "family": self.family,
            "accepted": list(self.accepted),
            "root": self.root.plain(),
            "roots": [root.plain() for root in self.roots],
            "victims": {
                "jobs": [dict(job) for job in self.jobs],
                "stopped": [dict(job) for job in self.stopped],
                "nodes": list(self.nodes),
            },
            "may_cordon": list(self.may_cordon),
            "note": self.note,
        }

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> Fault:
        """What `line` wrote, or somebody by hand: all but `id`, `at`, `until`, `family` and `root` may be missing.

        Raises:
            KeyError, TypeError, ValueError: when it is not a fault.
        """
        victims = line.get("victims", {})
        return cls(
            id=line["id"],
            kind=line.get("kind", line["family"]),
            at=parse_rfc3339(line["at"]),
            until=parse_rfc3339(line["until"]),
            family=line["family"],
            root=TrueRoot(**line["root"]),
            accepted=tuple(line.get("accepted", ())),
            roots=tuple(TrueRoot(**root) for root in line.get("roots", ())),
            jobs=tuple(victims.get("jobs", ())),
            nodes=tuple(victims.get("nodes", ())),
            stopped=tuple(victims.get("stopped", ())),
            may_cordon=tuple(line.get("may_cordon", ())),
            note=line.get("note", ""),
        )


@dataclass(frozen=True, slots=True)
class LookAlike:
    """Something that only resembles a fault. No node may be cordoned and no incident opened because of it."""

    kind: str
    at: datetime
    place: str

    def line(self) -> dict[str, Any]:
        """The line of `truth.jsonl`."""
        return {"record": "look_alike", "kind": self.kind, "at": rfc3339(self.at), "place": self.place}


@dataclass(slots=True)
class Truth:
    """All of a campaign."""

    faults: list[Fault] = field(default_factory=list)
    look_alikes: list[LookAlike] = field(default_factory=list)
    background: Counter[str] = field(default_factory=Counter)
    """How often each kind of background was played."""

    def lines(self) -> list[dict[str, Any]]:
        """By time, and last what went on beside all of it."""
        lines = [(fault.at, fault.line()) for fault in self.faults]
        lines += [(thing.at, thing.line()) for thing in self.look_alikes]
        last = {"record": "background", "counts": dict(sorted(self.background.items()))}
        return [*(line for _, line in sorted(lines, key=lambda entry: entry[0])), last]
