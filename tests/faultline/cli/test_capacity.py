"""`faultline capacity`, of a capture."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from faultline.cli.main import cli
from tests.streams.inventory.objects import node, pod, pod_spec, pytorch_job


def capture(folder: Path) -> Path:
    meta = {"cluster": "c1", "from": "2026-03-01T12:00:00Z", "to": "2026-03-01T15:30:00Z", "format": 1}
    (folder / "meta.json").write_text(json.dumps(meta))
    shown = [
        node("gpu-01"),
        pytorch_job(),
        *(
            pod(
                f"w{i}",
                on="gpu-01" if i == 0 else None,
                phase="Pending",
                labels={"training.kubeflow.org/replica-type": "worker"},
                owners=[
                    {
                        "apiVersion": "kubeflow.org/v1",
                        "kind": "PyTorchJob",
                        "name": "train",
                        "controller": True,
                    }
                ],
                spec=pod_spec(8),
                creationTimestamp="2026-03-01T12:00:00Z",
            )
            for i in range(3)
        ),
    ]
    lines = [{"time": "2026-03-01T12:00:00Z", "type": "ADDED", "object": one} for one in shown]
    (folder / "kube-objects.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_what_waits_is_listed_with_how_long_it_has(tmp_path: Path) -> None:
    said = CliRunner().invoke(cli, ["capacity", "--capture", str(capture(tmp_path))])
    assert said.exit_code == 0, said.output
    waits = next(line.split() for line in said.output.splitlines() if line.startswith("team-a/train"))
    assert waits[1:7] == ["PyTorchJob", "training", "2", "of", "3", "pods"]
    assert " 16 " in said.output
    assert "3 h 30 min" in said.output


def test_it_is_told_as_json_too(tmp_path: Path) -> None:
    said = CliRunner().invoke(cli, ["capacity", "--capture", str(capture(tmp_path)), "-o", "json"])
    records = [json.loads(line) for line in said.output.splitlines()]
    assert [(r["record"], r.get("gpus")) for r in records] == [("waits", 16), ("pool", 8)]
