"""The part of a kubelet that judges containers: it asks their probes as the manifest says and notes what it would do."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any

_TURN_S = 0.2
_DEFAULTS = {"initialDelaySeconds": 0, "periodSeconds": 10, "timeoutSeconds": 1, "failureThreshold": 3}


@dataclass
class _Watched:
    """One probe of one container, and how it went."""

    name: str
    kind: str
    url: str
    probe: dict[str, Any]
    next_at: float
    failures: int = 0
    told: str = ""


@dataclass
class Judgement:
    """What a kubelet would have done with a container."""

    ready: bool = False
    lost_readiness: list[str] = field(default_factory=list)
    restarts: list[str] = field(default_factory=list)


class Kubelet:
    """Asks every probe of the containers it is given, in a thread, from `start` to `stop`.

    A container whose liveness fails as often as the manifest allows is not restarted: that it would be is noted.
    """

    def __init__(self) -> None:
        self._watched: list[_Watched] = []
        self._judgements: dict[str, Judgement] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="kubelet", daemon=True)

    @property
    def is_working(self) -> bool:
        """Whether it has been started and not stopped."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more."""
        self._ended.set()
        self._thread.join()

    def watch(self, name: str, container: dict[str, Any], address: str) -> None:
        """Ask the probes of a container that has just been started, at its pod's address."""
        ports = {port.get("name"): port["containerPort"] for port in container.get("ports", ())}
        with self._lock:
            self._judgements[name] = Judgement(ready="readinessProbe" not in container)
            for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
                if kind not in container:
                    continue
                probe = _DEFAULTS | container[kind]
                get = probe["httpGet"]
                url = f"http://{address}:{ports.get(get['port'], get['port'])}{get['path']}"
                first = time.monotonic() + probe["initialDelaySeconds"]
                self._watched.append(_Watched(name, kind, url, probe, first))

    def forget(self, name: str) -> None:
        """Ask a container no more, for it is to end."""
        with self._lock:
            self._watched = [watched for watched in self._watched if watched.name != name]

    def judgement(self, name: str) -> Judgement:
        """What would have been done with a container so far."""
        with self._lock:
            return self._judgements[name]

    def _work(self) -> None:
        while not self._ended.wait(_TURN_S):
            with self._lock:
                due = [watched for watched in self._watched if watched.next_at <= time.monotonic()]
                starting = {watched.name for watched in self._watched if watched.kind == "startupProbe"}
            for watched in due:
                if watched.kind == "startupProbe" or watched.name not in starting:
                    said = _ask(watched.url, watched.probe["timeoutSeconds"])
                    self._note(watched, said)

    def _note(self, watched: _Watched, said: str | None) -> None:
        """Count one answer; `said` is what was wrong with it, or None."""
        with self._lock:
            watched.next_at = time.monotonic() + watched.probe["periodSeconds"]
            judgement = self._judgements[watched.name]
            watched.failures = 0 if said is None else watched.failures + 1
            if said is None and watched.kind == "startupProbe":
                self._watched.remove(watched)
            if said is None and watched.kind == "readinessProbe":
                judgement.ready = True
            if watched.failures < watched.probe["failureThreshold"]:
                return
            if watched.kind != "readinessProbe":
                judgement.restarts.append(f"{watched.kind}: {said}")
                watched.failures = 0
            elif judgement.ready:
                judgement.ready = False
                judgement.lost_readiness.append(f"{said}")


def _ask(url: str, timeout_s: float) -> str | None:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            url, timeout=timeout_s
        ) as answer:
            answer.read()
            return None
    except (urllib.error.URLError, OSError) as error:
        return f"{url}: {error}"
