"""What can be set, room by room. Values only: reading them from file and environment is the front door's work.

A room takes the section it needs and never the whole; so it can be used and tested without the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, Self, get_args
from zoneinfo import ZoneInfo

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from streams.model.cron import cron
from streams.model.run import Mode


class Section(BaseModel):
    """Base of every group of settings: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class KafkaSettings(Section):
    """How to reach Kafka, and the few things that differ between a laptop and a cluster."""

    bootstrap: str = Field(
        "127.0.0.1:9092", description="host:port of one or more brokers, separated by commas"
    )
    topic_prefix: str = Field(
        "", description="put before every topic and group name, so that installations share a broker"
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="how the brokers want to be talked to"
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="with SASL_PLAINTEXT and SASL_SSL"
    )
    sasl_username: str | None = Field(None, description="with SASL_PLAINTEXT and SASL_SSL")
    sasl_password: SecretStr | None = Field(None, description="with SASL_PLAINTEXT and SASL_SSL")
    ssl_cafile: Path | None = Field(None, description="authorities to trust; the system's when not set")
    ssl_certfile: Path | None = Field(None, description="client certificate, PEM")
    ssl_keyfile: Path | None = Field(None, description="key of the client certificate, PEM")
    replication_factor: int = Field(
        3, ge=1, description="copies of each topic; 1 only where there is one broker"
    )
    min_insync_replicas: int = Field(2, ge=1, description="copies that must confirm a write")
    raw_partitions: int = Field(12, ge=1, description="partitions of each raw.* topic and of dead-letters")
    cluster_partitions: int = Field(
        8, ge=1, description="partitions of every internal topic; cannot be changed in place"
    )
    session_timeout_ms: int = Field(
        15000, ge=1000, description="how long a silent process keeps its partitions"
    )
    check_crcs: bool = Field(True, description="verify record checksums; off only for the embedded broker")
    managed_topics: bool = Field(
        True, description="check topics at start; off only for brokers without an admin API"
    )

    @property
    def heartbeat_interval_ms(self) -> int:
        """How often a member of a group says that it lives."""
        return max(300, self.session_timeout_ms // 5)


class DetectorSettings(Section):
    """The process that sees every byte."""

    batch_records: int = Field(10_000, ge=1, description="records taken per poll")
    poll_ms: int = Field(200, ge=1, description="how long a poll waits for the first record")
    cluster_header: str = Field(
        "faultline-cluster", description="record header that names the cluster; else `cluster` is used"
    )
    snapshot_s: float = Field(
        15.0, gt=0, description="how often what is remembered of a partition is written down, when it changed"
    )


class InventorySettings(Section):
    """The process that watches the API server."""

    relist_s: float = Field(
        1800.0, gt=0, description="full list at least this often, whatever the watch says"
    )
    page_size: int = Field(500, ge=1, description="objects per page of a list")
    job_kinds: tuple[str, ...] = Field(
        ("batch/v1/Job", "kubeflow.org/v1/PyTorchJob"), description="group/version/Kind of jobs to watch"
    )
    topology_file: Path | None = Field(
        None, description="YAML of switch ports and the host NICs behind them, and of where nodes stand"
    )
    leaf_labels: tuple[str, ...] = Field(
        (),
        description="labels that name a node's leaf, before those that are known, e.g. a level of a Kueue Topology",
    )
    rack_labels: tuple[str, ...] = Field(
        (), description="labels that name a node's rack, before those that are known"
    )
    nvlink_domain_labels: tuple[str, ...] = Field(
        (), description="labels that name a node's NVLink domain, before those that are known"
    )
    protected_labels: tuple[str, ...] = Field(
        (), description="labels, as key or key=value, of nodes that runbooks never act on"
    )
    lldp_folder: Path | None = Field(
        None, description="folder of LLDP tables, one file for each host or switch, named like it"
    )


class CorrelatorSettings(Section):
    """The process that joins signals into incidents."""

    tick_s: float = Field(1.0, gt=0, description="how often time is told to the correlator")
    retention_minutes: float = Field(
        45.0, gt=0, description="how long placements and signals are kept for back-dated faults"
    )
    hang_settle_s: float = Field(
        20.0, ge=0, description="a culprit is named from watchdogs alone after no report for this long"
    )
    application_settle_s: float = Field(
        10.0, ge=0, description="how long an application fault waits for hardware evidence to explain it"
    )
    node_settle_s: float = Field(30.0, ge=0, description="how long a node must be NotReady to be an incident")


class Cap(Section):
    """How many nodes of one place may be closed at once. Where neither is set there is no limit."""

    max_nodes: int | None = Field(
        None, ge=0, description="nodes closed by Faultline at once; no limit when not set"
    )
    max_share: float | None = Field(
        None,
        ge=0,
        le=1,
        description="share of the place's nodes, at least one unless it is 0; no limit when not set",
    )


class BlastRadius(Section):
    """How much may be under destructive action at once. Undo, uncordon and resume are never limited."""

    max_nodes: int = Field(3, ge=0, description="nodes closed by Faultline at once, per cluster")
    max_share: float = Field(
        0.1, ge=0, le=1, description="share of the cluster's nodes closed by Faultline at once"
    )
    max_per_window: int = Field(6, ge=0, description="destructive steps begun per window and cluster")
    window_s: float = Field(3600.0, gt=0, description="length of that window")
    per_pool: Cap = Field(Cap(), description="Nodes of one pool.")
    per_rack: Cap = Field(Cap(), description="Nodes of one rack.")
    per_leaf: Cap = Field(Cap(), description="Nodes behind one leaf switch.")
    per_job: Cap = Field(Cap(), description="Nodes that one job runs on or was moved from.")


class Breaker(Section):
    """When to stop all destructive steps until a person resets the breaker."""

    failures: int = Field(3, ge=0, description="runs that failed after they began to act; 0: never for that")
    failures_window_s: float = Field(7200.0, gt=0, description="within how long")
    mass_share: float = Field(
        0.3, gt=0, le=1, description="share of the cluster's nodes that incidents want to act on"
    )
    mass_min_nodes: int = Field(
        8, ge=0, description="and at least so many nodes, for the sake of small clusters; 0: never for that"
    )
    mass_window_s: float = Field(600.0, gt=0, description="incidents opened within how long count together")


class Protection(Section):
    """Nodes that are not closed without a person, and how much a pool and a job keep."""

    nodes: tuple[str, ...] = Field(
        (), description="names of nodes never to act on; an asterisk stands for any characters"
    )
    keep_per_pool: int = Field(
        1,
        ge=0,
        description="GPU nodes of a pool that stay schedulable, else a person is asked; 0: none need to",
    )
    keep_pool_share: float = Field(
        0.0, ge=0, le=1, description="and at least this share of the pool's GPU nodes"
    )
    keep_job_share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of a job's nodes for which its pool must have room before it is moved",
    )


