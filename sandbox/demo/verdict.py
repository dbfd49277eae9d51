"""What became true: read back from the API server, the ticket system and the chat, and held against what each story demands.

Nothing here is taken from the pipeline's own word, except which incident belongs to which story.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from connectors.kubernetes.annotations import INCIDENT, annotations_of
from sandbox.demo.director import StoryReport, incident_of
from sandbox.demo.spectator import Seen
from sandbox.demo.stack import Stack
from sandbox.demo.world import JOBS, World
from sandbox.fake_services.jira import StandinIssue
from sandbox.fake_services.slack import Posting
from streams.model.incident import Incident

ACTIONS_ON_THE_CLUSTER = frozenset({"cordon_node", "drain_node", "suspend_job", "resume_job"})
DEAD_LETTERS = 1
"""The one record of the background that is cut off."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must be true."""

    good: bool
    text: str
    story: str = ""


@dataclass(frozen=True, slots=True)
class StoryResult:
    """What is true of one story."""

    told: StoryReport
    incident: Incident | None
    tickets: tuple[StandinIssue, ...]
    threads: tuple[Posting, ...]
    recovered_s: float | None


@dataclass(frozen=True, slots=True)
class DemoVerdict:
    """Everything that was read back. `closed` maps a node to the incident it names; `seconds` is how long all of it took."""

    results: tuple[StoryResult, ...]
    checks: tuple[Check, ...]
    closed: dict[str, str]
    placements: dict[str, tuple[str, ...]]
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """Whether everything is as the stories demand."""
        return all(check.good for check in self.checks)


def judge(stack: Stack, world: World, seen: Seen, told: Sequence[StoryReport], now: datetime) -> DemoVerdict:
    """Check everything; `world` is to have been read just now."""
    results = tuple(_result(stack, seen, one) for one in told)
    closed = {
        name: annotations_of(node).get(INCIDENT, "nobody")
        for name, node in sorted(world.nodes.items())
        if node["spec"].get("unschedulable")
    }
    checks = [*_of_cluster(stack, world, seen, results, closed)]
    for result in results:
        checks += _of_story(seen, result, closed)
    placements = {job: tuple(sorted(world.placed(job).values())) for job in JOBS}
    seconds = (now - told[0].began_at).total_seconds() if told else 0.0
    return DemoVerdict(results, tuple(checks), closed, placements, seconds)


def _result(stack: Stack, seen: Seen, told: StoryReport) -> StoryResult:
    found = [i for i in seen.of_family(told.scene.family) if _fits(i, told)]
    incident = found[0] if len(found) == 1 else None
    tickets: list[StandinIssue] = []
    threads: list[Posting] = []
    if incident is not None:
        keys = {
            f"faultline-{record.effect.key}"
            for run in seen.runs_of(incident.id)
            for record in run.steps
            if record.effect is not None and record.effect.action == "open_ticket"
        }
        tickets = [issue for issue in stack.jira.issues if keys & set(issue.labels)]
        threads = [root for root in stack.slack.roots() if incident_of(root.metadata) == incident.id]
    recovered = (told.moving_at - told.began_at).total_seconds() if told.moving_at else None
    return StoryResult(told, incident, tuple(tickets), tuple(threads), recovered)


def _fits(incident: Incident, told: StoryReport) -> bool:
    if told.scene.node is not None:
        return incident.root.node == told.scene.node
    return incident.root.job is not None and str(incident.root.job) == told.scene.job


def _of_cluster(
    stack: Stack, world: World, seen: Seen, results: Sequence[StoryResult], closed: dict[str, str]
) -> Iterator[Check]:
    culprits = {r.told.scene.node for r in results if r.told.scene.node}
    yield Check(
        set(closed) == culprits,
        f"cordoned are exactly the culprits {_list(culprits)}" + _unless(closed, culprits),
    )
    alive = [i for i in seen.incidents.values() if i.merged_into is None]
    extra = [i.title for i in alive if i.id not in {r.incident.id for r in results if r.incident}]
    yield Check(
        not extra and len(alive) == len(results),
        f"{len(results)} faults are {len(alive)} incidents"
        + (f", besides: {'; '.join(extra)}" if extra else ""),
    )
    yield Check(
        len(stack.jira.issues) == len(results),
        f"{len(stack.jira.issues)} tickets for {len(results)} incidents",
    )
    yield Check(
        len(stack.slack.roots()) == len(results),
        f"{len(stack.slack.roots())} threads for {len(results)} incidents",
    )
    for job in JOBS:
        nodes = world.placed(job).values()
        moving = world.workload.moving(job)
        yield Check(
            moving and not set(nodes) & set(closed),
            f"{job} makes progress on {_list(set(nodes))}" if moving else f"{job} stands still",
        )
    yield Check(
        seen.dead_letters == DEAD_LETTERS,
        f"{seen.dead_letters} record(s) that nobody can read are in dead-letters",
    )


def _of_story(seen: Seen, result: StoryResult, closed: dict[str, str]) -> Iterator[Check]:
    told, scene, incident = result.told, result.told.scene, result.incident
    name = scene.name
    if incident is None:
        yield Check(False, f"no single incident {scene.family} with the right culprit", name)
        return
    yield Check(True, f"one incident: {incident.title}", name)
    yield Check(len(result.tickets) == 1, f"{len(result.tickets)} ticket(s): {_keys(result.tickets)}", name)
    said = "; ".join(root.text for root in result.threads)
    yield Check(len(result.threads) == 1, f"{len(result.threads)} thread(s): {said}", name)
    if scene.node is None:
        touched = [node for node, owner in closed.items() if incident.id in owner.split(",")]
        yield Check(not touched, "no node was closed for it" + _list_or_nothing(touched), name)
        acted = [
            step.effect.action
            for run in seen.runs_of(incident.id)
            for step in run.steps
            if step.effect is not None and step.effect.action in ACTIONS_ON_THE_CLUSTER
        ]
        same = told.pods_after.get(scene.job) == told.pods_before[scene.job] and not acted
        yield Check(same, f"{scene.job} was left to its owner" + _list_or_nothing(acted), name)
        return
    owner = closed.get(scene.node)
    yield Check(owner == incident.id, f"{scene.node} is closed for {owner or 'nobody'}", name)
    yield Check(
        result.recovered_s is not None,
        f"{scene.job} runs again {result.recovered_s:.1f} s after the first log line"
        if result.recovered_s is not None
        else f"{scene.job} does not run again",
        name,
    )
    for job in scene.unharmed:
        same = told.pods_after.get(job) == told.pods_before[job]
        yield Check(same, f"{job}, a victim, was not touched", name)


def _keys(tickets: Sequence[StandinIssue]) -> str:
    return ", ".join(issue.key for issue in tickets) or "none"


def _list(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _unless(closed: dict[str, str], culprits: set[str]) -> str:
    return "" if set(closed) == culprits else f", but cordoned are {_list(set(closed))}"


def _list_or_nothing(names: Sequence[str]) -> str:
    return f", but {', '.join(names)} is" if names else ""
