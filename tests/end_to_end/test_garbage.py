"""Garbage on every raw topic of a whole installation: each record is accounted for, and the next incident is handled."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.kafka.dead_letters import why_buried
from streams.kafka.topics import DEAD_LETTERS, RAW
from streams.model.conversation import DeadLetter
from streams.model.incident import IncidentState
from tests.end_to_end.installation import Installation
from tests.end_to_end.once import done_once
from tests.end_to_end.test_killed_responder import QUICK
from tests.end_to_end.training import Training
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.kafka, pytest.mark.cluster]

XID = b"NVRM: Xid (PCI:0000:3b:00): 45"
"""Of what is cut the rest is read: so it is a code that is nobody's fault."""
BLANK = (b"", b"\x00\xff\xfe" * 50, b"[" * 200_000, b'{"log": "\xff\xfe all is well"}')
"""Nothing in them speaks of a fault: they are counted and left."""
DAMAGED = (
    b'{"log": "' + XID + b", pid=4242, name=pyth",
    b'{"x":' * 3000 + b'"' + XID + b'"' + b"}" * 3000,
    b'{"log": "' + b"x" * 5_000_000 + XID + b'"}',
)
"""Somebody wanted to say something with these: they must be found in the dead letters."""


async def test_garbage_ends_no_process_and_the_next_incident_is_handled(
    kafka: Kafka, control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with (
        Installation.running(kafka, control_plane, tmp_path, **QUICK) as installation,
        Training.running(installation, control_plane, "PyTorchJob") as training,
    ):
        mark = control_plane.audit.mark()
        installation.start()
        pids = installation.pids()
        for topic in RAW:
            await installation.send(topic, [*BLANK, *DAMAGED], key="gpu-1")

        async def buried() -> bool:
            installation.revive()
            return len(await _letters(installation)) >= len(DAMAGED) * len(RAW)

        await eventually(buried, "what is damaged is in the dead letters", timeout_s=150)
        await training.lose_gpu(list(training.before.values())[3])
        incident = await installation.incident_that(
            lambda i: i.family == "gpu_off_bus" and i.state is IncidentState.RESOLVED,
            "the job trains again",
            timeout_s=150,
        )
        await done_once(installation, training, incident, mark)
        letters = await _letters(installation)
        by_topic = {topic.name: sum(name == topic.name for name, _, _ in letters) for topic in RAW}
        assert by_topic == {topic.name: len(DAMAGED) for topic in RAW}
        assert all(letter.reason for letter in letters.values())
        assert installation.pids() == pids


async def _letters(installation: Installation) -> dict[tuple[str, int, int], DeadLetter]:
    """What is buried, by where it lay: a detector that the group took for dead buries the same record once more."""
    records = await installation.records(DEAD_LETTERS)
    letters = [why_buried(record.headers) for record in records]
    return {(letter.topic, letter.partition, letter.offset): letter for letter in letters}
