"""An installation whose processes answer probes and scrapes."""

from __future__ import annotations

from tests.end_to_end.installation import Installation
from tests.testbed.children import free_port


class Watched(Installation):
    """Each process has a port of its own, in `ports` from when it is started."""

    ports: dict[str, int]

    def environment(self, process: str) -> dict[str, str]:
        """With the port that probes and scrapes go to."""
        self.ports = {**getattr(self, "ports", {}), process: free_port()}
        return super().environment(process) | {"FAULTLINE_HTTP_PORT": str(self.ports[process])}
