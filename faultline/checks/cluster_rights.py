"""What each process asks of the API server (`rights.yaml`), and which of it these settings need."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

from faultline.runtime.settings import Settings
from streams.config.yaml_tables import Strict, load_table
from streams.job_kinds.rights import component_of
from streams.model.run import Mode

READING = frozenset({"get", "list", "watch"})
OWN = "faultline"
"""The namespace of the service accounts in the manifests."""


class Right(Strict):
    """Verbs on one resource. `resource` may have a subresource: `pods/eviction`."""

    component: str
    process: str
    group: str
    resource: str
    verbs: tuple[str, ...]
    namespace: str | None = None
    names: tuple[str, ...] = ()


class _Table(Strict):
    rights: tuple[Right, ...]


_table = cache(partial(load_table, Path(__file__).with_name("rights.yaml"), _Table))


def every_right() -> tuple[Right, ...]:
    """All rows of the table."""
    return _table().rights


def needed(
    settings: Settings, processes: tuple[str, ...], served: frozenset[str]
) -> Iterator[tuple[Right, bool]]:
    """The rights that these processes need, and whether nothing of theirs works without it.

    A kind of job that is watched by default and that the cluster (`served`, its API groups) does not have needs none; one that
    it has can be left out, and then its jobs are not seen. In shadow the responder changes nothing and needs no right to: the
    overlay `shadow` gives none.
    """
    must, may = components(settings, served)
    for right in every_right():
        if right.process not in processes or right.component not in must | may:
            continue
        changes: dict[str, object] = {}
        if right.component == "node-work" and right.namespace is not None:
            changes["namespace"] = settings.node_work.namespace
        if right.process == "responder" and settings.responder.mode is Mode.SHADOW:
            changes["verbs"] = tuple(verb for verb in right.verbs if verb in READING)
        asked = right.model_copy(update=changes)
        if asked.verbs:
            yield asked, right.component in must


def components(settings: Settings, served: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """The components of `k8s` that these settings need, and those that what is installed in the cluster could use."""
    if settings.slurm.alone:
        return frozenset(), frozenset()
    must = {"base"}
    kinds = {component_of(kind) for kind in settings.inventory.job_kinds if kind.partition("/")[0] in served}
    may = kinds - {""}
    if "job_kinds" in settings.inventory.model_fields_set:
        must |= may
    if "kueue.x-k8s.io" in served:
        may.add("jobs-kueue")
    work = settings.node_work
    if any(
        getattr(work, key) is not None
        for key in ("reset_gpu", "reboot_node", "validate_node", "diagnostics", "pairs")
    ):
        must.add("node-work")
    if settings.evidence.hooks:
        must.add("pod-exec")
    return frozenset(must), frozenset(may - must)


def how_to_give(component: str) -> str:
    """What an operator does for the rights of a component, in an installation that has its own overlay or values."""
    if component == "base":
        return (
            "apply your overlay again, or upgrade the Helm release with its values: its rights are not there"
        )
    return f"add components/{component} to your overlay, or its switch to the chart's values, and apply that"