class ClosedTime(Section):
    """A time in which nothing destructive is begun: a change freeze, or maintenance by people."""

    name: str = Field(min_length=1, description="shown to whoever is held by it")
    kind: Literal["freeze", "maintenance"] = Field(
        "freeze", description="how it is called; both hold the same"
    )
    start: AwareDatetime | None = Field(None, description="once, from here")
    end: AwareDatetime | None = Field(None, description="until here")
    cron: str | None = Field(
        None, description="again and again, from here: minute hour day-of-month month day-of-week"
    )
    duration_s: float | None = Field(None, gt=0, le=31 * 86400, description="for so long")
    tz: str = Field("UTC", description="time zone of cron, e.g. Europe/Berlin")
    clusters: tuple[str, ...] = Field((), description="only these; all when empty")
    pools: tuple[str, ...] = Field((), description="only nodes of these pools")
    namespaces: tuple[str, ...] = Field((), description="only jobs of these namespaces")

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        once = self.start is not None and self.end is not None
        again = self.cron is not None and self.duration_s is not None
        if (
            once is again
            or (self.start is None) is not (self.end is None)
            or (self.cron is None) is not (self.duration_s is None)
        ):
            raise ValueError(f"{self.name}: takes either start and end, or cron and duration_s")
        if self.start and self.end and self.end <= self.start:
            raise ValueError(f"{self.name}: its end is not after its start")
        if self.cron is not None:
            cron(self.cron)
        try:
            ZoneInfo(self.tz)
        except (KeyError, OSError, ValueError) as error:
            raise ValueError(f"{self.name}: there is no time zone {self.tz!r}") from error
        return self

    def until(self, now: datetime) -> datetime | None:
        """When the time that is closed now is over; None when it is open now."""
        if self.start is not None and self.end is not None:
            return self.end if self.start <= now < self.end else None
        if self.cron is None or self.duration_s is None:
            return None
        length = timedelta(seconds=self.duration_s)
        began = cron(self.cron).latest(now, ZoneInfo(self.tz), length)
        return None if began is None or began + length <= now else began + length


ActionClass = Literal["close", "move", "reset", "reboot", "replace"]
"""What a destructive step does to people, the mildest first."""

GRAVE: frozenset[str] = frozenset({"reboot", "replace"})
"""Classes that take two people unless the settings say otherwise, wherever approval groups are set."""


class ApprovalClass(Section):
    """Who approves one class of actions."""

    group: str = Field("", description="a name out of responder.approval_groups; empty for all of them")
    quorum: int | None = Field(
        None, ge=1, le=10, description="how many different people; 2 for reboot and replace, else 1"
    )


