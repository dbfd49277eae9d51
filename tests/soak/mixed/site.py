"""The installation that a mixed soak hits: two of each process that scales, probes on all of them, clocks that can jump."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import httpx

from sandbox.fake_services.alertmanager import AlertmanagerStandin
from sandbox.fake_services.pagerduty import PagerDutyStandin
from tests.end_to_end.installation import Installation
from tests.testbed.children import ChildFailed, free_port
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kafka import Kafka

LABELS = {
    "inventory": "inventory",
    "detector-1": "detector",
    "detector-2": "detector",
    "correlator-1": "correlator",
    "correlator-2": "correlator",
    "responder-1": "responder",
    "responder-2": "responder",
    "chat": "chat",
    "notifier": "notifier",
    "gateway": "gateway",
}
"""Every process by label, with what it runs."""

SETTINGS = {
    "FAULTLINE_RESPONDER__BLAST_RADIUS__MAX_NODES": "100000",
    "FAULTLINE_RESPONDER__BLAST_RADIUS__MAX_SHARE": "1",
    "FAULTLINE_RESPONDER__BLAST_RADIUS__MAX_PER_WINDOW": "100000",
    "FAULTLINE_RESPONDER__BREAKER__MASS_MIN_NODES": "0",
    "FAULTLINE_RESPONDER__BREAKER__FAILURES": "0",
    "FAULTLINE_RESPONDER__TICKETS_PER_10_MIN": "10000",
    "FAULTLINE_JIRA__SEARCH_LAG_S": "0.5",
    "FAULTLINE_SLACK__HISTORY_LAG_S": "0.5",
}
"""Guardrails are computed and hold nobody: a bad node every few seconds is the soak's doing."""

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
"""Debian's package libfaketime."""

_HAS_CLOCKS = FAKETIME.exists()

_PROBE_S = 10.0


class Site(Installation):
    """One installation. `revive` is its kubelet: what has ended is started again, and why it ended is kept."""

    pagerduty: PagerDutyStandin
    alertmanager: AlertmanagerStandin
    has_clocks: bool
    ended: list[str]
    restarts: Counter[str]

    @classmethod
    @asynccontextmanager
    async def at(cls, kafka: Kafka, control_plane: ControlPlane, folder: Path) -> AsyncIterator[Self]:
        """Topics, rights and stand-ins, ready for `start_all`."""
        async with PagerDutyStandin(per_minute=100_000) as pagerduty, AlertmanagerStandin() as alertmanager:
            pager = {
                "kind": "pagerduty",
                "key": pagerduty.routing_key,
                "url": pagerduty.url,
                "api_url": pagerduty.url,
                "api_token": pagerduty.token,
                "lag_s": 0.2,
                "calls_per_minute": 60_000,
            }
            silencer = {
                "kind": "alertmanager", "url": alertmanager.url, "lag_s": 0.2, "calls_per_minute": 60_000,
            }  # fmt: skip
            sinks = {"FAULTLINE_NOTIFIER__SINKS": json.dumps({"oncall": pager, "am": silencer})}
            async with cls.running(kafka, control_plane, folder, **SETTINGS, **sinks) as site:
                site.pagerduty, site.alertmanager = pagerduty, alertmanager
                site.has_clocks = _HAS_CLOCKS
                site.ended, site.restarts = [], Counter()
                site._gateway_port = free_port()
                site._ports = {label: free_port() for label in LABELS}
                site._hit, site._again_at = set(), {}
                (folder / "clocks").mkdir(parents=True)
                yield site

    _gateway_port: int
    _ports: dict[str, int]
    _hit: set[int]
    _again_at: dict[str, float]

    def start_all(self) -> None:
        """Start every process."""
        for label, process in LABELS.items():
            self._start(label, process)

    def own(self, label: str) -> dict[str, str]:
        """Its port for probes, and a clock of its own where libfaketime is installed."""
        own = {
            "FAULTLINE_HTTP_PORT": str(self._ports[label]),
            "FAULTLINE_GATEWAY__PORT": str(self._gateway_port),
        }
        if self.has_clocks:
            self.set_clock(label, 0)
            own |= {
                "LD_PRELOAD": str(FAKETIME),
                "FAKETIME_TIMESTAMP_FILE": str(self._clock(label)),
                "FAKETIME_CACHE_DURATION": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        return own

    def set_clock(self, label: str, offset_s: int) -> None:
        """Let a process's wall clock jump to this far from the machine's, within a second; its monotonic clock goes on."""
        fresh = self._clock(label).with_suffix(".new")
        fresh.write_text(f"{offset_s:+d}\n")
        fresh.replace(self._clock(label))

    def kill(self, label: str) -> None:
        """End one as a crash would; `revive` starts it again."""
        self._hit.add(self.child(label).pid)
        self.child(label).kill()

    def terminate(self, label: str) -> None:
        """Ask one to end in order; `revive` starts it again once it has."""
        self._hit.add(self.child(label).pid)
        self.child(label).signal(signal.SIGTERM)

    def revive(self) -> None:
        """Start again what has ended, a second later; call it often. What ended by itself is noted in `ended`."""
        for label, process in LABELS.items():
            child = self._children[label]
            if child.exit_code is None:
                continue
            if label not in self._again_at:
                self._again_at[label] = time.monotonic() + 1
                self.restarts[label] += 1
                if child.pid not in self._hit:
                    self.ended.append(f"{label} ended by itself with {child.exit_code}: {child.tail(2)}")
            elif time.monotonic() >= self._again_at[label]:
                del self._again_at[label]
                self._start(label, process)

    def probe(self, path: str) -> dict[str, int]:
        """What every process answers to `/live` or `/ready`; 0 is no answer."""
        return {label: _status(f"http://127.0.0.1:{port}{path}") for label, port in self._ports.items()}

    def _start(self, label: str, process: str) -> None:
        self.start_as(label, process, "-m", "faultline", "run", process)

    def _clock(self, label: str) -> Path:
        return self.folder / "clocks" / label


def _status(url: str) -> int:
    try:
        return httpx.get(url, timeout=_PROBE_S).status_code
    except httpx.HTTPError:
        return 0


def start_again(control_plane: ControlPlane, name: str) -> None:
    """Start a program of the control plane that is not running."""
    try:
        if control_plane.component(name).exit_code is None:
            return
    except ChildFailed:
        pass  # it never ran, which is the same to us
    control_plane.start_component(name)
