"""Cases on a real Slurm, two nodes for each stage: what its commands were asked to change, and how it stands at the end."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from streams.inventory.slurm import node_fact
from streams.job_kinds.kind import Lever
from streams.model.entity import SLURM_JOB, JobRef
from streams.model.facts import JobFact
from streams.model.slurm import SlurmJob
from streams.model.slurm_marks import JobMark, NodeOwners
from tests.crash_matrix.history import Touch
from tests.crash_matrix.worlds import World
from tests.testbed.slurm import SlurmCluster
from tests.testbed.waiting import eventually

NODES_EACH = 2

AIMS: Mapping[str, str] = {
    "cordon_node@queue": "State=DRAIN",
    "uncordon_node@queue": "State=RESUME",
    "suspend_job@queue": "^requeuehold ",
    "resume_job@queue": "^release ",
    "undo_suspend_job@queue_back": "^release ",
    "undo_cordon_node@queue_back": "State=RESUME",
}
"""How the request of a step is known."""

_SAYS = {
    "broken": "slurm_update error: Unable to contact slurm controller (connect failure)",
    "lost_answer": "slurm_update error: Socket timed out on send/recv operation",
}

# What changes something is done by a child that outlives both this script and the responder, as a request that has left does.
_SCRIPT = """\
#!{python} -IS
import json, os, re, subprocess, sys, time
FOLDER, PROGRAM, SAYS = {folder!r}, {program!r}, {says!r}
words = sys.argv[1:]
if words[:1] == ["show"]:
    os.execv(PROGRAM, [PROGRAM, *words])
fault, aim = "", FOLDER + "/aim"
if os.path.exists(aim):
    with open(aim) as file:
        one, pattern = file.read().split("\\n")
    if re.search(pattern, " ".join(words)):
        fault = one
        os.unlink(aim)
at = time.time()
child = os.fork()
if child == 0:
    os.setsid()
    code = 1
    if fault != "broken":
        code = subprocess.run([PROGRAM, *words]).returncode
    line = json.dumps({{"at": at, "words": words, "done": code == 0}}) + "\\n"
    file = os.open(FOLDER + "/requests", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, line.encode())
    os._exit(code)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
if fault == "no_answer":
    time.sleep(60)
if fault:
    sys.exit(SAYS.get(fault, ""))
sys.exit(code)
"""


@dataclass(frozen=True, slots=True)
class SlurmCommands:
    """A folder with Slurm's commands, of which `scontrol` writes down what it is asked to change, and plays one fault."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> SlurmCommands:
        """Make the folder."""
        folder.mkdir()
        found = {name: shutil.which(name) or f"/usr/bin/{name}" for name in ("scontrol", "squeue", "sinfo")}
        for name in ("squeue", "sinfo"):
            (folder / name).symlink_to(found[name])
        script = _SCRIPT.format(
            python=sys.executable, folder=str(folder), program=found["scontrol"], says=_SAYS
        )
        (folder / "scontrol").write_text(script)
        (folder / "scontrol").chmod(0o755)
        (folder / "requests").touch()
        return cls(folder)

    def aim(self, step: str, fault: str) -> bool:
        """Play this fault on the first request of this step from now on; another takes an unused one away.

        False where the step has none of its requests here.
        """
        (self.folder / "aim").unlink(missing_ok=True)
        aimed = fault != "none" and step in AIMS
        if aimed:
            part = self.folder / "aim.part"
            part.write_text(f"{fault}\n{AIMS[step]}")
            part.replace(self.folder / "aim")
        return aimed

    @property
    def spent(self) -> bool:
        """Whether there is no fault left to play."""
        return not (self.folder / "aim").exists()

    @property
    def requests(self) -> Sequence[Mapping[str, Any]]:
        """Everything that was to change something, in its order."""
        return [json.loads(line) for line in (self.folder / "requests").read_text().splitlines()]


