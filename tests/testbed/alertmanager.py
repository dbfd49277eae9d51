"""A real Alertmanager in a folder of its own: no peers, no receivers, silences in memory and on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.testbed import parts
from tests.testbed.children import Child, free_port
from tests.testbed.programs import answers
from tests.testbed.waiting import until

CONFIG = "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n"


@contextmanager
def alertmanager(folder: Path) -> Iterator[str]:
    """Run one, ready; yields its address."""
    (folder / "alertmanager.yml").write_text(CONFIG)
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        str(parts.program("alertmanager")),
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--cluster.listen-address=",
    ]
    child = Child("alertmanager", command, log=folder / "alertmanager.log")
    try:
        until(lambda: answers(f"{url}/-/ready"), "Alertmanager is ready")
        yield url
    finally:
        child.kill()
