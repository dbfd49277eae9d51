"""Two thousand incidents at once: what waits, in which order, and that nothing decisive waits behind bookkeeping. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.base import AlreadyDone, Done, Retry
from runbooks.engine.call_slots import CLUSTER as CALLS
from runbooks.engine.call_slots import NEW_TICKETS, TICKET_SYSTEM, WINDOW, CallLimits, CallSlots
from runbooks.engine.commit_batch import CommitBatch
from runbooks.engine.partition_state import PartitionState, WorkBudget
from runbooks.engine.priority_queue import PriorityQueue
from runbooks.engine.run.transition import LOOKUPS, Call
from streams.config.settings import Breaker, ResponderSettings
from streams.model.entity import Entity
from streams.model.facts import Fact
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.run import EffectState, Run
from tests.runbooks.scenes import ACTIONS, AUTO, CLUSTER, LIBRARY, NOW, at, cluster, incident

STORM = 80
SHARE = WorkBudget(incidents=20, runs=40)
LIMITS = CallLimits({CALLS: 8, TICKET_SYSTEM: 3})
POLICY = AUTO.model_copy(update={"breaker": Breaker(mass_min_nodes=0)})


def board(
    runs: dict[str, Run] | None = None,
    *,
    limits: CallLimits = LIMITS,
    share: WorkBudget = SHARE,
    settings: ResponderSettings = POLICY,
) -> PartitionState:
    made = PartitionState(LIBRARY, settings, ACTIONS, runs, limits=limits, budget=share)
    view = cluster(STORM + 20)
    facts: list[Fact] = [*view.nodes.values(), *view.pods.values(), *view.jobs.values()]
    for fact in facts:
        made.take_fact(fact.key, fact)
    return made


def storm(count: int = STORM) -> list[Incident]:
    """Nodes that are not ready: each asks for a ticket, and for a person's word before it is closed."""
    return [
        incident(
            "node_down",
            Entity(CLUSTER, node=f"node-{number:02}"),
            certainty=Certainty.LIKELY,
            nodes=(f"node-{number:02}",),
        )
        for number in range(20, 20 + count)
    ]


class World:
    """Takes the calls of a board, and answers them when it is told to."""

    def __init__(self, played: PartitionState) -> None:
        self.board = played
        self.now = NOW
        self.air: list[Call] = []
        self.begun: list[Call] = []
        self.documents: dict[str, Run] = {}
        self.most: Counter[str] = Counter()

    def turn(self, seconds: float = 0.05) -> CommitBatch:
        self.now += timedelta(seconds=seconds)
        self.board.advance(self.now)
        changes = self.board.collect()
        self.documents |= {run.id: run for run in changes.runs}
        for call in changes.calls:
            self.begun.append(call)
            self.air.append(call)
        flying = Counter("tickets" if c.effect.action == "open_ticket" else "calls" for c in self.air)
        self.most |= flying
        return changes

    def answer(self, calls: Iterable[Call]) -> None:
        for call in list(calls):
            self.air.remove(call)
            self.board.take_outcome(call, AlreadyDone() if call.kind in LOOKUPS else Done(), self.now)

    def tickets(self) -> list[str]:
        return [c.effect.incident for c in self.begun if c.effect.action == "open_ticket"]


def test_the_cordon_of_a_decisive_fault_leaves_in_the_turn_that_hears_of_it() -> None:
    world = World(board())
    for about in storm():
        world.board.take_incident(about)
    world.turn()
    assert world.board.is_behind(world.now)
    world.board.take_incident(incident())
    changes = world.turn()
    assert ("cordon_node", "node-03") in {(c.effect.action, c.effect.target.name) for c in changes.calls}
    # Its ticket is a ticket like any other, and all slots of that system are taken.
    assert incident().id not in world.tickets()


def test_a_turn_takes_on_no_more_than_its_share_and_leaves_nothing_out() -> None:
    world = World(board())
    for about in storm():
        world.board.take_incident(about)
    turns = 0
    while len(world.documents) < STORM or world.board.is_behind(world.now):
        changes = world.turn()
        assert len(changes.runs) <= SHARE.incidents + SHARE.runs
        turns += 1
        assert turns < 20 * STORM / SHARE.incidents
    assert {run.incident for run in world.documents.values()} == {about.id for about in storm()}


def test_the_ticket_system_sees_no_more_calls_at_once_than_it_may_and_the_oldest_first() -> None:
    world = World(board())
    for about in storm():
        world.board.take_incident(about)
    for _ in range(3 * STORM):
        world.turn()
        world.answer(world.air)
    assert world.most["tickets"] == 3 - 3 // 4
    assert Counter(world.tickets()) == Counter(about.id for about in storm())
    created = {run.incident: run.created_at for run in world.documents.values()}
    begun = [created[name] for name in world.tickets()]
    assert begun == sorted(begun)


