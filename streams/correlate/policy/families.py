"""The table in `families.yaml`: families of incidents, and which signal belongs to which, as a cause or only beside one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from functools import cache, cached_property, partial
from math import ceil
from pathlib import Path
from typing import Literal, cast

from pydantic import ConfigDict, model_validator

from streams.config.vocabularies import ActionName, FamilyName, KindName
from streams.config.yaml_tables import Strict, load_table
from streams.correlate.sightings import Sighting
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.signal import RELAYED, Severity

GPU_KINDS = (SignalKind.GPU_XID, SignalKind.GPU_OFF_BUS)
FAILURES = (SignalKind.JOB_FAILED, SignalKind.JOB_STALLED)
"""Kinds of what a job's programs and pods report of its failures."""

Domain = Literal[
    "application", "fabric", "gpu", "hang", "host", "link", "node", "outage", "pfc", "planned_work", "platform", "power",
    "preemption", "shared", "silent", "storage", "straggler",
]  # fmt: skip
Role = Literal["cause", "application", "symptom", "context"]
FoundOn = Literal["gpu", "node", "job", "own"]
Stops = Literal["open", "near", "never"]

PROGRAM = "program"
"""The subtype at its node of what a program says of hardware (`at_node` of a row)."""
RECOVERY_ACTION = 154
"""GPU_RECOVERY_ACTION_CHANGED: no fault by itself, it carries what the driver requires (Xid catalog, 154)."""

_PLACE_WORDS = 200
"""Characters of an attribute that come into a reason at most."""


class FamilyRow(Strict):
    """One row: how a family ranks, what follows from it and how it is told."""

    rank: int
    domain: Domain
    severity: Severity
    title: str
    reason: str
    with_ranks: str = ""
    found_on: FoundOn = "own"
    explains: tuple[FamilyName, ...] = ()
    explains_near: tuple[FamilyName, ...] = ()
    explains_weak: tuple[FamilyName, ...] = ()
    cap: Certainty = Certainty.DECISIVE
    stops: Stops = "open"
    stale_h: float | None = None

    @property
    def explained(self) -> frozenset[str]:
        """All families that may follow from it."""
        return frozenset((*self.explains, *self.explains_near, *self.explains_weak))


class SignalRule(Strict):
    """Which family a signal belongs to, the part it plays there and how far it goes."""

    kinds: tuple[KindName, ...]
    subtypes: frozenset[str] = frozenset()
    severities: frozenset[Severity] = frozenset()
    where: Mapping[str, tuple[str, ...]] = {}
    family: FamilyName
    role: Role = "cause"
    certainty: Certainty = Certainty.LIKELY
    lasts_s: float = 0
    hold_s: float = 0
    alone_s: float = 0
    follows: bool = False
    recurs: bool = False
    asked: bool = False
    alone: bool = True
    each: Literal["pod", "job"] = "pod"
    waits: bool = False
    starts: bool = False
    local: bool = False
    bars: bool = False
    stays: bool = False
    replicated: bool = False
    shares: Literal["registry", "webhook", "resolver", "storage", "address-pool", "sandbox"] | None = None
    at_node: SignalKind | None = None
    confirms: bool = False
    says: str

    def named_service(self, sighting: Sighting) -> str:
        """What a line calls the registry or the webhook that it fails for; empty where it has no name, or by a path."""
        match self.shares:
            case "registry":
                return sighting.text("registry")
            case "webhook":
                return sighting.text("service") or sighting.text("webhook")
        return ""

    def fits(self, sighting: Sighting) -> bool:
        """Whether severity and attributes are as the row wants them. What ends something fits whatever its severity."""
        if self.severities and sighting.firing and sighting.severity not in self.severities:
            return False
        return all(
            name in sighting.attributes and (not values or sighting.text(name) in values)
            for name, values in self.where.items()
        )


class _Actions(Strict):
    decisive: frozenset[ActionName]
    context: frozenset[ActionName]


