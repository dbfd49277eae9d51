"""The checks: the state of the API server, the ticket system and the chat, compared with what each story must lead to.

Nothing is taken from the pipeline's own records, except which incident belongs to which story.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from connectors.kubernetes.annotations import INCIDENT, annotations_of
from sandbox.demo import people
from sandbox.demo.director import StoryReport, incident_of
from sandbox.demo.spectator import Seen
from sandbox.demo.stack import CHANNEL, OWNERS_CHANNEL, Stack
from sandbox.demo.world import JOBS, World
from sandbox.fake_services.jira import StandinIssue
from sandbox.fake_services.slack import Posting
from streams.model.incident import Incident

ACTIONS_ON_THE_CLUSTER = frozenset({"cordon_node", "drain_node", "suspend_job", "resume_job"})
DEAD_LETTERS = 1
"""The one truncated record of the background."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must be true."""

    good: bool
    text: str
    story: str = ""


@dataclass(frozen=True, slots=True)
class StoryResult:
    """What is true of one story."""

    report: StoryReport
    incident: Incident | None
    tickets: tuple[StandinIssue, ...]
    threads: tuple[Posting, ...]
    recovered_s: float | None


@dataclass(frozen=True, slots=True)
class DemoVerdict:
    """All results. `cordoned` maps a node to the incident in its annotation; `seconds` is how long all of it took."""

    results: tuple[StoryResult, ...]
    checks: tuple[Check, ...]
    cordoned: dict[str, str]
    placements: dict[str, tuple[str, ...]]
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """Whether all checks pass."""
        return all(check.good for check in self.checks)


def judge(
    stack: Stack, world: World, seen: Seen, reports: Sequence[StoryReport], now: datetime
) -> DemoVerdict:
    """Check everything; `world` must have been polled just now."""
    results = tuple(_result(stack, seen, one) for one in reports)
    cordoned = {
        name: annotations_of(node).get(INCIDENT, "nobody")
        for name, node in sorted(world.nodes.items())
        if node["spec"].get("unschedulable")
    }
    checks = [*_of_cluster(stack, world, seen, results, cordoned)]
    for result in results:
        checks += _of_story(stack, seen, result, cordoned)
    placements = {job: tuple(sorted(world.placed(job).values())) for job in JOBS}
    seconds = (now - reports[0].began_at).total_seconds() if reports else 0.0
    return DemoVerdict(results, tuple(checks), cordoned, placements, seconds)


def _result(stack: Stack, seen: Seen, report: StoryReport) -> StoryResult:
    found = [i for i in seen.of_family(report.scene.family) if _fits(i, report)]
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
        channel = OWNERS_CHANNEL if report.scene.node is None else CHANNEL
        threads = [r for r in stack.slack.roots(channel) if incident_of(r.metadata) == incident.id]
    recovered = (report.moving_at - report.began_at).total_seconds() if report.moving_at else None
    return StoryResult(report, incident, tuple(tickets), tuple(threads), recovered)


def _fits(incident: Incident, report: StoryReport) -> bool:
    if report.scene.node is not None:
        return incident.root.node == report.scene.node
    return incident.root.job is not None and str(incident.root.job) == report.scene.job


