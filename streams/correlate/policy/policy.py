"""The policy in `policy.yaml`: bursts, maintenance, repetition and severity."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import cache, partial
from pathlib import Path

from pydantic import Field

from streams.config.vocabularies import FamilyName
from streams.config.yaml_tables import Strict, load_table
from streams.model.incident import Audience
from streams.model.signal import Severity


class BurstPolicy(Strict):
    """When a burst of lines is over."""

    silence_s: int
    sticky_s: int
    sticky_xids: frozenset[int]

    def silence(self, xids: set[int]) -> timedelta:
        """How long nothing must be heard after a burst with these codes."""
        return timedelta(seconds=self.silence_s if self.sticky_xids.isdisjoint(xids) else self.sticky_s)


class MaintenancePolicy(Strict):
    """What planned maintenance of a node explains."""

    expected: frozenset[FamilyName]
    shared: frozenset[FamilyName]
    nearly_all: float
    given_back: frozenset[FamilyName]


class HandledPolicy(Strict):
    """What a node that is closed for one incident does not take in."""

    apart: frozenset[FamilyName]


class WaitingPolicy(Strict):
    """How long a job that ran before may wait for GPUs, in hours."""

    usual_h: float
    kinds: Mapping[str, float]

    def of(self, kind: str) -> timedelta:
        """For a job of this kind."""
        return timedelta(hours=self.kinds.get(kind, self.usual_h))


class StartPolicy(Strict):
    """When failed tries to start accuse a node."""

    tries: int
    apart_s: float
    patience_s: float
    wave_s: float

    @property
    def wave(self) -> timedelta:
        """Pods that came within this of each other could start alike."""
        return timedelta(seconds=self.wave_s)

    @property
    def apart(self) -> timedelta:
        """Lines closer to each other than this are of one try."""
        return timedelta(seconds=self.apart_s)

    @property
    def patience(self) -> timedelta:
        """How long a try that failed waits for the next ones before it is told as the job's."""
        return timedelta(seconds=self.patience_s)


class OwnFailurePolicy(Strict):
    """When a program's own failure is more than its owner's business."""

    gpus: int
    gpus_a_node: int
    """Assumed where nobody says."""
    gpu_hours: float
    young_s: float
    gpus_young: int
    times: int
    retry_s: float
    gpus_on_call: int

    def audience(self, gpus: int) -> Audience:
        """Who has to know that a job of so many GPUs failed by itself."""
        return Audience.ON_CALL if gpus >= self.gpus_on_call else Audience.OWNER

    @property
    def retry(self) -> timedelta:
        """How long its controller may take to have the job going again."""
        return timedelta(seconds=self.retry_s)

    def is_dear(self, gpus: int, ran: timedelta | None) -> bool:
        """Whether a job of so many GPUs that ran for so long is; a time of None is not known."""
        if ran is None:
            return gpus >= self.gpus
        if gpus * ran.total_seconds() >= self.gpu_hours * 3600:
            return True
        return gpus >= (self.gpus if ran.total_seconds() >= self.young_s else self.gpus_young)


class RepeatPolicy(Strict):
    """How earlier incidents of the same offender count."""

    window_days: int
    kept: int
    days_shown: int
    first_on_host: int
    without: frozenset[FamilyName] = Field(alias="except")

    @property
    def window(self) -> timedelta:
        """How far back they count."""
        return timedelta(days=self.window_days)


class SeverityRow(Strict):
    """One row of the severity table."""

    families: frozenset[FamilyName]
    jobs: int | None = None
    gpus: int = 0
    spared: bool = False
    severity: Severity = Field(alias="is")

    def fits(self, family: str, jobs: int, gpus: int, *, spared: bool) -> bool:
        """Whether an incident of that size is meant."""
        harmless = spared or not self.spared
        small = self.jobs is None or jobs <= self.jobs
        return family in self.families and gpus >= self.gpus and small and harmless


class EarlyEndPolicy(Strict):
    """When small jobs that end as soon as they start accuse their node."""

    jobs: int
    voices: int
    within_s: float

    @property
    def within(self) -> timedelta:
        """How long after one the next may end to be of the same series."""
        return timedelta(seconds=self.within_s)


class SlowRankPolicy(Strict):
    """When a job's own report of a slow rank counts for its node."""

    below_percent: int
    most_share: float


class SlowNodePolicy(Strict):
    """When a node all of whose busy GPUs are slow is at fault, and not held back on purpose with others."""

    most: int
    within_s: float
    most_share: float
    same_s: float
    fresh_s: float
    lasting_s: float
    kept_s: float

    @property
    def within(self) -> timedelta:
        """What begins so close together, on more than `most` nodes, was done to all of them."""
        return timedelta(seconds=self.within_s)

    @property
    def same(self) -> timedelta:
        """What begins so far apart at two nodes of a job are two events."""
        return timedelta(seconds=self.same_s)

    @property
    def fresh(self) -> timedelta:
        """How long after the first report of it an incident may open."""
        return timedelta(seconds=self.fresh_s)

    @property
    def kept(self) -> timedelta:
        """How long a report is kept to compare others with."""
        return timedelta(seconds=self.kept_s)

    @property
    def lasting(self) -> timedelta:
        """How long a node of which nothing more is read is taken to be slow."""
        return timedelta(seconds=self.lasting_s)


class LabelPolicy(Strict):
    """How far labels of GPUs' metrics place a job of Slurm of which its controller says nothing."""

    late_s: float
    stale_s: float
    same_end_s: float
    kept_s: float

    @property
    def late(self) -> timedelta:
        """By so much the controller's clock and that of the metrics may differ."""
        return timedelta(seconds=self.late_s)

    @property
    def stale(self) -> timedelta:
        """So long after a job an exporter may still bear it."""
        return timedelta(seconds=self.stale_s)

    @property
    def same_end(self) -> timedelta:
        """What another partition's series say of the end of one stay lies no further apart."""
        return timedelta(seconds=self.same_end_s)

    @property
    def kept(self) -> timedelta:
        """For how long one report of a label counts."""
        return timedelta(seconds=self.kept_s)


class Policy(Strict):
    """The whole file."""

    bursts: BurstPolicy
    flapping_s: int
    maintenance: MaintenancePolicy
    handled: HandledPolicy
    deadly: frozenset[FamilyName]
    waiting: WaitingPolicy
    starts: StartPolicy
    own_failures: OwnFailurePolicy
    early_ends: EarlyEndPolicy
    slow_ranks: SlowRankPolicy
    slow_nodes: SlowNodePolicy
    repeats: RepeatPolicy
    labels: LabelPolicy
    severity: tuple[SeverityRow, ...]

    def severity_of(self, family: str, usual: Severity, jobs: int, gpus: int, *, spared: bool) -> Severity:
        """How grave an incident is that hits so many jobs and stops so many GPUs, or lets what runs there go on (`spared`)."""
        found = (row.severity for row in self.severity if row.fits(family, jobs, gpus, spared=spared))
        return next(found, usual)


policy = cache(partial(load_table, Path(__file__).with_name("policy.yaml"), Policy))
"""The policy that ships."""