class _Storage(Strict):
    nodes: int
    hung_nodes: int
    hung_share: float
    within_s: float
    brief_s: float
    most_nodes: int
    most_share: float
    together_s: float
    enough_nodes: int
    enough_share: float
    lasting_s: float
    alone_s: float
    quiet_s: float
    again_s: float
    replicas: int

    @property
    def again(self) -> timedelta:
        """A storage that is lost again so soon after it was back is lost for the same reason."""
        return timedelta(seconds=self.again_s)

    @property
    def together(self) -> timedelta:
        """What so many nodes lose within this is the storage's own fault."""
        return timedelta(seconds=self.together_s)

    @property
    def lasting(self) -> timedelta:
        """What only its monitoring calls lost opens an incident when it stays so for so long."""
        return timedelta(seconds=self.lasting_s)

    @property
    def alone(self) -> timedelta:
        """A single node opens one when it goes without for so long, and never reaches it meanwhile."""
        return timedelta(seconds=self.alone_s)

    @property
    def quiet(self) -> timedelta:
        """A few nodes of which nothing more is heard for so long are taken to reach it again."""
        return timedelta(seconds=self.quiet_s)

    def enough(self, known: int) -> int:
        """How many nodes must lose it together, of so many in the cluster."""
        return max(self.nodes, min(self.enough_nodes, ceil(self.enough_share * known)))

    @property
    def no_small_cluster(self) -> int:
        """A cluster of so many nodes is none of which a share would be enough."""
        return ceil(self.enough_nodes / self.enough_share)

    def hung(self, known: int) -> int:
        """On how many nodes of so many tasks must hang for a storage that nobody names."""
        return max(self.hung_nodes, ceil(self.hung_share * known))

    def most(self, known: int) -> int:
        """How many nodes are most of so many."""
        return max(self.most_nodes, ceil(self.most_share * known))

    @property
    def brief(self) -> timedelta:
        """How long most nodes must be without it at least."""
        return timedelta(seconds=self.brief_s)


class _Nvlink(Strict):
    within_s: float
    settle_s: float


class _Recurring(Strict):
    times: int
    apart_s: float
    quiet_s: float
    disk_again_s: float

    @property
    def disk_again(self) -> timedelta:
        """What a disk that was at fault tells again so soon after it was quiet is the same fault."""
        return timedelta(seconds=self.disk_again_s)

    @property
    def quiet(self) -> timedelta:
        """How long after the last one it is over."""
        return timedelta(seconds=self.quiet_s)


class _Shared(Strict):
    """How much must be seen of what several nodes share."""

    storage: _Storage
    nvlink: _Nvlink


class _Words(Mapping[str, str]):
    """The words of a sighting, of which a text wants one or two."""

    def __init__(self, sighting: Sighting) -> None:
        self._sighting = sighting

    def __getitem__(self, key: str) -> str:
        s = self._sighting
        if key == "kind":
            return s.kind
        if key == "system":
            return storage_system(s) or "it"
        if key == "gpu" and s.entity.gpu is not None:
            return f"GPU {s.entity.gpu.key}"
        if key == "pci" and s.entity.nic is not None:
            return f"{s.entity.nic} ({s.text(key)})"[:_PLACE_WORDS]
        if key in s.attributes:
            return s.text(key)[:_PLACE_WORDS]
        return "one of them" if key == "gpu" else "something"

    def __iter__(self) -> Iterator[str]:
        return iter(self._sighting.attributes)

    def __len__(self) -> int:
        return len(self._sighting.attributes)


