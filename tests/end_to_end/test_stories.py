"""The other stories on a real control plane, one installation for all: who is closed, who is asked, who is left alone."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
import yaml

from sandbox.demo.shippers import sample, switch_line
from streams.kafka.topics import RAW_FABRIC, RAW_METRICS, RAW_NODE_LOGS
from streams.model.incident import Incident, IncidentState
from streams.model.run import Run, RunState
from tests.end_to_end import shippers
from tests.end_to_end.installation import ROOT, Installation
from tests.end_to_end.test_killed_responder import QUICK
from tests.end_to_end.training import PODS, Training
from tests.testbed.children import Child
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.cluster,
    pytest.mark.asyncio(loop_scope="module"),
]

SETTINGS = QUICK | {
    "FAULTLINE_RESPONDER__BLAST_RADIUS__MAX_NODES": "10",
    "FAULTLINE_RESPONDER__BLAST_RADIUS__MAX_PER_WINDOW": "50",
    "FAULTLINE_CORRELATOR__HANG_SETTLE_S": "3",
    "FAULTLINE_CORRELATOR__APPLICATION_SETTLE_S": "3",
    "FAULTLINE_CORRELATOR__NODE_SETTLE_S": "3",
}
SWITCH, PORT, NIC = "leaf-01", "Ethernet40", "mlx5_4"
MODE = "FAULTLINE_RESPONDER__MODE"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installation(
    kafka: Kafka, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installation]:
    folder = tmp_path_factory.mktemp("stories")
    cabling = folder / "cabling.yaml"
    cabling.write_text("{}")
    settings = SETTINGS | {"FAULTLINE_INVENTORY__TOPOLOGY_FILE": str(cabling)}
    async with Installation.running(kafka, control_plane, folder, **settings) as running:
        running.start()
        yield running


async def incident_of(
    installation: Installation,
    training: Training,
    family: str,
    *states: IncidentState,
    timeout_s: float = 150,
) -> Incident:
    """The incident of this family that concerns this training, once it is in one of the states."""

    def is_it(incident: Incident) -> bool:
        ours = training.name in map(str, incident.jobs) or incident.root.node in training.nodes
        return incident.family == family and ours and incident.state in states

    return await installation.incident_that(is_it, f"a {family} incident is {', '.join(states)}", timeout_s)


async def run_that_is(installation: Installation, incident: Incident, state: RunState) -> Run:
    async def found() -> Run | None:
        return next((run for run in await installation.runs(incident) if run.state is state), None)

    return await eventually(found, f"a run is {state}")


def said(installation: Installation, incident: Incident) -> tuple[int, int]:
    """How many tickets and root messages carry the incident's id."""
    issues = [i for i in installation.jira.issues if incident.id in str(i.fields)]
    roots = [r for r in installation.slack.roots() if incident.id in str((r.metadata, r.text, r.lines))]
    return len(issues), len(roots)


async def is_told_once(installation: Installation, incident: Incident) -> None:
    async def told() -> bool:
        installation.revive()
        return all(said(installation, incident))

    await eventually(told, "there are a ticket and a thread")
    assert said(installation, incident) == (1, 1)


async def test_a_node_that_falls_silent_is_closed_and_its_job_trains_elsewhere(
    installation: Installation, control_plane: ControlPlane
) -> None:
    async with Training.running(installation, control_plane, grace_s=2) as training:
        silent = list(training.before.values())[1]
        mark = control_plane.audit.mark()
        await training.hang()
        control_plane.silence(silent)
        await training.time_out(silent)
        # The machine never comes back: its pod would hang in Terminating for ever, and the run lets go of it.
        incident = await incident_of(
            installation, training, "silent_node", IncidentState.RESOLVED, timeout_s=250
        )
        assert incident.root.node == silent
        after = training.placed()
        assert len(after) == PODS
        assert silent not in after.values()
        assert training.closed() == [silent]
        assert training.switched(mark) == [True, False]
        await is_told_once(installation, incident)


@pytest.mark.nightly
async def test_the_host_that_storms_is_closed_and_its_victims_are_left_alone(
    installation: Installation, control_plane: ControlPlane
) -> None:
    async with AsyncExitStack() as stack:
        source, victim = [
            await stack.enter_async_context(Training.running(installation, control_plane)) for _ in range(2)
        ]
        bad = list(source.before.values())[2]
        cabling = {SWITCH: {PORT: {"node": bad, "nic": NIC}}}
        (installation.folder / "cabling.yaml").write_text(yaml.safe_dump(cabling))
        await installation.restart("inventory")
        mark = control_plane.audit.mark()
        await source.hang()
        begin = datetime.now(UTC)
        port = f"on port {PORT}, queue index 3, queue id 0x150000000005bb and port id 0x1000000000003"
        storm = f"startWdActionOnQueue: PFC Watchdog detected PFC storm {port}"
        line = switch_line(SWITCH, storm, begin)
        await installation.send(RAW_FABRIC, [line.value], key=SWITCH)
        # By their hosts, as an agent keys them: a rule of several intervals is judged within one partition.
        for tick in range(4):
            at = begin + timedelta(seconds=tick)
            await installation.send(RAW_METRICS, [_pause("transmitted", bad, tick, at)], key=bad)
            for node in victim.before.values():
                await installation.send(RAW_METRICS, [_pause("received", node, tick, at)], key=node)
        incident = await incident_of(installation, source, "pfc_storm", IncidentState.RESOLVED, timeout_s=250)
        assert (incident.root.node, incident.root.nic) == (bad, NIC)
        assert source.closed() == [bad]
        assert source.switched(mark) == [True, False]
        assert bad not in source.placed().values()
        assert (victim.closed(), victim.touched(mark)) == ([], [])
        await is_told_once(installation, incident)


