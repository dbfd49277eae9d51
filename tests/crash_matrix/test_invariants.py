"""The checker is checked: it says nothing about histories that are right, and finds each fault that is put into one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from connectors.base import Absent, Done, Effect
from runbooks.engine.partition_state import PartitionState
from runbooks.engine.run.transition import Call
from runbooks.engine.spares import SPARE
from runbooks.language.loader import load
from streams.config.settings import BlastRadius, ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.model.conversation import TimelineEntry
from streams.model.facts import PodFact
from streams.model.incident import Incident, IncidentState
from streams.model.run import EffectRecord, EffectState, Mode, RunState, StepRecord, StepState
from tests.crash_matrix.history import History, Start, Touch, Version
from tests.crash_matrix.invariants import RULES, violations
from tests.crash_matrix.stages import BOOKS
from tests.crash_matrix.witness import WORK, Work
from tests.runbooks.scenes import JOB, NOW, cluster, incident

ACTIONS = frozenset(
    {
        "cordon_node", "uncordon_node", "drain_node", "suspend_job", "resume_job", "verify_job",
        "open_ticket", "comment_ticket", "close_ticket", "reset_gpu", "validate_node", "reboot_node",
        "release_spare", "return_spare", "apply_template", "replace_node", "diagnose_nodes",
    }
)  # fmt: skip
POLICY = ResponderSettings(
    mode=Mode.AUTO, lease_s=3.0, blast_radius=BlastRadius(max_nodes=9, max_share=1.0, max_per_window=99)
)
TOUCHED = {
    ("apply", "cordon_node"): [("cordon", "bad")],
    ("apply", "uncordon_node"): [("release", "bad")],
    ("undo", "cordon_node"): [("release", "bad")],
    ("apply", "drain_node"): [("evict", "pod 0"), ("evict", "pod 1")],
    ("apply", "suspend_job"): [("suspend", "job")],
    ("undo", "suspend_job"): [("take back", "job")],
    ("apply", "resume_job"): [("resume", "job")],
    ("apply", "open_ticket"): [("open", "ticket")],
    ("apply", "comment_ticket"): [("comment", "ticket")],
    ("apply", "close_ticket"): [("comment", "ticket"), ("close", "ticket")],
    ("compensate", "uncordon_node"): [("release", "bad")],
    ("apply", "release_spare"): [("give", "other")],
    ("apply", "return_spare"): [("fill", "bad"), ("let go", "other")],
    ("apply", "apply_template"): [("ask", "bad")],
    ("undo", "apply_template"): [("take off", "bad")],
    ("apply", "replace_node"): [("replace", "bad")],
    ("apply", "diagnose_nodes"): [("measure", "bad+other"), ("measure", "bad+other 2")],
    **{("apply", action): [(verb, "bad")] for action, verb in WORK.items()},
}
KEYLESS = ("release", "take back", "evict", "close", "let go", "take off", "replace")


def played(book: str) -> History:
    """A run of a book as the board itself decides it, with a world that does what it is told."""
    board = PartitionState(load((BOOKS,), shipped=False), POLICY, ACTIONS)
    facts = cluster()
    facts.put(replace(facts.nodes["node-10"], taints=(f"{SPARE}:NoSchedule",)))
    for pod in (*pods_everywhere(facts), *facts.pods_of(JOB.key)):
        board.take_fact(pod.key, pod)
    for fact in facts.nodes.values():
        board.take_fact(fact.key, fact)
    for job in facts.jobs.values():
        board.take_fact(job.key, job)
    about = incident(family=book)
    board.take_incident(about)
    versions: list[Version] = []
    touches: list[Touch] = []
    said: list[TimelineEntry] = []
    reports: list[str] = []
    starts: list[Start] = []
    now = NOW
    while not versions or versions[-1].run.has_work:
        assert now < NOW + timedelta(seconds=60), versions[-1].run
        board.advance(now)
        changes = board.collect()
        versions += [Version(now, run) for run in changes.runs]
        said += changes.timeline
        reports += [signal.kind for batch in changes.signals for signal in batch.signals]
        for call in changes.calls:
            made = touched(call, now + timedelta(milliseconds=10 + len(touches)))
            touches += made
            starts += [
                Start(
                    t.at - timedelta(milliseconds=1), call.effect.action, call.kind == "undo", call.effect.key
                )
                for t in made
            ]
            board.take_outcome(call, Absent() if "lookup" in call.kind else Done(), now)
        now += timedelta(seconds=1)
        if (
            book in ("back", "other", "announce", "evict")
            and versions[-1].run.state is RunState.AWAITING_APPROVAL
        ):
            board.take_incident(cleared(about))
    works = [
        Work(t.at, t.verb, t.thing, t.key, True, False, True) for t in touches if t.verb in WORK.values()
    ]
    return History(
        tuple(versions), tuple(touches), tuple(said), tuple(reports), tuple(starts), {"bad node": "as it is"},
        tuple(works),
    )  # fmt: skip


def pods_everywhere(facts: ClusterView) -> list[PodFact]:
    """Every node but the spare is in use, so that a job that lost one needs it."""
    return [
        PodFact(facts.cluster, "others", f"busy-{name}", f"busy-{name}", NOW, node=name, gpus=8)
        for name in facts.nodes
        if name != "node-10"
    ]


def cleared(about: Incident) -> Incident:
    return replace(about, revision=2, state=IncidentState.RESOLVED)


def touched(call: Call, at: object) -> list[Touch]:
    def touch(effect: Effect, verb: str, thing: str) -> Touch:
        return Touch(at, verb, thing, "" if verb in KEYLESS else effect.key)  # type: ignore[arg-type]

    return [
        touch(call.effect, verb, thing) for verb, thing in TOUCHED.get((call.kind, call.effect.action), [])
    ]


@pytest.mark.parametrize(
    "book",
    [
        "tickets", "node", "back", "other", "mend", "boot", "stay", "spare", "announce", "replace", "pairs", "session",
        "evict",
    ],
)  # fmt: skip
def test_a_history_that_is_right_has_no_violations(book: str) -> None:
    history = played(book)
    assert {touch.verb for touch in history.touches} == {
        "tickets": {"open", "comment", "close"},
        "node": {"cordon", "evict", "release"},
        "back": {"cordon", "suspend", "take back", "release"},
        "other": {"cordon", "release"},
        "mend": {"cordon", "evict", "reset", "validate", "release"},
        "boot": {"cordon", "evict", "reboot", "release"},
        "stay": {"cordon", "reset", "release"},
        "spare": {"cordon", "suspend", "give", "resume", "release", "fill", "let go"},
        "announce": {"cordon", "ask", "take off", "release"},
        "replace": {"cordon", "replace"},
        "pairs": {"cordon", "measure", "release"},
        "session": {"cordon", "validate", "release"},
        "evict": {"cordon", "suspend", "take back", "release"},
    }[book]
    assert violations(history, history) == []


def moved(history: History, verb: str, seconds: float) -> History:
    """The same with the requests of this verb earlier or later."""
    by = timedelta(seconds=seconds)
    return replace(
        history, touches=tuple(replace(t, at=t.at + by) if t.verb == verb else t for t in history.touches)
    )


def started(history: History, action: str, seconds: float) -> History:
    """The same with the requests of this action sent earlier or later."""
    by = timedelta(seconds=seconds)
    return replace(
        history, starts=tuple(replace(s, at=s.at + by) if s.action == action else s for s in history.starts)
    )


def again(history: History, of: str, **changes: object) -> History:
    """The same with one request of a verb once more, a moment later."""
    (first, *_) = [t for t in history.touches if t.verb == of]
    more = replace(first, at=first.at + timedelta(milliseconds=5), **changes)  # type: ignore[arg-type]
    return replace(history, touches=(*history.touches, more))


def evicted(history: History) -> History:
    """The same with a pod of the stopped job evicted, right after the choice was written down."""
    return again(history, "suspend", verb="evict", thing="pod 0", key="")


def worked(history: History, verb: str, **changes: object) -> History:
    """The same with what the cluster saw of one kind of work changed."""
    works = [replace(w, **changes) if w.verb == verb else w for w in history.works]  # type: ignore[arg-type]
    return replace(history, works=tuple(works))


def twice_there(history: History) -> History:
    """The same with a Job more than was asked for."""
    (first, *_) = history.works
    return replace(history, works=(*history.works, first))


def without(history: History, verb: str) -> History:
    return replace(history, touches=tuple(t for t in history.touches if t.verb != verb))


def record(history: History, index: int, step: str, **changes: object) -> History:
    """The same with one step's record changed in one version."""

    def changed(old: StepRecord) -> StepRecord:
        return replace(old, **changes) if old.id == step else old  # type: ignore[arg-type]

    versions = list(history.versions)
    run = versions[index].run
    versions[index] = replace(
        versions[index], run=replace(run, steps=tuple(changed(old) for old in run.steps))
    )
    return replace(history, versions=tuple(versions))


