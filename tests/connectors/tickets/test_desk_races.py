"""Two workers on one incident, in a thousand orders: in the end there is one open ticket with one comment of each key."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from connectors.base import AlreadyDone, Blocked, Done, Effect, NoLease, Refused, Retry, Unknown
from connectors.tickets.desk import TicketDesk
from streams.model.codec import encode
from streams.model.hardware_evidence import EVIDENCE
from tests.connectors.tickets.lagging_tickets import LaggingTickets, interleave
from tests.connectors.tickets.ticket_worlds import CONTEXT, NOW, PROOF, effect

TRIALS = 1000
OPEN, COMMENT, CLOSE = "a" * 32, "b" * 32, "c" * 32


async def carry_out(desk: TicketDesk, system: LaggingTickets, wanted: Effect, lookup: bool) -> None:
    """What the responder does with an outcome, for one effect; `lookup`: begin as a successor does."""
    for _ in range(60):
        outcome = await (desk.lookup(wanted) if lookup else desk.apply(wanted, NoLease()))
        match outcome:
            case Done() | AlreadyDone():
                return
            case Refused(reason):
                raise AssertionError(reason)
            case Unknown(after_s=pause) | Retry(after_s=pause) | Blocked(after_s=pause):
                lookup = isinstance(outcome, Unknown)
                await system.sleep(pause)
            case waiting:
                lookup = False
                wanted = replace(wanted, prior=getattr(waiting, "result", wanted.prior))
                await system.sleep(getattr(waiting, "after_s", 0.0))
    raise AssertionError("not over after sixty calls")


async def worker(system: LaggingTickets, *, successor: bool) -> None:
    """One process that opens the ticket and comments on it, with a desk that remembers nothing of the other's."""
    desk = TicketDesk(system, sleep=system.sleep, clock=lambda: NOW)
    await carry_out(desk, system, effect("open_ticket", OPEN), lookup=successor)
    await carry_out(
        desk, system, effect("comment_ticket", COMMENT, text="node-07 is cordoned"), lookup=successor
    )


def play(seed: int, *, lost: float, crash: bool) -> LaggingTickets:
    """One trial: a process whose lease was lost unnoticed, and its successor; later a third one closes the ticket."""
    system = LaggingTickets(random.Random(seed), lag_s=random.Random(seed).choice((0.0, 2.0, 8.0)), lost=lost)
    interleave([worker(system, successor=False), worker(system, successor=True)], system, crash=crash)
    system.now += 60.0
    return system


def test_two_workers_attach_each_file_once_in_a_thousand_orders() -> None:
    proof = {**CONTEXT, EVIDENCE: encode(PROOF).decode()}
    met = 0

    async def attacher(system: LaggingTickets) -> None:
        desk = TicketDesk(system, sleep=system.sleep, clock=lambda: NOW)
        await carry_out(desk, system, effect("open_ticket", OPEN, context=proof), lookup=True)

    for seed in range(TRIALS):
        system = LaggingTickets(random.Random(seed), lag_s=0.0)
        interleave([attacher(system), attacher(system)], system)
        names = Counter(file.name for file in system.kept[0].files)
        assert names == {"evidence.json": 1, "evidence.txt": 1}, seed
        met += system.detached
    assert met > 0, "there were copies, and they were deleted"


def test_a_closing_text_that_two_workers_said_is_there_once_in_a_thousand_orders() -> None:
    met = 0

    async def closer(system: LaggingTickets) -> None:
        desk = TicketDesk(system, sleep=system.sleep, clock=lambda: NOW)
        await carry_out(desk, system, effect("close_ticket", CLOSE, text="it is back"), lookup=False)

    for seed in range(TRIALS):
        system = LaggingTickets(random.Random(seed), lag_s=0.0)
        opener = TicketDesk(system, sleep=system.sleep, clock=lambda: NOW)
        interleave([carry_out(opener, system, effect("open_ticket", OPEN), lookup=False)], system)
        interleave([closer(system), closer(system)], system)
        assert system.open() == [], seed
        assert len(system.kept[0].said) == 1, seed
        met += system.dropped
    assert met > 0


def settle(system: LaggingTickets, action: str) -> None:
    async def one() -> None:
        desk = TicketDesk(system, sleep=system.sleep, clock=lambda: NOW)
        key = {"comment_ticket": COMMENT, "close_ticket": CLOSE}[action]
        await carry_out(desk, system, effect(action, key, text="node-07 is cordoned"), lookup=False)

    interleave([one()], system)


@pytest.mark.parametrize(
    ("lost", "crash"), [(0.0, False), (0.3, False), (0.3, True)], ids=["clean", "lost answers", "crashes"]
)
def test_two_workers_leave_one_ticket_and_one_comment_in_a_thousand_orders(lost: float, crash: bool) -> None:
    copies = Counter[str]()
    for seed in range(TRIALS):
        system = play(seed, lost=lost, crash=crash)
        copies["tickets"] += len(system.kept) > 1
        settle(system, "comment_ticket")
        assert len(system.open()) == 1, seed
        first = system.kept[0]
        assert system.open() == [first], seed
        tokens = [s.comment.text.rpartition(" ")[2] for s in first.said]
        assert tokens == [f"faultline-{COMMENT}"], seed
    # Otherwise this would show nothing: the lag did let copies through, and they were folded.
    assert copies["tickets"] > 0


def test_after_its_close_no_copy_is_left_open() -> None:
    for seed in range(200):
        system = play(seed, lost=0.3, crash=False)
        settle(system, "close_ticket")
        assert system.open() == [], seed
        said = Counter(s.comment.text.rpartition(" ")[2] for s in system.kept[0].said)
        assert said[f"faultline-{CLOSE}"] == 1, seed
