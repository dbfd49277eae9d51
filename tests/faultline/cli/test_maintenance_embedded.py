"""Planned work and a notice of a cloud through real processes: from the command or the taint to the node, and back."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from connectors.kubernetes.annotations import INCIDENT, annotations_of
from connectors.kubernetes.client import Object, path_of
from faultline.cli.commands.maintenance import rows
from faultline.cli.read_topics import read_incidents, read_runs_of
from faultline.cli.send_command import command_of, decide
from faultline.cli.send_options import SendOptions
from faultline.runtime.settings import Settings, load
from sandbox.demo import stack
from sandbox.demo.stack import Stack
from streams.model.clock import rfc3339, utc_now
from streams.model.conversation import TimelineEntry, Verb
from streams.model.incident import Incident
from streams.model.run import StepState
from tests.testbed.waiting import eventually

pytestmark = [pytest.mark.embedded, pytest.mark.nightly]


async def say(settings: Settings, verb: Verb, *nodes: str, **more: object) -> list[TimelineEntry]:
    """What the responder answers to a command of somebody who may approve."""
    options = SendOptions("new firmware", "ada", 20.0, "json")
    groups = settings.responder.approvers  # of a person whom Slack knows as one of them
    sent = command_of(verb, settings.cluster, options, nodes=nodes, groups=groups, via="slack", **more)  # type: ignore[arg-type]
    return await decide(settings.kafka, sent, options.wait_s)


async def node(running: Stack, name: str) -> Object:
    return await running.api.get(f"{path_of('v1', 'nodes')}/{name}")


async def free_and_busy(running: Stack) -> tuple[str, str]:
    pods = await running.api.list_all("/api/v1/pods")
    busy = {p["spec"].get("nodeName") for p in pods if p["metadata"]["namespace"] != "monitoring"}
    nodes = sorted(n["metadata"]["name"] for n in await running.api.list_all("/api/v1/nodes"))
    return next(n for n in nodes if n not in busy), next(n for n in nodes if n in busy)


async def test_a_node_is_closed_for_planned_work_and_a_taint_is_read_with_its_deadline(
    tmp_path: Path,
) -> None:
    async with stack.running(tmp_path) as running:
        settings = load(running.settings_file)
        free, busy = await free_and_busy(running)
        refused = await say(settings, Verb.MAINTENANCE, "no-such", until=utc_now() + timedelta(hours=1))
        assert [e.event for e in refused] == ["command.refused"]
        (answer,) = await say(settings, Verb.MAINTENANCE, free, until=utc_now() + timedelta(hours=1))
        assert f"planned work on {free} until" in answer.text

        async def closed() -> bool:
            return (await node(running, free))["spec"].get("unschedulable") is True

        await eventually(closed, f"{free} is closed")
        incidents = await read_incidents(running.kafka)
        (row,) = rows(incidents, {}, utc_now())
        assert (row["node"], row["by"], row["reason"]) == (free, "ada", "new firmware")
        assert annotations_of(await node(running, free))[INCIDENT] == row["incident"]

        due = utc_now() + timedelta(minutes=5)
        marked = {"metadata": {"annotations": {"faultline.dev/leaves-at": rfc3339(due)}}}
        await running.api.patch(f"{path_of('v1', 'nodes')}/{busy}", marked)

        async def announced() -> Incident | None:
            found = (await read_incidents(running.kafka)).values()
            return next((i for i in found if i.root.node == busy and i.family == "preemption"), None)

        notice = await eventually(announced, f"an incident on {busy}")
        assert abs(float(str(notice.facts["deadline_s"])) - due.timestamp()) <= 1
        assert notice.jobs

        async def moved() -> bool:
            runs = await read_runs_of(running.kafka, settings.cluster)
            mine = [r for r in runs if r.incident == notice.id]
            states = {p.action: r.step(p.id).state for r in mine for p in r.plan.steps}
            return states.get("resume_job") is StepState.DONE

        await eventually(moved, f"the job of {busy} is moved before it goes")
        assert (await node(running, busy))["spec"].get("unschedulable") is True

        (over,) = await say(settings, Verb.MAINTENANCE_STOP, free)
        assert "to be validated and given back" in over.text

        async def ended() -> bool:
            return not rows(await read_incidents(running.kafka), {}, utc_now())

        await eventually(ended, "the work is over")
        # Nothing validates nodes here, so nobody may say that it is sound: it stays closed.
        assert (await node(running, free))["spec"].get("unschedulable") is True
