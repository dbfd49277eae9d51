"""The case of an effect on one job of a real API server, for the contract of effects."""

from __future__ import annotations

from connectors.base import Connector, Effect
from connectors.jobs.training import TrainingJobs
from streams.model.run import Target
from tests.connectors.kube_world import KubeWorld
from tests.contract.case import Case


class JobCase(Case):
    """An effect on one job that the world holds."""

    action = ""
    deadline_s = 120.0

    def __init__(self, world: KubeWorld, target: Target) -> None:
        super().__init__(world.proxy)
        self.world = world
        self.target = target

    def effect(self) -> Effect:
        return self.world.effect(self.action, self.target)

    def connector(self) -> Connector:
        return TrainingJobs(self.world.through_proxy())
