"""Real shippers as child processes: rsyslog with omkafka for log lines, Telegraf for metrics."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from tests.testbed import parts
from tests.testbed.children import Child, free_port
from tests.testbed.kafka import Kafka

_DEBIAN = parts.part("rsyslog").folder
_LIBRARIES = _DEBIAN / "usr/lib/x86_64-linux-gnu"

_RSYSLOG = """
global(workDirectory="{folder}")
module(load="{modules}/imtcp")
module(load="{modules}/imfile" pollingInterval="1")
module(load="{modules}/omkafka")
template(name="json" type="list" option.jsonf="on") {{
    property(outname="@timestamp" name="timereported" dateFormat="rfc3339" format="jsonf")
    property(outname="host" name="hostname" format="jsonf")
    property(outname="severity" name="syslogseverity-text" format="jsonf")
    property(outname="facility" name="syslogfacility-text" format="jsonf")
    property(outname="programname" name="programname" format="jsonf")
    property(outname="syslogtag" name="syslogtag" format="jsonf")
    property(outname="message" name="msg" format="jsonf")
}}
template(name="line" type="string" string="<%pri%>%timereported:::date-rfc3339% %hostname% %syslogtag%%msg%")
template(name="host" type="string" string="%hostname%")
input(type="imtcp" address="127.0.0.1" port="{port}" ruleset="relayed")
input(type="imfile" file="{kernel_log}" tag="kernel:" facility="kern" ruleset="own")
ruleset(name="relayed") {{
    action(type="omkafka" broker=["{bootstrap}"] topic="{topic}" template="json" key="host" dynaKey="on"
           confParam=["acks=all"] partitions.auto="on")
}}
ruleset(name="own") {{
    action(type="omkafka" broker=["{bootstrap}"] topic="{topic}" template="line" confParam=["acks=all"]
           partitions.auto="on")
}}
"""


class Rsyslog:
    """A running rsyslogd. What is sent to its port goes on as JSON, what is appended to `kernel_log` as plain lines."""

    def __init__(self, folder: Path) -> None:
        self.kernel_log = folder / "kern.log"
        self.port = free_port()

    def send(self, lines: Sequence[str]) -> None:
        """Hand it syslog lines over TCP, as switches and other hosts do."""
        with closing(socket.create_connection(("127.0.0.1", self.port))) as connection:
            connection.sendall("".join(f"{line}\n" for line in lines).encode())

    def append(self, lines: Sequence[str]) -> None:
        """Append lines to the kernel log that it follows."""
        with self.kernel_log.open("a") as log:
            log.writelines(f"{line}\n" for line in lines)

    @classmethod
    @contextmanager
    def running(cls, kafka: Kafka, topic: str, folder: Path) -> Iterator[Rsyslog]:
        """One that writes to `topic`, for the length of a `with` block."""
        shipper = cls(folder)
        shipper.kernel_log.touch()
        configuration = folder / "rsyslog.conf"
        configuration.write_text(
            _RSYSLOG.format(
                folder=folder,
                modules=_LIBRARIES / "rsyslog",
                port=shipper.port,
                kernel_log=shipper.kernel_log,
                bootstrap=kafka.bootstrap,
                topic=topic,
            )
        )
        command: list[str | Path] = [
            _DEBIAN / "usr/sbin/rsyslogd",
            "-n",
            "-f",
            configuration,
            "-i",
            folder / "rsyslogd.pid",
        ]
        environment = {"LD_LIBRARY_PATH": str(_LIBRARIES), "RSYSLOG_MODDIR": str(_LIBRARIES / "rsyslog")}
        child = Child("rsyslogd", command, log=folder / "rsyslogd.log", env=environment)
        try:
            child.wait_until(lambda: _listens(shipper.port), "listens")
            yield shipper
        finally:
            child.stop()


_TELEGRAF = """
[agent]
  interval = "500ms"
  flush_interval = "500ms"
  hostname = "collector-1"
[[inputs.prometheus]]
  urls = ["{url}"]
  metric_version = {metric_version}
[[outputs.kafka]]
  brokers = ["{bootstrap}"]
  topic = "{topic}"
  data_format = "{data_format}"
  {more}
"""


@contextmanager
def telegraf(
    kafka: Kafka, topic: str, folder: Path, *, url: str, data_format: str, metric_version: int
) -> Iterator[Child]:
    """Telegraf scraping `url` and writing to `topic` as `json` or `influx`, for the length of a `with` block."""
    more = 'json_timestamp_units = "1ms"' if data_format == "json" else ""
    name = f"telegraf-{data_format}-{metric_version}"
    configuration = folder / f"{name}.conf"
    configuration.write_text(
        _TELEGRAF.format(
            url=url,
            metric_version=metric_version,
            bootstrap=kafka.bootstrap,
            topic=topic,
            data_format=data_format,
            more=more,
        )
    )
    child = Child(
        name,
        [parts.program("telegraf"), "--config", configuration],
        log=folder / f"{name}.log",
    )
    try:
        yield child
    finally:
        child.stop()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