def slurm_touches(
    requests: Sequence[Mapping[str, Any]], incident: str, nodes: Mapping[str, str]
) -> Iterator[Touch]:
    """Requests about nodes and their job; `nodes` maps the names of nodes to what they are called."""
    for request in requests:
        at, words, done = datetime.fromtimestamp(request["at"], UTC), request["words"], request["done"]
        said = " ".join(words)
        if words[0] in ("requeuehold", "hold"):
            yield Touch(at, "suspend", "job", "", done)
        elif words[0] == "release":
            yield Touch(at, "free", "job", "", done)
        elif "State=DRAIN" in words:
            key = re.search(rf"faultline\[\S*?{re.escape(incident)}:([^,\]]+)", said)
            yield Touch(at, "cordon", nodes[words[1].partition("=")[2]], key[1] if key else "", done)
        elif "State=RESUME" in words:
            yield Touch(at, "release", nodes[words[1].partition("=")[2]], "", done)
        elif not words[1].startswith("JobId="):
            raise ValueError(f"a request of a kind that nobody should send: {said}")


@dataclass
class SlurmWorld(World):
    """Two nodes of Slurm, and a job on one of them."""

    cluster: SlurmCluster = field(kw_only=True)
    own: tuple[str, ...] = field(kw_only=True)
    """The nodes of this stage."""

    async def build(self) -> None:
        """Submit a job, and wait until it runs."""
        self.nodes = list(self.own)
        there = await asyncio.to_thread(self.cluster.nodes)
        others = f"--exclude={','.join(sorted(there.keys() - set(self.own)))}"
        options = ("--requeue", *([others] if len(there) > len(self.own) else []))
        number = await asyncio.to_thread(self.cluster.submit, 1, *options)
        job, now = await self._job_there(number), datetime.now(UTC)
        self.job, self.bad = JobRef(SLURM_JOB, "", str(number), job.uid), job.nodes
        self.roles = {name: "bad" if name == self.bad else "other" for name in self.own}
        self.facts += [node_fact(self.name, there[name], now) for name in self.own]
        self.facts.append(JobFact(self.name, self.job, now, lever=Lever.REQUEUE))

    @asynccontextmanager
    async def witnessed(self) -> AsyncIterator[None]:
        """Nothing works on its nodes."""
        yield

    async def end(self) -> Mapping[str, Any]:
        """How the nodes and the job stand; a job that was put back into the queue twice has another count of restarts."""
        assert self.job is not None
        job = await eventually(self._settled, "the job runs, or is held")
        there, found = await asyncio.to_thread(self.cluster.nodes), dict[str, Any]()
        for name in self.own:
            marked = "marked" if NodeOwners.of(there[name]) else "unmarked"
            found[f"{self.roles[name]} node"] = ("drained" if there[name].drained else "in service", marked)
        mark = JobMark.of(job.admin_comment)
        state = "held" if job.held else "running"
        found["job"] = (state, job.restarts, "unmarked" if mark is None else f"marked, done {mark.done}")
        if job.running and self.book == "queue":
            found["job's node"] = self.roles[job.nodes]
        return found

    async def remove(self) -> None:
        """End the job, and return the nodes as they were."""
        assert self.job is not None
        await asyncio.to_thread(self.cluster.run, "scancel", self.job.name)
        for name, node in (await asyncio.to_thread(self.cluster.nodes)).items():
            if name in self.own and node.drained:
                await asyncio.to_thread(
                    self.cluster.run, "scontrol", "update", f"NodeName={name}", "State=UNDRAIN"
                )
            if name in self.own and node.comment:
                await asyncio.to_thread(
                    self.cluster.run, "scontrol", "update", f"NodeName={name}", "Comment="
                )

        async def idle() -> bool:
            there = await asyncio.to_thread(self.cluster.nodes)
            return all(there[name].states == {"IDLE"} for name in self.own)

        await eventually(idle, "the nodes are idle again")

    async def _settled(self) -> SlurmJob | None:
        assert self.job is not None
        job = await self._job_there(int(self.job.name))
        return job if job.running or job.held else None

    async def _job_there(self, number: int) -> SlurmJob:
        return await asyncio.to_thread(self.cluster.job, number)
