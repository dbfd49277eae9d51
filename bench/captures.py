"""How often the culprit is found in captures that somebody else wrote: `bench/captures.py DIRECTORY … [--misses FILE]`.

A directory is a capture with a `truth.jsonl` beside its topics, as `faultline simulate` writes it, or holds such directories.
Each is put through detector, inventory, correlator and the responder in shadow, and judged like a run of `bench/campaign.py`,
whose figures these are; families count only where the truth uses Faultline's names. `captures` has the figures of each.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import orjson

from bench.campaign import Campaign, runbooks
from bench.figures import progress, report
from bench.verdicts import Verdict, verdict
from faultline.replay import capture
from faultline.replay.replay import replay_capture
from sandbox.simulation.campaign import Simulated
from sandbox.simulation.truth import TRUTH, Fault, Truth
from streams.model.errors import BadInput


def truth_of(directory: Path) -> Truth:
    """The faults of a capture.

    Raises:
        BadInput: naming the file and the line that is not one.
    """
    truth = Truth()
    for number, line in enumerate((directory / TRUTH).read_bytes().splitlines(), start=1):
        try:
            read = orjson.loads(line)
            if read["record"] == "fault":
                truth.faults.append(Fault.of_line(read))
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{directory / TRUTH}:{number}: not a line of the truth: {error!r}") from error
    return truth


def judged(directory: Path) -> Verdict:
    """Replay one capture and judge it."""
    recorded = capture.read(directory)
    simulated = Simulated(recorded, truth_of(directory), site="")
    return verdict(simulated, replay_capture(recorded, runbooks=runbooks(), processes=1), directory.name)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directories", nargs="+", type=Path)
    parser.add_argument("--misses", type=Path, help="write every miss to this file")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    found = [path.parent for directory in options.directories for path in sorted(directory.rglob(TRUTH))]
    if options.misses:
        options.misses.write_text("")
    begin, campaign = time.perf_counter(), Campaign()
    with ProcessPoolExecutor(options.processes) as pool:
        for directory, result in zip(found, pool.map(judged, found, chunksize=1), strict=True):
            campaign.add(directory.name, result)
            progress(
                f"  {directory.name}: root right {result.top1} of {result.faults}, told {result.told}, "
                f"jobs {result.jobs_right} of {result.jobs}, asked {len(result.healthy_asked)}, "
                f"closed {len(result.healthy_cordons)}, {result.records} records"
            )
            if options.misses:
                with options.misses.open("a") as file:
                    file.writelines(f"{directory.name}: {miss}\n" for miss in result.misses)
    figures = campaign.total.figures()
    report(
        {
            **figures,
            "captures": {name: tally.figures() for name, tally in sorted(campaign.kinds.items())},
            "seconds": round(time.perf_counter() - begin, 1),
        }
    )


if __name__ == "__main__":
    main()
