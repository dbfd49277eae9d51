"""A server that answers less than every Kubernetes does is told of, and is no end of the check."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultline.checks.cluster_probe import probe_cluster
from faultline.runtime.settings import Settings
from sandbox.emulated import cluster

pytestmark = pytest.mark.embedded


async def test_a_server_that_knows_no_reviews_is_a_warning(tmp_path: Path) -> None:
    async with cluster.running(tmp_path) as emulated:
        settings = Settings(kubernetes={"kubeconfig": emulated.kubeconfig})
        told = await probe_cluster(settings, ("responder",))
    assert [finding.level for finding in told] == ["warning"]
    assert "404" in told[0].what or "not" in told[0].what.lower()