class Families(Strict):
    """The whole table."""

    model_config = ConfigDict(ignored_types=(cached_property,))

    families: Mapping[FamilyName, FamilyRow]
    actions: _Actions
    symptoms: frozenset[int]
    sympathetic: frozenset[str]
    quiet_alone: frozenset[int]
    shared: _Shared
    recurring: _Recurring
    signals: tuple[SignalRule, ...]

    @model_validator(mode="after")
    def _names_are_known(self) -> Families:
        named = {rule.family for rule in self.signals}
        for row in self.families.values():
            named |= row.explained
        if unknown := named - self.families.keys():
            raise ValueError(f"no such family: {', '.join(sorted(unknown))}")
        return self

    def __getitem__(self, name: str) -> FamilyRow:
        return self.families[name]

    def in_domain(self, domain: str) -> tuple[str, ...]:
        """Names of the families that share their count of incarnations."""
        return tuple(name for name, family in self.families.items() if family.domain == domain)

    @property
    def domains(self) -> frozenset[str]:
        """Every domain in which incarnations are counted."""
        return frozenset(family.domain for family in self.families.values())

    @cached_property
    def kinds(self) -> frozenset[str]:
        """Every kind of signal that some row speaks of, XIDs included."""
        return frozenset(self._rules) | {SignalKind.GPU_XID}

    @cached_property
    def _rules(self) -> Mapping[str, tuple[SignalRule, ...]]:
        found: dict[str, list[SignalRule]] = defaultdict(list)
        for rule in self.signals:
            for kind in rule.kinds:
                found[kind].append(rule)
        return {kind: tuple(rules) for kind, rules in found.items()}

    @cached_property
    def _narrowed(self) -> dict[tuple[str, str], tuple[tuple[SignalRule, bool], ...]]:
        """By kind and subtype: the rows it may fall under, and whether they ask for anything else."""
        return {}

    def rule(self, sighting: Sighting) -> SignalRule | None:
        """The row that a signal falls under; None for an XID, whose codes have a catalog, and for what no row speaks of.

        It is noted in the sighting: each line of a pod that tries again for hours is asked for it with every one that follows.
        """
        if sighting.rule is None:
            found = self._rule(sighting)
            sighting.rule = () if found is None else (found,)
        return cast(SignalRule, sighting.rule[0]) if sighting.rule else None

    def _rule(self, sighting: Sighting) -> SignalRule | None:
        subtype = sighting.text("subtype")
        key = (sighting.kind, subtype)
        rules = self._narrowed.get(key)
        if rules is None:
            every = self._rules.get(sighting.kind, ())
            named = (r for r in every if not r.subtypes or subtype in r.subtypes)
            rules = tuple((r, bool(r.severities or r.where)) for r in named)
            if len(self._narrowed) < _MAX_SUBTYPES:
                self._narrowed[key] = rules
        # Most kinds have one row that asks for nothing more.
        for rule, asks in rules:
            if not asks or rule.fits(sighting):
                return rule
        return None

    def drops_connections(self, sighting: Sighting) -> bool:
        """Whether a node says of itself that it drops connections, or has no network for its pods."""
        rule = self.rule(sighting) if sighting.firing else None
        return rule is not None and rule.bars

    def role(self, sighting: Sighting) -> Role:
        """What a signal can be at most. It is noted in the sighting, for it is asked whenever its place is re-evaluated."""
        if not sighting.role:
            sighting.role = self._role(sighting)
        return cast(Role, sighting.role)

    def _role(self, sighting: Sighting) -> Role:
        if sighting.kind != SignalKind.GPU_XID:
            rule = self.rule(sighting)
            return rule.role if rule else "context"
        if sighting.code in self.symptoms:
            return "symptom"
        if self.family_of(sighting) == IncidentFamily.APPLICATION:
            return "application"
        if sighting.text("severity").lower().startswith("non"):
            return "context"  # recorded by the driver as not fatal: when it was, the recovery that it asks for says so
        return "context" if sighting.text("action") in self.actions.context else "cause"

    def family_of(self, sighting: Sighting) -> str:
        """The family its row names, or for an XID that of its code; a name that this table lacks is `unknown`."""
        if sighting.kind != SignalKind.GPU_XID:
            rule = self.rule(sighting)
            return rule.family if rule else IncidentFamily.UNKNOWN
        by_code = IncidentFamily.GPU_FAULT if sighting.code == RECOVERY_ACTION else IncidentFamily.UNKNOWN
        named = sighting.text("family") or by_code
        if sighting.code == RECOVERY_ACTION and named in (IncidentFamily.UNKNOWN, IncidentFamily.APPLICATION):
            return IncidentFamily.GPU_FAULT
        return named if named in self.families else IncidentFamily.UNKNOWN

    def blames_its_peer(self, sighting: Sighting) -> bool:
        """Whether an NVLink error says of itself that the fault lies at the other end of the link."""
        reason = sighting.text("reason")
        return self.family_of(sighting) == IncidentFamily.GPU_NVLINK and all(
            part in self.sympathetic for part in reason.split("; ")
        )

    def certainty(self, sighting: Sighting) -> Certainty:
        """How far one cause goes by itself."""
        family = self.family_of(sighting)
        if family == IncidentFamily.GPU_NVLINK and self.blames_its_peer(sighting):
            return Certainty.WEAK
        if RELAYED in sighting.attributes:
            return at_most(self._certainty(sighting, family), Certainty.LIKELY)
        return self._certainty(sighting, family)

    def _certainty(self, sighting: Sighting, family: str) -> Certainty:
        """The same without regard to who told it."""
        if sighting.kind != SignalKind.GPU_XID:
            rule = self.rule(sighting)
            return at_most(rule.certainty, self[family].cap) if rule else Certainty.WEAK
        if family == IncidentFamily.UNKNOWN:
            return Certainty.WEAK
        if sighting.text("action") not in self.actions.decisive:
            return Certainty.LIKELY
        return self[family].cap

    def says(self, sighting: Sighting) -> str:
        """What a signal says, of our own words and bounded attributes."""
        if sighting.kind == SignalKind.GPU_XID:
            name = f"XID {sighting.code}" if sighting.code is not None else "a line without an XID"
            return f"{name} {sighting.text('mnemonic')}".strip()
        rule = self.rule(sighting)
        if rule is None:
            return sighting.kind
        return rule.says.format_map(_Words(sighting))

    def signs(self, sightings: Iterable[Sighting], most: int) -> str:
        """What the first of them say, each text once. What differs only by the number of a device is said of the first."""
        found: dict[str, str] = {}
        for sighting in sightings:
            text = self.says(sighting)
            found.setdefault(_DEVICE_NUMBER.sub("", text), text)
            if len(found) == most:
                break
        return ", ".join(found.values())


