"""When jobs that fail in the same way fail for a service that they share: `services.yaml`."""

from __future__ import annotations

from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Literal

from streams.config.yaml_tables import Strict, load_table
from streams.correlate.job_rules.refusals import RefusalPolicy

STORAGE, WEBHOOK, REGISTRY = "storage", "webhook", "registry"
"""Kinds of services, besides the resolver of names and the pool of addresses."""
SANDBOX = "sandbox"
"""What refuses pods their sandbox without saying what it lacks: no service, and never at fault by itself."""


class ServicePolicy(Strict):
    """`services.yaml`."""

    jobs: int
    alone: frozenset[Literal["registry", "webhook", "resolver", "storage", "address-pool"]]
    lasts_s: float
    expired_s: float
    heals_s: float
    within_s: float
    over_s: float
    before_s: float
    after_s: float
    apart: frozenset[str]
    own: frozenset[str]
    outside: frozenset[str]
    refusals: RefusalPolicy

    @property
    def within(self) -> timedelta:
        """Jobs that complain further apart than this have nothing in common."""
        return timedelta(seconds=self.within_s)

    @property
    def heals(self) -> timedelta:
        """A pod that is refused its sandbox for less tells nothing: the next try of its kubelet helped."""
        return timedelta(seconds=self.heals_s)

    @property
    def over(self) -> timedelta:
        """After so long without a complaint the service is well."""
        return timedelta(seconds=self.over_s)


service_policy = cache(partial(load_table, Path(__file__).with_name("services.yaml"), ServicePolicy))
"""The file that ships."""
