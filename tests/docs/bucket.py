"""A bucket with an archive, for blocks that name one: an object store on the loopback, found by the store's own variables."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from sandbox.fake_services.object_store import ObjectStoreStandin
from streams.model.clock import utc_now
from tests.faultline.archive.documents import CLUSTER, batch, node, pod, xid
from tests.faultline.archive.writing import archive_at, write

_ADDRESS = re.compile(r"s3://(\S+)")


def is_named(text: str) -> bool:
    """Whether a block names a bucket."""
    return _ADDRESS.search(text) is not None


def of_its_cluster(text: str) -> str:
    """The block, with the cluster that the archive is of for each line that names it."""
    lines = text.splitlines(keepends=True)
    return "".join(f"FAULTLINE_CLUSTER={CLUSTER} {line}" if is_named(line) else line for line in lines)


@asynccontextmanager
async def serving(text: str, folder: Path) -> AsyncIterator[dict[str, str]]:
    """Serve the buckets that a block names, each with an archive whose node `gpu-0007` has lost a GPU two hours ago; the
    variables by which clients find them."""
    fault_at = utc_now() - timedelta(hours=2, minutes=5)
    before = fault_at - timedelta(minutes=30)
    records = [
        node(0, "gpu-0007", at=before),
        pod(1, "llm-0", "gpu-0007", at=before),
        batch(0, xid(1, at=fault_at), at=fault_at),
    ]
    written = folder / ".archive"
    write(archive_at(written), records)
    files = {path.relative_to(written): path.read_bytes() for path in written.rglob("*.parquet")}
    async with ObjectStoreStandin() as store:
        for address in _ADDRESS.findall(text):
            store.objects |= {f"{address}/{path}": content for path, content in files.items()}
        yield {
            "AWS_ENDPOINT_URL": store.url,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "standin",
            "AWS_SECRET_ACCESS_KEY": "standin",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        assert any(request.method == "GET" for request in store.requests), "nobody has read the bucket"
