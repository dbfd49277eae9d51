"""The contract suite for a sink that cannot be asked what it has: what of it holds, and the reason for the rest."""

from __future__ import annotations

import pytest

from connectors.base import Absent, AlreadyDone, Done, NoLease, Refused, Retry, Unknown
from tests.contract.case import Case, carry_out
from tests.contract.faults import Answer, Cut, Fault, Hang
from tests.contract.suite import EffectContract, fresh


class BlindContract(EffectContract):
    """Three tests ask the other side, which has no way to tell; they are told here as they are."""

    async def test_a_crash_after_the_call_is_found_by_looking_up(self, case: Case) -> None:
        """Only by the process that made it. A successor cannot know, and sends a copy, which is the same change."""
        async with fresh(case) as crashed:
            assert isinstance(await crashed.apply(case.effect(), NoLease()), Done)
            assert isinstance(await crashed.lookup(case.effect()), AlreadyDone)
        async with fresh(case) as successor:
            assert isinstance(await successor.lookup(case.effect()), Absent)
            assert isinstance((await carry_out(case, successor))[-1], Done | AlreadyDone)
        assert await case.changes() == 1

    async def test_what_lookup_finds_is_enough_to_take_it_back(self, case: Case) -> None:
        """Nothing is ever taken back."""
        async with fresh(case) as connector:
            await carry_out(case, connector)
            assert isinstance(await connector.undo(case.effect(), NoLease()), Refused)
        assert await case.changes() == 1

    @pytest.mark.parametrize(
        "fault", [Answer(503), Cut(forward=False), Hang(forward=False)], ids=["503", "cut", "hang"]
    )
    async def test_a_server_that_cannot_be_read_is_an_outcome_and_not_an_error(
        self, case: Case, fault: Fault
    ) -> None:
        """A lookup asks nobody here, so only the call meets the fault."""
        case.proxy.on_writes(*[fault] * 50)
        async with fresh(case) as connector:
            assert isinstance(await connector.apply(case.effect(), NoLease()), Retry | Unknown)
        assert await case.changes() == 0