def _pause(way: str, node: str, tick: int, at: datetime) -> bytes:
    """A scrape of a counter that says: paused for 98 % of the last second."""
    labels = {"device": NIC, "instance": f"{node}:9100", "job": "node-exporter"}
    name = f"node_ethtool_{way}_prio3_pause_duration"
    return sample(name, 4e6 + tick * 980_000.0, labels, at).value


@pytest.mark.nightly
async def test_the_same_xid_on_all_nodes_of_a_job_closes_none_and_leaves_the_job_alone(
    installation: Installation, control_plane: ControlPlane
) -> None:
    async with Training.running(installation, control_plane, "PyTorchJob", nodes=4) as training:
        mark = control_plane.audit.mark()
        await installation.send(
            RAW_NODE_LOGS, [shippers.mmu_fault(node) for node in training.before.values()]
        )
        incident = await incident_of(installation, training, "application", IncidentState.AWAITING_HUMAN)
        await is_told_once(installation, incident)
        assert incident.root.node is None
        assert (training.closed(), training.touched(mark)) == ([], [])
        assert training.placed() == training.before


async def test_what_waits_for_approval_goes_on_when_a_person_approves_it(
    installation: Installation, control_plane: ControlPlane
) -> None:
    await installation.restart("responder", **{MODE: "approve"})
    async with Training.running(installation, control_plane) as training:
        bad, mark = await _loses_gpu(training)
        incident = await incident_of(installation, training, "gpu_off_bus", IncidentState.AWAITING_HUMAN)
        await run_that_is(installation, incident, RunState.AWAITING_APPROVAL)
        assert (training.closed(), training.touched(mark)) == ([], [])
        await _decide(installation, "approve", incident)
        await _until_over(installation, incident, training)
        assert training.closed() == [bad]
        assert training.switched(mark) == [True, False]
        assert bad not in training.placed().values()


@pytest.mark.nightly
async def test_what_a_person_rejects_touches_nothing(
    installation: Installation, control_plane: ControlPlane
) -> None:
    await installation.restart("responder", **{MODE: "approve"})
    async with Training.running(installation, control_plane) as training:
        _, mark = await _loses_gpu(training)
        incident = await incident_of(installation, training, "gpu_off_bus", IncidentState.AWAITING_HUMAN)
        await run_that_is(installation, incident, RunState.AWAITING_APPROVAL)
        await _decide(installation, "reject", incident)
        await run_that_is(installation, incident, RunState.CANCELLED)
        assert (training.closed(), training.writes(mark)) == ([], [])
        assert training.placed() == training.before


async def test_in_shadow_nothing_is_touched_and_no_ticket_is_opened(
    installation: Installation, control_plane: ControlPlane
) -> None:
    await installation.restart("responder", **{MODE: "shadow"})
    async with Training.running(installation, control_plane) as training:
        _, mark = await _loses_gpu(training)
        incident = await incident_of(installation, training, "gpu_off_bus", IncidentState.OPEN)
        run = await run_that_is(installation, incident, RunState.SHADOWED)
        assert {record.verdict for record in run.steps} == {"would"}
        assert training.writes(mark) == []
        assert said(installation, incident)[0] == 0
        assert training.placed() == training.before


async def _loses_gpu(training: Training) -> tuple[str, int]:
    bad = next(iter(training.before.values()))
    mark = training.control_plane.audit.mark()
    await training.lose_gpu(bad)
    return bad, mark


async def _until_over(installation: Installation, incident: Incident, training: Training) -> None:
    """Approve every step that asks: in this mode each destructive step may ask for itself."""
    await incident_of(installation, training, "gpu_off_bus", IncidentState.RESOLVED)
    await run_that_is(installation, incident, RunState.SUCCEEDED)


async def _decide(installation: Installation, verb: str, incident: Incident) -> None:
    """`faultline incidents VERB ID` as a person types it."""
    command = [sys.executable, "-m", "faultline", "incidents", verb, incident.id, "--as", "ada"]
    child = Child(
        verb,
        command,
        log=installation.folder / "logs" / f"{verb}.log",
        env=installation.environment("cli"),
        cwd=ROOT,
    )
    assert await asyncio.to_thread(child.wait, 120) == 0, child.tail()