def _of_cluster(
    stack: Stack, world: World, seen: Seen, results: Sequence[StoryResult], cordoned: dict[str, str]
) -> Iterator[Check]:
    faulty = {r.report.scene.node for r in results if r.report.scene.node}
    but = "" if set(cordoned) == faulty else f", but cordoned are {_list(cordoned)}"
    yield Check(not but, f"cordoned are exactly the faulty nodes {_list(faulty)}{but}")
    alive = [i for i in seen.incidents.values() if i.merged_into is None]
    extra = [i.title for i in alive if i.id not in {r.incident.id for r in results if r.incident}]
    besides = f", besides: {'; '.join(extra)}" if extra else ""
    count = len(results)
    yield Check(not extra and len(alive) == count, f"{count} faults are {len(alive)} incidents{besides}")
    on_call = sum(result.report.scene.node is not None for result in results)
    for what, found in (("tickets", stack.jira.issues), ("threads", stack.slack.roots(CHANNEL))):
        yield Check(
            len(found) == on_call, f"{len(found)} {what} for the {on_call} incidents of those on call"
        )
    theirs = len(stack.slack.roots(OWNERS_CHANNEL))
    yield Check(theirs == count - on_call, f"{theirs} thread(s) in the channel of those who run the jobs")
    for job in JOBS:
        nodes = set(world.placed(job).values())
        moving = world.workload.moving(job)
        text = f"{job} makes progress on {_list(nodes)}" if moving else f"{job} is stalled"
        yield Check(moving and not nodes & set(cordoned), text)
    dead = seen.dead_letters
    yield Check(dead == DEAD_LETTERS, f"{dead} unreadable record(s) in dead-letters")


def _of_story(stack: Stack, seen: Seen, result: StoryResult, cordoned: dict[str, str]) -> Iterator[Check]:
    report, scene, incident = result.report, result.report.scene, result.incident
    name = scene.name
    if incident is None:
        yield Check(False, f"no single incident {scene.family} with the right root cause", name)
        return
    yield Check(True, f"one incident: {incident.title}", name)
    yield Check(
        len(result.tickets) == (scene.node is not None),
        f"{len(result.tickets)} ticket(s): {_list(issue.key for issue in result.tickets)}",
        name,
    )
    texts = "; ".join(root.text for root in result.threads)
    yield Check(len(result.threads) == 1, f"{len(result.threads)} thread(s): {texts}", name)
    if scene.node is None:
        touched = [node for node, owner in cordoned.items() if incident.id in owner.split(",")]
        yield Check(not touched, "no node was cordoned for it" + _list_or_nothing(touched), name)
        acted = [
            step.effect.action
            for run in seen.runs_of(incident.id)
            for step in run.steps
            if step.effect is not None and step.effect.action in ACTIONS_ON_THE_CLUSTER
        ]
        same = report.pods_after.get(scene.job) == report.pods_before[scene.job] and not acted
        yield Check(same, f"{scene.job} was left to its owner" + _list_or_nothing(acted), name)
        return
    owner = cordoned.get(scene.node)
    yield Check(owner == incident.id, f"{scene.node} is cordoned for {owner or 'nobody'}", name)
    after_s = result.recovered_s
    again = (
        "does not run again" if after_s is None else f"runs again {after_s:.1f} s after the first log line"
    )
    yield Check(after_s is not None, f"{scene.job} {again}", name)
    if scene.asks:
        yield from _of_question(stack, result)
    for job in scene.unharmed:
        same = report.pods_after.get(job) == report.pods_before[job]
        yield Check(same, f"{job}, a victim, was not touched", name)


def _of_question(stack: Stack, result: StoryResult) -> Iterator[Check]:
    """Of two people who pressed, the one who may has decided, and nothing was done before."""
    report, name = result.report, result.report.scene.name
    if not report.presses:
        yield Check(False, "nobody was asked in the thread", name)
        return
    yield Check(not report.cordoned_early, f"{report.scene.node} was not cordoned before the approval", name)
    for press, end in zip(report.presses, ("refused", "accepted"), strict=True):
        good = press.answer.startswith(f"{end}: ")
        yield Check(good, f"{press.who} is {end}{'' if good else f', but was told: {press.answer}'}", name)
    replies = [reply for root in result.threads for reply in stack.slack.thread(root.ts)]
    now = next((reply for reply in replies if reply.ts == report.question), None)
    text = now.text if now is not None else "it is not in the incident's thread"
    decided = now is not None and people.approve_value(now) is None and report.presses[-1].who in now.text
    yield Check(decided, f"the question has changed: {text}", name)
    shows = "names" if report.on_console else "does not name"
    yield Check(report.on_console, f"the console {shows} who approved", name)


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _list_or_nothing(names: Sequence[str]) -> str:
    return f", but {', '.join(names)} is" if names else ""