_MAX_SUBTYPES = 4096
_DEVICE_NUMBER = re.compile(r"(?<=[a-z_])\d+")
_LEVELS = [Certainty.WEAK, Certainty.LIKELY, Certainty.DECISIVE]


_STORAGE_NAMES = (
    "target",
    "server",
    "peer",
    "filesystem",
    "storage_cluster",
    "device",
    "osd",
    "mds",
    "mount",
)


def storage_system(sighting: Sighting) -> str | None:
    """The storage target or server that a line names, by the first of its names that it gives.

    A mere number is told with the system that counts so: `beegfs 917`.
    """
    found = next((text for name in _STORAGE_NAMES if (text := sighting.text(name))), None)
    return f"{storage_kind(sighting)} {found}" if found is not None and found.isdecimal() else found


def storage_kind(sighting: Sighting) -> str:
    """Of which system a storage is (`lustre`, `nfs`), as far as a line or an alert tells; else its subtype."""
    subtype = sighting.text("subtype")
    return (sighting.text("system") if subtype == "remote_filesystem" else "") or subtype


def is_gauge(sighting: Sighting) -> bool:
    """A metric that holds the last code, or an alert on one: not the moment of a fault."""
    gauges = ("dcgm", "gauge")
    return (
        sighting.text("source") in gauges
        or sighting.text("subtype") in gauges
        or (sighting.kind == SignalKind.GPU_XID and "alert" in sighting.attributes)
    )


def is_failure_of_job(s: Sighting) -> bool:
    """Whether a line says why a job or its pods fail, or that they do while another one says why.

    What only follows from something else does not.
    """
    rule = families().rule(s) if s.kind in FAILURES else None
    return rule is not None and rule.role in ("cause", "context")


def at_most(certainty: Certainty, cap: Certainty) -> Certainty:
    """The lower of two certainties."""
    return min(certainty, cap, key=_LEVELS.index)


def level(certainty: Certainty) -> int:
    """0 for weak up to 2 for decisive."""
    return _LEVELS.index(certainty)


FILE = Path(__file__).with_name("families.yaml")
families = cache(partial(load_table, FILE, Families))
"""The table that ships, with what a site lays over it."""
