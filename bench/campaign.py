"""How often the culprit is found: `bench/campaign.py [--quick] [--only NAME …] [--site NAME]`, in memory, no broker.

Plays every scenario of `bench/scenarios.yaml` on clusters of several sizes with several seeds, puts the records through the whole
pipeline (detector, inventory, correlator, responder in shadow, as `faultline replay` does), and holds what was decided against
what was done. Runs that find no place for their fault (an uplink on a cluster of one leaf) are left out and counted.

An incident belongs to a fault when its fault time lies in the fault's time and its root in the fault's places; merged and
withdrawn incidents do not count, except where it says so. Figures, over all runs:
  `top1`             share of the faults whose incident names the right root: the node, the GPU when both name one, the switch,
                     the rack, the storage or the job
  `family`           share of the faults whose incident is of the right family, or of one that the evidence cannot tell from it
  `precision`        faults that have an incident of their own ÷ incidents ever told in runs with faults: every incident ever
                     published in a state other than suppressed, merged and withdrawn ones included; neither counts what
                     only a job's owner has to know of
  `jobs_right`       share of the training jobs stopped by faults that the fault's incident names
  `churn`            `revisions`, `runs`, and `questions` (approvals that a person is asked for) of each incident ever told
  `late_s`           from a fault until its incident was first told: `median` and `p90`
  `quiet_incidents_per_day`  incidents ever told in a day without a fault
  `count_right`      share of the runs with as many incidents as faults
  `healthy_cordons`  nodes that would be cordoned for no fault of theirs
  `healthy_asked`    nodes for which a person would be asked to
  `faults`, `look_alikes`, `runs`, `left_out`, `records`, `seconds`
  `kinds`, `sites`   the same for each scenario, and for each kind of site
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from bench.figures import Figure, progress, report
from bench.verdicts import Verdict, verdict
from faultline.replay.replay import replay_capture
from runbooks.language.loader import load as load_runbooks
from runbooks.language.schema import Runbook
from sandbox.simulation.campaign import NoPlace, simulate
from sandbox.simulation.scenario import Scenario, load

SCENARIOS = Path(__file__).parent / "scenarios.yaml"
SEEDS = {8: 12, 32: 12, 128: 8, 512: 3, 1024: 1, 2048: 1}
"""How many seeds of each size, in nodes, a full campaign plays."""
QUIET_SEEDS = {64: 5, 256: 2, 1024: 1}
"""The same for days without faults."""
QUICK = {32: 1}


@dataclass(frozen=True, slots=True)
class Task:
    """One run."""

    scenario: Scenario
    nodes: int
    seed: int


@dataclass(slots=True)
class Tally:
    """What verdicts add up to."""

    faults: int = 0
    top1: int = 0
    family: int = 0
    runs: int = 0
    count_right: int = 0
    healthy_cordons: int = 0
    healthy_asked: int = 0
    told: int = 0
    told_of_faults: int = 0
    """In runs that have faults."""
    found: int = 0
    revisions: int = 0
    plans: int = 0
    questions: int = 0
    jobs: int = 0
    jobs_right: int = 0
    late_s: list[float] = field(default_factory=list)
    quiet_days: float = 0.0

    def add(self, found: Verdict) -> None:
        """Count one run."""
        self.runs += 1
        self.count_right += found.count_right
        self.healthy_cordons += len(found.healthy_cordons)
        self.healthy_asked += len(found.healthy_asked)
        self.faults += found.faults
        self.top1 += found.top1
        self.family += found.family
        self.told += found.told
        self.found += found.found
        self.revisions += found.revisions
        self.plans += found.runs
        self.questions += found.questions
        self.jobs += found.jobs
        self.jobs_right += found.jobs_right
        self.late_s += found.late_s
        if found.faults:
            self.told_of_faults += found.told
        else:
            self.quiet_days += found.days

    def figures(self) -> dict[str, Figure]:
        """As they are printed."""
        return {
            "top1": _share(self.top1, self.faults),
            "family": _share(self.family, self.faults),
            "precision": _share(self.found, self.told_of_faults),
            "jobs_right": _share(self.jobs_right, self.jobs),
            "churn": {
                "revisions": _share(self.revisions, self.told),
                "runs": _share(self.plans, self.told),
                "questions": _share(self.questions, self.told),
            },
            "late_s": {"median": _quantile(self.late_s, 0.5), "p90": _quantile(self.late_s, 0.9)},
            "quiet_incidents_per_day": _share(self.told - self.told_of_faults, self.quiet_days),
            "count_right": _share(self.count_right, self.runs),
            "healthy_cordons": self.healthy_cordons,
            "healthy_asked": self.healthy_asked,
            "faults": self.faults,
        }


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _quantile(values: list[float], share: float) -> float | None:
    """The value that this share of the others does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else None


