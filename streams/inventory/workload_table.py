"""What work is for, by the names in `workloads.yaml`: kinds of owners, labels, images, commands."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from streams.config.yaml_tables import Strict, load_table
from streams.model.kinds import WorkloadClass

_FILE = Path(__file__).with_name("workloads.yaml")


class _Gang(Strict):
    kinds: frozenset[str]
    gpus_in_a_pod: int
    indexed_pods: int


class Workloads(Strict):
    """The whole table."""

    declared: tuple[str, ...]
    kinds: Mapping[str, frozenset[str]]
    labels: Mapping[WorkloadClass, tuple[str, ...]]
    images: Mapping[WorkloadClass, tuple[str, ...]]
    worlds: frozenset[str]
    """Kinds of owners for which an image speaks of training."""
    commands: Mapping[WorkloadClass, frozenset[str]]
    training_env: tuple[str, ...]
    general: Mapping[WorkloadClass, frozenset[str]]
    gang: _Gang

    def knows(self, kind: str) -> bool:
        """Whether the table has a row for a kind of owner."""
        rows = (*self.kinds.values(), *self.general.values())
        return any(kind in kinds for kinds in rows)

    def by_kind(self, kind: str, gpus: bool) -> WorkloadClass | None:
        """What a kind of owner says by itself; None where it says nothing."""
        for name, kinds in self.kinds.items():
            if kind in kinds:
                if name != "training_with_gpus":
                    return WorkloadClass(name)
                return WorkloadClass.TRAINING if gpus else WorkloadClass.BATCH
        return None


@cache
def workloads() -> Workloads:
    """The table.

    Raises:
        ConfigError: when the shipped file is damaged.
    """
    return load_table(_FILE, Workloads)
