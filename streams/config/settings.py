"""What can be set, room by room. Values only: reading them from file and environment is the front door's work.

A room takes the section it needs and never the whole; so it can be used and tested without the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from pydantic_core import PydanticCustomError

from streams.config.cron import check_cron, latest_cron
from streams.config.setting_types import (
    Bootstrap,
    Channel,
    ClusterName,
    HeaderName,
    JobKind,
    Label,
    LabelKey,
    Name,
    Namespace,
    NodePattern,
    Person,
    ProjectKey,
    TopicPrefix,
    Url,
    suggestion,
)
from streams.model.run import Mode

DAY_S = 86400.0


Contradiction = tuple[tuple[str, ...], str]
"""The keys that do not go together, the one to tell it at first, and why."""


def contradicting(found: Sequence[Contradiction]) -> PydanticCustomError:
    """The error with which a model tells of everything in it that does not go together."""
    what = "; ".join(f"{keys[0]}: {why}" for keys, why in found)
    return PydanticCustomError("contradictions", "{what}", {"what": what, "found": tuple(found)})


class Section(BaseModel):
    """Base of every group of settings: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def contradictions(self) -> Iterator[Contradiction]:
        """What does not go together, though each value is fine by itself."""
        yield from ()

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if found := list(self.contradictions()):
            raise contradicting(found)
        return self


