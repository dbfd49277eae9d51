"""What must hold after a soak, whatever happened in it. Pure: evidence goes in, violations come out.

The figures in `Expected` were set before the first run and are the same for every run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tests.soak.mixed.evidence import Evidence
from tests.soak.mixed.watch import Sample, Slope, growth
from tests.testbed.audit import Write


@dataclass(frozen=True, slots=True)
class Expected:
    """What a soak is held to."""

    handled_within_s: float = 180.0
    """After the last blow: every fault is closed and told of, every job runs again, nothing is left to read."""
    slope_mb_per_h: float = 40.0
    """No process may surely (lower bound of 95 %) grow faster. Each fault leaves an incident and a run, which are kept."""
    slope_from_s: float = 1800.0
    """A shorter measurement than this is told, and judged by `short_slope_mb_per_h`."""
    short_slope_mb_per_h: float = 240.0
    more_descriptors: int = 20
    more_threads: int = 8


EXPECTED = Expected()

Rule = Callable[[Evidence], Iterator[str]]


def records_accounted_for(e: Evidence) -> Iterator[str]:
    """Everything that was acknowledged is there and read; what is broken is a dead letter; what can be counted is counted."""
    wrote = sum(e.load.records.values())
    struck = sum(s.records for s in e.ledger.struck)
    least = wrote + len(e.ledger.struck)
    if not least <= e.written <= wrote + struck:
        yield f"{e.written} records are there, and {wrote} lines and {struck} reports of faults were written"
    if e.load.failed:
        yield f"{len(e.load.failed)} deliveries failed: {e.load.failed[0]}"
    if e.lag:
        yield f"{e.lag} records are not read"
    if not e.begins_before_commit:
        yield "records were deleted before they were read: the disk of the soak is too small"
    if e.dead != e.load.broken:
        yield f"{e.load.broken} records were broken, and {e.dead} are dead letters"
    for key, count in e.load.said.items():
        if e.said[key] < count:
            yield f"{key} was said {count} times and counted {e.said[key]} times"


def closed_once(e: Evidence) -> Iterator[str]:
    """Every broken node was closed by one request, and is closed; no other node ever was."""
    struck = {s.node for s in e.ledger.struck if s.closes}
    asked = Counter(w.name for w in e.writes if _closes(w))
    for node in sorted(struck):
        if node not in e.cordoned:
            yield f"{node} is broken and open"
        if asked[node] > 1:
            yield f"{node} was closed {asked[node]} times"
    for node in sorted(asked.keys() - struck):
        yield f"{node} was closed, and nothing decisive is wrong with it"
    for node in sorted(e.cordoned - struck - set(e.ledger.foreign)):
        yield f"{node} is closed, and nothing decisive is wrong with it"


def nothing_foreign_undone(e: Evidence) -> Iterator[str]:
    """What a person closed stays closed, and nobody opened it or anything else."""
    for node in e.ledger.foreign:
        if node not in e.cordoned:
            yield f"{node} was closed by a person and is open"
    for w in e.writes:
        if w.resource == "nodes" and (w.body or {}).get("spec", {}).get("unschedulable", True) in (
            False,
            None,
        ):
            yield f"{w.user} opened {w.name}"


def jobs_moved_once(e: Evidence) -> Iterator[str]:
    """A job whose node broke was stopped once and started once, others were left alone; none is stopped now."""
    struck = Counter(s.job for s in e.ledger.struck if s.job)
    turned: dict[str, list[bool]] = {}
    for w in e.writes:
        suspend = ((w.body or {}).get("spec") or {}).get("suspend")
        if w.resource == "jobs" and suspend is not None:
            turned.setdefault(w.name, []).append(bool(suspend))
    for job, times in struck.items():
        expected = [True, False] * times
        # The audit record of a request is lost with the API server that took it; the job's state is not.
        if (got := turned.get(str(job), [])) != expected and not _is_part(got, expected):
            yield f"{job} was struck {times} times and turned {got}"
    for job in turned.keys() - struck.keys():
        yield f"{job} was turned {turned[job]}, and nothing was wrong with its nodes"
    for job in e.suspended:
        yield f"{job} is still stopped"


def told_once(e: Evidence) -> Iterator[str]:
    """Each fault has one ticket and is told of in a thread; no key was used for two."""
    for what, keys in (
        ("ticket", Counter(label for labels, _ in e.tickets for label in labels if _is_key(label))),
        ("root message", Counter(key for key, _ in e.roots)),
        ("page", e.pages),
    ):
        for key, count in keys.items():
            if count > 1:
                yield f"{count} {what}s bear the key {key}"
    for s in e.ledger.struck:
        tickets = [text for _, text in e.tickets if _names(text, s.node)]
        if len(tickets) != 1:
            yield f"{s.node} has {len(tickets)} tickets"
        if not any(_names(text, s.node) for _, text in e.roots):
            yield f"{s.node} is in no thread"


def silenced_once(e: Evidence) -> Iterator[str]:
    """The alarms of a closed node are silenced, by one silence."""
    for s in e.ledger.struck:
        holding = sum(_names(matchers, s.node) for matchers in e.silences)
        if holding != s.closes:
            yield f"{s.node} has {holding} silences"


def one_incident(e: Evidence) -> Iterator[str]:
    """One incident for each broken node, of its family."""
    for s in e.ledger.struck:
        mine = [
            i for i in e.incidents if i.root.node == s.node and i.merged_into is None and i.family == s.family
        ]
        if len(mine) != 1:
            yield f"{s.node} has {len(mine)} incidents of {s.family}: " + ", ".join(
                f"{i.family} {i.state}" for i in e.incidents if i.root.node == s.node
            )


def nothing_stuck(e: Evidence) -> Iterator[str]:
    """Every process lives and works; no run waits for anything but a person."""
    for what, answers in (("lives", e.live), ("is ready", e.ready)):
        for label, status in answers.items():
            if status != 200:
                yield f"{label} does not say that it {what}: {status}"
    for run in e.runs:
        if run.has_work and run.state.value not in ("awaiting_approval", "verifying"):
            yield f"{run.id} ({run.plan.runbook}) is {run.state} and has work"
        if run.state.value == "failed":
            yield f"{run.id} ({run.plan.runbook}) failed"


RULES: Mapping[str, Rule] = {
    rule.__name__: rule
    for rule in (
        records_accounted_for,
        closed_once,
        nothing_foreign_undone,
        jobs_moved_once,
        told_once,
        silenced_once,
        one_incident,
        nothing_stuck,
    )
}


def violations(evidence: Evidence) -> list[str]:
    """Everything that does not hold, as `rule: sentence`."""
    return [f"{name}: {text}" for name, rule in RULES.items() for text in rule(evidence)]


def growing(
    samples: Mapping[str, list[Sample]], slopes: Mapping[str, Slope | None], lasted_s: float
) -> list[str]:
    """Processes that surely grow, and those whose slope is not known although it should be."""
    limit = EXPECTED.slope_mb_per_h if lasted_s >= EXPECTED.slope_from_s else EXPECTED.short_slope_mb_per_h
    found = []
    for label, told in slopes.items():
        if told is not None and told.low > limit:
            found.append(f"memory: {label} grows by {told.mb_per_h:.0f} MB/h, surely by {told.low:.0f}")
        if told is None and lasted_s >= EXPECTED.slope_from_s:
            found.append(f"memory: {label} never lived long enough to be measured")
        for field, most in (("descriptors", EXPECTED.more_descriptors), ("threads", EXPECTED.more_threads)):
            if (more := growth(samples[label], field)) > most:
                found.append(f"{field}: {label} has {more} more than before")
    return found


def _closes(w: Write) -> bool:
    return w.resource == "nodes" and ((w.body or {}).get("spec") or {}).get("unschedulable") is True


def _is_part(got: list[bool], whole: list[bool]) -> bool:
    """Whether `got` is `whole` with some left out."""
    rest = iter(whole)
    return all(any(one == other for other in rest) for one in got)


def _is_key(label: str) -> bool:
    """Whether a label is an incident's or effect's own and not one that all tickets have."""
    return any(char.isdigit() for char in label)


def _names(text: str, node: str) -> bool:
    """Whether a text names this node, and not just one whose name begins so."""
    at = text.find(node)
    while at >= 0:
        if not text[at + len(node) : at + len(node) + 1].isdigit():
            return True
        at = text.find(node, at + 1)
    return False
