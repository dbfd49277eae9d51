"""`faultline simulate SCENARIO --seed N --out CAPTURE`: a capture of injected faults, with their ground truth."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click
import orjson

from faultline.cli.output import table


@click.command("simulate")
@click.argument("scenario", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--name", default=None, help="Scenario of the file, if it has several.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same capture.")
@click.option(
    "--nodes", type=click.IntRange(4, 4096), default=None, help="Number of nodes (default: the scenario's)."
)
@click.option("--site", default=None, help="Kind of site (default: the scenario's, or one by the seed).")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Output directory."
)
def command(
    scenario: Path, name: str | None, seed: int, nodes: int | None, site: str | None, out: Path
) -> None:
    """Run SCENARIO on a simulated cluster and write what its log shippers send as a capture, plus the ground truth in
    `truth.jsonl`.

    Use it with `faultline replay CAPTURE`. `bench/scenarios.yaml` has scenarios.
    """
    from faultline.replay.capture import write
    from sandbox.simulation.campaign import simulate
    from sandbox.simulation.scenario import pick
    from sandbox.simulation.truth import TRUTH

    picked = pick(scenario, name).sized(nodes)
    simulated = simulate(picked.model_copy(update={"site": site}) if site else picked, seed)
    write(out, simulated.capture)
    lines = (orjson.dumps(line) + b"\n" for line in simulated.truth.lines())
    with (out / TRUTH).open("wb") as file:
        file.writelines(lines)
    faults = Counter(fault.kind for fault in simulated.truth.faults)
    table(("fault", "count"), sorted(faults.items()), empty="no faults injected")
    records = sum(map(len, simulated.capture.records.values()))
    click.echo(
        f"{records} records, {len(simulated.truth.look_alikes)} negative samples at a site like {simulated.site} in {out}"
    )