class KafkaSettings(Section):
    """How to reach Kafka, and the few things that differ between a laptop and a cluster."""

    bootstrap: Bootstrap = Field(
        "127.0.0.1:9092", description="host:port of one or more brokers, separated by commas"
    )
    topic_prefix: TopicPrefix = Field(
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
        3, ge=1, le=100, description="copies of each topic; 1 only where there is one broker"
    )
    min_insync_replicas: int = Field(2, ge=1, le=100, description="copies that must confirm a write")
    raw_partitions: int = Field(
        12, ge=1, le=10_000, description="partitions of each raw.* topic and of dead-letters"
    )
    cluster_partitions: int = Field(
        8, ge=1, le=1000, description="partitions of every internal topic; cannot be changed in place"
    )
    session_timeout_ms: int = Field(
        15000, ge=1000, le=1_800_000, description="how long a silent process keeps its partitions"
    )
    check_crcs: bool = Field(True, description="verify record checksums; off only for the embedded broker")
    managed_topics: bool = Field(
        True, description="check topics at start; off only for brokers without an admin API"
    )

    def contradictions(self) -> Iterator[Contradiction]:
        """A login that is not used or not whole, and more copies to confirm than there are."""
        if (
            "min_insync_replicas" in self.model_fields_set
            and self.min_insync_replicas > self.replication_factor
        ):
            what = f"{self.min_insync_replicas} copies cannot confirm a write where there are {self.replication_factor}"
            yield ("min_insync_replicas", "replication_factor"), f"{what} (kafka.replication_factor)"
        protocol = self.security_protocol
        unused = f"nothing uses it, as kafka.security_protocol is {protocol}"
        for key in ("sasl_username", "sasl_password"):
            given = bool(getattr(self, key))
            if given is not protocol.startswith("SASL"):
                yield (key, "security_protocol"), unused if given else f"not set, and {protocol} needs it"
        for key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
            if getattr(self, key) is not None and not protocol.endswith("SSL"):
                yield (key, "security_protocol"), unused
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            yield ("ssl_keyfile", "ssl_certfile"), "it needs kafka.ssl_certfile beside it"

    @property
    def heartbeat_interval_ms(self) -> int:
        """How often a member of a group says that it lives."""
        return max(300, self.session_timeout_ms // 5)


class DetectorSettings(Section):
    """The process that sees every byte."""

    batch_records: int = Field(10_000, ge=1, le=1_000_000, description="records taken per poll")
    poll_ms: int = Field(200, ge=1, le=10_000, description="how long a poll waits for the first record")
    cluster_header: HeaderName = Field(
        "faultline-cluster", description="record header that names the cluster; else `cluster` is used"
    )
    snapshot_s: float = Field(
        15.0,
        gt=0,
        le=3600,
        description="how often what is remembered of a partition is written down, when it changed",
    )


class InventorySettings(Section):
    """The process that watches the API server."""

    relist_s: float = Field(
        1800.0, ge=10, le=DAY_S, description="full list at least this often, whatever the watch says"
    )
    page_size: int = Field(500, ge=1, le=10_000, description="objects per page of a list")
    job_kinds: tuple[JobKind, ...] = Field(
        ("batch/v1/Job", "kubeflow.org/v1/PyTorchJob"), description="group/version/Kind of jobs to watch"
    )
    topology_file: Path | None = Field(
        None, description="YAML of switch ports and the host NICs behind them, and of where nodes stand"
    )
    leaf_labels: tuple[LabelKey, ...] = Field(
        (),
        description="labels that name a node's leaf, before those that are known, e.g. a level of a Kueue Topology",
    )
    rack_labels: tuple[LabelKey, ...] = Field(
        (), description="labels that name a node's rack, before those that are known"
    )
    nvlink_domain_labels: tuple[LabelKey, ...] = Field(
        (), description="labels that name a node's NVLink domain, before those that are known"
    )
    protected_labels: tuple[Label, ...] = Field(
        (), description="labels, as key or key=value, of nodes that runbooks never act on"
    )
    host_name_labels: tuple[str, ...] = Field(
        (),
        description="labels and annotations with other names of the machine by which logs may call it (a serial "
        "number, a name in another domain), with commas between them",
    )
    lldp_folder: Path | None = Field(
        None, description="folder of LLDP tables, one file for each host or switch, named like it"
    )


class CorrelatorSettings(Section):
    """The process that joins signals into incidents."""

    tick_s: float = Field(1.0, gt=0, le=15, description="how often time is told to the correlator")
    session_timeout_ms: int = Field(
        6000,
        ge=1000,
        le=300_000,
        description="how long a correlator that was killed keeps its clusters; kafka.session_timeout_ms where that is less",
    )
    retention_minutes: float = Field(
        45.0,
        gt=0,
        le=7 * 24 * 60,
        description="how long placements and signals are kept for back-dated faults",
    )
    hang_settle_s: float = Field(
        20.0,
        ge=0,
        le=3600,
        description="a culprit is named from watchdogs alone after no report for this long",
    )
    application_settle_s: float = Field(
        10.0,
        ge=0,
        le=3600,
        description="how long an application fault waits for hardware evidence to explain it",
    )
    node_settle_s: float = Field(
        30.0, ge=0, le=3600, description="how long a node must be NotReady to be an incident"
    )


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
    window_s: float = Field(3600.0, gt=0, le=31 * DAY_S, description="length of that window")
    per_pool: Cap = Field(Cap(), description="Nodes of one pool.")
    per_rack: Cap = Field(Cap(), description="Nodes of one rack.")
    per_leaf: Cap = Field(Cap(), description="Nodes behind one leaf switch.")
    per_job: Cap = Field(Cap(), description="Nodes that one job runs on or was moved from.")


class Breaker(Section):
    """When to stop all destructive steps until a person resets the breaker."""

    failures: int = Field(3, ge=0, description="runs that failed after they began to act; 0: never for that")
    failures_window_s: float = Field(7200.0, gt=0, le=31 * DAY_S, description="within how long")
    mass_share: float = Field(
        0.3, gt=0, le=1, description="share of the cluster's nodes that incidents want to act on"
    )
    mass_min_nodes: int = Field(
        8, ge=0, description="and at least so many nodes, for the sake of small clusters; 0: never for that"
    )
    mass_window_s: float = Field(
        600.0, gt=0, le=31 * DAY_S, description="incidents opened within how long count together"
    )


class Protection(Section):
    """Nodes that are not closed without a person, and how much a pool and a job keep."""

    nodes: tuple[NodePattern, ...] = Field(
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

    name: Name = Field(description="shown to whoever is held by it")
    kind: Literal["freeze", "maintenance"] = Field(
        "freeze", description="how it is called; both hold the same"
    )
    start: AwareDatetime | None = Field(None, description="once, from here")
    end: AwareDatetime | None = Field(None, description="until here")
    cron: str | None = Field(
        None, description="again and again, from here: minute hour day-of-month month day-of-week"
    )
    duration_s: float | None = Field(None, gt=0, le=31 * DAY_S, description="for so long")
    tz: str = Field("UTC", description="time zone of cron, e.g. Europe/Berlin")
    clusters: tuple[ClusterName, ...] = Field((), description="only these; all when empty")
    pools: tuple[Name, ...] = Field((), description="only nodes of these pools")
    namespaces: tuple[Namespace, ...] = Field((), description="only jobs of these namespaces")

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
            check_cron(self.cron)
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
        began = latest_cron(self.cron, now, ZoneInfo(self.tz), length)
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
        12.0,
        gt=0,
        le=3600,
        description="how long after its intent a call may still start, one of the chat too",
    )
    freshness_s: float = Field(
        3600.0,
        gt=0,
        le=31 * DAY_S,
        description="asked about, not acted on: an incident not updated for longer, and a fault whose newest "
        "evidence was older when it was read",
    )
    calls_at_once: int = Field(
        64,
        ge=1,
        le=1000,
        description="calls under way at once that act on the cluster or look at what one did",
    )
    tickets_at_once: int = Field(8, ge=1, le=1000, description="the same for the ticket system")
    tickets_per_10_min: int = Field(
        60,
        ge=1,
        le=1_000_000,
        description="tickets opened within ten minutes, the last quarter for fresh decisive faults; further ones wait, "
        "and an incident that ends meanwhile gets none",
    )
    approval_expiry_s: float = Field(
        4 * 3600.0, gt=0, le=31 * DAY_S, description="how long an approval is waited for"
    )
    approvers: tuple[Person, ...] = Field(
        (), description="who may approve; empty means everybody who can write a command"
    )
    approval_groups: Mapping[Name, tuple[Person, ...]] = Field(
        {}, description="groups of people by name; one person's several names have a | between them"
    )
    approval_classes: Mapping[ActionClass, ApprovalClass] = Field(
        {}, description="who approves close, move, reset, reboot and replace: a group and a quorum for each"
    )

    def contradictions(self) -> Iterator[Contradiction]:
        """A group nobody is in, or a quorum that no group fills, would let every run expire: better said at the start."""
        for name, members in self.approval_groups.items():
            if not members:
                yield (f"approval_groups.{name}",), "a group needs the names of its people"
        everyone = set(self.approvers or [p for people in self.approval_groups.values() for p in people])
        for kind in get_args(ActionClass):
            rule = self.approval_classes.get(kind, ApprovalClass())
            key = f"approval_classes.{kind}"
            if rule.group and rule.group not in self.approval_groups:
                known = ", ".join(sorted(self.approval_groups)) or "none"
                meant = suggestion(rule.group, [*self.approval_groups])
                yield (
                    (key, "approval_groups"),
                    f"no group {rule.group}; approval_groups has {known}{meant}",
                )
                continue
            people = set(self.approval_groups[rule.group]) if rule.group else everyone
            quorum = rule.quorum or (2 if kind in GRAVE and self.approval_groups else 1)
            if people and len(people) < quorum:
                yield (
                    (key, "approval_groups", "approvers"),
                    f"{quorum} people are asked for, and {rule.group or 'all groups'} has {len(people)}; "
                    "set its quorum or add people",
                )


class KubernetesSettings(Section):
    """The API server. Without a kubeconfig the pod's own service account is used."""

    kubeconfig: Path | None = Field(None, description="not set: the pod's own service account")
    context: str | None = Field(None, description="context of the kubeconfig; its current one when not set")
    timeout_s: float = Field(10.0, gt=0, le=300, description="one request")


class NodeWorkSettings(Section):
    """Jobs that reset a GPU, reboot a node or validate it. An action without a template is not offered: a person is told."""

    namespace: Namespace = Field("faultline-node-work", description="where the Jobs are created")
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

    base_url: Url = Field("https://slack.com/api", description="where the Web API is")
    token: SecretStr | None = Field(None, description="bot token (xoxb-…)")
    channel: Channel = Field("", description="channel id (C…), not its name: ids survive a rename")
    signing_secret: SecretStr | None = Field(
        None, description="nothing reads it today: buttons are not answered"
    )
    timeout_s: float = Field(10.0, gt=0, le=300, description="one request")
    history_lag_s: float = Field(
        2.0, ge=0, le=300, description="pause between two looks for a message that may have been posted"
    )
    debounce_s: float = Field(
        1.0, ge=0, le=300, description="details of one message are edited at most this often"
    )
    posts_per_s: float = Field(
        1.0, ge=0.001, le=10_000, description="new messages a channel takes; Slack allows about one"
    )
    calls_per_minute: float = Field(
        50.0,
        ge=0.1,
        le=600_000,
        description="calls of each other method and channel; Slack's tier 3 allows fifty",
    )

    _none_when_empty = field_validator("token", "signing_secret", mode="before")(_none_when_empty)

    def contradictions(self) -> Iterator[Contradiction]:
        """A token that has nowhere to post."""
        if self.token is not None and not self.channel:
            yield ("channel", "token"), "not set, and with slack.token there must be a channel to post in"


class JiraSettings(Section):
    """One issue per incident. Without a base URL no ticket is opened."""

    base_url: Url | None = Field(None, description="https://SITE.atlassian.net")
    user: str = Field("", description="e-mail address the token belongs to")
    token: SecretStr | None = Field(None, description="API token")
    project: ProjectKey = Field("GPU", description="key of the project that takes the issues")
    issue_type: Name = Field("Task", description="name of the type of issue")
    done_transition: Name = Field("Done", description="name of the transition that closes an issue")
    timeout_s: float = Field(10.0, gt=0, le=300, description="one request")
    search_lag_s: float = Field(
        5.0, ge=0, le=600, description="pause between two searches for an issue that may have been created"
    )

    _none_when_empty = field_validator("base_url", "token", mode="before")(_none_when_empty)
