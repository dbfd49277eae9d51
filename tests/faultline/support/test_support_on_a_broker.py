"""`faultline support` on a real broker: what is in the archive, and that no name of the cluster is."""

from __future__ import annotations

import asyncio
import json
import tarfile
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from faultline.cli.main import cli
from tests.runbooks.herd import fresh, prepared
from tests.runbooks.scenes import CLUSTER, cluster
from tests.testbed.kafka import Kafka

pytestmark = pytest.mark.kafka


def test_the_bundle_of_a_cluster_with_an_incident(kafka: Kafka, tmp_path: Path) -> None:
    about = fresh()
    settings = asyncio.run(prepared(kafka, about))
    file = tmp_path / "faultline.yaml"
    values = settings.model_dump(mode="json", exclude_unset=True)
    file.write_text(yaml.safe_dump({"cluster": CLUSTER, "kafka": values, "responder": {"lease_s": 4}}))
    node = next(iter(cluster().nodes))
    log = tmp_path / "responder.log"
    log.write_text(f'{{"event": "call", "target": "Node/{node}"}}\n')
    words = ["--config", str(file), "support", "--to", str(tmp_path), "--log", str(log), "-o", "json"]
    ran = CliRunner().invoke(cli, [*words, "--metrics", "http://127.0.0.1:1/metrics"])
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    with tarfile.open(told["bundle"]) as archive:
        texts = {
            member.name.partition("/")[2]: archive.extractfile(member).read().decode()  # type: ignore[union-attr]
            for member in archive.getmembers()
        }
    assert texts.keys() >= {
        "manifest.json", "versions.jsonl", "settings.jsonl", "doctor.jsonl", "lags.jsonl", "incidents.jsonl",
        "runs.jsonl", "controls.jsonl", "timeline.jsonl", "logs/1.log",
    }  # fmt: skip
    assert list(json.loads(texts["manifest.json"])["left_out"]) == ["metrics/1.txt"]
    (line,) = texts["incidents.jsonl"].splitlines()
    assert json.loads(line)["family"] == about.family
    whole = "".join(texts.values())
    assert not [name for name in cluster().nodes if name in whole]