def test_a_step_that_waits_for_a_slot_holds_up_no_other_step_of_its_run() -> None:
    world = World(board(limits=CallLimits({CALLS: 8, TICKET_SYSTEM: 1})))
    for about in storm(10):
        world.board.take_incident(about)
    world.turn()
    world.board.take_incident(incident())
    for _ in range(5):
        world.turn()
        world.answer([call for call in world.air if call.effect.action != "open_ticket"])
    done = [c.effect.action for c in world.begun if c.effect.incident == incident().id]
    assert done[:2] == ["cordon_node", "suspend_job"]
    run = next(run for run in world.documents.values() if run.incident == incident().id)
    # Nothing was written down of the ticket: no lease runs out while it waits.
    assert run.step("ticket").effect is None


def test_who_takes_over_looks_no_more_up_at_once_than_it_may() -> None:
    first = World(board(limits=CallLimits()))
    for about in storm():
        first.board.take_incident(about)
    while len(first.tickets()) < STORM:
        first.turn()
    documents = dict(first.documents)
    assert all(run.step("ticket").effect.state is EffectState.INTENDED for run in documents.values())  # type: ignore[union-attr]
    world = World(board(documents))
    for about in storm():
        world.board.take_incident(about)
    list(world.board.recovering(NOW))
    changes = world.turn()
    assert len(changes.runs) <= SHARE.incidents + SHARE.runs, "taking over is written down in pieces too"
    world.turn(seconds=60.0)
    for _ in range(4 * STORM):
        world.turn()
        world.answer(world.air)
    assert world.most["tickets"] == 3 - 3 // 4
    assert {call.kind for call in world.begun} == {"lookup"}, "nothing that was found is made again"
    assert Counter(call.effect.incident for call in world.begun) == Counter(about.id for about in storm())


def test_more_tickets_than_may_be_opened_wait_and_an_incident_that_ends_meanwhile_gets_none() -> None:
    world = World(board(limits=CallLimits({TICKET_SYSTEM: 3}, tickets=6)))
    about = storm(12)
    for one in about:
        world.board.take_incident(one)
    for _ in range(40):
        world.turn()
        world.answer(world.air)
    assert len(world.tickets()) == 5
    assert not world.board.is_behind(world.now), "it waits without turning in circles"
    waiting = [run for run in world.documents.values() if run.incident not in world.tickets()]
    assert {run.step("ticket").reason for run in waiting} == {
        "5 tickets were opened within 10 minutes, the rest (1) is kept for fresh decisive faults; this one is queued"
    }
    told = [one for one in about if one.id in world.tickets()]
    over = [one for one in about if one.id not in world.tickets()][:4]
    for one in over:
        world.board.take_incident(replace(one, revision=2, state=IncidentState.RESOLVED, closed_at=world.now))
    world.turn()
    world.turn(seconds=WINDOW.total_seconds() + 1)
    for _ in range(40):
        world.turn()
        world.answer(world.air)
    assert len(world.tickets()) == 8
    assert not set(world.tickets()) & {one.id for one in over}
    assert {one.id for one in told} < set(world.tickets())


def old_faults(count: int) -> list[Incident]:
    """Decisive faults of two hours ago that are first read now: each asks for a ticket, and a person is asked."""
    return [
        incident(
            root=Entity(CLUSTER, node=f"node-{number:02}"),
            nodes=(f"node-{number:02}",),
            jobs=(),
            evident_at=at(-7200),
            evident_read_at=NOW,
        )
        for number in range(20, 20 + count)
    ]


@pytest.mark.parametrize("crowd", [storm(30), old_faults(30)], ids=["likely", "old"])
def test_a_fresh_decisive_fault_gets_its_ticket_whatever_else_has_asked_for_one(
    crowd: list[Incident],
) -> None:
    world = World(board(limits=CallLimits({TICKET_SYSTEM: 3}, tickets=8)))
    for one in crowd:
        world.board.take_incident(one)
    for _ in range(40):
        world.turn()
        world.answer(world.air)
    assert len(world.tickets()) == 6, "the last quarter is kept"
    world.board.take_incident(replace(incident(), opened_at=world.now, updated_at=world.now))
    for _ in range(10):
        world.turn()
        world.answer(world.air)
    assert incident().id in world.tickets()
    assert len(world.tickets()) == 7
    assert not world.board.is_behind(world.now), "it waits without turning in circles"


