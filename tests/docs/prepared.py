"""An installation that holds what a block speaks of: an incident by the name that the block has for it, a node that was closed
for one, a freeze that somebody set before. Its people may do what pages show."""

from __future__ import annotations

import asyncio
import getpass
import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from faultline.cli.incident_documents import cluster_of_capture
from faultline.cli.read_topics import read_control, read_incidents, read_raw, read_runs
from faultline.cli.send_command import command_of, decide, is_refusal
from faultline.cli.send_options import SendOptions
from faultline.runtime.settings import Settings, load
from runbooks.engine.maintenance import works
from sandbox.demo import stack
from sandbox.demo.stack import Stack
from streams.kafka import clients
from streams.kafka.topics import COMMANDS, INCIDENTS, partition_of
from streams.model.clock import rfc3339, utc_now
from streams.model.codec import decode, encode
from streams.model.conversation import Command, Verb
from streams.model.entity import Gpu
from streams.model.incident import Incident, IncidentState
from streams.model.run import StepState
from tests.docs import bucket
from tests.docs.checkout import EXAMPLE, checkout, run
from tests.docs.pages import Block, calls_of
from tests.testbed.waiting import eventually

_NODE = re.compile(r"\b(?:gpu-0?07|gpu-017)\b")
"""The node that pages speak of."""
_RUN = re.compile(r"\brun-[0-9a-f]+\b")
_INCIDENT = re.compile(r"\binc-[0-9a-f]+\b")
_CAPTURE = re.compile(r"--capture (\S+)")
_ANY = "inc-"
"""Stands for an incident that a block needs and does not name."""
_HOURS = {"2026-03-01T06:00:00Z": 24, "2026-03-02T03:00:00Z": -1, "2026-03-02T05:00:00Z": 0}
"""Times that pages name, and how many hours from now they stand for."""
_WAIT_S = 30.0
_WORK = timedelta(hours=4)
_OF_ITS_INCIDENT = frozenset(
    {Verb.ACK, Verb.NOTE, Verb.SILENCE, Verb.SNOOZE, Verb.REJECT, Verb.STOP, Verb.HAND_OVER, Verb.RESOLVE}
)
"""Commands that change nothing but their incident, and every block has incidents of its own."""


