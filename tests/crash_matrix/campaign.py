"""Many cases on several stages at once, each compared with the same scenario undisturbed."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tests.crash_matrix.cases import Case, undisturbed
from tests.crash_matrix.history import History, told
from tests.crash_matrix.invariants import violations
from tests.crash_matrix.stages import House, NotPlayed, Stage

Scenario = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a case. `problems` are violated invariants, or why it did not come to its end; none when all is well."""

    case: Case
    problems: tuple[str, ...]
    seconds: float
    touches: int = 0
    story: str = ""
    """Everything that happened, where there are problems."""


@dataclass
class Campaign:
    """Plays cases; `say` is told of each that is over."""

    house: House
    say: Callable[[Result], None] = lambda result: None
    results: list[Result] = field(default_factory=list)
    _undisturbed: dict[Scenario, asyncio.Future[History | None]] = field(default_factory=dict)

    async def run(self, cases: Sequence[Case]) -> list[Result]:
        """All of them, and before them their scenarios undisturbed; the results are in the order in which they came."""
        loop = asyncio.get_running_loop()
        scenarios = list(dict.fromkeys(case.scenario for case in cases))
        self._undisturbed = {scenario: loop.create_future() for scenario in scenarios}
        waiting = [*(undisturbed(scenario) for scenario in scenarios), *cases]
        waiting.reverse()
        await asyncio.gather(*(self._perform(stage, waiting) for stage in self.house.stages))
        return self.results

    async def _perform(self, stage: Stage, waiting: list[Case]) -> None:
        while waiting:
            result = await self._one(stage, waiting.pop())
            self.results.append(result)
            self.say(result)

    async def _one(self, stage: Stage, case: Case) -> Result:
        began = time.monotonic()
        try:
            history = await stage.play(case)
        except NotPlayed as error:
            if not case.deaths:
                self._undisturbed[case.scenario].set_result(None)
            return Result(case, (f"not_played: {error}",), time.monotonic() - began)
        seconds = time.monotonic() - began
        if not case.deaths:
            self._undisturbed[case.scenario].set_result(history)
        as_it_should = await self._undisturbed[case.scenario]
        found = violations(history, as_it_should)
        if as_it_should is None:
            found.append("as_undisturbed: the scenario did not come to its end undisturbed")
        return Result(case, tuple(found), seconds, len(history.touches), told(history) if found else "")


def table(results: Iterable[Result]) -> list[tuple[str, int, int, int, int]]:
    """Per step: cases, deaths, requests that arrived, cases with problems."""
    cases, deaths, touches, bad = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for result in results:
        step = result.case.what
        cases[step] += 1
        deaths[step] += len(result.case.deaths)
        touches[step] += result.touches
        bad[step] += bool(result.problems)
    return [(step, cases[step], deaths[step], touches[step], bad[step]) for step in sorted(cases)]