class ResponderSettings(Section):
    """The process that acts."""

    mode: Mode = Field(Mode.SHADOW, description="the furthest any runbook may go; new installs touch nothing")
    kill_switch: bool = Field(False, description="stop every destructive step at once")
    runbook_dirs: tuple[Path, ...] = Field((), description="more runbooks, besides those that ship")
    blast_radius: BlastRadius = BlastRadius()
    breaker: Breaker = Breaker()
    protect: Protection = Protection()
    closed_times: tuple[ClosedTime, ...] = Field((), description="change freezes and maintenance windows")
    lease_s: float = Field(
        12.0, gt=0, description="how long after its intent a call may still start, one of the chat too"
    )
    freshness_s: float = Field(
        3600.0, gt=0, description="an incident not updated for longer is asked about, not acted on"
    )
    approval_expiry_s: float = Field(4 * 3600.0, gt=0, description="how long an approval is waited for")
    approvers: tuple[str, ...] = Field(
        (), description="who may approve; empty means everybody who can write a command"
    )
    approval_groups: Mapping[str, tuple[str, ...]] = Field(
        {}, description="groups of people by name; one person's several names have a | between them"
    )
    approval_classes: Mapping[ActionClass, ApprovalClass] = Field(
        {}, description="who approves close, move, reset, reboot and replace: a group and a quorum for each"
    )

    @model_validator(mode="after")
    def _approvals_can_be_given(self) -> Self:
        """A group nobody is in, or a quorum that no group fills, would let every run expire: better said at the start."""
        for name, members in self.approval_groups.items():
            if not members or not all(member.strip() for member in members):
                raise ValueError(f"approval_groups.{name}: a group needs the names of its people")
        everyone = set(self.approvers or [p for people in self.approval_groups.values() for p in people])
        for kind in get_args(ActionClass):
            rule = self.approval_classes.get(kind, ApprovalClass())
            if rule.group and rule.group not in self.approval_groups:
                known = ", ".join(sorted(self.approval_groups)) or "none"
                raise ValueError(
                    f"approval_classes.{kind}: no group {rule.group}; approval_groups has {known}"
                )
            people = set(self.approval_groups[rule.group]) if rule.group else everyone
            quorum = rule.quorum or (2 if kind in GRAVE and self.approval_groups else 1)
            if people and len(people) < quorum:
                raise ValueError(
                    f"approval_classes.{kind}: {quorum} people are asked for, and {rule.group or 'all groups'} "
                    f"has {len(people)}; set its quorum or add people"
                )
        return self


class KubernetesSettings(Section):
    """The API server. Without a kubeconfig the pod's own service account is used."""

    kubeconfig: Path | None = Field(None, description="not set: the pod's own service account")
    context: str | None = Field(None, description="context of the kubeconfig; its current one when not set")
    timeout_s: float = Field(10.0, gt=0, description="one request")


class NodeWorkSettings(Section):
    """Jobs that reset a GPU, reboot a node or validate it. An action without a template is not offered: a person is told."""

    namespace: str = Field("faultline-node-work", min_length=1, description="where the Jobs are created")
    reset_gpu: Path | None = Field(None, description="template of the Job that resets the node's GPU")
    reboot_node: Path | None = Field(None, description="template of the Job that reboots the node")
    validate_node: Path | None = Field(
        None, description="template of the Job that says whether the node may be used again"
    )


def _none_when_empty(value: object) -> object:
    """An environment variable cannot be taken away where a file sets it, only emptied."""
    return None if value == "" else value


class SlackSettings(Section):
    """One thread per incident in one channel. Without a token nothing is posted."""

    base_url: str = Field("https://slack.com/api", description="where the Web API is")
    token: SecretStr | None = Field(None, description="bot token (xoxb-…)")
    channel: str = Field("", description="channel id (C…), not its name: ids survive a rename")
    signing_secret: SecretStr | None = Field(
        None, description="nothing reads it today: buttons are not answered"
    )
    timeout_s: float = Field(10.0, gt=0, description="one request")
    history_lag_s: float = Field(
        2.0, ge=0, description="pause between two looks for a message that may have been posted"
    )
    debounce_s: float = Field(1.0, ge=0, description="details of one message are edited at most this often")
    posts_per_s: float = Field(1.0, gt=0, description="new messages a channel takes; Slack allows about one")
    calls_per_minute: float = Field(
        50.0, gt=0, description="calls of each other method and channel; Slack's tier 3 allows fifty"
    )

    _none_when_empty = field_validator("token", "signing_secret", mode="before")(_none_when_empty)


class JiraSettings(Section):
    """One issue per incident. Without a base URL no ticket is opened."""

    base_url: str | None = Field(None, description="https://SITE.atlassian.net")
    user: str = Field("", description="e-mail address the token belongs to")
    token: SecretStr | None = Field(None, description="API token")
    project: str = Field("GPU", description="key of the project that takes the issues")
    issue_type: str = Field("Task", description="name of the type of issue")
    done_transition: str = Field("Done", description="name of the transition that closes an issue")
    timeout_s: float = Field(10.0, gt=0, description="one request")
    search_lag_s: float = Field(
        5.0, ge=0, description="pause between two searches for an issue that may have been created"
    )

    _none_when_empty = field_validator("base_url", "token", mode="before")(_none_when_empty)
