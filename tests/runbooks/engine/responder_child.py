"""A real responder in a process of its own, with a connector whose world is a folder; it can die or freeze at a label.

python -m tests.runbooks.engine.responder_child '{"bootstrap": …, "prefix": …, "folder": …, "signal": "KILL", "at": […]}'

Besides: `policy`, settings of the responder; `gated`, actions whose calls wait for a file `gate-ACTION`; `stuck`, those that wait
for it after they have asked their lease for the last time; `refused`, actions whose
calls are refused for good; `clock_s`, how far this process's wall clock is ahead; `session_ms`, how long the group waits for a
sign of life; `stands_by`, where it makes a file `stands-by` once it has begun, and joins the group when there is a file `join`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Collection
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from connectors.base import Absent, AlreadyDone, Done, Effect, LeaseHeld, NoLease, Outcome, Refused
from runbooks.engine.process import Responder
from runbooks.language.loader import load_text
from streams.config.settings import KafkaSettings, ResponderSettings
from streams.model.clock import utc_now
from streams.model.errors import Fenced
from streams.model.run import Mode
from tests.testbed.waiting import eventually

BOOK = """\
id: test-book
revision: 1
owner: team
mode: auto
description: close, move, go on
match: incident.family == "gpu_off_bus"
steps:
  - {id: ticket, action: open_ticket, target: incident, on_failure: continue}
  - {id: cordon, action: cordon_node, target: root_node, undo: true}
  - {id: suspend, action: suspend_job, target: jobs, needs: [cordon], undo: true}
  - {id: drain, action: drain_node, target: root_node, needs: [suspend]}
  - {id: resume, action: resume_job, target: jobs, needs: [suspend, drain]}
  - {id: progress, action: await_progress, target: jobs, needs: [resume], params: {settle_s: 0}}
"""


class FolderWorld:
    """The world outside, on disk: a line in `calls` for every change, a file for everything that is there.

    A second change of the same thing makes a second line: only whoever calls can keep that from happening.
    """

    actions = frozenset({"open_ticket", "cordon_node", "suspend_job", "drain_node", "resume_job"})

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        lease.check()
        with (self._folder / "calls").open("a") as calls:
            calls.write(
                f"{os.getpid()} {effect.action} {effect.target.name} {effect.key} {time.time():.6f}\n"
            )
        (self._folder / effect.key).touch()
        return Done({"by": "folder"})

    async def lookup(self, effect: Effect) -> Outcome:
        return AlreadyDone() if (self._folder / effect.key).exists() else Absent()

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        lease.check()
        if not (self._folder / effect.key).exists():
            return AlreadyDone()
        with (self._folder / "undone").open("a") as undone:
            undone.write(
                f"{os.getpid()} {effect.action} {effect.target.name} {effect.key} {time.time():.6f}\n"
            )
        (self._folder / effect.key).unlink()
        return Done()

    async def close(self) -> None:
        pass


class GatedWorld(FolderWorld):
    """A world in which calls are slow: they wait for a file before they ask their lease for the last time and leave.

    A file `fenced-ACTION` says that one was told meanwhile that it may not. Those that are `stuck` have asked before.
    """

    def __init__(
        self, folder: Path, gated: Collection[str], stuck: Collection[str], refused: Collection[str]
    ) -> None:
        super().__init__(folder)
        self._gated = gated
        self._stuck = stuck
        self._refused = refused

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        gate, fenced = (self._folder / f"{name}-{effect.action}" for name in ("gate", "fenced"))
        if effect.action in (*self._gated, *self._stuck):
            (self._folder / f"waiting-{effect.action}").touch()
        if effect.action in self._stuck:
            await eventually(lambda: asyncio.to_thread(gate.exists), "the gate is open", timeout_s=300)
        while effect.action in self._gated and not gate.exists():
            try:
                lease.check()
            except Fenced:
                fenced.touch()
            await asyncio.sleep(0.02)  # what a slow network does; nothing waits for it
        if effect.action in self._refused:
            lease.check()
            return Refused("no permission")
        return await super().apply(effect, NoLease() if effect.action in self._stuck else lease)


async def main(options: dict[str, Any]) -> None:
    """Run until killed; every label in `at` sends the signal to this process once over all its lives."""
    folder = Path(str(options["folder"]))
    labels = options["at"]
    assert isinstance(labels, list)

    def at(label: str) -> None:
        done = folder / f"hit-{label.replace(':', '-')}"
        if label in labels and not done.exists():
            done.touch()
            os.kill(os.getpid(), getattr(signal, f"SIG{options['signal']}"))

    settings = KafkaSettings(
        bootstrap=str(options["bootstrap"]),
        topic_prefix=str(options["prefix"]),
        session_timeout_ms=options.get("session_ms", 2000),
    )
    chosen: dict[str, Any] = {"mode": Mode.AUTO, "lease_s": 3.0} | dict(options.get("policy", {}))
    policy = ResponderSettings.model_validate(chosen)
    world = GatedWorld(folder, options.get("gated", ()), options.get("stuck", ()), options.get("refused", ()))
    ahead = timedelta(seconds=options.get("clock_s", 0.0))

    def clock() -> datetime:
        return utc_now() + ahead

    if options.get("stands_by"):
        (folder / "stands-by").touch()
        await eventually(lambda: asyncio.to_thread((folder / "join").exists), "it may join", timeout_s=300)
    await Responder(settings, policy, [world], [load_text(BOOK, "book.yaml")], clock=clock, at=at).run()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
