"""Lines and metrics through real shippers and a real broker: what rsyslog and Telegraf send is read right."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from streams.kafka import clients
from streams.kafka.topics import RAW_FABRIC, RAW_METRICS, RAW_NODE_LOGS
from streams.model.signal import Signal, SignalState
from tests.streams.detect.lines import firm
from tests.streams.detect.process.test_detector_process import detecting, signals, with_topics
from tests.testbed.kafka import Kafka
from tests.testbed.shippers import Rsyslog, telegraf
from tests.testbed.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.kafka]

UUID = "GPU-5d2e0a61-77aa-4c55-9b8a-0f3d5c2b1e90"


@pytest.mark.rsyslog
async def test_what_rsyslog_relays_and_follows_is_read_with_its_host(kafka: Kafka, tmp_path: Path) -> None:
    settings = await with_topics(kafka)
    topic = clients.topic_name(settings, RAW_NODE_LOGS)
    async with detecting(settings) as process:
        with Rsyslog.running(kafka, topic, tmp_path) as rsyslog:
            rsyslog.send(
                [
                    "<4>Nov 21 07:13:13 gpu-a07 kernel: [ 812.441] NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, "
                    'name=python3, GPU has fallen off the bus. "quoted"\t\\',
                    "<134>1 2026-11-21T07:13:14.5+02:00 gpu-a08 kernel - - - NVRM: Xid (PCI:0000:5d:00): 48, "
                    "pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has been detected",
                    *(f"<14>Nov 21 07:13:13 gpu-a07 kubelet[{n}]: all is well" for n in range(200)),
                ]
            )
            rsyslog.append(
                ["NVRM: Xid (PCI:0000:86:00): 119, pid=7, name=nvidia-smi, Timeout after 6s of waiting"]
            )

            async def three() -> list[Signal]:
                found = await signals(settings)
                return found if len(found) >= 3 else []

            found = await eventually(three, "all three lines are read")
        counts = process.counts[RAW_NODE_LOGS.name]
    by_code = {signal.attributes["xid"]: signal for signal in found}
    assert set(by_code) == {79, 48, 119}
    assert (by_code[79].entity.node, by_code[79].attributes["pid"]) == ("gpu-a07", 4242)
    assert (by_code[48].entity.node, by_code[48].occurred_at.hour) == ("gpu-a08", 5)
    assert by_code[119].entity.node
    assert not counts.dead_letters
    assert counts.records == counts.signalling + counts.ignored


@pytest.mark.rsyslog
async def test_a_switch_that_logs_through_rsyslog_is_the_place_of_its_storm(
    kafka: Kafka, tmp_path: Path
) -> None:
    settings = await with_topics(kafka)
    topic = clients.topic_name(settings, RAW_FABRIC)
    async with detecting(settings):
        with Rsyslog.running(kafka, topic, tmp_path) as rsyslog:
            rsyslog.send(
                [
                    "<132>Nov 21 07:13:13 leaf-2 swss#orchagent: :- startWdActionOnQueue: PFC Watchdog detected PFC "
                    "storm on port Ethernet112, queue index 3, queue id 0x1500000000001a and port id 0x1000000000003.",
                ]
            )

            async def one() -> list[Signal]:
                return await signals(settings)

            (found,) = await eventually(one, "the storm is read")
    assert found.kind == "fabric.pfc_storm"
    assert (found.entity.switch, found.entity.port, found.attributes["queue"]) == ("leaf-2", "Ethernet112", 3)


@pytest.mark.telegraf
@pytest.mark.parametrize("metric_version", [1, 2])
@pytest.mark.parametrize("data_format", ["json", "influx"])
async def test_a_gauge_that_changes_is_seen_through_telegraf(
    kafka: Kafka, tmp_path: Path, data_format: str, metric_version: int
) -> None:
    settings = await with_topics(kafka)
    topic = clients.topic_name(settings, RAW_METRICS)
    async with detecting(settings) as process:
        with (
            exporter() as page,
            telegraf(
                kafka, topic, tmp_path, url=page.url, data_format=data_format, metric_version=metric_version
            ),
        ):

            async def scraped() -> bool:
                return page.scrapes >= 3 and process.counts[RAW_METRICS.name].records > 0

            await eventually(scraped, "the healthy gauge is scraped")
            page.xid = 79

            async def told() -> list[Signal]:
                return firm(await signals(settings))

            found = await eventually(told, "the change is told")
        assert not process.counts[RAW_METRICS.name].dead_letters
    # Telegraf spreads its records over the partitions, and each that has seen the healthy gauge tells of the change.
    assert {(s.kind, s.attributes["xid"], s.state, s.entity.node) for s in found} == {
        ("gpu.xid", 79, SignalState.FIRING, "gpu-a07")
    }
    gpus = {signal.entity.gpu for signal in found}
    assert {(gpu.pci, gpu.uuid) for gpu in gpus if gpu is not None} == {("0000:3b:00", UUID)}


class Page:
    """What a DCGM exporter of one GPU would show; `xid` is its gauge."""

    def __init__(self) -> None:
        self.xid = 0
        self.scrapes = 0
        self.url = ""

    def text(self) -> str:
        labels = f'gpu="0",UUID="{UUID}",pci_bus_id="00000000:3B:00.0",device="nvidia0",Hostname="gpu-a07"'
        return (
            "# HELP DCGM_FI_DEV_XID_ERRORS Value of the last XID error encountered.\n"
            "# TYPE DCGM_FI_DEV_XID_ERRORS gauge\n"
            f"DCGM_FI_DEV_XID_ERRORS{{{labels}}} {self.xid}\n"
            "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"
            f"DCGM_FI_DEV_GPU_TEMP{{{labels}}} 41\n"
        )


@contextmanager
def exporter() -> Iterator[Page]:
    """A page of metrics on loopback."""
    page = Page()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page.scrapes += 1
            body = page.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: a test's output is the test's."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    page.url = f"http://127.0.0.1:{server.server_address[1]}/metrics"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield page
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
