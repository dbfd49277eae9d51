"""Random interleavings of Faultline's actions with those of others; the figures are the last line, in JSON.

python -m tests.interleavings.run [--seeds 1000] [--first 0] [--seed N]

Ends with 1 when an invariant was violated. `--seed` plays one and prints its story: the same seed is the same story.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable

from tests.interleavings.play import Played, play


def main() -> int:
    """Play what was asked for."""
    asked = _arguments()
    seeds = range(asked.first, asked.first + asked.seeds) if asked.seed is None else [asked.seed]
    began = time.monotonic()
    played = asyncio.run(play_all(seeds))
    for one in played:
        if one.problems or asked.seed is not None:
            told = [f"seed {one.seed}: {'; '.join(one.problems) or 'well'}", *one.story]
            print("\n".join(told), file=sys.stderr)
    print(json.dumps(figures(played, time.monotonic() - began)))
    return 1 if any(one.problems for one in played) else 0


async def play_all(seeds: Iterable[int]) -> list[Played]:
    """All of the seeds, one after the other."""
    return [await play(seed) for seed in seeds]


def figures(played: list[Played], seconds: float) -> dict[str, object]:
    """What was played, in numbers."""
    return {
        "interleavings": len(played),
        "requests": sum(one.requests for one in played),
        "acts_of_others": sum(one.acts for one in played),
        "deaths": sum(one.deaths for one in played),
        "runs": dict(Counter(outcome for one in played for outcome in one.outcomes)),
        "with_problems": sum(bool(one.problems) for one in played),
        "problems": dict(Counter(problem.split(":")[0] for one in played for problem in one.problems)),
        "seconds": round(seconds, 1),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="only this one, with its story")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
