"""A job is judged again where its evidence changed, and not for what happens elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams.correlate.cause_sources import jobs
from streams.correlate.job_rules.job_evidence import JobEvidence
from streams.correlate.job_rules.job_verdict import judge
from streams.correlate.job_rules.verdict import JobVerdict
from streams.correlate.policy.config import Config
from tests.streams.correlate.world import FOUR, World, cluster, cut_off, node_fact, not_ready, timeouts

SPARE = [f"s{i}" for i in range(20)]


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the jobs that are judged, in order."""
    names: list[str] = []

    def noted(evidence: JobEvidence, config: Config) -> JobVerdict:
        names.append(evidence.job.name)
        return judge(evidence, config)

    monkeypatch.setattr("streams.correlate.cause_sources.jobs.judge", noted)
    return names


def test_failing_connections_are_judged_again_only_where_their_ends_mean_something_else(
    judged: list[str],
) -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*cut_off("llama", range(8), 0, "10.0.0.9", "mlx5_0"))
    world.pass_to(60)
    judged.clear()
    world.engine._touched.jobs.add("PyTorchJob/train/llama")
    world.pass_to(61)
    assert judged == []
    world.tell(replace(node_fact("n3"), addresses=("10.0.0.9",)))
    world.pass_to(62)
    assert judged == ["llama"]


def test_what_other_nodes_share_is_no_reason_to_read_a_job_again(
    judged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(cluster({"llama": FOUR}, spare=SPARE))
    world.see(*timeouts("llama", range(24), 0))
    world.pass_to(60)
    read: list[str] = []
    evidence = jobs.JobCauses._evidence

    def noted(self: jobs.JobCauses, key: str) -> JobEvidence | None:
        read.append(key)
        return evidence(self, key)

    monkeypatch.setattr(jobs.JobCauses, "_evidence", noted)
    world.see(*(not_ready(node, 70 + i * 0.1) for i, node in enumerate(SPARE)))
    world.pass_to(75)
    world.pass_to(140)
    assert any(i.family == "nodes_not_ready" for i in world.incidents())
    assert read == []
    world.see(*(not_ready(node, 150) for node in FOUR))
    world.pass_to(155)
    assert "PyTorchJob/train/llama" in read
