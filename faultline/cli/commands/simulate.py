"""`faultline simulate SCENARIO --seed N --out CAPTURE`: a capture to try things on, and what is true about it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click
import orjson

from faultline.cli.output import table
from faultline.replay.capture import write
from sandbox.simulation.campaign import simulate
from sandbox.simulation.scenario import pick
from sandbox.simulation.truth import TRUTH


@click.command("simulate")
@click.argument("scenario", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--name", default=None, help="Which scenario of the file, where it has several.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same capture.")
@click.option(
    "--nodes", type=click.IntRange(4, 4096), default=None, help="Nodes, instead of the scenario's own number."
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Directory to write."
)
def command(scenario: Path, name: str | None, seed: int, nodes: int | None, out: Path) -> None:
    """Play SCENARIO on a simulated cluster and write what its shippers send as a capture, with `truth.jsonl` beside it.

    `faultline replay CAPTURE` decides it. Scenarios ship in `bench/scenarios.yaml`.
    """
    simulated = simulate(pick(scenario, name).sized(nodes), seed)
    write(out, simulated.capture)
    lines = (orjson.dumps(line) + b"\n" for line in simulated.truth.lines())
    with (out / TRUTH).open("wb") as file:
        file.writelines(lines)
    faults = Counter(fault.kind for fault in simulated.truth.faults)
    table(("fault", "times"), sorted(faults.items()), empty="no fault was injected")
    records = sum(map(len, simulated.capture.records.values()))
    click.echo(f"{records} records, {len(simulated.truth.look_alikes)} look-alikes in {out}")