def effect(history: History, step: str) -> EffectRecord:
    found = history.last.step(step).effect
    assert found is not None
    return found


def swapped(history: History) -> History:
    first, second, *rest = history.versions
    return replace(history, versions=(second, first, *rest))


def never_intended(history: History) -> History:
    """The same, but every commit that said that the cordon is about to be made was lost."""

    def intends(version: Version) -> bool:
        row = version.run.step("cordon").effect
        return row is not None and row.state is EffectState.INTENDED

    return replace(history, versions=tuple(v for v in history.versions if not intends(v)))


def opened_before_given_back(history: History) -> History:
    """The requests that undo in the wrong order, each within its own lease."""
    at = {t.verb: t.at for t in history.touches}
    other = {"release": at["take back"], "take back": at["release"]}
    return replace(history, touches=tuple(replace(t, at=other.get(t.verb, t.at)) for t in history.touches))


def revision(history: History, index: int, number: int) -> History:
    versions = list(history.versions)
    versions[index] = replace(versions[index], run=replace(versions[index].run, revision=number))
    return replace(history, versions=tuple(versions))


def said(history: History, event: str, times: int) -> History:
    kept = [e for e in history.timeline if e.event != event]
    (one, *_) = [e for e in history.timeline if e.event == event]
    return replace(history, timeline=(*kept, *([one] * times)))


