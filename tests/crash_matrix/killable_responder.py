"""A responder that dies at appointed points: real connectors, a real journal, and a plan of deaths that outlives it.

The plan is a file with a list of steps; each step is a list of labels, and the process that first comes to one of them takes
the step off the plan and kills itself. `LABEL#2` means the second time that one life comes to LABEL. Every label passed
is a line of the trace, with the time and the process.

Besides the labels of `streams.model.crash_points` there are two that the code cannot have without tests in mind:

    NAME:in_intent, NAME:in_commit   everything of the transaction is sent, the transaction is not ended
    NAME:before_request              the lease has been asked, the request is about to leave
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from kubernetes.aio import client as kube

from connectors.base import Connector, Effect, LeaseHeld, Outcome
from connectors.diagnostics.reading import Limits
from connectors.jobs.training import TrainingJobs
from connectors.kubernetes.client import Cluster
from connectors.kubernetes.node_work import ACTIONS, NodeWork, read_templates
from connectors.kubernetes.node_work_objects import TemplatedObjects
from connectors.kubernetes.node_work_pairs import PairDiagnosis
from connectors.kubernetes.nodes import NodeConnector
from connectors.kubernetes.spares import Spares
from connectors.kubernetes.work_diagnostics import Diagnostic
from connectors.kubernetes.work_object_templates import read_object_templates
from connectors.kubernetes.work_templates import Template
from connectors.power.power_cycle import PowerCycle
from connectors.slurm.commands import Commands
from connectors.slurm.connector import Slurm, beside
from connectors.tickets.jira import Jira
from faultline.runtime.logging_setup import configure
from runbooks.engine.process import Responder
from runbooks.language.loader import load
from streams.config.connector_settings import NodeWorkSettings
from streams.config.settings import BlastRadius, Breaker, KafkaSettings, Protection, ResponderSettings
from streams.config.ticket_settings import JiraSettings
from streams.model.clock import utc_now
from streams.model.run import Mode
from tests.crash_matrix.witness import PART

LEASE_S = 3.0
REQUEST_TIMEOUT_S = 1.5
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
K8S = Path(__file__).parents[2] / "k8s"
TEMPLATES = K8S / "components" / "node-work" / "templates"
OBJECT_FILES = K8S / "components" / "templates" / "objects"
OBJECTS = read_object_templates(OBJECT_FILES)
REPLACES = "karpenter-nodeclaim-delete"
SESSION = "session"
"""The step whose validation is a session of diagnostics; any other is the single Job of the template."""
NO_LIMITS = {
    "blast_radius": BlastRadius(max_nodes=100_000, max_share=1.0, max_per_window=1_000_000),
    "breaker": Breaker(failures=0, mass_min_nodes=0),
    "protect": Protection(keep_per_pool=0),
    "tickets_per_10_min": 1_000_000,
}
"""Guardrails have tests of their own; here whatever is decided is carried out."""


@dataclass(frozen=True, slots=True)
class Life:
    """Everything that a responder needs to know to begin its life, as plain values."""

    bootstrap: str
    prefix: str
    kubernetes: str
    kubernetes_token: str
    jira: str
    jira_user: str
    jira_token: str
    books: str
    """Folder of the runbooks."""
    folder: str
    """Where the plan of deaths and the trace are."""
    kubernetes_authority: str = ""
    """File with the authority of a server that is spoken to without a proxy."""
    sends: str = "KILL"
    session_timeout_ms: int = 1500
    partitions: int = 1
    search_lag_s: float = 0.2
    slurm: str = ""
    """Folder with the commands of Slurm; nothing is done on Slurm without."""
    slurm_config: str = ""
    more: dict[str, Any] = field(default_factory=dict)
    """Settings of the responder besides."""

    def plain(self) -> dict[str, Any]:
        """For a line of JSON."""
        return asdict(self)


class Fate:
    """What a process asks at every point. Build it in the process that is to die."""

    def __init__(self, folder: Path, sends: str = "KILL") -> None:
        self._plan = folder / "plan.json"
        self._sends = signal.Signals[f"SIG{sends}"]
        self._trace = os.open(folder / "trace", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._passed: Counter[str] = Counter()
        self._writing: list[str] = []

    def at(self, label: str, about: str = "") -> None:
        """Write the label down, and what it is about, and die here if that is the plan."""
        self._passed[label] += 1
        os.write(self._trace, f"{time.time():.6f} {os.getpid()} {label} {about}\n".encode())
        name, _, point = label.rpartition(":")
        if point in ("before_intent", "before_commit"):
            self._writing.append(f"{name}:{point.replace('before', 'in')}")
        plan: list[list[str]] = json.loads(self._plan.read_text())
        if plan and {label, f"{label}#{self._passed[label]}"} & set(plan[0]):
            part = self._plan.with_suffix(".part")
            part.write_text(json.dumps(plan[1:]))
            part.replace(self._plan)
            os.write(self._trace, f"{time.time():.6f} {os.getpid()} † {label}\n".encode())
            os.kill(os.getpid(), self._sends)

    def in_the_middle(self) -> None:
        """Everything of a transaction is sent, and it is not ended."""
        writing, self._writing = self._writing, []
        for label in writing:
            self.at(label)


def interrupt_commits(fate: Fate) -> None:
    """From now on every transaction of this process comes to `fate` right before it ends."""
    commit: Callable[[AIOKafkaProducer], Awaitable[None]] = AIOKafkaProducer.commit_transaction

    async def commit_transaction(producer: AIOKafkaProducer) -> None:
        fate.in_the_middle()
        await commit(producer)

    AIOKafkaProducer.commit_transaction = commit_transaction


class _Watched:
    """A connector whose requests come to `fate` when the lease has allowed them."""

    def __init__(self, connector: Connector, fate: Fate) -> None:
        self._connector = connector
        self._fate = fate
        self.actions = connector.actions

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        return await self._connector.apply(effect, _Gate(lease, self._fate, effect.action, effect.key))

    async def lookup(self, effect: Effect) -> Outcome:
        return await self._connector.lookup(effect)

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        return await self._connector.undo(
            effect, _Gate(lease, self._fate, f"undo_{effect.action}", effect.key)
        )

    async def close(self) -> None:
        await self._connector.close()


class _Validations:
    """Work on nodes whose validation is a session in the step of that name, and one Job in any other."""

    def __init__(self, work: NodeWork, session: NodeWork) -> None:
        self._work = work
        self._session = session
        self.actions = work.actions

    def _of(self, effect: Effect) -> NodeWork:
        return self._session if effect.step == SESSION else self._work

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        return await self._of(effect).apply(effect, lease)

    async def lookup(self, effect: Effect) -> Outcome:
        return await self._of(effect).lookup(effect)

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        return await self._of(effect).undo(effect, lease)

    async def close(self) -> None:
        await self._work.close()


@dataclass(frozen=True, slots=True)
class _Gate:
    lease: LeaseHeld
    fate: Fate
    name: str
    key: str

    def check(self) -> None:
        self.lease.check()
        self.fate.at(f"{self.name}:before_request", self.key)


async def live(life: Life) -> None:
    """Be a responder until the end that the plan has in store, or a signal from outside."""
    configure("responder", level="info", form="json")
    fate = Fate(Path(life.folder), life.sends)
    interrupt_commits(fate)
    kafka = KafkaSettings(
        bootstrap=life.bootstrap,
        topic_prefix=life.prefix,
        cluster_partitions=life.partitions,
        session_timeout_ms=life.session_timeout_ms,
    )
    jira = JiraSettings.model_validate(
        {
            "base_url": life.jira,
            "user": life.jira_user,
            "token": life.jira_token,
            "timeout_s": REQUEST_TIMEOUT_S,
            "search_lag_s": life.search_lag_s,
        }
    )
    policy = ResponderSettings.model_validate(
        {"mode": Mode.AUTO, "lease_s": LEASE_S, **NO_LIMITS, **life.more}
    )
    cluster = Cluster(*await _way_in(life), REQUEST_TIMEOUT_S)
    settings = NodeWorkSettings.model_validate(
        {
            "object_templates": OBJECT_FILES,
            "replace_node": REPLACES,
            "redfish": {
                "addresses_file": f"{life.folder}/bmcs.yaml",
                "user_file": f"{life.folder}/bmc-user",
                "password_file": f"{life.folder}/bmc-password",
                "timeout_s": REQUEST_TIMEOUT_S,
            },
        }
    )
    of_cluster = (
        NodeConnector(cluster),
        _Validations(
            NodeWork(cluster, settings, _templates()),
            NodeWork(cluster, settings, {}, diagnostics=[_diagnostic("loopback"), _diagnostic("all-reduce")]),
        ),
        TrainingJobs(cluster),
        Spares(cluster),
        TemplatedObjects(cluster, settings, OBJECTS),
        PairDiagnosis(cluster, settings, _diagnostic("pair")),
        PowerCycle(cluster, settings, hurried_now),
    )
    of_all: Sequence[Connector] = (*of_cluster, Jira(jira))
    if life.slurm:
        commands = Commands(Path(life.slurm), Path(life.slurm_config), REQUEST_TIMEOUT_S)
        of_all = beside(Slurm(commands), of_all)
    connectors = [_Watched(one, fate) for one in of_all]
    runbooks = load((Path(life.books),), shipped=False)
    await Responder(kafka, policy, connectors, runbooks, at=fate.at).run()


def hurried_now() -> datetime:
    """For what waits minutes for a machine that boots at once: a clock that runs sixty times as fast."""
    return BEGINNING + (utc_now() - BEGINNING) * 60


def _templates() -> dict[str, Template]:
    """The shipped ones; their pods end well as soon as they run."""
    files = {action: TEMPLATES / f"{action.replace('_', '-')}.yaml" for action in ACTIONS}
    templates = read_templates(NodeWorkSettings.model_validate(files))
    for template in templates.values():
        pod = template.job["spec"]["template"]
        pod["metadata"] = {"annotations": {"testbed.faultline.dev/outcome": "complete"}}
    return templates


def _diagnostic(name: str) -> Diagnostic:
    """One whose pods end at once and say that all is well."""
    told = {"outcome": "complete", "message": "# Avg bus bandwidth : 430"}
    pod = {
        "metadata": {"annotations": {f"testbed.faultline.dev/{what}": text for what, text in told.items()}},
        "spec": {"containers": [{"name": "measure", "image": "measure:1"}]},
    }
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"annotations": {PART: name}}}
    template = Template("validate_node", {**job, "spec": {"template": pod}})
    return Diagnostic(name, template, "nccl-tests", Limits(at_least={"busbw_avg_gb_s": 400}))


async def _way_in(life: Life) -> tuple[Callable[[], Awaitable[Any]], Any]:
    configuration = kube.Configuration(host=life.kubernetes)
    configuration.api_key["BearerToken"] = f"Bearer {life.kubernetes_token}"
    configuration.ssl_ca_cert = life.kubernetes_authority or None

    async def load() -> Any:
        return configuration

    return load, configuration
