"""A site whose syslog writes full host names, in capitals, while Kubernetes has short ones: the fault is the node's anyway."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.kafka.topics import RAW_NODE_LOGS
from streams.model.incident import IncidentState
from tests.end_to_end import shippers
from tests.end_to_end.installation import Installation
from tests.end_to_end.once import done_once
from tests.end_to_end.test_off_bus import AUTO
from tests.end_to_end.training import Training
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka

pytestmark = [pytest.mark.nightly, pytest.mark.kafka, pytest.mark.cluster]


async def test_a_line_with_a_full_host_name_ends_in_a_job_that_trains_on_other_nodes(
    kafka: Kafka, control_plane: ControlPlane, tmp_path: Path
) -> None:
    async with (
        Installation.running(kafka, control_plane, tmp_path, **AUTO) as installation,
        Training.running(installation, control_plane, "PyTorchJob") as training,
    ):
        bad = list(training.before.values())[1]
        mark = control_plane.audit.mark()
        installation.start()
        await training.hang()
        await installation.send(RAW_NODE_LOGS, [shippers.off_bus(f"{bad.upper()}.example.internal")])
        await training.time_out()
        incident = await installation.incident_that(
            lambda i: i.family == "gpu_off_bus" and i.state is IncidentState.RESOLVED,
            "the job trains again",
            timeout_s=250,
        )
        assert incident.root.node == bad
        assert [str(job) for job in incident.jobs] == [training.name]
        await done_once(installation, training, incident, mark)