Doctor = Callable[[History], History]

DOCTORED: list[tuple[str, str, str, Doctor]] = [
    ("over", "the run still has work", "node", lambda h: replace(h, versions=h.versions[:-1])),
    ("over", "there was no run", "node", lambda h: replace(h, versions=())),
    ("one_effect_each", "a second cordon", "node", lambda h: again(h, "cordon")),
    ("one_effect_each", "a second eviction of a pod", "node", lambda h: again(h, "evict")),
    ("one_effect_each", "a second release", "node", lambda h: again(h, "release")),
    ("one_effect_each", "a second ticket", "tickets", lambda h: again(h, "open")),
    ("one_effect_each", "the same comment twice", "tickets", lambda h: again(h, "comment")),
    ("one_effect_each", "a second suspend", "back", lambda h: again(h, "suspend")),
    ("one_effect_each", "resumed and given back", "back", lambda h: again(h, "take back", verb="resume")),
    ("intent_before_call", "called before the commit", "node", lambda h: moved(h, "cordon", -0.5)),
    ("intent_before_call", "no commit meant it", "node", never_intended),
    ("intent_before_call", "a refused one counts too", "node", lambda h: moved(again(h, "cordon", applied=False), "cordon", -9)),
    ("intent_before_call", "a key that nobody has", "node", lambda h: again(h, "cordon", key="0" * 32)),
    ("call_within_lease", "called after the lease", "node", lambda h: started(h, "cordon_node", 3.5)),
    ("call_within_lease", "called before the intent", "node", lambda h: started(h, "drain_node", -1.5)),
    ("call_within_lease", "undone after the lease", "back", lambda h: started(h, "cordon_node", 3.5)),
    ("call_within_lease", "arrived before it was sent", "node", lambda h: started(h, "cordon_node", 0.5)),
    ("call_within_lease", "no lease was asked", "tickets", lambda h: replace(h, starts=())),
    ("written_down_in_the_end", "done and forgotten", "node", lambda h: record(h, -1, "cordon", effect=None)),
    (
        "written_down_in_the_end", "done and not known", "tickets",
        lambda h: record(h, -1, "open", effect=replace(effect(h, "open"), state=EffectState.UNKNOWN)),
    ),
    ("written_down_in_the_end", "claimed and not done", "node", lambda h: without(h, "release")),
    ("written_down_in_the_end", "an undo that never was", "back", lambda h: without(h, "take back")),
    ("revisions_rise", "an older revision later", "node", swapped),
    ("revisions_rise", "the same revision twice", "node", lambda h: revision(h, 1, h.versions[0].run.revision)),
    ("no_way_back", "done and running again", "node", lambda h: record(h, -1, "drain", state=StepState.RUNNING)),
    (
        "no_way_back", "confirmed and intended again", "node",
        lambda h: record(h, -1, "cordon", effect=replace(effect(h, "cordon"), state=EffectState.INTENDED)),
    ),
    (
        "no_way_back", "an effect with a new key", "node",
        lambda h: record(h, -1, "cordon", effect=replace(effect(h, "cordon"), key="f" * 32)),
    ),
    (
        "no_way_back", "fewer attempts than before", "node",
        lambda h: record(h, -1, "cordon", effect=replace(effect(h, "cordon"), attempts=0)),
    ),
    ("nothing_foreign_undone", "a node that another closed", "node", lambda h: without(h, "cordon")),
    ("nothing_foreign_undone", "a job that another stopped", "back", lambda h: without(h, "suspend")),
    ("nothing_foreign_undone", "a ticket of another", "tickets", lambda h: without(h, "open")),
    ("order_held", "drained before it was closed", "node", lambda h: moved(h, "evict", -1.5)),
    ("order_held", "stopped before it was closed", "back", lambda h: moved(h, "suspend", -2.5)),
    ("order_held", "opened before the job is back", "back", opened_before_given_back),
    ("one_effect_each", "a second reset", "mend", lambda h: again(h, "reset")),
    ("one_effect_each", "a second reboot with a key of its own", "boot", lambda h: again(h, "reboot", key="0" * 32)),
    ("one_effect_each", "released twice, once by another action", "other", lambda h: again(h, "release")),
    ("intent_before_call", "reset before the commit", "mend", lambda h: moved(h, "reset", -0.5)),
    ("intent_before_call", "a reboot that nobody meant", "boot", lambda h: again(h, "reboot", key="0" * 32)),
    ("call_within_lease", "rebooted after the lease", "boot", lambda h: started(h, "reboot_node", 3.5)),
    ("call_within_lease", "compensated after the lease", "other", lambda h: started(h, "uncordon_node", 3.5)),
    ("written_down_in_the_end", "validated and not done", "mend", lambda h: without(h, "validate")),
    ("written_down_in_the_end", "a compensation that never was", "other", lambda h: without(h, "release")),
    ("order_held", "reset before it was drained", "mend", lambda h: moved(h, "reset", -1.5)),
    ("order_held", "rebooted and never closed", "boot", lambda h: without(h, "cordon")),
    ("work_on_a_held_node", "a node in service", "mend", lambda h: worked(h, "validate", held=False)),
    ("work_on_a_held_node", "given back too early", "boot", lambda h: worked(h, "reboot", let_go=True)),
    ("work_on_a_held_node", "never over", "mend", lambda h: worked(h, "reset", over=False)),
    ("work_on_a_held_node", "reset under a pod", "mend", lambda h: worked(h, "reset", pods=("pod 0",))),
    ("work_on_a_held_node", "rebooted under a pod", "boot", lambda h: worked(h, "reboot", pods=("pod 1",))),
    ("work_on_a_held_node", "two Jobs for one request", "boot", twice_there),
    ("work_on_a_held_node", "no Job for a request", "mend", lambda h: replace(h, works=())),
    ("one_effect_each", "another controller asked twice", "announce", lambda h: again(h, "ask", key="0" * 32)),
    ("one_effect_each", "a machine deleted twice", "replace", lambda h: again(h, "replace")),
    ("one_effect_each", "a pair measured twice", "pairs", lambda h: again(h, "measure")),
    ("one_effect_each", "a pod evicted twice", "evict", lambda h: evicted(evicted(h))),
    ("intent_before_call", "an eviction before the commit", "evict", lambda h: moved(evicted(h), "evict", -0.5)),
    ("intent_before_call", "asked before the commit", "announce", lambda h: moved(h, "ask", -0.5)),
    ("call_within_lease", "deleted after the lease", "replace", lambda h: started(h, "replace_node", 3.5)),
    ("written_down_in_the_end", "a deletion that never was", "replace", lambda h: without(h, "replace")),
    ("written_down_in_the_end", "an object never taken off", "announce", lambda h: without(h, "take off")),
    ("nothing_foreign_undone", "an object of another", "announce", lambda h: without(h, "ask")),
    ("order_held", "opened before the object is gone", "announce", lambda h: moved(h, "take off", 9)),
    ("order_held", "asked for a node in service", "announce", lambda h: without(h, "cordon")),
    ("order_held", "replaced in service", "replace", lambda h: without(h, "cordon")),
    ("said_once", "the end told twice", "node", lambda h: said(h, "run.finished", 2)),
    ("said_once", "a step told twice", "tickets", lambda h: said(h, "step.done", 2)),
    ("said_once", "a step never told", "node", lambda h: said(h, "step.done", 0)),
    ("said_once", "the correlator never told", "node", lambda h: replace(h, reports=())),
    ("as_undisturbed", "another end", "node", lambda h: replace(h, end={"bad node": "open"})),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "book", "doctor"),
    [pytest.param(rule, book, doctor, id=f"{rule}: {what}") for rule, what, book, doctor in DOCTORED],
)
def test_a_fault_in_a_history_is_found(rule: str, book: str, doctor: Doctor) -> None:
    history = played(book)
    found = {problem.split(":")[0] for problem in violations(doctor(history), history)}
    assert rule in found


def test_every_rule_has_been_seen_to_find_something() -> None:
    assert {rule for rule, *_ in DOCTORED} == {*RULES, "as_undisturbed"}
