"""A real Prometheus in a folder of its own: it scrapes what it is told to, evaluates rules, and is asked over its HTTP API."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.testbed import parts
from tests.testbed.children import Child, free_port
from tests.testbed.programs import answers

EVERY_S = 1
"""Between two scrapes, and between two evaluations of a group that names no interval of its own."""


class Prometheus:
    """One that runs, asked over the API of version 1."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def query(self, expr: str) -> list[dict[str, Any]]:
        """The series of an instant query, without those whose value is not a number.

        Raises:
            AssertionError: when Prometheus refuses the query; it says why.
        """
        found = await self._asked("query", query=expr)
        return [series for series in found["result"] if not math.isnan(float(series["value"][1]))]

    async def rules(self) -> list[dict[str, Any]]:
        """Every rule with its `health`, `lastError` and, for an alert, its `state`."""
        found = await self._asked("rules")
        return [rule for group in found["groups"] for rule in group["rules"]]

    async def _asked(self, path: str, **parameters: str) -> Any:
        answer = (await self._client.get(f"/api/v1/{path}", params=parameters)).json()
        assert answer["status"] == "success", f"{parameters}: {answer.get('error')}"
        return answer["data"]


@asynccontextmanager
async def prometheus(
    folder: Path, jobs: Sequence[Mapping[str, Any]], groups: Sequence[Mapping[str, Any]]
) -> AsyncIterator[Prometheus]:
    """Run one with these scrape configs and groups of rules, ready."""
    _configure(folder, jobs, groups)
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        str(parts.part("prometheus").folder / "usr/bin/prometheus"),
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}",
    ]
    child = Child("prometheus", command, log=folder / "prometheus.log")
    try:
        child.wait_until(lambda: answers(f"{url}/-/ready"))
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
            yield Prometheus(client)
    finally:
        child.kill()


def _configure(folder: Path, jobs: Sequence[Mapping[str, Any]], groups: Sequence[Mapping[str, Any]]) -> None:
    folder.mkdir(parents=True)
    intervals = {"scrape_interval": f"{EVERY_S}s", "evaluation_interval": f"{EVERY_S}s"}
    config = {"global": intervals, "rule_files": ["rules.yaml"], "scrape_configs": list(jobs)}
    # JSON is YAML.
    (folder / "prometheus.yaml").write_text(json.dumps(config))
    (folder / "rules.yaml").write_text(json.dumps({"groups": list(groups)}))
