"""What must hold of every history, whatever died on the way. Pure: a history goes in, violations come out.

Each rule is a function that yields a sentence for every violation; `RULES` names them all, and `violations` asks all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import pairwise

from runbooks.engine.escalation import only_tells
from streams.model.run import EffectRecord, EffectState, Run, StepState, effect_key
from tests.crash_matrix.history import VERBS, History, Touch, meant, rows_for
from tests.crash_matrix.witness import WORK

Rule = Callable[[History], Iterator[str]]


def one_effect_each(history: History) -> Iterator[str]:
    """One cordon, release and Job of each kind a node, one suspend and resume a job, one eviction a pod, one ticket."""
    kind = {"take back": "resume"}
    made = Counter(
        (kind.get(t.verb, t.verb), t.thing, t.key if t.verb == "comment" else "")
        for t in history.touches
        if t.applied
    )
    for (verb, thing, _), count in made.items():
        if count > 1:
            yield f"{verb} {thing} was done {count} times"


def intent_before_call(history: History) -> Iterator[str]:
    """Whatever arrived outside had been written down before as about to be done, by a commit that stands."""
    for touch in history.touches:
        meant = [v for v in history.journal if v.at <= touch.at and any(_intended(v.run, touch))]
        if not meant:
            yield f"{_told(touch)} was meant by no commit before it"


def call_within_lease(history: History) -> Iterator[str]:
    """Every request left within the lease of an intent that was committed for it, and none came that no lease allowed.

    A request may still arrive late: a network can keep it, and a process can freeze after it has asked its lease. That is what
    conditional writes are for, and `one_effect_each` says whether they sufficed.
    """
    for start in history.starts:
        asked = (start.action, "undo" if start.undo else "effect")
        rows = [
            row
            for version in history.journal
            if version.at <= start.at
            for planned in version.run.plan.steps
            for name in ("effect", "undo")
            if (row := getattr(version.run.step(planned.id), name)) is not None
            if meant(planned, name) == asked
            if (row.key, row.state) == (start.key, EffectState.INTENDED)
        ]
        if not any(start.at <= row.lease_until for row in rows):
            yield f"{start.action} was sent at {start.at:%H:%M:%S.%f}, outside of any lease"
    for touch in history.touches:
        allowed = {(s.action, "undo" if s.undo else "effect") for s in history.starts if s.at <= touch.at}
        if allowed.isdisjoint(VERBS[touch.verb]):
            yield f"{_told(touch)} was allowed by no lease"


def written_down_in_the_end(history: History) -> Iterator[str]:
    """The journal ends with everything that was done, and with nothing that was not."""
    run, done = history.last, [touch for touch in history.touches if touch.applied]
    for touch in done:
        ends = [row.state for _, _, row in rows_for(run, touch) if row is not None]
        if not any(state in (EffectState.CONFIRMED, EffectState.UNDONE) for state in ends):
            yield f"{_told(touch)} was done and the journal does not know"
    for planned in run.plan.steps:
        record = run.step(planned.id)
        for name, row, state in (
            ("effect", record.effect, EffectState.CONFIRMED),
            ("undo", record.undo, EffectState.UNDONE),
        ):
            verbs = [verb for verb, rows in VERBS.items() if meant(planned, name) in rows]
            if row is None or row.state is not state or not verbs or planned.action == "drain_node":
                continue
            if not any(t.verb in verbs and t.key in ("", row.key) for t in done):
                yield f"the journal says {planned.id} {state}, and nothing was done"


def revisions_rise(history: History) -> Iterator[str]:
    """Every commit of a run is a later revision of the same run, decided for the same plan."""
    for before, after in (*pairwise(history.earlier), *pairwise(history.versions)):
        old, new = before.run, after.run
        if new.revision <= old.revision:
            yield f"revision {new.revision} follows {old.revision}"
        for name in ("id", "incident", "incarnation", "cluster", "created_at"):
            if getattr(new, name) != getattr(old, name):
                yield f"{name} changes at revision {new.revision}"
        if (old.plan.runbook, old.plan.runbook_revision) != (new.plan.runbook, new.plan.runbook_revision):
            yield f"the runbook changes at revision {new.revision}"


def no_way_back(history: History) -> Iterator[str]:
    """What is over stays over, what is known stays known, and an effect keeps its key."""
    for before, after in (*pairwise(history.earlier), *pairwise(history.versions)):
        old, new = before.run, after.run
        if old.state.is_over and new.state is not old.state:
            yield f"the run was {old.state} and is {new.state} at revision {new.revision}"
        for record in old.steps:
            now = new.step(record.id)
            if record.state.is_over and now.state is not record.state:
                yield f"{record.id} was {record.state} and is {now.state} at revision {new.revision}"
            for name, final in (("effect", EffectState.CONFIRMED), ("undo", EffectState.UNDONE)):
                yield from _row_goes_on(record.id, getattr(record, name), getattr(now, name), final)
    run = history.last
    for planned in run.plan.steps:
        effect = run.step(planned.id).effect
        carried = run.step(planned.id).carried_from
        if effect is not None and planned.target is not None and not carried:
            plan = run.plan
            key = effect_key(
                run.incident,
                run.incarnation,
                plan.runbook,
                plan.runbook_revision,
                planned.id,
                planned.target,
                run.round,
            )
            if effect.key != key:
                yield f"{planned.id} has the key {effect.key} and not {key}"


def nothing_foreign_undone(history: History) -> Iterator[str]:
    """A node is released, a job resumed, a ticket closed, an object deleted only after this incident made it so."""
    made_by = {
        "release": "cordon", "resume": "suspend", "take back": "suspend", "close": "open", "take off": "ask",
        "free": "suspend",
    }  # fmt: skip
    made: set[tuple[str, str]] = set()
    for touch in _in_time(history):
        if touch.verb in made_by and (made_by[touch.verb], touch.thing) not in made:
            yield f"{_told(touch)}, and it was not Faultline that had done {made_by[touch.verb]}"
        if touch.applied:
            made.add((touch.verb, touch.thing))


def order_held(history: History) -> Iterator[str]:
    """A step touches nothing before what it needs is done by word of the journal; undoing goes backwards."""
    done_at: dict[str, datetime] = {}
    for version in history.journal:
        for record in version.run.steps:
            if record.state in (StepState.DONE, StepState.SKIPPED):
                done_at.setdefault(record.id, version.at)
    run = history.last
    for touch in history.touches:
        owners = [(r, name, row) for r, name, row in rows_for(run, touch) if row is not None]
        if len(owners) != 1 or owners[0][1] != "effect":
            continue
        for need in run.planned(owners[0][0].id).needs:
            if need not in done_at or touch.at < done_at[need]:
                yield f"{_told(touch)} came before {need} was done"
    undone = [
        t.verb
        for t in _in_time(history)
        if t.applied and t.verb in ("release", "take back", "take off", "free")
    ]
    if "release" in undone[:-1]:
        yield f"the node was opened before what was done for it was undone: {undone[-1]}"
    closed = {t.verb: t.at for t in reversed(_in_time(history)) if t.applied}
    works = [("cordon", work) for work in WORK.values()]
    asked = [("cordon", verb) for verb in ("ask", "replace", "measure", "power")]
    pairs = (
        ("cordon", "suspend"),
        ("cordon", "evict"),
        ("suspend", "resume"),
        ("suspend", "free"),
        *works,
        *asked,
    )
    for first, then in pairs:
        if then in closed and (first not in closed or closed[then] < closed[first]):
            yield f"{then} came before {first}"


def work_on_a_held_node(history: History) -> Iterator[str]:
    """A Job came to be on a node that was ours and stayed so until the work was over; a reset or a reboot after the GPU pods.

    The Jobs that the cluster has are those that it was asked for: not one more, whoever made it, and not one less.
    """
    for work in history.works:
        if not work.held:
            yield f"{work.verb} {work.thing} came while the node was not held"
        elif work.let_go:
            yield f"{work.verb} {work.thing} was not over when the node was let go"
        if not work.over:
            yield f"{work.verb} {work.thing} is not over at the end"
        if work.pods and work.verb != "validate":
            yield f"{work.verb} {work.thing} came while {', '.join(work.pods)} used its GPUs"
    there = Counter((w.verb, w.thing, w.key) for w in history.works)
    asked = Counter(
        (t.verb, t.thing, t.key) for t in history.touches if t.applied and t.verb in WORK.values()
    )
    for (verb, thing, _), count in (there - asked).items():
        yield f"{verb} {thing} is there {count} times more than was asked for"
    for (verb, thing, _), count in (asked - there).items():
        yield f"{verb} {thing} was asked for {count} times more than is there"


def said_once(history: History) -> Iterator[str]:
    """Timeline and signals are written with the run: its end, and each step's, is told once."""
    run = history.last
    mine = [e for e in history.timeline if e.attributes.get("run") == run.id]
    said = Counter((e.event, str(e.attributes.get("step", ""))) for e in mine)
    for (event, step), count in said.items():
        final = event in ("run.planned", "run.finished", "step.done", "step.undone", "person.approved")
        if final and count > 1:
            yield f"{event} {step} is said {count} times".replace("  ", " ")
    for record in run.steps:
        if record.state is StepState.DONE and not record.carried_from and said["step.done", record.id] != 1:
            yield f"step.done {record.id} is said {said['step.done', record.id]} times"
    # A run that only tells ends nothing: "finished" would resolve its incident.
    runs = {version.run.id for version in history.journal}
    ends, expected = history.reports.count("run.finished"), 0 if only_tells(run) else len(runs)
    if run.state.is_over and ends != expected:
        yield f"the correlator is told {ends} times that the run is over"


