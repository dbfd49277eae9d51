"""Replays both sides, each in a process of its own: tables are read once per process, and two cores do both at once.

They are programs of their own (`side_worker`), nothing is forked. Each ends when its pipe from here closes.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import cast

from faultline.replay.capture import Capture
from faultline.replay.decisions import Decision, ceilings, decisions_of
from faultline.replay.planned import actions_of
from faultline.replay.recorded_inputs import FactNews, recorded_runs, state_of
from faultline.replay.replay import facts_of, replay_capture
from faultline.replay.unread_records import UnreadRecords
from faultline.replay.what_if.failed import Failed
from faultline.replay.what_if.outages import Held, HeldHours, Outage, outages_of
from faultline.replay.what_if.sides import Side
from faultline.runtime.settings import Settings
from runbooks.language.loader import library_of
from streams.config.notifier_settings import PAGES, SinkSettings
from streams.config.table_overlay import VARIABLE
from streams.correlate import Config
from streams.model.errors import BadInput, Temporary

_WORKER = ("-m", "faultline.replay.what_if.side_worker")


@dataclass(frozen=True, slots=True)
class Decided:
    """What one side decided. `until` is when open incidents are counted to."""

    decisions: tuple[Decision, ...]
    outages: tuple[Outage, ...]
    held: Held
    decision_hash: str
    records: int
    signals: int
    until: datetime
    unread: UnreadRecords = field(default_factory=UnreadRecords)
    """Records of the capture that could not be read."""


def decided(side: Side) -> Decided:
    """Replay one side in this process. What was opened before the capture's `begin` is only there to warm up."""
    library = library_of(side.runbooks)
    settings, meta = side.settings, side.capture.meta
    replayed = replay_capture(
        side.capture,
        responder=settings.responder,
        config=Config.of(settings.correlator),
        runbooks=library.runbooks,
        actions=actions_of(settings),
        processes=1,  # the other side has the other core
    )
    modes = ceilings(library.runbooks, settings.responder)
    found = decisions_of(
        replayed, modes, meta.end, runbooks=library.runbooks, page_shadow=_pages_shadow(settings)
    )
    return Decided(
        decisions=tuple(one for one in found if not meta.warm_up or one.opened_at >= meta.begin),
        outages=outages_of(replayed.incidents.values(), recorded_runs(side.capture), meta.end),
        held=_held(side.capture),
        decision_hash=replayed.decision_hash,
        records=replayed.records,
        signals=replayed.signals,
        until=meta.end,
        unread=side.capture.unread,
    )


def _held(capture: Capture) -> Held:
    hours = HeldHours(capture.meta.begin)
    told = [one for one in state_of(capture) if isinstance(one, FactNews)]
    for one in [*told, *sorted(facts_of(capture), key=lambda fact: fact.at)]:
        if one.at <= capture.meta.end:
            hours.take(one.at, one.key, one.fact)
    return hours.until(capture.meta.end)


def both(before: Side, after: Side, done: Callable[[], None] = lambda: None) -> tuple[Decided, Decided]:
    """Replay two sides at the same time, or one where both are the same. `done` is called for each that is ready.

    Raises:
        BadInput: when the capture or a table is invalid.
        Temporary: when one of the processes was ended from outside.
    """
    sides = [before] if after is before else [before, after]
    with ThreadPoolExecutor(2) as threads, ExitStack() as running:
        processes = [running.enter_context(_running(side)) for side in sides]
        waiting = [threads.submit(_answer, process) for process in processes]
        try:
            for ready in as_completed(waiting):
                ready.result()
                done()
        finally:
            # A thread that still reads would keep the pool open: it ends when its process does.
            for process in processes:
                process.kill()
    found = waiting[0].result(), waiting[-1].result()
    for side in found:
        before.capture.unread.take(side.unread)
    return found


def group_window_s(settings: Settings) -> float:
    """How far apart incidents are one page: as the pagers have it, by default as a new one would."""
    default = float(SinkSettings.model_fields["group_window_s"].default)
    windows = [sink.group_window_s for sink in _pagers(settings)]
    return min(windows, default=default)


def _pages_shadow(settings: Settings) -> bool:
    return any(sink.page_shadow for sink in _pagers(settings))


def _pagers(settings: Settings) -> Iterator[SinkSettings]:
    return (sink for sink in settings.notifier.sinks.values() if sink.kind in PAGES)


def _answer(process: subprocess.Popen[bytes]) -> Decided:
    assert process.stdout is not None
    try:
        told = cast("Decided | Failed", pickle.load(process.stdout))
    except (EOFError, pickle.UnpicklingError) as error:
        raise Temporary(f"a process that replays ended: exit code {process.wait()}") from error
    if isinstance(told, Failed):
        raise BadInput(told.why)
    return told


@contextmanager
def _running(side: Side) -> Iterator[subprocess.Popen[bytes]]:
    """A process at work on a side. It is in a group of its own: Ctrl-C interrupts this process, which ends both."""
    environment = dict(os.environ)
    if side.catalog is not None:
        environment[VARIABLE] = str(side.catalog.resolve())
    process = subprocess.Popen(
        [sys.executable, *_WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        process_group=0,
    )
    try:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # why it ended is told when its answer is read
            pickle.dump(side, process.stdin)
            process.stdin.flush()
        yield process
    finally:
        process.kill()
        process.communicate()