@dataclass(slots=True)
class Prepared:
    """The installation, and the checkouts from which somebody works with it."""

    running: Stack
    folder: Path
    settings: Settings
    like: Incident
    free: list[str]
    """Nodes that nothing runs on, and that no line had for itself yet."""
    opened: dict[str, Incident] = field(default_factory=dict)
    """Incidents that were prepared and are not over, by id."""
    count: int = 0
    """How many were prepared at all."""

    @classmethod
    @asynccontextmanager
    async def installation(cls, folder: Path) -> AsyncIterator[Prepared]:
        """Everything as processes of their own, on servers of our own, in mode `approve`."""
        (like,) = cluster_of_capture(Settings(cluster="west"), EXAMPLE).incidents.values()
        (folder / "servers").mkdir()
        (folder / "checkouts").mkdir()
        changes: dict[str, Any] = {"mode": "approve", "approvers": [getpass.getuser()]}
        async with stack.running(folder / "servers", **changes) as running:
            pods = await running.api.list_all("/api/v1/pods")
            busy = {
                pod["spec"].get("nodeName") for pod in pods if pod["metadata"]["namespace"] != "monitoring"
            }
            nodes = [node["metadata"]["name"] for node in await running.api.list_all("/api/v1/nodes")]
            free = sorted(set(nodes) - busy)
            yield cls(running, folder / "checkouts", load(running.settings_file), like, free)

    async def run(self, block: Block) -> None:
        """Prepare what the block speaks of, and run it in a shell, in a checkout of its own."""
        folder = self.folder / _digest(block.place)
        folder.mkdir()
        checkout(folder)
        async with AsyncExitStack() as services:
            text = await self._named(block, folder)
            await self._set_before(text)
            environment = {"FAULTLINE_CONFIG": str(self.running.settings_file)}
            if bucket.is_named(text):
                environment |= await services.enter_async_context(bucket.serving(text, folder))
                text = bucket.of_its_cluster(text)
            await asyncio.to_thread(run, replace(block, text=text), folder, **environment)

    async def is_as_before(self) -> bool:
        """Close what was opened for blocks; whether nothing else was changed in this installation, by them or for them."""
        sent = (await read_raw(self.settings.kafka, COMMANDS, cluster=self.settings.cluster))[COMMANDS.name]
        commands = [decode(Command, record.value) for record in sent if record.value is not None]
        if any(command.verb not in _OF_ITS_INCIDENT for command in commands):
            return False
        for incident in list(self.opened.values()):
            await self._close(incident)
        return True

    async def _named(self, block: Block, folder: Path) -> str:
        """The block with the names of what was prepared for it. Each has incidents of its own: what is decided is decided."""
        text = block.text
        for told, hours in _HOURS.items():
            text = text.replace(told, rfc3339(utc_now() + timedelta(hours=hours)))
        run_id, names = "", dict[str, str]()
        for name in _spoken_of(text):
            incident = await self._open(name, block.place, self.free[-1])
            # A block about runs follows them to their end: also those of the incidents that it names.
            if _RUN.search(text):
                run_id = await self._over(incident)
            names[name] = incident.id[:-2]
        lines = []
        for number, line in enumerate(text.splitlines(keepends=True)):
            if "nodes release" in line:
                line = await self._released(line, f"{block.place} {number}")
            elif (capture := _CAPTURE.search(line)) is None:
                line = _NODE.sub(self.free[-1], _INCIDENT.sub(lambda found: names[found[0]], line))
            else:  # which has nodes and incidents of its own
                line = _INCIDENT.sub(_ANY, line)
                if _RUN.search(line):
                    await self._capture(capture[1], folder)
            lines.append(_RUN.sub(run_id[:-2], line))
        return "".join(lines)

    async def _released(self, line: str, place: str) -> str:
        """A line that gives back a node, with a node of its own: held for one incident, or for two where it says for which."""
        node, names = self.free.pop(0), dict[str, str]()
        for name in [*_INCIDENT.findall(line), _ANY]:
            incident = await self._open(name, place, node)
            await self._over(incident)
            names[name] = incident.id[:-2]
        return _NODE.sub(node, _INCIDENT.sub(lambda found: names[found[0]], line))

    async def _open(self, name: str, place: str, node: str) -> Incident:
        """An incident of a GPU whose id begins with `name`, and a run for it that waits for an approval."""
        incident = await self._publish(name, place, node)

        async def asked() -> bool:
            runs = await read_runs(self.settings.kafka, incident)
            return any(step.state is StepState.AWAITING_APPROVAL for one in runs for step in one.steps)

        await eventually(asked, f"{incident.id} waits for an approval")
        return incident

    async def _publish(self, name: str, place: str, node: str) -> Incident:
        """An incident of a GPU, as the correlator would publish it."""
        now, cluster, like = utc_now(), self.settings.cluster, self.like
        self.count += 1
        # A GPU that failed before gets another runbook than one that fails for the first time.
        root = replace(like.root, cluster=cluster, node=node, gpu=Gpu(f"{self.count:04x}:1b:00"))
        incident = replace(
            like, id=f"{name}{_digest(place)}"[:20], cluster=cluster, root=root, nodes=(node,), jobs=(),
            state=IncidentState.OPEN, fault_at=now, opened_at=now, updated_at=now, evident_at=now, evident_read_at=now,
            candidates=(),
        )  # fmt: skip
        await self._write(incident)
        self.opened[incident.id] = incident
        return incident

    async def _over(self, incident: Incident) -> str:
        """Approve what is planned for it, until its run has ended and the node is closed for it; the run's id."""
        (waiting,) = await read_runs(self.settings.kafka, incident)
        await self._command(Verb.APPROVE, incident=incident.id, digest=waiting.plan.digest)
        await self._has_ended(incident)
        return waiting.id

    async def _close(self, incident: Incident) -> None:
        """The incident is over, and so is what was planned for it."""
        now, revision = utc_now(), incident.revision + 1
        state = IncidentState.RESOLVED
        await self._write(replace(incident, state=state, closed_at=now, updated_at=now, revision=revision))
        await self._has_ended(incident)
        del self.opened[incident.id]

    async def _has_ended(self, incident: Incident) -> None:
        async def over() -> bool:
            return all(one.state.is_over for one in await read_runs(self.settings.kafka, incident))

        await eventually(over, f"the run of {incident.id} has ended")

    async def _capture(self, name: str, folder: Path) -> None:
        """A capture of this installation, for a block that looks up a run in one."""
        block = Block(f"capture {name}", "sh", f"faultline capture {name} --from 1h\n")
        await asyncio.to_thread(run, block, folder, FAULTLINE_CONFIG=str(self.running.settings_file))

    async def _set_before(self, text: str) -> None:
        """What was set before the block began, for its commands that take it back."""
        for program, *words in calls_of(text):
            match [program, *words]:
                case ["faultline", "guard", "unkill", *_]:
                    await self._command(Verb.KILL)
                case ["faultline", "guard", "thaw", *options]:
                    await self._command(Verb.FREEZE, scope=_option(options, "--scope"))
                case ["faultline", "guard", "reset", *_]:
                    await self._trip_the_breaker()
                case ["faultline", "rollout", "lift", pool, *_]:
                    await self._command(Verb.OBSERVE, scope=f"pool:{pool}")
                case ["faultline", "maintenance", "stop", "--all", *_]:
                    await self._work(self.free[0])
                case ["faultline", "maintenance", "stop", node, *_]:
                    await self._work(node)

    async def _trip_the_breaker(self) -> None:
        """As many nodes fail at once as no cluster has failing nodes, and nothing is done about any of them."""
        for number in range(1, self.settings.responder.breaker.mass_min_nodes + 1):
            node = f"gpu-{number:02}"
            await self._publish(_ANY, f"breaker {node}", node)

        async def tripped() -> bool:
            control = await read_control(self.settings.kafka, self.settings.cluster)
            return control.breaker is not None

        await eventually(tripped, "the breaker trips")

    async def _work(self, node: str) -> None:
        """Planned work on a node, with its plan."""
        await self._command(Verb.MAINTENANCE, nodes=(node,), until=utc_now() + _WORK)

        async def planned() -> bool:
            incident = works((await read_incidents(self.settings.kafka)).values()).get(node)
            return incident is not None and bool(await read_runs(self.settings.kafka, incident))

        await eventually(planned, f"{node} is under planned work")

    async def _command(self, verb: Verb, *, incident: str = "", **more: Any) -> None:
        """Have the responder do something, as whoever runs the blocks."""
        options = SendOptions("before the block", None, _WAIT_S, "json")
        sent = command_of(verb, self.settings.cluster, options, incident=incident, **more)
        answers = await decide(self.settings.kafka, sent, options.wait_s)
        assert answers, f"no answer to {verb}"
        assert not all(map(is_refusal, answers)), answers

    async def _write(self, incident: Incident) -> None:
        kafka = self.settings.kafka
        producer = await clients.started(clients.producer(kafka), kafka)
        try:
            await producer.send_and_wait(
                clients.topic_name(kafka, INCIDENTS), encode(incident), key=incident.id.encode(),
                partition=partition_of(self.settings.cluster, kafka.cluster_partitions),
            )  # fmt: skip
        finally:
            await producer.stop()


def _spoken_of(text: str) -> list[str]:
    """The incidents that a block needs from its beginning: those it names, but not of a capture, and one for a run it names."""
    lines = [line for line in text.splitlines() if "nodes release" not in line]
    named = {name for line in lines if "--capture" not in line for name in _INCIDENT.findall(line)}
    return sorted(named | ({_ANY} if any(map(_RUN.search, lines)) else set()))


def _option(words: Sequence[str], name: str) -> str:
    return words[words.index(name) + 1] if name in words else ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]
