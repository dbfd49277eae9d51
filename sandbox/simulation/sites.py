"""The kinds of sites that scenarios are played on (`sites.yaml`): names, pipelines, fabric, what tells where things are."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from streams.model.errors import BadInput


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Pipeline(_Strict):
    """One way from the hosts to Kafka."""

    format: str
    host: Literal["node", "short", "fqdn"] = "node"
    """What a host is called in it."""
    keyed: bool = True
    share: float = Field(default=1.0, gt=0, le=1)
    """Of the hosts it runs on."""
    kernel_only: bool = False

    def reads(self, place: str) -> bool:
        """Whether it runs on a host."""
        return zlib.crc32(place.encode()) % 1000 < self.share * 1000


class Site(_Strict):
    """A kind of site."""

    about: str
    cluster: str
    orchestrator: Literal["kubernetes", "slurm"]
    controllers: tuple[str, ...]
    node: str
    rack: str
    domain: str
    fabric: Literal["roce", "infiniband", "efa"]
    switches: tuple[Literal["sonic", "arista", "ufm"], ...] = ()
    """One of these vendors is drawn; none where nobody sees a switch."""
    labels: Mapping[str, str]
    topology: Literal["configured", "lldp", "absent"]
    partitions: int = Field(ge=1)
    most_nodes: int | None = None
    """A scenario that does not name it is not played on it with more."""
    nodes_per_rack: int | None = None
    nodes_per_leaf: int | None = None
    node_logs: tuple[Pipeline, ...]
    job_logs: tuple[Pipeline, ...]
    metrics: tuple[Pipeline, ...]
    events: tuple[Pipeline, ...]

    @property
    def features(self) -> frozenset[str]:
        """What faults and background can need of it."""
        found: set[str] = {self.orchestrator, self.fabric}
        found |= {"mlx5"} if self.fabric != "efa" else set()
        found |= {"switches"} if self.switches else set()
        values = " ".join(self.labels.values())
        found |= {name for name in ("rack", "feed", "loop", "domain") if f"{{{name}}}" in values}
        return frozenset(found)

    def host(self, name: str, style: str) -> str:
        """What a node, or another machine, is called in a pipeline."""
        short = name.partition(".")[0]
        if style == "fqdn" and self.domain:
            return f"{short}.{self.domain}"
        return short if style == "short" else name


@cache
def sites() -> Mapping[str, Site]:
    """All of them by name."""
    read = yaml.safe_load((Path(__file__).parent / "sites.yaml").read_text(encoding="utf-8"))
    return {name: Site.model_validate(row) for name, row in read.items()}


def choose(wanted: str | None, needs: Sequence[frozenset[str]], turn: int, nodes: int = 1) -> str | None:
    """The name of that site, or of one for this turn: those have the room, and what most of these need; None when none has any.

    Raises:
        BadInput: when there is no site of that name.
    """
    known = sites()
    if wanted is not None and wanted not in known:
        raise BadInput(f"no site {wanted!r}; there are: {', '.join(sorted(known))}")
    roomy = [name for name, site in known.items() if nodes <= (site.most_nodes or nodes)]
    options = [wanted] if wanted is not None else roomy
    if not needs:
        return options[turn % len(options)]
    able = {name: sum(need <= known[name].features for need in needs) for name in options}
    most = max(able.values())
    best = [name for name, count in able.items() if count == most]
    return best[turn % len(best)] if most else None
