"""A running process and its files, on a real broker: it begins anew in place, and keeps what it has where new files are wrong."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
import yaml

from streams.kafka import provisioning
from tests.testbed.children import Child
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import until

pytestmark = pytest.mark.kafka

ASSIGNED = '"event": "partitions assigned"'


def test_a_detector_begins_anew_in_place_and_refuses_what_is_wrong(kafka: Kafka, tmp_path: Path) -> None:
    settings = kafka.settings("reload")
    asyncio.run(provisioning.apply(settings))
    file, log = tmp_path / "faultline.yaml", tmp_path / "detector.log"

    def write(**sections: object) -> None:
        values = settings.model_dump(mode="json", exclude_unset=True)
        text = yaml.safe_dump({"reload_s": 0.3, "log_format": "json", "kafka": values, **sections})
        new = tmp_path / ".new"
        new.write_text(text)
        os.replace(new, file)

    def said(what: str, count: int = 1) -> None:
        until(lambda: log.exists() and log.read_text().count(what) >= count, f"{what} {count}x", timeout_s=90)

    write()
    command = [sys.executable, "-m", "faultline", "--config", str(file), "run", "detector"]
    detector = Child("detector", command, log=log)
    try:
        said(ASSIGNED)
        write(detector={"poll_ms": 150})
        said("configuration loaded: beginning anew in place")
        said(ASSIGNED, 2)
        write(detector={"poll_ms": 150, "batch_records": "many"})
        said("configuration NOT loaded")
        assert log.read_text().count('"event": "starting"') == 2
        os.kill(detector.pid, 0)
        # What comes between the check and the new start is neither begun with nor the end of the process.
        write(detector={"poll_ms": 160})
        said("configuration loaded: beginning anew in place", 2)
        file.write_text("")
        said(ASSIGNED, 3)
        said("is empty")
        write(detector={"poll_ms": 170})
        said("configuration loaded: beginning anew in place", 3)
        write(detector={"poll_ms": "never"})
        said(ASSIGNED, 4)
        said("configuration NOT loaded", 3)
        os.kill(detector.pid, 0)
    finally:
        detector.stop()
    refused = [line for line in log.read_text().splitlines() if "configuration NOT loaded" in line]
    loaded = [line for line in log.read_text().splitlines() if "beginning anew in place" in line]
    assert [json.loads(line)["in_force"] for line in refused] == [
        json.loads(line)["version"] for line in loaded
    ]
    assert "batch_records" in log.read_text()
