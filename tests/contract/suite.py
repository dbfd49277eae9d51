"""The suite itself: what every effect keeps to, whatever goes wrong on the way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from connectors.base import (
    Absent,
    AlreadyDone,
    Blocked,
    Connector,
    Done,
    NoLease,
    Refused,
    Retry,
    Unknown,
    Waiting,
)
from streams.model.errors import Fenced
from tests.contract.case import Case, LostLease, WatchedLease, carry_out, take_back
from tests.contract.faults import Answer, Cut, Fault, Hang

IT_IS_THERE = (Done, AlreadyDone)

MAKES_IT_UNCLEAR = [
    pytest.param(Cut(forward=True), id="cut_after_the_server_acted"),
    pytest.param(Cut(forward=False), id="cut_before_the_server_saw_it"),
    pytest.param(Hang(forward=True), id="timeout_but_applied"),
    pytest.param(Hang(forward=False), id="timeout_and_not_applied"),
    pytest.param(
        Answer(504, "gateway timeout", {"Content-Type": "text/plain"}, forward=True), id="504_but_applied"
    ),
    pytest.param(Answer(500, "{}", forward=True), id="500_but_applied"),
]


@asynccontextmanager
async def fresh(case: Case) -> AsyncIterator[Connector]:
    """A connector as a new process would have it."""
    connector = case.connector()
    try:
        yield connector
    finally:
        await connector.close()


class EffectContract:
    """What holds for every effect, also for one that cannot be taken back. Inherit with a `case` fixture."""

    async def test_called_twice_it_changes_the_world_once(self, case: Case) -> None:
        async with fresh(case) as connector:
            first = await carry_out(case, connector)
            assert isinstance(first[-1], IT_IS_THERE)
            again = await connector.apply(case.effect(), NoLease())
        assert isinstance(again, AlreadyDone)
        assert await case.changes() == 1

    async def test_called_by_two_processes_it_changes_the_world_once(self, case: Case) -> None:
        async with fresh(case) as one, fresh(case) as other:
            await carry_out(case, one)
            assert isinstance((await carry_out(case, other))[-1], AlreadyDone)
        assert await case.changes() == 1

    async def test_a_crash_before_the_call_is_found_to_be_one(self, case: Case) -> None:
        async with fresh(case) as successor:
            assert isinstance(await successor.lookup(case.effect()), Absent)
            assert isinstance((await carry_out(case, successor))[-1], IT_IS_THERE)
        assert await case.changes() == 1

    async def test_a_crash_after_the_call_is_found_by_looking_up(self, case: Case) -> None:
        async with fresh(case) as crashed:
            await crashed.apply(case.effect(), NoLease())
        async with fresh(case) as successor:
            found = await successor.lookup(case.effect())
            assert isinstance(found, AlreadyDone | Waiting)
            assert isinstance((await carry_out(case, successor))[-1], IT_IS_THERE)
        assert await case.changes() == 1

    async def test_what_lookup_finds_is_enough_to_take_it_back(self, case: Case) -> None:
        async with fresh(case) as crashed:
            done = (await carry_out(case, crashed))[-1]
        async with fresh(case) as successor:
            found = await successor.lookup(case.effect())
        assert isinstance(done, IT_IS_THERE)
        assert isinstance(found, AlreadyDone)
        assert dict(found.result).keys() >= dict(done.result).keys()

    @pytest.mark.parametrize("fault", MAKES_IT_UNCLEAR)
    async def test_an_unclear_call_is_looked_up_and_never_doubled(self, case: Case, fault: Fault) -> None:
        case.proxy.on_writes(fault)
        async with fresh(case) as connector:
            outcomes = await carry_out(case, connector)
        assert isinstance(outcomes[-1], IT_IS_THERE), outcomes
        assert await case.changes() == 1

    @pytest.mark.parametrize("fault", MAKES_IT_UNCLEAR)
    async def test_a_crash_on_top_of_an_unclear_call_is_survived(self, case: Case, fault: Fault) -> None:
        case.proxy.on_writes(fault)
        async with fresh(case) as crashed:
            await crashed.apply(case.effect(), NoLease())
        async with fresh(case) as successor:
            assert isinstance(await successor.lookup(case.effect()), AlreadyDone | Absent | Waiting)
            assert isinstance((await carry_out(case, successor))[-1], IT_IS_THERE)
        assert await case.changes() == 1

    async def test_a_long_throttling_is_handed_back_with_its_time(self, case: Case) -> None:
        case.proxy.on_writes(*[case.throttled(60)] * 5)
        async with fresh(case) as connector:
            outcome = await connector.apply(case.effect(), NoLease())
            assert isinstance(outcome, Retry)
            assert outcome.after_s >= 60
            assert len(case.proxy.writes) == 1
            case.proxy.heal()
            assert isinstance((await carry_out(case, connector))[-1], IT_IS_THERE)
        assert await case.changes() == 1

    async def test_a_short_throttling_is_waited_out(self, case: Case) -> None:
        case.proxy.on_writes(case.throttled(1))
        async with fresh(case) as connector:
            assert isinstance((await carry_out(case, connector))[-1], IT_IS_THERE)
        first, second = case.proxy.writes[:2]
        assert second.at_s - first.at_s >= 1
        assert await case.changes() == 1

    async def test_a_server_that_is_broken_for_a_while_is_tried_again(self, case: Case) -> None:
        case.proxy.on_writes(case.broken(), case.broken())
        async with fresh(case) as connector:
            outcomes = await carry_out(case, connector)
        assert isinstance(outcomes[-1], IT_IS_THERE), outcomes
        assert await case.changes() == 1

    async def test_a_permanent_refusal_is_not_tried_again(self, case: Case) -> None:
        case.proxy.on_writes(*[case.refusal()] * 5)
        async with fresh(case) as connector:
            outcome = await connector.apply(case.effect(), NoLease())
        assert isinstance(outcome, Refused)
        assert outcome.reason
        assert len(case.proxy.writes) == 1
        assert await case.changes() == 0

    @pytest.mark.parametrize(
        "fault", [Answer(503), Cut(forward=False), Hang(forward=False)], ids=["503", "cut", "hang"]
    )
    async def test_a_server_that_cannot_be_read_is_an_outcome_and_not_an_error(
        self, case: Case, fault: Fault
    ) -> None:
        case.proxy.on_reads(*[fault] * 50)
        case.proxy.on_writes(*[fault] * 50)
        async with fresh(case) as connector:
            assert isinstance(await connector.lookup(case.effect()), Retry | Unknown)
            case.proxy.on_reads(*[fault] * 50)
            assert isinstance(await connector.apply(case.effect(), NoLease()), Retry | Unknown)
        assert await case.changes() == 0

    async def test_looking_up_changes_nothing(self, case: Case) -> None:
        async with fresh(case) as connector:
            before = await case.snapshot()
            await connector.lookup(case.effect())
            assert await case.snapshot() == before
            await carry_out(case, connector)
            writes = len(case.proxy.writes)
            await connector.lookup(case.effect())
        assert len(case.proxy.writes) == writes

    async def test_without_its_lease_no_request_leaves(self, case: Case) -> None:
        async with fresh(case) as connector:
            with pytest.raises(Fenced):
                await connector.apply(case.effect(), LostLease())
        assert case.proxy.writes == []
        assert await case.changes() == 0

    async def test_the_lease_is_asked_before_every_write(self, case: Case) -> None:
        lease = WatchedLease(case.proxy)
        case.proxy.on_writes(case.broken())
        async with fresh(case) as connector:
            await carry_out(case, connector, lease)
        assert len(case.proxy.writes) >= 2
        assert set(range(len(case.proxy.writes))) <= set(lease.checked_at)

    async def test_a_lease_lost_between_two_tries_stops_the_second(self, case: Case) -> None:
        lease = LostLease(case.proxy, writes=1)
        case.proxy.on_writes(*[case.broken()] * 5)
        async with fresh(case) as connector:
            try:
                for _ in range(3):
                    await connector.apply(case.effect(), lease)
            except Fenced:
                pass
            else:
                pytest.fail("went on without its lease")
        assert len(case.proxy.writes) == 1


class ConnectorContract(EffectContract):
    """What holds for an effect that can be taken back, besides. Inherit with a `case` fixture; see `tests.contract`."""

    async def test_taken_back_it_is_gone_and_stays_gone(self, case: Case) -> None:
        async with fresh(case) as connector:
            await carry_out(case, connector)
            undone = await take_back(case, connector)
            assert isinstance(undone[-1], IT_IS_THERE), undone
            assert await case.changes() == 0
            assert isinstance(await connector.undo(case.effect(), NoLease()), AlreadyDone)
            assert isinstance(await connector.lookup(case.effect()), Absent)

    @pytest.mark.parametrize("fault", MAKES_IT_UNCLEAR)
    async def test_an_unclear_undo_is_settled_by_another(self, case: Case, fault: Fault) -> None:
        async with fresh(case) as connector:
            await carry_out(case, connector)
        case.proxy.on_writes(fault)
        async with fresh(case) as connector:
            assert isinstance((await take_back(case, connector))[-1], IT_IS_THERE)
        assert await case.changes() == 0

    async def test_what_a_person_changed_in_between_is_left_to_them(self, case: Case) -> None:
        async with fresh(case) as connector:
            await carry_out(case, connector)
            await case.foreign_change()
            before, writes = await case.snapshot(), len(case.proxy.writes)
            outcome = await connector.undo(case.effect(), NoLease())
        assert isinstance(outcome, Blocked | Refused), outcome
        assert outcome.reason
        assert await case.snapshot() == before
        assert len(case.proxy.writes) == writes

    async def test_undo_without_its_lease_sends_nothing(self, case: Case) -> None:
        async with fresh(case) as connector:
            await carry_out(case, connector)
            writes = len(case.proxy.writes)
            with pytest.raises(Fenced):
                await connector.undo(case.effect(), LostLease())
        assert len(case.proxy.writes) == writes
