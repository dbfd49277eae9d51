"""What a failed request means for an effect, and what is tried again within one call."""

from __future__ import annotations

import pytest

from connectors.base import Done, Outcome, Refused, Retry, Unknown
from connectors.kubernetes.errors import (
    Conflict,
    EvictionBlocked,
    Forbidden,
    MaybeApplied,
    NotFound,
    Unauthorized,
)
from connectors.kubernetes.guarded_patch import ATTEMPTS, attempted, outcome_of
from streams.model.errors import BadInput, FaultlineError, Fenced, Temporary, Unreachable

DONE = Done()


class Flaky:
    """Fails with each error in turn, then is done; counts its calls."""

    def __init__(self, *failures: FaultlineError) -> None:
        self.failures = list(failures)
        self.calls = 0

    async def once(self) -> Outcome:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return DONE


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (MaybeApplied("cut"), Unknown("cut")),
        (Temporary("busy", retry_after_s=60), Retry(60, "busy")),
        (Temporary("busy"), Retry(2.0, "busy")),
        (Conflict("changed"), Retry(2.0, "changed")),
        (EvictionBlocked("budget", retry_after_s=10), Retry(10, "budget")),
        (Unreachable("nobody there"), Retry(2.0, "nobody there")),
        (Forbidden("no right"), Refused("no right")),
        (Unauthorized("who is it?"), Retry(10.0, "who is it?")),
        (NotFound("no such thing"), Refused("no such thing")),
    ],
)
def test_every_answer_of_the_server_is_an_outcome(error: FaultlineError, outcome: Outcome) -> None:
    assert outcome_of(error) == outcome


@pytest.mark.parametrize("error", [Fenced("gone"), BadInput("what?")])
def test_what_is_no_answer_of_the_server_is_an_error(error: FaultlineError) -> None:
    with pytest.raises(type(error)):
        outcome_of(error)


@pytest.mark.parametrize("error", [Conflict("changed"), Unreachable("down"), Temporary("read failed")])
async def test_brief_trouble_is_sat_out(error: FaultlineError) -> None:
    flaky = Flaky(error, error)
    assert await attempted(flaky.once) == DONE
    assert flaky.calls == 3


@pytest.mark.parametrize("error", [MaybeApplied("cut"), Forbidden("no"), Temporary("busy", retry_after_s=30)])
async def test_what_more_tries_could_double_or_not_help_is_handed_back_at_once(error: FaultlineError) -> None:
    flaky = Flaky(error)
    assert await attempted(flaky.once) == outcome_of(error)
    assert flaky.calls == 1


async def test_lasting_trouble_ends_in_a_retry_after_a_few_tries() -> None:
    flaky = Flaky(*[Conflict("changed")] * 20)
    assert isinstance(await attempted(flaky.once), Retry)
    assert flaky.calls == ATTEMPTS


async def test_a_lambda_serves_as_well_as_a_function() -> None:
    flaky = Flaky(Conflict("changed"))
    assert await attempted(lambda: flaky.once()) == DONE
