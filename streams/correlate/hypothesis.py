"""One explanation, before it is published: a root, its evidence and what it explains; and what a job holds against a switch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from streams.correlate.policy.families import Stops, families, level
from streams.correlate.sightings import Sighting
from streams.correlate.state.node_work import Expectation, GivenBack
from streams.correlate.state.place import Place
from streams.model.entity import Entity, JobRef
from streams.model.incident import Audience, Candidate, Certainty, incident_id
from streams.model.signal import Attribute, Severity

Retry = Literal["", "waits", "over"]
BY_JOBS = "several jobs at once"
"""The rule of a network of which several jobs' connections tell at one moment, and nothing else."""
LINK_FLAPS = "link flaps"
"""The rule of a link that went down again and again."""
ERROR_COUNTERS = "error counters"
"""The rule of a link that works, with errors."""
DROPS = "drops at most ports"
"""The rule of a switch whose links work, and that drops what is sent to its hosts."""
SOLE = "sole"
"""A fact of such a switch: no other one dropped at half as many ports as it did when it began."""
UNCABLED = "uncabled"
"""A fact of such a switch: which hosts hang on it is not known."""
FELT_ONLY = "most hosts of one switch"
"""The rule of a switch that loses packets by what its hosts show, while those of others stand still."""
BY_RAIL = "by_rail"
"""A fact of such a switch: only the name of the NICs that hang on it is known, so what names a switch comes before it."""
LEFT_PARTITION = "left its partition"
"""The rule of ports that were taken out of a partition of their subnet."""
FAR_END_UNKNOWN = "far_end_unknown"
"""A fact of a port's fault: what hangs there is not known, and no host that is."""
LEAF_GUESSED = "leaf_guessed"
"""The same where no host at all is known at its switch, whose name tells which rack hangs on it."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A root cause. `place` is the one that is evaluated as a whole for it.

    `fault_at` is when it began, back-dated; `last_at` when its latest evidence was seen. `ready_at` is the moment from which
    it may open an incident; one that is open already is updated at once.
    """

    place: Place
    root: Entity
    family: str
    incarnation: int
    certainty: Certainty
    fault_at: datetime
    last_at: datetime
    ready_at: datetime
    rule: str
    lag: timedelta = timedelta(minutes=2)
    """How much later than the fault its own evidence may be dated: a driver notices a lost GPU when it next asks for it, a
    kubelet is missed after a minute. What is dated later than the symptoms by more did not cause them."""
    why: str = ""
    alone: bool = True
    """False for what is an incident only while a job suffers from it."""
    cleared_at: datetime | None = None
    flaps: int = 0
    causes: tuple[Sighting, ...] = ()
    context: tuple[Sighting, ...] = ()
    symptoms: tuple[Sighting, ...] = ()
    jobs: tuple[JobRef, ...] = ()
    facts: Mapping[str, Attribute] = field(default_factory=dict)
    candidates: tuple[Candidate, ...] = ()
    stops: Stops = "open"
    """Which hangs of jobs it can be the reason for (`families.yaml`)."""
    nodes: tuple[str, ...] = ()
    """Nodes that it reaches, where its root is none."""
    spares_jobs: bool = False
    """Whether what runs on its nodes goes on as before."""
    sure_at: datetime | None = None
    """From when on it is decisive, if nothing tells otherwise by then; None for never."""
    sure: str = ""
    """Why it is decisive then."""
    brief_until: datetime | None = None
    """It may be over by itself until then, or announce something graver: nobody is told before, unless a job suffers from it or
    it is certain."""
    was_brief: bool = False
    """It was over by itself so soon that it is an incident only where a job suffered from it."""
    retry: Retry = ""
    """Whether a job's controller tries again after this, and how that went: while it `waits` nobody is told, whatever follows
    from it; what is `over` by that is no incident at all."""
    expected: Expectation | None = None
    """Why nothing is to be done about it for a time: somebody works there."""
    severity: Severity | None = None
    """How grave it is, where that does not follow from its family, its jobs and their GPUs."""
    audience: Audience = Audience.ON_CALL
    """Who has to know of it."""
    given_back: GivenBack | None = None
    """By whom the node was given back after all of its evidence."""
    since_back: bool = False
    """Whether it is dated to when somebody gave the node back who worked there as its first evidence was seen."""
    counted_as: Entity | None = None
    """The root that its id and its incarnations go by, where what is known of the root grows: which GPU of the node it is."""
    id: str = field(init=False)
    """The incident it is."""

    def __post_init__(self) -> None:
        name = incident_id(self.root.cluster, self.counted_as or self.root, self.family, self.incarnation)
        object.__setattr__(self, "id", name)

    @property
    def domain(self) -> str:
        """The family's domain."""
        return families()[self.family].domain

    @property
    def is_repaired(self) -> bool:
        """Whether whoever gave the node back has seen to it: none of its evidence is of the boot that the node is in."""
        return self.given_back is not None and self.given_back.booted

    @property
    def only_drops(self) -> bool:
        """Whether all that is known is that the node drops connections: others do not reach it, and nothing there ends of it."""
        return not self.alone and bool(self.causes) and all(map(families().drops_connections, self.causes))

    @property
    def opens_alone(self) -> bool:
        """Whether it is an incident also while no job suffers from it."""
        return self.alone and not self.was_brief

    def fact_texts(self, name: str) -> tuple[str, ...]:
        """A fact that is a list, as texts; empty if there is none."""
        value = self.facts.get(name)
        return tuple(map(str, value)) if isinstance(value, tuple) else ()

    @property
    def strength(self) -> tuple[int, int]:
        """For choosing between two: certainty first, then the family's rank."""
        return (level(self.certainty), families()[self.family].rank)


SOMEWHERE = ""
"""The name under which that is put together of which nobody knows the switch."""


@dataclass(frozen=True, slots=True)
class Blame:
    """One job's failing connections that meet under one leaf, as votes count them; or that meet nowhere, at `SOMEWHERE`."""

    switch: str
    job: JobRef
    start: datetime
    last: datetime
    ready_at: datetime
    lines: tuple[Sighting, ...]
    why: str
    pairs: int
    """How many different pairs of nodes failed."""


MAX_NEEDS = 240
"""Characters of what a candidate lacked: a document holds a dozen, and two thousand may be published at once."""


def rejected(root: Entity, family: str, rule: str, reason: str, needs: str) -> Candidate:
    """An explanation that was weighed and found wanting.

    Args:
        root: What would be at fault.
        family: As what.
        rule: The rule that refused it.
        reason: Why, in a few words.
        needs: The criterion that it failed, with the numbers of the rule and what was seen instead.
    """
    return Candidate(
        root,
        family,
        False,
        rule,
        reason,
        needs if len(needs) <= MAX_NEEDS else f"{needs[: MAX_NEEDS - 1]}…",
    )