def test_the_ticket_of_a_fresh_decisive_fault_goes_first_also_after_its_node_is_closed() -> None:
    world = World(board(limits=CallLimits({CALLS: 8, TICKET_SYSTEM: 1}, tickets=8)))
    for one in storm(30):
        world.board.take_incident(one)
    world.turn()
    world.board.take_incident(incident(jobs=()))
    for _ in range(10):
        world.turn()
        world.answer([call for call in world.air if call.effect.action != "open_ticket"])
    run = next(run for run in world.documents.values() if run.incident == incident().id)
    assert run.step("cordon").effect is not None
    assert run.step("ticket").effect is None
    for _ in range(2):
        world.answer(world.air)
        world.turn()
    assert world.tickets()[1] == incident().id


def test_tickets_that_were_opened_before_a_restart_count_after_it() -> None:
    limits = CallLimits({TICKET_SYSTEM: 3}, tickets=5)
    first = World(board(limits=limits))
    for one in storm(12):
        first.board.take_incident(one)
    for _ in range(40):
        first.turn()
        first.answer(first.air)
    world = World(board(first.documents, limits=limits))
    for one in storm(12):
        world.board.take_incident(one)
    list(world.board.recovering(first.now))
    world.now = first.now
    for _ in range(40):
        world.turn()
        world.answer(world.air)
    assert world.tickets() == []


def test_a_ticket_system_that_asks_for_a_pause_gets_it_from_all_runs() -> None:
    world = World(board())
    for about in storm(30):
        world.board.take_incident(about)
    world.turn()
    for call in list(world.air):
        world.air.remove(call)
        world.board.take_outcome(call, Retry(30.0, "too many requests"), world.now)
    asked = len(world.tickets())
    for _ in range(100):
        world.turn(seconds=0.2)
    assert len(world.tickets()) == asked
    world.turn(seconds=15.0)
    world.turn()
    assert len(world.tickets()) > asked


@given(
    width=st.integers(1, 12),
    events=st.lists(st.tuples(st.sampled_from(["take", "over"]), st.booleans()), max_size=60),
)
def test_no_system_has_more_calls_than_slots_and_no_class_has_them_all(
    width: int, events: list[tuple[str, bool]]
) -> None:
    slots = CallSlots(CallLimits({CALLS: width}))
    air: list[tuple[tuple[str, str, str], bool]] = []
    for number, (what, urgent) in enumerate(events):
        if what == "take" and slots.free(CALLS, NOW, urgent=urgent) > 0:
            air.append(((f"run-{number}", "cordon", "apply"), urgent))
            slots.take(air[-1][0], "cordon_node", urgent=urgent)
        elif what == "over" and air:
            slots.give_back(air.pop(0)[0])
        assert len(air) <= width
        for mine in (True, False):
            held = sum(urgent is mine for _, urgent in air)
            assert held <= width - width // 4
            # Where one class has taken all it may, the other one still finds a slot.
            if held == len(air) and width >= 4:
                assert slots.free(CALLS, NOW, urgent=not mine) > 0


def test_a_call_that_is_sent_for_once_more_keeps_its_one_slot() -> None:
    slots = CallSlots(CallLimits({CALLS: 2}))
    for _ in range(2):
        slots.take(("run", "cordon", "lookup"), "cordon_node", urgent=True)
    slots.give_back(("run", "cordon", "lookup"))
    slots.give_back(("run", "cordon", "lookup"))
    assert slots.free(CALLS, NOW, urgent=True) == 2


def test_new_tickets_are_bound_by_the_slots_and_by_the_number_within_ten_minutes() -> None:
    slots = CallSlots(CallLimits({TICKET_SYSTEM: 8}, tickets=2))
    assert slots.free(NEW_TICKETS, NOW, urgent=False) == 2
    slots.opened(at(5))
    slots.opened(at(0))
    assert slots.free(NEW_TICKETS, at(10), urgent=False) == 0
    assert slots.free(TICKET_SYSTEM, at(10), urgent=False) == 6
    assert slots.free(NEW_TICKETS, NOW + WINDOW, urgent=False) == 1


@pytest.mark.parametrize("order", [("b", "a", "c"), ("c", "b", "a")])
def test_a_queue_gives_out_by_key_whatever_the_order_of_arrival(order: tuple[str, ...]) -> None:
    queue = PriorityQueue()
    for name in order:
        queue.bring_forward(name, ord(name))
    queue.bring_forward("c", ord("z"))
    queue.drop("b")
    assert "b" not in queue
    assert queue.take(1) == ["a"]
    assert queue.take(5) == ["c"]
    assert len(queue) == 0