def over(history: History) -> Iterator[str]:
    """The run came to its end and owes nothing."""
    if not history.versions:
        yield "there was no run"
    elif history.last.has_work or not history.last.state.is_over:
        yield f"the run is {history.last.state} and has work"


RULES: Mapping[str, Rule] = {
    rule.__name__: rule
    for rule in (
        over,
        one_effect_each,
        intent_before_call,
        call_within_lease,
        written_down_in_the_end,
        revisions_rise,
        no_way_back,
        nothing_foreign_undone,
        order_held,
        work_on_a_held_node,
        said_once,
    )
}


def violations(history: History, undisturbed: History | None = None) -> list[str]:
    """Everything that does not hold, as `rule: sentence`; with `undisturbed` also what ended otherwise than there."""
    if not history.versions:
        return ["over: there was no run"]
    found = [f"{name}: {text}" for name, rule in RULES.items() for text in rule(history)]
    if undisturbed is not None:
        for name in sorted({*history.end, *undisturbed.end}):
            is_, was = history.end.get(name), undisturbed.end.get(name)
            if is_ != was:
                found.append(f"as_undisturbed: {name} is {is_} and would have been {was}")
    return found


def _intended(run: Run, touch: Touch) -> Iterator[EffectRecord]:
    for _, _, row in rows_for(run, touch):
        if row is not None and row.state is EffectState.INTENDED and (not touch.key or row.key == touch.key):
            yield row


def _row_goes_on(
    step: str, old: EffectRecord | None, new: EffectRecord | None, final: EffectState
) -> Iterator[str]:
    if old is None or (new is None and old.state is not final):
        return
    if new is None:
        yield f"{step} was {final} and is forgotten"
        return
    if new.key != old.key:
        yield f"{step} changes its key"
    if old.state is final and new.state is not final:
        yield f"{step} was {final} and is {new.state}"
    if new.attempts < old.attempts:
        yield f"{step} has fewer attempts than before"


def _in_time(history: History) -> list[Touch]:
    return sorted(history.touches, key=lambda touch: touch.at)


def _told(touch: Touch) -> str:
    return f"{touch.verb} {touch.thing} at {touch.at:%H:%M:%S.%f}"
