"""Run a shipper that is not part of the testbed with its file of `k8s/shippers`, and print what arrived.

`python -m tests.end_to_end.shippers_by_hand NAME PROGRAM`, where NAME is `otelcol` (a collector with the parts that its file
names: `otelcol.go` beside this file is one, built by `go mod init by-hand`, `go get` of the modules that it imports, all of one
release, and `go build -mod=mod`) or `syslog-ng` (Debian's syslog-ng-core and syslog-ng-mod-rdkafka, installed). Lines are
written, the broker goes away, the shipper is killed in the middle, both start again; then come a burst and odd lines. Takes two
minutes, and needs the testbed's Kafka.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from streams.config.settings import KafkaSettings
from streams.kafka import provisioning
from streams.kafka.topics import RAW_JOB_LOGS, RAW_NODE_LOGS, Topic
from tests.end_to_end.shipping import Arrived, arrived, as_shipped
from tests.testbed.children import Child
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

LINES = 12_000
BURST = range(20_000, 120_000)
POD = "research_llm-0_3f2a1b4c-0011-2233-4455-66778899aabb/trainer"


class Run:
    """One shipper that follows one file into one topic."""

    topic: Topic = RAW_NODE_LOGS
    file = "kern.log"
    prefix = ""

    def __init__(self, program: str, folder: Path, kafka: Kafka, settings: KafkaSettings) -> None:
        self.program, self.folder, self.kafka, self.settings = program, folder, kafka, settings
        self.log = folder / self.file
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.touch()

    def command(self) -> list[str | Path]:
        """The command that starts it; writes its configuration."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        """Its variables."""
        return {"KAFKA_BROKERS": self.kafka.bootstrap, "NODE_NAME": "gpu-a07"}

    def start(self) -> Child:
        return Child("shipper", self.command(), log=self.folder / "shipper.log", env=self.environment())

    def write(self, *texts: bytes) -> None:
        """Append lines as the program's source writes them."""
        with self.log.open("ab") as log:
            for text in texts:
                at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
                log.write(self.prefix.format(at=at).encode() + text + b"\n")

    def number(self, numbers: range) -> None:
        self.write(*(b"seq=%d filler" % n for n in numbers))

    async def until(self, count: int, what: str) -> Arrived:
        """Wait until so many numbers are there."""

        async def enough() -> Arrived | None:
            found = await arrived(self.settings, self.topic)
            return found if len(set(found.numbers)) >= count else None

        found = await eventually(enough, what)
        assert found is not None
        return found


class Collector(Run):
    """The OpenTelemetry Collector, with a pod's log."""

    topic = RAW_JOB_LOGS
    file = f"pods/{POD}/0.log"
    prefix = "{at} stdout F "

    def command(self) -> list[str | Path]:
        config = self.folder / "collector.yaml"
        config.write_text(as_shipped("otel-collector/collector.yaml", self.settings))
        (self.folder / "journal").mkdir(exist_ok=True)
        return [self.program, "--config", config]

    def environment(self) -> Mapping[str, str]:
        own = {"STATE_DIRECTORY": "state", "JOURNAL_DIRECTORY": "journal", "POD_LOGS": "pods"}
        return {**super().environment(), **{name: str(self.folder / path) for name, path in own.items()}}


class SyslogNg(Run):
    """syslog-ng, with a file of the kernel's."""

    def command(self) -> list[str | Path]:
        own = self.folder / "faultline.conf"
        own.write_text(
            as_shipped("syslog-ng/faultline.conf", self.settings, **{"/var/lib/syslog-ng": str(self.folder)})
        )
        config = self.folder / "syslog-ng.conf"
        config.write_text(
            "@version: 3.38\noptions { keep-hostname(yes); };\n"
            f'source s_src {{ file("{self.log}" program-override("kernel") default-facility(kern) flags(no-parse)); }};\n'
            f'@include "{own}"\n'
        )
        state: list[str | Path] = [
            "-R",
            self.folder / "persist",
            "-p",
            self.folder / "pid",
            "-c",
            self.folder / "control",
        ]
        return [self.program, "-F", "-e", "-f", config, *state]


async def main(name: str, program: str) -> int:
    """Play the story and print it; returns the number of lines lost."""
    with tempfile.TemporaryDirectory() as folder, Kafka.running(Path(folder, "broker")) as kafka:
        settings = kafka.settings("by-hand", raw_partitions=4)
        await provisioning.apply(settings)
        run = {"otelcol": Collector, "syslog-ng": SyslogNg}[name](program, Path(folder), kafka, settings)
        child = run.start()
        try:
            run.number(range(1000))
            await run.until(1000, "the first lines are there")
            kafka.stop()
            run.number(range(1000, 6000))
            child.kill()
            child = run.start()
            run.number(range(6000, LINES))
            kafka.start()
            try:
                found = await run.until(LINES, "every line is there")
            except TimeoutError:
                found = await arrived(settings, run.topic)
            lost = LINES - len(set(found.numbers))
            print(
                f"lost {lost}, twice {len(found.numbers) - len(found.firsts)}, out of order {found.out_of_order}"
            )
            print(f"partitions {sorted(found.partitions)}")
            began = time.monotonic()
            run.number(BURST)
            await run.until(LINES - lost + len(BURST), "the burst is there")
            print(f"burst of {len(BURST):,}: {time.monotonic() - began:.1f} s")
            odd = ("seq=200001 größe 漢字".encode(), b"seq=200002 \xff\xfe", b"seq=200003 " + b"x" * 65_536)
            run.write(*odd)
            await run.until(LINES - lost + len(BURST) + len(odd), "the odd lines are there")
            print("odd lines are there")
            return lost
        finally:
            child.stop()


if __name__ == "__main__":
    sys.exit(min(1, asyncio.run(main(*sys.argv[1:3]))))
