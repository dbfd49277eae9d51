"""The mission once, on the real thing: a log line becomes a cordoned node, a ticket, a thread and a resumed job."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.model.incident import IncidentState
from tests.end_to_end.installation import Installation
from tests.end_to_end.once import done_once
from tests.end_to_end.training import Training
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka
from tests.tiers import sample

pytestmark = [pytest.mark.kafka, pytest.mark.cluster]

AUTO = {"FAULTLINE_RESPONDER__MODE": "auto", "FAULTLINE_RESPONDER__BLAST_RADIUS__MAX_SHARE": "1"}


@pytest.mark.parametrize("kind", sample(["PyTorchJob", "Job"], "PyTorchJob"))
async def test_a_gpu_off_the_bus_ends_in_a_job_that_trains_on_other_nodes(
    kafka: Kafka, control_plane: ControlPlane, tmp_path: Path, kind: str
) -> None:
    async with (
        Installation.running(kafka, control_plane, tmp_path, **AUTO) as installation,
        Training.running(installation, control_plane, kind) as training,
    ):
        bad = list(training.before.values())[1]
        mark = control_plane.audit.mark()
        installation.start()
        await training.lose_gpu(bad)
        incident = await installation.incident_that(
            lambda i: i.family == "gpu_off_bus" and i.state is IncidentState.RESOLVED,
            "the job trains again",
            timeout_s=250,
        )
        assert incident.root.node == bad
        assert [str(job) for job in incident.jobs] == [training.name]
        await done_once(installation, training, incident, mark)
        writers = {
            w.user
            for w in control_plane.audit.writes(since=mark)
            if w.user.startswith("system:serviceaccount:faultline:")
        }
        assert writers == {"system:serviceaccount:faultline:responder"}
