"""The whole crash matrix on servers of its own: a table of what was played, and the figures as the last line, in JSON.

python -m tests.crash_matrix.run [--stages 8] [--only TEXT ...] [--skip N] [--sample N]

Ends with 1 when an invariant was violated or a case did not come to its end; their stories are in the folder it names.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.crash_matrix.campaign import Campaign, Result, table
from tests.crash_matrix.cases import Case, matrix, sample
from tests.crash_matrix.stages import House
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka


def main() -> int:
    """Play what was asked for."""
    asked = _arguments()
    cases = [case for case in matrix() if any(text in case.name for text in asked.only)][asked.skip :]
    if asked.sample:
        cases = sample(cases, asked.sample)
    folder = Path(tempfile.mkdtemp(prefix="faultline-crash-matrix-"))
    began = time.monotonic()
    with (
        Kafka.running(folder / "kafka", for_load=True) as kafka,
        ControlPlane.running(folder / "kubernetes") as cluster,
    ):
        results = asyncio.run(_play(kafka, cluster, folder, cases, asked.stages))
    seconds = time.monotonic() - began
    bad = [result for result in results if result.problems]
    for result in bad:
        (folder / f"{result.case.name}.txt").write_text("\n".join([*result.problems, "", result.story]))
    _show(results)
    if bad:
        print(f"the stories of {len(bad)} cases are in {folder}", file=sys.stderr)
    print(json.dumps(_figures(results, seconds, asked.stages)))
    return 1 if bad else 0


async def _play(
    kafka: Kafka, cluster: ControlPlane, folder: Path, cases: Sequence[Case], stages: int
) -> list[Result]:
    async with House.open(kafka, cluster, folder, stages) as house:
        return await Campaign(house, _say).run(cases)


def _say(result: Result) -> None:
    verdict = "; ".join(result.problems) or "well"
    print(f"{result.seconds:6.1f} s  {result.case.name}: {verdict}", file=sys.stderr, flush=True)


def _show(results: Sequence[Result]) -> None:
    shown = Table("step", "cases", "deaths", "requests", "with problems", title="crash matrix")
    for row in table(results):
        shown.add_row(*(str(value) for value in row))
    Console(stderr=True).print(shown)


def _figures(results: Sequence[Result], seconds: float, stages: int) -> dict[str, object]:
    played = [result for result in results if result.case.deaths]
    broken = Counter(problem.split(":")[0] for result in results for problem in result.problems)
    return {
        "cases": len(played),
        "undisturbed": len(results) - len(played),
        "deaths": sum(len(result.case.deaths) for result in results),
        "requests": sum(result.touches for result in results),
        "cases_with_problems": sum(bool(result.problems) for result in results),
        "problems": dict(broken),
        "seconds": round(seconds, 1),
        "seconds_per_case": round(seconds / max(1, len(results)), 2),
        "seconds_of_a_case_median": round(statistics.median(r.seconds for r in results), 1),
        "stages": stages,
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stages", type=int, default=8, help="cases that are played at once")
    parser.add_argument("--only", nargs="+", default=[""], help="only cases with one of these in their name")
    parser.add_argument("--skip", type=int, default=0, help="begin with a later case")
    parser.add_argument("--sample", type=int, default=0, help="only so many, evenly spread")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
