"""Rates, failures and room for bodies."""

from __future__ import annotations

import asyncio

import pytest

from faultline.gateway import limits
from faultline.gateway.limits import BodyBudget, FailureLimit, TokenBucket
from faultline.gateway.refusal import RequestRefused


def test_a_bucket_allows_a_burst_and_then_the_rate() -> None:
    bucket = TokenBucket(per_s=2, burst=3)
    assert [bucket.take(0) for _ in range(4)] == [0, 0, 0, 0.5]
    assert bucket.take(0.5) == 0
    assert bucket.take(0.5) == 0.5
    assert [bucket.take(100) for _ in range(4)] == [0, 0, 0, 0.5]


def test_a_clock_that_goes_back_fills_no_bucket() -> None:
    bucket = TokenBucket(per_s=1, burst=1)
    assert bucket.take(100) == 0
    assert bucket.take(50) == 1


def test_an_address_that_fails_too_often_waits_and_others_do_not() -> None:
    limit = FailureLimit(per_minute=2)
    for _ in range(2):
        assert limit.wait("192.0.2.1", 0) == 0
        limit.failed("192.0.2.1", 0)
    assert limit.wait("192.0.2.1", 0) == pytest.approx(30)
    assert limit.wait("192.0.2.2", 0) == 0
    assert limit.wait("192.0.2.1", 30) == 0


def test_addresses_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_ADDRESSES", 3)
    limit = FailureLimit(per_minute=1)
    for number in range(5):
        limit.failed(f"192.0.2.{number}", 0)
    assert limit.wait("192.0.2.0", 0) == 0
    assert limit.wait("192.0.2.4", 0) > 0


async def test_a_body_waits_until_there_is_room() -> None:
    budget, order = BodyBudget(100), list[str]()

    async def second() -> None:
        async with budget.hold(60, proven=True, wait_s=10):
            order.append("second")

    async with budget.hold(60, proven=True, wait_s=10):
        waiting = asyncio.create_task(second())
        await asyncio.sleep(0)
        order.append("first")
    await waiting
    assert order == ["first", "second"]


async def test_a_body_without_room_is_refused_for_now() -> None:
    budget = BodyBudget(100)
    async with budget.hold(60, proven=True, wait_s=10):
        with pytest.raises(RequestRefused) as refused:
            async with budget.hold(60, proven=True, wait_s=0):
                pytest.fail("there is no room")
    assert refused.value.status == 503
    assert refused.value.retry_after_s is not None


async def test_strangers_get_half_of_the_room() -> None:
    budget = BodyBudget(100)
    async with budget.hold(50, proven=False, wait_s=0):
        with pytest.raises(RequestRefused):
            async with budget.hold(10, proven=False, wait_s=0):
                pytest.fail("strangers have their half")
        async with budget.hold(50, proven=True, wait_s=0):
            pass


async def test_a_single_body_always_fits() -> None:
    async with BodyBudget(100).hold(100, proven=False, wait_s=0):
        pass
