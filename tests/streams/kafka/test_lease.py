"""A lease holds only as long as a successor waits for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from streams.config.settings import KafkaSettings, ResponderSettings
from streams.kafka.lease import MARGIN_S, Lease, inherited_wait_s, longest_s
from streams.model.errors import Fenced

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Clocks:
    """A wall clock and a boot clock that move when told to."""

    def __init__(self) -> None:
        self.wall = START
        self.boot = 1000.0

    def pass_s(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.boot += seconds

    def lease(self, length_s: float = 20.0) -> Lease:
        return Lease.begin(length_s, clock=lambda: self.wall, boot=lambda: self.boot)


def test_a_fresh_lease_holds() -> None:
    Clocks().lease().check()


@pytest.mark.parametrize(
    ("wall_s", "boot_s", "holds"),
    [
        (17.9, 17.9, True),
        (18.1, 18.1, False),
        (0.0, 18.1, False),  # the wall clock was set back while the process stood still
        (18.1, 0.0, False),  # a boot clock that stopped, as the monotonic one does in a suspend
        (-3600.0, 1.0, True),
    ],
)
def test_either_clock_ends_it(wall_s: float, boot_s: float, holds: bool) -> None:
    clocks = Clocks()
    lease = clocks.lease(20.0)
    clocks.wall += timedelta(seconds=wall_s)
    clocks.boot += boot_s
    if holds:
        lease.check()
        return
    with pytest.raises(Fenced):
        lease.check()


def test_a_revoked_lease_never_holds_again() -> None:
    lease = Clocks().lease()
    lease.revoke("partition 3 went to another owner")
    with pytest.raises(Fenced, match="partition 3"):
        lease.check()


def test_a_successor_acts_only_after_the_holder_may_no_longer() -> None:
    """Also with clocks that differ by just less than the margin on each side."""
    clocks = Clocks()
    lease = clocks.lease(20.0)
    wait_s = inherited_wait_s(lease.until, clocks.wall)
    assert wait_s == 20.0 + MARGIN_S
    for behind_s in (0.0, MARGIN_S - 0.1):
        late = Clocks()
        held = late.lease(20.0)
        late.pass_s(wait_s - 2 * MARGIN_S + behind_s + 0.1)
        with pytest.raises(Fenced):
            held.check()


def test_nothing_is_left_to_wait_long_after() -> None:
    assert inherited_wait_s(START, START + timedelta(hours=1)) == 0.0


def test_a_lease_shorter_than_the_margin_is_refused() -> None:
    with pytest.raises(ValueError, match="margin"):
        Clocks().lease(MARGIN_S)


@pytest.mark.parametrize("session_timeout_ms", [1000, 1500, 6000, 15000, 60000])
def test_a_frozen_holder_has_no_lease_left_when_its_partition_is_given_away(session_timeout_ms: int) -> None:
    """However far the two machines' clocks are apart: a successor whose clock is far ahead waits for nothing."""
    kafka = KafkaSettings(session_timeout_ms=session_timeout_ms)
    for length_s, holds in ((longest_s(kafka), False), (longest_s(kafka) + 0.1, True)):
        clocks = Clocks()
        clocks.pass_s(kafka.heartbeat_interval_ms / 1000)  # the last sign of life is just so old
        held = clocks.lease(length_s)
        assert inherited_wait_s(held.until, clocks.wall + timedelta(hours=1)) == 0.0
        clocks.pass_s((kafka.session_timeout_ms - kafka.heartbeat_interval_ms) / 1000 - 0.05)
        if holds:
            held.check()
        clocks.pass_s(0.05)
        if not holds:
            with pytest.raises(Fenced):
                held.check()


def test_the_usual_lease_fits_the_usual_session() -> None:
    assert ResponderSettings().lease_s <= longest_s(KafkaSettings())
