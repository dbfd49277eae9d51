"""The names of a GPU: the kernel uses its PCI address, the device plugin its UUID, an alert its index.

Aliases are learned from sightings with two names (DCGM, a driver's start-up lines). A name that was used for two GPUs, as after
a board was replaced or devices were renumbered, means neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from streams.correlate.sightings import Sighting
from streams.model.entity import Gpu

Names = Mapping[str, Gpu]
"""A name in the form of `Gpu.key`, to the GPU by its better names."""


def learned(seen: Iterable[Sighting]) -> Names:
    """The names of a node's GPUs, as its sightings report them."""
    known: dict[str, Gpu | None] = {}
    # Most lines have a GPU's address only, which is no name of anything else.
    named = sorted(
        {
            Gpu(g.pci, g.uuid, g.index)
            for s in seen
            if (g := s.entity.gpu) is not None and (g.index is not None or g.uuid)
        },
        key=lambda g: (g.pci or "", g.uuid or "", -1 if g.index is None else g.index),
    )
    for gpu in named:
        best = Gpu(pci=gpu.pci, uuid=None if gpu.pci else gpu.uuid)
        for lesser in _lesser(gpu):
            known[lesser] = best if known.get(lesser, best) == best else None
    return {name: gpu for name, gpu in known.items() if gpu is not None}


def _lesser(gpu: Gpu) -> list[str]:
    """The other names of a GPU, all but the best one."""
    names = []
    if gpu.pci and gpu.uuid:
        names.append(Gpu(uuid=gpu.uuid).key)
    if gpu.index is not None and (gpu.pci or gpu.uuid):
        names.append(Gpu(index=gpu.index).key)
    return names


def renamed(sighting: Sighting, names: Names) -> Sighting:
    """The sighting with its GPU's address filled in where it is known."""
    gpu = sighting.entity.gpu
    if gpu is None or gpu.pci or not names:
        return sighting
    found = names.get(Gpu(uuid=gpu.uuid).key) if gpu.uuid else None
    if found is None and gpu.index is not None and not gpu.uuid:
        found = names.get(Gpu(index=gpu.index).key)
        if found is not None and found.pci is None and found.uuid:
            found = names.get(Gpu(uuid=found.uuid).key, found)
    if found is None:
        return sighting
    whole = replace(gpu, pci=found.pci or gpu.pci, uuid=gpu.uuid or found.uuid)
    return replace(sighting, entity=replace(sighting.entity, gpu=whole))


def may_be_same(one: Gpu | None, other: Gpu | None, names: Names) -> bool:
    """Whether nothing tells two GPUs of a node apart: they have no kind of name in common, or one has none at all."""
    if one is None or other is None:
        return True
    mine, theirs = (_all_names(gpu, names) for gpu in (one, other))
    return one.mig == other.mig and all(theirs.get(kind, name) == name for kind, name in mine.items())


def _all_names(gpu: Gpu, names: Names) -> dict[str, str]:
    """A GPU's names by their kind, with those that lead to it."""
    best = Gpu(pci=gpu.pci, uuid=None if gpu.pci else gpu.uuid)
    keys = [name for name, known in names.items() if known == best]
    keys += [Gpu(uuid=gpu.uuid).key] if gpu.uuid else []
    keys += [Gpu(index=gpu.index).key] if gpu.index is not None else []
    found = {"index" if key.startswith("index-") else "uuid": key for key in keys}
    return found | ({"pci": gpu.pci} if gpu.pci else {})