@dataclass(slots=True)
class Campaign:
    """All runs together."""

    total: Tally = field(default_factory=Tally)
    kinds: defaultdict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    sites: defaultdict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    look_alikes: int = 0
    records: int = 0
    left_out: int = 0
    false_by: Counter[str] = field(default_factory=Counter)

    def add(self, scenario: str, found: Verdict | None) -> None:
        """Count one run; None when it was left out."""
        if found is None:
            self.left_out += 1
            return
        for tally in (self.total, self.kinds[scenario], self.sites[found.site]):
            tally.add(found)
        self.look_alikes += found.look_alikes
        self.records += found.records
        self.false_by.update(found.false_families)


@cache
def runbooks() -> tuple[Runbook, ...]:
    """Those that ship: read once in each process."""
    return load_runbooks()


def run(task: Task) -> Verdict | None:
    """Play and judge one run; None when the cluster has no place for such a fault."""
    scenario = task.scenario.sized(task.nodes)
    try:
        simulated = simulate(scenario, task.seed)
    except NoPlace:
        return None
    where = f"bench/scenarios.yaml --name {scenario.name} --nodes {task.nodes} --seed {task.seed} --site {simulated.site}"
    return verdict(simulated, replay_capture(simulated.capture, runbooks=runbooks()), where)


def tasks(scenarios: Sequence[Scenario], seeds: dict[int, int], quiet: dict[int, int]) -> Iterator[Task]:
    """Every scenario with every size and seed, the large ones first so that no process waits for one at the end."""
    for nodes in sorted({*seeds, *quiet}, reverse=True):
        for scenario in scenarios:
            count = (seeds if scenario.campaign.kinds else quiet).get(nodes, 0)
            for seed in range(1, count + 1):
                yield Task(scenario, nodes, seed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one small run of each scenario")
    parser.add_argument("--only", nargs="+", metavar="SCENARIO", help="only these scenarios, by name")
    parser.add_argument("--nodes", type=int, nargs="+", help="only these sizes")
    parser.add_argument("--site", help="only at this kind of site (default: another with each seed)")
    parser.add_argument("--seeds", type=int, help="so many seeds of each size")
    parser.add_argument("--misses", type=Path, help="write every miss and how to see it again to this file")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    known = load(SCENARIOS)
    scenarios = [known[name] for name in sorted(known) if not options.only or name in options.only]
    if options.site:
        scenarios = [scenario.model_copy(update={"site": options.site}) for scenario in scenarios]
    played = (QUICK, QUICK) if options.quick else (SEEDS, QUIET_SEEDS)
    if options.nodes:
        played = (
            {n: played[0].get(n, 1) for n in options.nodes},
            {n: played[1].get(n, 1) for n in options.nodes},
        )
    if options.seeds:
        played = (dict.fromkeys(played[0], options.seeds), dict.fromkeys(played[1], options.seeds))
    if options.misses:
        options.misses.write_text("")
    begin, campaign = time.perf_counter(), Campaign()
    todo = list(tasks(scenarios, *played))
    with ProcessPoolExecutor(options.processes) as pool:
        for task, found in zip(todo, pool.map(run, todo, chunksize=1), strict=True):
            campaign.add(task.scenario.name, found)
            if options.misses and found is not None:
                with options.misses.open("a") as file:
                    file.writelines(f"{miss}\n" for miss in found.misses)
            if campaign.total.runs % 50 == 0 and found is not None:
                _say(campaign, len(todo), time.perf_counter() - begin)
    for name, count in campaign.false_by.most_common(20):
        progress(f"  {count:6d} incidents that belong to no fault: {name}")
    report(
        {
            **campaign.total.figures(),
            "look_alikes": campaign.look_alikes,
            "runs": campaign.total.runs,
            "left_out": campaign.left_out,
            "records": campaign.records,
            "seconds": round(time.perf_counter() - begin, 1),
            "sites": {name: campaign.sites[name].figures() for name in sorted(campaign.sites)},
            "kinds": {name: campaign.kinds[name].figures() for name in sorted(campaign.kinds)},
        }
    )


def _say(campaign: Campaign, of: int, seconds: float) -> None:
    total = campaign.total
    progress(
        f"  {total.runs + campaign.left_out}/{of} runs, {total.faults} faults in {seconds:.0f} s: "
        f"top1 {total.top1 / max(1, total.faults):.3f}, family {total.family / max(1, total.faults):.3f}, "
        f"count right {total.count_right / total.runs:.3f}, healthy cordons {total.healthy_cordons}"
    )


if __name__ == "__main__":
    main()
