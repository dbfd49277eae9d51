"""The files of `k8s/shippers` with the real programs and a real broker that goes away: nothing is lost, and in order."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streams.config.settings import KafkaSettings
from streams.kafka import provisioning
from streams.kafka.topics import RAW_FABRIC, RAW_METRICS, RAW_NODE_LOGS
from streams.model.kinds import SignalKind
from streams.model.signal import Signal
from tests.end_to_end.shipping import Arrived, arrived, as_shipped, number
from tests.end_to_end.test_real_shippers import exporter
from tests.streams.detect.process.test_detector_process import detecting, everything, signals
from tests.testbed import parts
from tests.testbed.children import Child, free_port
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.kafka]

DEBIAN = parts.part("rsyslog").folder
LIBRARIES = DEBIAN / "usr/lib/x86_64-linux-gnu"
RSYSLOG = """
global(workDirectory="{folder}/work")
module(load="{modules}/imuxsock" SysSock.Use="off")
input(type="imuxsock" Socket="{socket}" UseSpecialParser="on")
module(load="{modules}/imfile" mode="inotify")
input(type="imfile" file="{folder}/kern.log" tag="kernel:" facility="kern")
include(file="{folder}/etc/*.conf")
"""
XID = "NVRM: Xid (PCI:0000:{}:00): {}, pid=7, name=python3, GPU has fallen off the bus."


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[Kafka]:
    """A broker that these tests may take away."""
    with Kafka.running(tmp_path / "broker") as broker:
        yield broker


async def installation(kafka: Kafka) -> KafkaSettings:
    settings = kafka.settings("shipped", raw_partitions=4)
    await provisioning.apply(settings)
    return settings


class Rsyslog:
    """rsyslogd with both files that ship."""

    def __init__(self, folder: Path, kafka: Kafka, settings: KafkaSettings) -> None:
        for name in ("etc", "work"):
            (folder / name).mkdir()
        for name in ("60-faultline.conf", "70-faultline-switches.conf"):
            text = as_shipped(f"rsyslog/{name}", settings)
            for module in ("omkafka", "imptcp", "imudp"):
                text = text.replace(f'load="{module}"', f'load="{LIBRARIES}/rsyslog/{module}"')
            (folder / "etc" / name).write_text(text)
        self.kernel_log, self.socket, self.port = folder / "kern.log", folder / "log.sock", free_port()
        self.kernel_log.touch()
        self._folder = folder
        (folder / "rsyslog.conf").write_text(
            RSYSLOG.format(folder=folder, modules=LIBRARIES / "rsyslog", socket=self.socket)
        )
        self._env = {
            "LD_LIBRARY_PATH": str(LIBRARIES),
            "RSYSLOG_MODDIR": str(LIBRARIES / "rsyslog"),
            "KAFKA_BROKERS": kafka.bootstrap,
            "FAULTLINE_SYSLOG_PORT": str(self.port),
        }
        self.start()

    def start(self) -> None:
        command: list[str | Path] = [DEBIAN / "usr/sbin/rsyslogd", "-n", "-f", self._folder / "rsyslog.conf"]
        self.child = Child(
            "rsyslogd",
            [*command, "-i", self._folder / "pid"],
            log=self._folder / "rsyslogd.log",
            env=self._env,
        )

        def listens() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        self.child.wait_until(listens, "listens")


@contextmanager
def rsyslog(folder: Path, kafka: Kafka, settings: KafkaSettings) -> Iterator[Rsyslog]:
    shipper = Rsyslog(folder, kafka, settings)
    try:
        yield shipper
    finally:
        shipper.child.stop()


@pytest.mark.rsyslog
async def test_rsyslogs_files_tell_the_kernel_from_a_user_and_a_switch_from_a_node(
    kafka: Kafka, tmp_path: Path
) -> None:
    settings = await installation(kafka)
    with rsyslog(tmp_path, kafka, settings) as shipper:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as users:
            users.connect(str(shipper.socket))
            for priority in (0, 4, 14):
                users.send(f"<{priority}>Nov 27 11:13:13 kernel: {XID.format('3b', 79)}".encode())
            users.send(b"<30>Nov 27 11:13:13 kubelet[812]: seq=1")
        with shipper.kernel_log.open("a") as log:
            log.write(XID.format("86", 119) + "\n")
        with socket.create_connection(("127.0.0.1", shipper.port)) as switch:
            switch.sendall(
                b"<132>Nov 27 11:13:13 leaf-2 swss#orchagent: :- startWdActionOnQueue: PFC Watchdog detected PFC storm on port "
                b"Ethernet112, queue index 3, queue id 0x1500000000001a and port id 0x1000000000003.\n"
            )

        async def all_there() -> bool:
            there = [len(await everything(settings, topic)) for topic in (RAW_NODE_LOGS, RAW_FABRIC)]
            return there == [2, 1]

        await eventually(
            all_there, "the kernel's line, the daemon's and the switch's are there, and no other"
        )
        async with detecting(settings):

            async def both() -> list[Signal]:
                found = await signals(settings)
                return found if len(found) >= 2 else []

            found = await eventually(both, "they are read")
    by_kind = {signal.kind: signal for signal in found}
    assert set(by_kind) == {SignalKind.GPU_XID, "fabric.pfc_storm"}
    assert by_kind[SignalKind.GPU_XID].attributes["xid"] == 119
    assert by_kind[SignalKind("fabric.pfc_storm")].entity.switch == "leaf-2"


@pytest.mark.rsyslog
async def test_rsyslog_loses_nothing_when_the_broker_is_away_and_it_is_killed(
    own_kafka: Kafka, tmp_path: Path
) -> None:
    settings = await installation(own_kafka)
    folder = tmp_path / "rsyslog"
    folder.mkdir()
    with rsyslog(folder, own_kafka, settings) as shipper:
        number(shipper.kernel_log, range(500))

        async def so_many(count: int) -> Arrived | None:
            found = await arrived(settings, RAW_NODE_LOGS)
            return found if len(set(found.numbers)) >= count else None

        await eventually(lambda: so_many(500), "the first lines are there")
        own_kafka.stop()
        number(shipper.kernel_log, range(500, 3000))
        shipper.child.kill()
        shipper.start()
        number(shipper.kernel_log, range(3000, 4000))
        own_kafka.start()
        found = await eventually(lambda: so_many(4000), "every line is there")
    assert found is not None
    assert set(found.numbers) == set(range(4000))
    assert len(found.partitions) == 1


@pytest.mark.telegraf
async def test_telegraf_keeps_what_it_scrapes_while_the_broker_is_away(
    own_kafka: Kafka, tmp_path: Path
) -> None:
    settings = await installation(own_kafka)
    often = {
        'interval = "10s"': 'interval = "500ms"',
        '"3s"': '"0s"',
        '"2s"': '"500ms"',
        'flush_jitter = "1s"': 'flush_jitter = "0s"',
    }
    (tmp_path / "telegraf.conf").write_text(as_shipped("telegraf/telegraf.conf", settings, **often))
    (tmp_path / "state").mkdir()
    with exporter() as page:
        env = {
            "NODE_NAME": "gpu-a07",
            "STATE_DIRECTORY": str(tmp_path / "state"),
            "EXPORTERS": page.url,
            "KAFKA_BROKERS": own_kafka.bootstrap,
        }
        command: list[str | Path] = [parts.program("telegraf"), "--config", tmp_path / "telegraf.conf"]
        child = Child("telegraf", command, log=tmp_path / "telegraf.log", env=env)
        try:

            async def written(count: int) -> bool:
                return len(await everything(settings, RAW_METRICS)) >= count

            await eventually(lambda: written(2), "the page is scraped")
            own_kafka.stop()
            before = page.scrapes
            page.xid = 79

            async def scraped(count: int) -> bool:
                return page.scrapes >= count

            await eventually(lambda: scraped(before + 8), "it goes on to scrape")
            own_kafka.start()
            async with detecting(settings):

                async def told() -> list[Signal]:
                    return [s for s in await signals(settings) if s.kind == SignalKind.GPU_XID]

                found = await eventually(told, "the change is told")
        finally:
            child.stop()
    records = await everything(settings, RAW_METRICS)
    assert {record.key for record in records} == {b"gpu-a07"}
    assert len({record.partition for record in records}) == 1
    assert (found[0].entity.node, found[0].attributes["xid"]) == ("gpu-a07", 79)
