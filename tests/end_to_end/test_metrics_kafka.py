"""What every process says of itself while a fault goes its way through a real broker to a real API server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics import parser

from faultline.runtime.processes import PROCESSES
from streams.telemetry import metrics as shown
from streams.telemetry.registry import Family
from tests.end_to_end.training import Training
from tests.end_to_end.watched import Watched
from tests.testbed.children import free_port
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.cluster, pytest.mark.nightly]

OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}
READERS = ("detector", "correlator", "responder", "chat", "gateway")


class Scraped(Watched):
    """An installation whose processes are asked."""

    async def scrape(self, process: str) -> Scrape:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.ports[process]}") as client:
            answer = await client.get("/metrics", headers=OPENMETRICS)
        assert answer.status_code == 200
        found: Iterable[Metric] = parser.text_string_to_metric_families(answer.text)  # type: ignore[no-untyped-call]
        return Scrape({family.name: family for family in found})

    async def live(self, process: str) -> tuple[int, str]:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.ports[process]}") as client:
            answer = await client.get("/live")
        return answer.status_code, answer.text


class Scrape:
    """One answer of one process."""

    def __init__(self, families: Mapping[str, Metric]) -> None:
        self._families = families

    def all(self, family: Family, suffix: str = "") -> dict[str, float]:
        """The values of all series, by their labels."""
        wanted = family.exposed + suffix
        samples = self._families["faultline_" + family.name].samples
        return {
            " ".join(f"{k}={v}" for k, v in sorted(sample.labels.items())): sample.value
            for sample in samples
            if sample.name == wanted
        }

    def total(self, family: Family, part: str = "", suffix: str = "") -> float:
        """The sum of the series with `part` in their labels."""
        return sum(value for labels, value in self.all(family, suffix).items() if part in labels)


async def test_a_fault_is_seen_in_the_metrics_of_every_process_and_then_all_are_idle(
    kafka: Kafka, control_plane: ControlPlane, tmp_path: Path
) -> None:
    auto = {
        "FAULTLINE_RESPONDER__MODE": "auto",
        "FAULTLINE_RESPONDER__BLAST_RADIUS__MAX_SHARE": "1",
        "FAULTLINE_GATEWAY__PORT": str(free_port()),
    }
    async with (
        Scraped.running(kafka, control_plane, tmp_path, **auto) as installation,
        Training.running(installation, control_plane, "Job") as training,
    ):
        bad = list(training.before.values())[1]
        installation.start(*(name for name in PROCESSES if name != "archive"))
        await training.lose_gpu(bad)

        async def cordoned() -> bool:
            try:
                scrape = await installation.scrape("responder")
            except httpx.HTTPError:  # not started yet
                return False
            return scrape.total(shown.EFFECTS, "action=cordon_node outcome=confirmed") == 1

        await eventually(cordoned, "the responder counts the cordon", timeout_s=120)

        detector = await installation.scrape("detector")
        assert detector.total(shown.SIGNALS, "kind=gpu.xid") >= 1
        assert detector.total(shown.SIGNAL_DELAY, suffix="_count") >= 1
        assert detector.total(shown.SHIPPER_LAST_RECORD, "raw.node-logs") > 1_700_000_000
        inventory = await installation.scrape("inventory")
        assert inventory.total(shown.INVENTORY_FACTS, "kind=node") >= 2
        correlator = await installation.scrape("correlator")
        assert correlator.total(shown.INCIDENTS_OPENED, "gpu_off_bus") == 1
        assert correlator.total(shown.INCIDENTS, "gpu_off_bus") == 1
        assert correlator.total(shown.INCIDENT_DELAY, "gpu_off_bus", "_count") == 1
        responder = await installation.scrape("responder")
        assert responder.all(shown.MODE) == {
            "mode=approve": 0, "mode=auto": 1, "mode=shadow": 0,
        }  # fmt: skip
        assert responder.total(shown.EFFECT_DELAY, "action=cordon_node", "_count") == 1
        assert responder.total(shown.FAULT_TO_EFFECT, suffix="_count") == 1
        assert responder.total(shown.CONNECTOR_CALLS, "outcome=done system=kubernetes") >= 1
        assert responder.total(shown.KILL_SWITCH) == responder.total(shown.BREAKER_OPEN) == 0

        async def told() -> bool:
            chat = await installation.scrape("chat")
            return chat.total(shown.CONNECTOR_CALLS, "outcome=done system=slack") >= 1

        await eventually(told, "the chat counts its thread")

        # The topics end with markers of transactions, which nobody ever processes: they must not look like lag.
        for process in READERS:

            async def idle(process: str = process) -> bool:
                scrape = await installation.scrape(process)
                if not scrape.all(shown.LAG_RECORDS):
                    return False
                assert scrape.total(shown.LAG_CHECKED) > 1_700_000_000
                # The job goes on printing, and time passes on `ticks`.
                quiet = (
                    "topic=runs",
                    "topic=timeline",
                    "topic=incidents",
                    "topic=commands",
                    "topic=controls",
                )
                lags = scrape.all(shown.LAG_RECORDS).items()
                return not any(lag for labels, lag in lags if labels.endswith(quiet))

            await eventually(idle, f"{process} has read everything", timeout_s=60)
            scrape = await installation.scrape(process)
            assert not any(scrape.all(shown.STUCK_SECONDS).values()), process
            assert scrape.total(shown.READY) == 1
            assert (await installation.live(process))[0] == 200
