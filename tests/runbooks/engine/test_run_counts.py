"""What is counted as things change is what a count from the beginning gives."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from runbooks.engine.guardrails.breaker import mass_faults
from runbooks.engine.guardrails.run_counts import RunCounts
from streams.config.settings import Breaker, ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.model.control import Control
from streams.model.entity import JobRef
from streams.model.facts import NodeFact, PodFact
from streams.model.incident import Incident
from streams.model.run import Mode, Run, StepRecord, StepState
from tests.effort import tries
from tests.runbooks.engine.test_guardrails import closed
from tests.runbooks.scenes import CLUSTER, JOB, NOW, OTHER_JOB, cluster

NODES = ("node-00", "node-01", "node-02")
WINDOW_S = 3600.0
LONG_AGO = NOW - timedelta(days=365)
MOVES = st.one_of(
    st.tuples(st.just("run"), st.sampled_from(NODES), st.booleans(), st.integers(-2, 2), st.booleans()),
    st.tuples(st.just("drop"), st.sampled_from(NODES)),
    st.tuples(st.just("node"), st.sampled_from(NODES), st.booleans(), st.booleans(), st.booleans()),
    st.tuples(st.just("gone"), st.sampled_from(NODES)),
    st.tuples(st.just("time"), st.integers(1, 90)),
)


def _closing(node: str, *, shadow: bool, confirmed_min: int, finished: bool) -> Run:
    """A run that has closed the node, and may have an unknown time of it."""
    run = closed(node, cluster(), finished=finished, confirmed=confirmed_min * 60.0)
    if confirmed_min == 2:
        run = replace(run, steps=tuple(_unknown(r) for r in run.steps))
    mode = Mode.SHADOW if shadow else Mode.AUTO
    return replace(run, id=f"run-{node}", plan=replace(run.plan, mode=mode))


def _unknown(record: StepRecord) -> StepRecord:
    if record.effect is None:
        return record
    return replace(record, effect=replace(record.effect, confirmed_at=None), state=StepState.RUNNING)


@settings(max_examples=tries(150))
@given(st.lists(MOVES, max_size=25))
def test_the_cordoned_nodes_are_the_same_counted_as_they_change_and_counted_anew(moves: list[tuple]) -> None:  # type: ignore[type-arg]
    view, census, now = cluster(4), RunCounts(), NOW
    runs: dict[str, Run] = {}
    for kind, *rest in moves:
        match kind, rest:
            case "run", [node, shadow, confirmed_min, finished]:
                run = _closing(node, shadow=shadow, confirmed_min=confirmed_min, finished=finished)
                runs[run.id] = run
                census.put(run)
            case "drop", [node]:
                runs.pop(f"run-{node}", None)
                census.drop(f"run-{node}")
            case "node", [node, cordoned, ours, late]:
                view.put(_node(node, now if late else NOW, cordoned=cordoned, ours=ours))
            case "gone", [node]:
                view.forget(f"{CLUSTER}/node/{node}")
            case "time", [minutes]:
                now += timedelta(minutes=minutes)
        for shadow in (False, True):
            kept, anew = (
                counted.cordoned(view, shadow=shadow, now=now, window_s=WINDOW_S)
                for counted in (census, RunCounts(runs.values()))
            )
            assert kept == anew
            wanted = {name for _, names in census.wanting(shadow=shadow, since=LONG_AGO) for name in names}
            assert census.most_wanted(shadow=shadow) == len(wanted)


def test_no_run_is_asked_for_mass_faults_where_all_of_them_want_too_few_nodes() -> None:
    counts = RunCounts(_closing(node, shadow=False, confirmed_min=0, finished=False) for node in NODES[:2])
    view, nobody = cluster(8), dict[str, Incident]()
    for enough, asked in ((3, 0), (2, 2)):
        runs = _Asked()
        policy = ResponderSettings(breaker=Breaker(mass_min_nodes=enough, mass_share=0.1))
        trip = mass_faults(Control(CLUSTER), counts, runs, nobody, view, policy, NOW, shadow=False)
        assert (trip, runs.times) == (None, asked)


class _Asked(dict[str, Run]):
    """Runs that nobody has, and how often they were asked for."""

    times = 0

    def get(self, *asked: object) -> None:  # type: ignore[override]
        self.times += 1


def _node(name: str, seen_at: datetime, *, cordoned: bool, ours: bool) -> NodeFact:
    owner = "inc-1" if ours else None
    return NodeFact(CLUSTER, name, "uid", seen_at, unschedulable=cordoned, owner_incident=owner)


PODS = st.tuples(
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from([None, *NODES]),
    st.sampled_from([None, JOB, OTHER_JOB]),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(PODS, max_size=20))
def test_pods_are_found_by_node_and_job_wherever_they_have_moved(
    news: list[tuple[str, str | None, JobRef | None, bool, bool]],
) -> None:
    view = ClusterView(CLUSTER)
    for name, node, job, ended, gone in news:
        fact = PodFact(
            CLUSTER, "research", name, "uid", NOW, node=node, job=job, ended_at=NOW if ended else None
        )
        if gone:
            view.forget(fact.key)
        else:
            view.put(fact)
        live = [pod for pod in view.pods.values() if pod.ended_at is None]
        for where in NODES:
            assert {p.key for p in view.pods_on(where)} == {p.key for p in live if p.node == where}
        for of in (JOB, OTHER_JOB):
            assert {p.key for p in view.pods_of(of.key)} == {p.key for p in live if p.job == of}


def test_a_ladder_that_helps_nothing_counts_as_one_failure_for_the_breaker() -> None:
    def failed(number: int, incident: str) -> Run:
        run = closed("node-00", cluster(), finished=True, confirmed=60.0)
        records = tuple(replace(r, state=StepState.FAILED, finished_at=NOW) for r in run.steps)
        name = f"run-{number}"
        return replace(run, id=name, incident=incident, steps=records, admitted_at=run.admitted_at or NOW)

    ladder = [failed(number, "inc-1") for number in range(4)]
    assert RunCounts(ladder).failures(LONG_AGO) == ["run-3"]
    three = [*ladder, failed(5, "inc-2"), failed(6, "inc-3")]
    assert RunCounts(three).failures(LONG_AGO) == ["run-3", "run-5", "run-6"]
