"""A scenario: which cluster, which jobs, which faults, how much noise. Data only; `bench/scenarios.yaml` ships many."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from streams.config.plain_faults import faults, said
from streams.model.errors import BadInput
from streams.model.similar import guess

Share = Annotated[float, Field(ge=0, le=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Plant(_Strict):
    """The hardware. Leafs are top-of-rack switches: all NICs of a node go to one leaf; racks hold fewer nodes than leafs."""

    nodes: int = Field(default=32, ge=4, le=4096)
    nodes_per_leaf: int = Field(default=16, ge=2, le=64)
    nodes_per_rack: int = Field(default=4, ge=1, le=32)
    spines: int = Field(default=2, ge=1, le=16)
    drivers: tuple[str, ...] = ("535", "550", "570", "580")
    """Branches of the NVIDIA driver; one is drawn for the whole cluster."""
    labelled: bool = True
    """Whether nodes carry labels of leaf and rack."""
    cabled: bool = True
    """Whether there is a topology file: which NIC is attached to which port."""


class JobMix(_Strict):
    """The training jobs. Sizes are drawn from `nodes` until `busy` of the cluster is taken."""

    nodes: tuple[int, ...] = (2, 4, 8)
    busy: Share = 0.7
    general: Share = 0.15
    """Of the nodes, for everybody who trains nothing: notebooks, builds, inference."""
    controllers: tuple[str, ...] = ()
    """Those of the site when there are none."""
    torch: tuple[str, ...] = ("2.1", "2.3", "2.4", "2.5", "2.7")
    tensor: tuple[int, ...] = (1, 2, 4, 8)
    pipeline: tuple[int, ...] = (1, 2)
    timeout_s: int = Field(default=600, ge=60, le=3600)
    """The collective timeout; 600 s is PyTorch's default since 2.2."""
    step_s: float = Field(default=4.0, gt=0)
    progress_s: float = Field(default=300.0, gt=0)
    """How often a job logs its iteration."""


class NoiseLevel(_Strict):
    """What happens to lines between the program that writes them and Kafka."""

    delay_s: float = Field(default=0.8, ge=0)
    """Median delay of a shipper."""
    late_share: Share = 0.002
    late_s: float = Field(default=45.0, ge=0)
    """How late the late ones are, at most."""
    lost_share: Share = 0.001
    duplicate_share: Share = 0.01
    skew_s: float = Field(default=1.0, ge=0)
    """Clocks of nodes differ by up to this much, either way."""


class Campaign(_Strict):
    """The faults of one run. A run injects `faults` of the named kinds in turn, as far apart as `spacing_s` in the mean."""

    kinds: tuple[str, ...] = ()
    """None for a day without a fault."""
    hours: float = Field(default=0.0, ge=0)
    """How long the run lasts at least."""
    faults: int = Field(default=2, ge=0)
    per_hundred_nodes: float = Field(default=1.5, ge=0)
    """Further faults for every hundred nodes: a larger cluster breaks more often."""
    spacing_s: float = Field(default=240.0, gt=0)
    options: dict[str, float | str | bool] = Field(default_factory=dict)


class Background(_Strict):
    """What goes on beside the faults (`background/rates.yaml`)."""

    scale: float = Field(default=1.0, ge=0)
    """All rates are multiplied by this."""
    rates: dict[str, float] = Field(default_factory=dict)
    """Other rates, by kind, for every hundred nodes and hour."""


class LookAlikes(_Strict):
    """Things that resemble faults and must open no incident that cordons a node. All kinds when none is named."""

    kinds: tuple[str, ...] = ()
    per_fault: float = Field(default=5.5, ge=0)
    per_hour: float = Field(default=0.0, ge=0)
    """For every hundred nodes, on a day without faults."""


class Scenario(_Strict):
    """One item of a file."""

    name: str
    about: str
    """What happens, and where the shape of it comes from."""
    site: str | None = None
    """One of `sites.yaml`; None for any that can have the faults, another with each seed."""
    plant: Plant = Plant()
    jobs: JobMix = JobMix()
    campaign: Campaign
    look_alikes: LookAlikes = LookAlikes()
    background: Background = Background()
    noise: NoiseLevel = NoiseLevel()

    def sized(self, nodes: int | None) -> Scenario:
        """The same on a cluster of another size."""
        if nodes is None:
            return self
        return self._with_plant(nodes=nodes)

    def at(self, site: str, *, nodes_per_rack: int | None, nodes_per_leaf: int | None) -> Scenario:
        """The same at a site, which says how large racks and leafs are where the scenario does not."""
        sizes = {"nodes_per_rack": nodes_per_rack, "nodes_per_leaf": nodes_per_leaf}
        own = {name: size for name, size in sizes.items() if size and name not in self.plant.model_fields_set}
        return self._with_plant(**own).model_copy(update={"site": site})

    def _with_plant(self, **changed: int) -> Scenario:
        said = self.plant.model_dump(exclude_unset=True)
        return self.model_copy(update={"plant": Plant.model_validate(said | changed)})

    def bare(self) -> Scenario:
        """The same with nothing going on beside the faults and look-alikes."""
        return self.model_copy(update={"background": Background(scale=0)})


_FILE: TypeAdapter[list[Scenario]] = TypeAdapter(list[Scenario])


def load(path: Path) -> dict[str, Scenario]:
    """The scenarios of a file by name: a list of them, or a single one.

    Raises:
        BadInput: naming the file and what is wrong in it.
    """
    try:
        read = yaml.safe_load(path.read_text(encoding="utf-8"))
        scenarios = _FILE.validate_python(read if isinstance(read, list) else [read])
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise BadInput(f"{path} is not YAML: {error}") from error
    except ValidationError as error:
        content = read if isinstance(read, list) else [read]
        lines = []
        for place, wrong in faults(error, Scenario):
            inside = place if isinstance(read, list) else place[1:]
            lines.append(f"{path}: {said(inside, wrong, content if isinstance(read, list) else read)}")
        raise BadInput("\n".join(lines)) from error
    found: dict[str, Scenario] = {}
    for scenario in scenarios:
        if found.setdefault(scenario.name, scenario) is not scenario:
            raise BadInput(f"{path}: two scenarios are called {scenario.name}")
    return found


def pick(path: Path, name: str | None) -> Scenario:
    """The scenario of that name out of a file; `name` may be left out where there is only one.

    Raises:
        BadInput: as `load` does, and when no name is given for a file of several, or none has that name.
    """
    scenarios = load(path)
    if name is None and len(scenarios) == 1:
        return next(iter(scenarios.values()))
    if name not in scenarios:
        wrong = "choose one with --name" if name is None else f"there is no {name}"
        raise BadInput(f"{path}: {wrong}{guess(name or '', scenarios)}")
    return scenarios[name]
