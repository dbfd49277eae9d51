"""When trouble on several nodes is one event of a part that they share: `shared_parts.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import cache, partial
from math import ceil
from pathlib import Path

from streams.config.vocabularies import FamilyName
from streams.config.yaml_tables import Strict, load_table
from streams.model.entity import Part


class Enough(Strict):
    """How many nodes of a part, and how soon after one another."""

    nodes: int
    share: float
    within_s: int

    @property
    def within(self) -> timedelta:
        """How long after the one before the next node may follow."""
        return timedelta(seconds=self.within_s)

    def are_met(self, hit: int, known: int) -> bool:
        """Whether so many of the known nodes of a part are enough."""
        return hit >= self.needed(known)

    def needed(self, known: int) -> int:
        """How many nodes it takes in a part of so many."""
        return max(2, min(self.nodes, known), ceil(round(self.share * known, 6)))


class Clocks(Enough):
    """When nodes that refuse credentials tell of the clock of who sends them."""

    settle_s: int

    @property
    def settle(self) -> timedelta:
        """How long after enough of them it is told."""
        return timedelta(seconds=self.settle_s)


class Rollout(Strict):
    """When pods that an operator rolls out fail."""

    by: frozenset[str]
    unnamed: Mapping[str, str]
    lasts_s: float
    again_s: float
    quiet_s: float

    @property
    def lasts(self) -> timedelta:
        """How long they must go on failing."""
        return timedelta(seconds=self.lasts_s)

    @property
    def again(self) -> timedelta:
        """How far apart two reports of it must be."""
        return timedelta(seconds=self.again_s)

    @property
    def quiet(self) -> timedelta:
        """After so long without a report, what nobody closed the node for is over."""
        return timedelta(seconds=self.quiet_s)


class Starts(Enough):
    """When a step before jobs fails on many nodes."""

    steps: frozenset[str]
    quiet_s: float

    @property
    def quiet(self) -> timedelta:
        """After so long without a failure it is over."""
        return timedelta(seconds=self.quiet_s)


class Devices(Enough):
    """When containers on several nodes lost their GPUs."""

    had_s: float
    owners: int
    settles_s: float
    quiet_s: float
    metrics_s: float

    @property
    def metrics(self) -> timedelta:
        """Metrics of a node's GPUs that were reported within this show how they are."""
        return timedelta(seconds=self.metrics_s)

    @property
    def had(self) -> timedelta:
        """For so long a pod must have had its GPUs."""
        return timedelta(seconds=self.had_s)

    @property
    def settles(self) -> timedelta:
        """How long it is not reported."""
        return timedelta(seconds=self.settles_s)

    @property
    def quiet(self) -> timedelta:
        """After so long without a word it is over."""
        return timedelta(seconds=self.quiet_s)


class Links(Enough):
    """When links fail on nodes of one NVLink domain because of what they end at."""

    part: str
    to_one_tray: int


class Peers(Enough):
    """When nodes do not reach a service of one of them."""

    lasts_s: float
    peers: int

    @property
    def lasts(self) -> timedelta:
        """How long they must go on not to."""
        return timedelta(seconds=self.lasts_s)


class Inputs(Strict):
    """When hosts have lost one of their power inputs together."""

    subtypes: frozenset[str]
    settles_s: float
    behind_s: float
    dark_s: float

    @property
    def settles(self) -> timedelta:
        """How long it is not reported."""
        return timedelta(seconds=self.settles_s)

    @property
    def behind(self) -> timedelta:
        """How far a controller's clock may be behind."""
        return timedelta(seconds=self.behind_s)

    @property
    def dark(self) -> timedelta:
        """How long after it lost an input a node may be missed that went for it."""
        return timedelta(seconds=self.dark_s)


class PartPolicy(Strict):
    """The whole file."""

    power: Enough
    sudden: Enough
    heat: Enough
    inputs: Inputs
    software: Enough
    software_soon: Enough
    software_came_back: Enough
    software_signs: tuple[str, ...]
    software_of_a_gpu: Enough
    devices: Devices
    devices_after_reload: Enough
    rollout: Rollout
    starts: Starts
    clocks: Clocks
    hearsay: Enough
    hearsay_settles_s: float
    unfelt_s: float
    unfelt: frozenset[str]
    blaming: int
    nvlink: Links
    imex: Peers
    covers: float
    all: float
    several: int
    elsewhere: float
    prefer: tuple[str, ...]
    not_power: frozenset[str]
    not_dark: frozenset[str]
    places: frozenset[str]
    trays: tuple[str, ...]
    trouble: Mapping[FamilyName, str]
    takes: frozenset[FamilyName]
    feeds_hot: str
    feeds_dark: str
    complains_before_s: float

    @property
    def feeds(self) -> frozenset[str]:
        """Kinds of parts whose devices may tell why nodes are hot or dark."""
        return frozenset({self.feeds_hot, self.feeds_dark})

    def is_tray(self, device: str) -> bool:
        """Whether a device's name is that of an NVLink switch tray."""
        return any(word in device.lower() for word in self.trays)

    @property
    def complains_before(self) -> timedelta:
        """How long before its nodes are in trouble a device may have begun to complain."""
        return timedelta(seconds=self.complains_before_s)

    @property
    def hearsay_settles(self) -> timedelta:
        """How long what a job prints of a node is not told yet."""
        return timedelta(seconds=self.hearsay_settles_s)

    @property
    def unfelt_lasts(self) -> timedelta:
        """How long a part must report heat while none of its nodes is in trouble."""
        return timedelta(seconds=self.unfelt_s)

    def size(self, part: Part, known: int) -> tuple[int, int, Part]:
        """For choosing between parts: the smaller first, of equal ones the kind that people look at first."""
        rank = self.prefer.index(part.kind) if part.kind in self.prefer else len(self.prefer)
        return (known, rank, part)


part_policy = cache(partial(load_table, Path(__file__).with_name("shared_parts.yaml"), PartPolicy))
"""The policy that ships."""
