"""Where Slurm's jobs run, as what polls `squeue` for metrics tells in tags."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from streams.detect import Detector
from streams.model.entity import JobRef
from tests.streams.detect.lines import record

TAGS = {"jobid": "4242", "name": "llm-70b", "nodelist": "gpu-[017-018]", "state": "RUNNING", "host": "mon-1"}


def metric(tags: dict[str, str], **fields: Any) -> dict[str, Any]:
    return {"name": "slurm_job", "tags": tags, "fields": fields, "timestamp": 1795245200}


@pytest.mark.parametrize(
    "tags",
    [
        TAGS,
        {**{k: v for k, v in TAGS.items() if k not in ("jobid", "nodelist")}, "job_id": "4242", "node_list": "gpu-[017-018]"},
        {"JobID": "4242", "JobName": "llm-70b", "NodeList": "gpu-[017-018]", "ST": "R"},
    ],
)  # fmt: skip
def test_a_job_in_tags_is_an_allocation(tags: dict[str, str]) -> None:
    found = Detector("c1").detect(record(orjson.dumps(metric(tags, nodes=2, gpus=16)), topic="raw.metrics"))
    (signal,) = found.signals
    assert (signal.kind, signal.entity.job) == ("job.allocation", JobRef("SlurmJob", "", "4242"))
    assert (signal.attributes["hosts"], signal.attributes["gpus"]) == ("gpu-[017-018]", 8)


@pytest.mark.parametrize(
    "tags", [{**TAGS, "state": "PENDING"}, {**TAGS, "jobid": "nightly"}, {"jobid": "4242", "host": "mon-1"}]
)
def test_what_waits_or_names_no_nodes_is_none(tags: dict[str, str]) -> None:
    assert not Detector("c1").detect(record(orjson.dumps(metric(tags, nodes=2)), topic="raw.metrics")).signals
