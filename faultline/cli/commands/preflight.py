"""`faultline preflight`: runs a session of diagnostics on idle nodes and says, per node and diagnostic, what it found."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultline.cli.groups import examples
from faultline.cli.main import EXIT_NO
from faultline.cli.output import output_option, record
from streams.model.errors import ConfigError

if TYPE_CHECKING:
    from connectors.kubernetes.work_preflight import Verdict
    from faultline.runtime.settings import Settings


@click.command(
    "preflight",
    epilog=examples(
        ("faultline preflight gpu-07 gpu-08", "two idle nodes"),
        ("faultline preflight --waiting --at-once 4", "all that wait for it"),
        exits="0 all passed, 1 one did not pass, 2 bad input, 3 the API server is unreachable",
    ),
)
@click.argument("nodes", nargs=-1)
@click.option(
    "--job", metavar="KIND/NAMESPACE/NAME", help="The nodes that this job's pods are or were on; needs Kafka."
)
@click.option("--waiting", is_flag=True, help="All nodes with the taint faultline.dev/preflight.")
@click.option(
    "--at-once", type=click.IntRange(1, 256), default=8, show_default=True, help="Nodes tested at once."
)
@output_option
@click.pass_obj
def command(
    config: Path | None, nodes: tuple[str, ...], job: str | None, waiting: bool, at_once: int, output: str
) -> None:
    """Run the diagnostics of `node_work.diagnostics` on NODES, which must be idle. Exit code 1 when one does not pass.

    It changes nothing but Jobs of its own, and with node_work.preflight_gate the taint of a node that passed.
    """
    from faultline.runtime.settings import load

    if not (nodes or job or waiting):
        raise click.UsageError("name nodes, --job or --waiting")
    if job is not None and job.count("/") != 2:
        raise click.UsageError(f"--job {job}: KIND/NAMESPACE/NAME, e.g. PyTorchJob/research/llm")
    settings = load(config)
    if settings.node_work.diagnostics is None:
        raise ConfigError("node_work.diagnostics: not set, and there is nothing to run")
    verdicts = asyncio.run(_run(settings, nodes, job, waiting, at_once, output))
    if not verdicts:
        click.echo("no nodes", err=True)
    if not all(verdict.passed for verdict in verdicts):
        raise SystemExit(EXIT_NO)


async def _run(
    settings: Settings, named: tuple[str, ...], job: str | None, waiting: bool, at_once: int, output: str
) -> list[Verdict]:
    from connectors.kubernetes.client import Cluster
    from connectors.kubernetes.node_work import diagnostics_of
    from connectors.kubernetes.work_preflight import Preflight
    from streams.inventory.node_work import node_work

    nodes = {*named, *(await _nodes_of(settings, job) if job else ())}
    work = settings.node_work
    marks = settings.inventory.maintenance_marks
    async with await Cluster.connect(settings.kubernetes) as cluster:
        preflight = Preflight(
            cluster,
            work.namespace,
            diagnostics_of(work),
            gate=work.preflight_gate,
            others=lambda node: node_work(node, marks),
        )
        if waiting:
            nodes |= set(await preflight.waiting())
        slots = asyncio.Semaphore(at_once)

        async def one(node: str) -> Verdict:
            async with slots:
                verdict = await preflight.run(node)
            _show(verdict, output)
            return verdict

        return list(await asyncio.gather(*(one(node) for node in sorted(nodes))))


async def _nodes_of(settings: Settings, job: str) -> set[str]:
    from faultline.cli.read_topics import read_facts
    from streams.model.facts import PodFact

    facts = (await read_facts(settings.kafka, settings.cluster)).values()
    pods = [
        fact for fact in facts if isinstance(fact, PodFact) and fact.job is not None and fact.job.key == job
    ]
    if not pods:
        raise click.UsageError(f"the inventory knows no pod of {job}")
    return {pod.node for pod in pods if pod.node}


def _show(verdict: Verdict, output: str) -> None:
    if output != "table":
        record(
            output,
            {
                "record": "preflight",
                "node": verdict.node,
                "passed": verdict.passed,
                "diagnostics": verdict.diagnostics,
                "reason": verdict.reason,
                "released": verdict.released,
            },
        )
        return
    end = "passed" + (", and open for pods" if verdict.released else "") if verdict.passed else "did not pass"
    click.echo(f"{verdict.node}  {end}")
    for line in (*verdict.diagnostics, *((verdict.reason,) if verdict.reason else ())):
        click.echo(f"    {line}")
