"""`faultline simulate SCENARIO --seed N --out CAPTURE`: a capture of injected faults, with their ground truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import orjson

from faultline.cli.groups import examples
from faultline.cli.output import output_option, show, table
from streams.model.errors import BadInput


@click.command(
    "simulate",
    epilog=examples(
        (
            "faultline simulate bench/scenarios.yaml --name gpu_off_bus --nodes 16 --out captures/one",
            "one fault",
        ),
        ("faultline replay captures/one", "and what is decided about it"),
    ),
)
@click.argument("scenario", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--name", default=None, help="Scenario of the file, if it has several.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same capture.")
@click.option(
    "--nodes", type=click.IntRange(4, 4096), default=None, help="Number of nodes (default: the scenario's)."
)
@click.option("--site", default=None, help="Kind of site (default: the scenario's, or one by the seed).")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Output directory, new or empty.",
)
@click.option("--force", is_flag=True, help="Write over a capture in the output directory.")
@output_option
def command(
    scenario: Path,
    name: str | None,
    seed: int,
    nodes: int | None,
    site: str | None,
    out: Path,
    force: bool,
    output: str,
) -> None:
    """Run SCENARIO on a simulated cluster and write what its log shippers send as a capture, plus the ground truth in
    `truth.jsonl`.

    Use it with `faultline replay CAPTURE`. `bench/scenarios.yaml` has scenarios.
    """
    from faultline.replay.capture import write
    from sandbox.simulation.campaign import simulate
    from sandbox.simulation.scenario import pick
    from sandbox.simulation.truth import TRUTH

    _make_room(out, force=force)
    picked = pick(scenario, name).sized(nodes)
    simulated = simulate(picked.model_copy(update={"site": site}) if site else picked, seed)
    write(out, simulated.capture)
    lines = (orjson.dumps(line) + b"\n" for line in simulated.truth.lines())
    with (out / TRUTH).open("wb") as file:
        file.writelines(lines)
    faults = sorted(Counter(fault.kind for fault in simulated.truth.faults).items())
    summary = {
        "record": "summary",
        "records": sum(map(len, simulated.capture.records.values())),
        "negative_samples": len(simulated.truth.look_alikes),
        "site": simulated.site,
        "out": str(out),
    }
    records = [*({"record": "faults", "kind": kind, "count": count} for kind, count in faults), summary]
    show(output, records, lambda: _show(faults, summary))


def _make_room(out: Path, *, force: bool) -> None:
    """Refuse a directory with something in it; with `force` delete a capture there: topics of it might be left among the new."""
    from shutil import rmtree

    from faultline.replay.capture import META, TOPOLOGY
    from faultline.replay.integrity import STATE

    if not out.exists() or not any(out.iterdir()):
        return
    if not (out / META).exists():
        raise BadInput(
            f"{out} is not empty, and what is in it is no capture of this format: name another directory"
        )
    if not force:
        raise BadInput(
            f"{out} holds a capture already: name another directory, or write over it with --force"
        )
    for path in (*out.glob("*.jsonl"), out / TOPOLOGY):
        path.unlink(missing_ok=True)
    rmtree(out / STATE, ignore_errors=True)


def _show(faults: Sequence[tuple[str, int]], summary: Mapping[str, object]) -> None:
    table(("fault", "count"), faults, empty="no faults injected")
    click.echo(
        "{records} records, {negative_samples} negative samples at a site like {site} in {out}".format(
            **summary
        )
    )
