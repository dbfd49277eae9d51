"""A real responder in a process of its own, with a connector whose world is a folder; it can die or freeze at a label.

python -m tests.runbooks.responder_child '{"bootstrap": …, "prefix": …, "folder": …, "signal": "KILL", "at": […]}'
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from connectors.base import Absent, AlreadyDone, Done, Effect, LeaseHeld, Outcome
from runbooks.loading import load_text
from runbooks.responder import Responder
from streams.model.run import Mode
from streams.model.settings import KafkaSettings, ResponderSettings

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
            calls.write(f"{os.getpid()} {effect.action} {effect.target.name} {effect.key}\n")
        (self._folder / effect.key).touch()
        return Done({"by": "folder"})

    async def lookup(self, effect: Effect) -> Outcome:
        return AlreadyDone() if (self._folder / effect.key).exists() else Absent()

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        lease.check()
        (self._folder / effect.key).unlink()
        return Done()

    async def close(self) -> None:
        pass


async def main(options: dict[str, object]) -> None:
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
        bootstrap=str(options["bootstrap"]), topic_prefix=str(options["prefix"]), session_timeout_ms=2000
    )
    policy = ResponderSettings(mode=Mode.AUTO, lease_s=3.0)
    await Responder(settings, policy, [FolderWorld(folder)], [load_text(BOOK, "book.yaml")], at=at).run()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
