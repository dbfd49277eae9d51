"""A replay event by event: what came in, what was weighed, what changed, and what was known at each point.

A replay is deterministic and its values are frozen, so it runs once and every step is kept: going back shows exactly what was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from faultline.replay.pipeline import Happened, Watcher
from faultline.replay.recorded_inputs import CommandNews, ControlNews, FactNews
from streams.correlate.hypothesis import Hypothesis
from streams.model.incident import Incident
from streams.model.run import Run


@dataclass(frozen=True, slots=True)
class IncidentChange:
    """A revision of an incident; `before` is None for one that opens."""

    before: Incident | None
    after: Incident


@dataclass(slots=True)
class State:
    """What is known at one point: incidents at their latest revisions, and explanations that were weighed, by incident id."""

    incidents: dict[str, Incident] = field(default_factory=dict)
    hypotheses: dict[str, Hypothesis] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    """By their own ids."""


class Steps:
    """Follows a replay and keeps its steps. Those are counted from 1.

    Inventory that changes nothing is one step with the inventory before it: a cluster has thousands of nodes and pods.
    """

    def __init__(self) -> None:
        self._steps: list[Happened] = []

    def passes(self, now: datetime) -> None:
        """A second in which nothing happens is no step."""

    def sees(self, happened: Happened) -> None:
        """Keep a step."""
        if self._steps and _is_quiet_inventory(happened) and _is_quiet_inventory(self._steps[-1]):
            last = self._steps[-1]
            self._steps[-1] = replace(last, came=(*last.came, *happened.came))
        else:
            self._steps.append(happened)

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, number: int) -> Happened:
        return self._steps[number - 1]

    def state_after(self, number: int) -> State:
        """What is known after a step; 0 is before the first."""
        state = State()
        for happened in self._steps[:number]:
            state.incidents.update((one.id, one) for one in happened.incidents)
            state.hypotheses.update(happened.hypotheses)
            state.runs.update((run.id, run) for run in happened.runs)
        return state

    def changes(self, number: int) -> list[IncidentChange]:
        """The revisions of a step, with what each was before."""
        known = self.state_after(number - 1).incidents
        found = []
        for incident in self[number].incidents:
            found.append(IncidentChange(known.get(incident.id), incident))
            known[incident.id] = incident
        return found

    def weighed(self, number: int) -> list[Hypothesis]:
        """Explanations that are new by a step, or are judged otherwise since it."""
        known = self.state_after(number - 1).hypotheses
        return [
            one
            for name, one in self[number].hypotheses.items()
            if name not in known or _judgement(known[name]) != _judgement(one)
        ]

    def next_about(self, incident: str, number: int) -> int | None:
        """The first step after a number that changes an incident whose id begins so (any, if empty); None when there is none."""
        for later in range(number + 1, len(self) + 1):
            if any(one.id.startswith(incident) for one in self[later].incidents):
                return later
        return None


def came_from(happened: Happened) -> str:
    """What kind of thing came in: `signals`, `inventory`, `command`, `controls`, or `time`."""
    if not happened.came:
        return "time"
    match happened.came[0]:
        case FactNews():
            return "inventory"
        case CommandNews():
            return "command"
        case ControlNews():
            return "controls"
        case _:
            return "signals"


def _is_quiet_inventory(happened: Happened) -> bool:
    return came_from(happened) == "inventory" and not happened.incidents and not happened.entries


def _judgement(one: Hypothesis) -> tuple[object, ...]:
    return (one.family, one.root.key, one.certainty, one.ready_at, one.cleared_at, one.why, one.jobs)


class Pace:
    """Lets a replay go on no faster than real time × `speed`.

    Args:
        speed: How much faster than the records.
        clock: Seconds, for tests.
        sleep: Waits so many seconds, for tests.
    """

    def __init__(
        self,
        speed: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._speed = speed
        self._clock = clock
        self._sleep = sleep
        self._began: tuple[datetime, float] | None = None

    def passes(self, now: datetime) -> None:
        """Wait until it is time for this second of the replay."""
        if self._began is None:
            self._began = now, self._clock()
        since, began_s = self._began
        ahead_s = (now - since).total_seconds() / self._speed - (self._clock() - began_s)
        if ahead_s > 0:
            self._sleep(ahead_s)

    def sees(self, happened: Happened) -> None:
        """What happens takes no time of its own."""


class Together:
    """Several watchers, told in their order."""

    def __init__(self, watchers: Sequence[Watcher]) -> None:
        self._watchers = watchers

    def passes(self, now: datetime) -> None:
        """Tell all of the time."""
        for one in self._watchers:
            one.passes(now)

    def sees(self, happened: Happened) -> None:
        """Tell all of what happened."""
        for one in self._watchers:
            one.sees(happened)


class Printer:
    """Prints every step as it happens, through `lines_of` and `echo`."""

    def __init__(self, lines_of: Callable[[Happened], Iterator[str]], echo: Callable[[str], None]) -> None:
        self._lines_of = lines_of
        self._echo = echo

    def passes(self, now: datetime) -> None:
        """A second in which nothing happens prints nothing."""

    def sees(self, happened: Happened) -> None:
        """Print it."""
        for line in self._lines_of(happened):
            self._echo(line)
