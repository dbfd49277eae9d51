"""A real Slurm on loopback: slurmctld, one slurmd for each node, and munged, of Debian's packages. No accounting database.

All are children of this process, with a folder, ports and a key of their own: beside any other Slurm of the machine. Each node
has one core, so a job of two nodes takes two. Jobs are scripts that end when the folder is gone, so none outlives its cluster.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from streams.model.slurm import SlurmJob, SlurmNode, job_of, node_of
from tests.testbed.children import Child, free_port
from tests.testbed.waiting import until

CONFIG = """\
ClusterName=testbed
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=1
SlurmdTimeout=5
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,sched_min_interval=0
MinJobAge=300
KillWait=2
NodeName=gpu-[1-{nodes}] NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=1 RealMemory=100
PartitionName=train Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

SCRIPT = "#!/bin/sh\n: > {folder}/begun.$SLURM_JOB_ID\nwhile [ -e {folder}/slurm.conf ]; do sleep 0.2; done\n"


@dataclass
class SlurmCluster:
    """A running cluster with nodes gpu-1, gpu-2 … in the partition `train`. `run` is what a person would type."""

    folder: Path
    config: Path
    daemons: dict[str, Child] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def running(cls, nodes: int = 3) -> Iterator[SlurmCluster]:
        """Start one, its nodes idle; at the end its jobs are cancelled and its daemons killed."""
        # Its own short folder: a socket's path may have 108 characters, and pytest's are long.
        folder = Path(tempfile.mkdtemp(prefix="faultline-slurm-"))
        cluster = cls(folder, folder / "slurm.conf")
        try:
            cluster._start(nodes)
            yield cluster
        finally:
            cluster._stop()

    def _start(self, nodes: int) -> None:
        first = _ports_in_a_row(nodes)
        config = CONFIG.format(
            folder=self.folder, port=free_port(), nodes=nodes, first=first, last=first + nodes - 1
        )
        self.config.write_text(config)
        (self.folder / "job.sh").write_text(SCRIPT.format(folder=self.folder))
        for name in ("state", "munge", *(f"spool.gpu-{n}" for n in range(1, nodes + 1))):
            (self.folder / name).mkdir(mode=0o755)
        self._start_munged()
        self.start("slurmctld", "slurmctld", "-D", "-c")
        for n in range(1, nodes + 1):
            self.start(f"gpu-{n}", "slurmd", "-D", "-N", f"gpu-{n}")
        until(lambda: self._all_idle(nodes), "all nodes of Slurm are idle")

    def _start_munged(self) -> None:
        munge = self.folder / "munge"
        (munge / "key").write_bytes(os.urandom(128))
        (munge / "key").chmod(0o600)
        options = {
            "key-file": "key",
            "socket": "socket",
            "pid-file": "pid",
            "log-file": "log",
            "seed-file": "seed",
        }
        words = [f"--{option}={munge / name}" for option, name in options.items()]
        # --force: its folder lies below one that others may write to.
        self.start("munged", "munged", "--foreground", "--force", "--num-threads=1", *words)
        self.daemons["munged"].wait_until((munge / "socket").exists)

    def start(self, name: str, *command: str) -> None:
        """Start a daemon, or start it again."""
        program = shutil.which(command[0]) or f"/usr/sbin/{command[0]}"
        log = self.folder / f"{name}.log"
        self.daemons[name] = Child(
            name, [program, *command[1:]], log=log, env={"SLURM_CONF": str(self.config)}
        )

    def revive(self, node: str) -> None:
        """Start the daemon of a node again."""
        self.start(node, "slurmd", "-D", "-N", node)

    def _all_idle(self, nodes: int) -> bool:
        try:
            found = self.nodes()
        except subprocess.CalledProcessError:
            return False
        return sum(node.states == {"IDLE"} for node in found.values()) == nodes

    def _stop(self) -> None:
        try:
            if "slurmctld" in self.daemons and self.daemons["slurmctld"].exit_code is None:
                for job in self.jobs().values():
                    if not job.ended:
                        self.run("scancel", str(job.id))
        finally:
            # Scripts look for it and end, also of a job whose node is dead.
            self.config.unlink(missing_ok=True)
            for daemon in reversed(self.daemons.values()):
                daemon.stop(grace_s=3)
            shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *command: str) -> str:
        """Run one of Slurm's commands as root and return what it says.

        Raises:
            subprocess.CalledProcessError: it ended with an error.
        """
        environment = os.environ | {"SLURM_CONF": str(self.config)}
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment, timeout=30
        )
        return done.stdout

    def submit(self, nodes: int = 1, *options: str, runs: bool = True) -> int:
        """Submit a job that runs until it is ended, and wait until it runs. Returns its number."""
        words = ("--parsable", f"--nodes={nodes}", "--output=/dev/null", "--job-name=train", *options)
        job = int(self.run("sbatch", *words, str(self.folder / "job.sh")))
        if runs:
            # Slurm says so before its script has begun; one that is put back into the queue in between has failed.
            until((self.folder / f"begun.{job}").exists, f"the script of job {job} runs")
            until(lambda: self.job(job).running, f"job {job} runs")
        return job

    def nodes(self) -> dict[str, SlurmNode]:
        """Every node, by name."""
        found = orjson.loads(self.run("sinfo", "--all", "--Node", "--json"))["nodes"]
        return {node.name: node for node in map(node_of, found)}

    def jobs(self) -> dict[int, SlurmJob]:
        """Every job, by number."""
        found = orjson.loads(self.run("squeue", "--all", "--states=all", "--json"))["jobs"]
        return {job.id: job for job in map(job_of, found)}

    def job(self, number: int) -> SlurmJob:
        """One job."""
        return self.jobs()[number]


def _ports_in_a_row(count: int) -> int:
    """The first of so many free ports: a configuration names those of several nodes as a range."""
    while True:
        first = free_port()
        if all(_is_free(port) for port in range(first + 1, first + count)):
            return first


def _is_free(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
