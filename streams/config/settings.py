"""Settings of the pipeline's processes, a section each. `faultline.runtime.settings` reads them from file and environment.

A process takes the section it needs and never the whole, so it can be used and tested without the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, get_args
from zoneinfo import ZoneInfo

from pydantic import AwareDatetime, Field, SecretStr, field_validator

from streams.config.cron import check_cron, check_zone, latest_cron
from streams.config.kafka_oauth import KafkaOAuthSettings
from streams.config.notice_settings import NoticeSettings
from streams.config.rollout_settings import PoolRollout, contradictory
from streams.config.section import DAY_S as DAY_S
from streams.config.section import Contradiction as Contradiction
from streams.config.section import Section as Section
from streams.config.setting_types import (
    Bootstrap,
    ClusterName,
    HeaderName,
    JobKind,
    Label,
    LabelKey,
    Name,
    Namespace,
    NodePattern,
    PartLabel,
    TopicPrefix,
)
from streams.config.tenant_settings import Tenant
from streams.config.tenant_settings import contradictory as contradictory_tenants
from streams.job_kinds.known import WATCHED_BY_DEFAULT
from streams.model.conversation import is_group
from streams.model.run import Mode
from streams.model.similar import suggestion


class KafkaSettings(Section):
    """How to reach Kafka, and the few things that differ between a laptop and a cluster."""

    bootstrap: Bootstrap = Field(
        "127.0.0.1:9092", description="host:port of one or more brokers, separated by commas"
    )
    topic_prefix: TopicPrefix = Field(
        "", description="put before every topic and group name, so that installations share a broker"
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="protocol the brokers expect"
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = Field(
        "SCRAM-SHA-512", description="with SASL_PLAINTEXT and SASL_SSL"
    )
    sasl_username: str | None = Field(None, description="with PLAIN and SCRAM")
    sasl_password: SecretStr | None = Field(None, description="with PLAIN and SCRAM")
    sasl_password_file: Path | None = Field(
        None, description="a file with the password instead, reread for every connection"
    )
    oauth: KafkaOAuthSettings = KafkaOAuthSettings()
    ssl_cafile: Path | None = Field(None, description="authorities to trust; the system's when not set")
    ssl_certfile: Path | None = Field(None, description="client certificate, PEM")
    ssl_keyfile: Path | None = Field(None, description="key of the client certificate, PEM")
    replication_factor: int = Field(
        3, ge=1, le=100, description="replicas of each topic; 1 only with a single broker"
    )
    min_insync_replicas: int = Field(2, ge=1, le=100, description="replicas that must confirm a write")
    raw_partitions: int = Field(
        12, ge=1, le=10_000, description="partitions of each raw.* topic and of dead-letters"
    )
    cluster_partitions: int = Field(
        8, ge=1, le=1000, description="partitions of every internal topic; cannot be changed in place"
    )
    session_timeout_ms: int = Field(
        15000, ge=1000, le=1_800_000, description="how long an unresponsive process keeps its partitions"
    )
    check_crcs: bool = Field(True, description="verify record checksums; off only for the embedded broker")
    managed_topics: bool = Field(
        True, description="check topics at start; off only for brokers without an admin API"
    )

    def contradictions(self) -> Iterator[Contradiction]:
        """An unused or incomplete login, and more replicas to confirm a write than there are."""
        if (
            "min_insync_replicas" in self.model_fields_set
            and self.min_insync_replicas > self.replication_factor
        ):
            what = f"{self.min_insync_replicas} replicas cannot confirm a write where there are {self.replication_factor}"
            yield ("min_insync_replicas", "replication_factor"), f"{what} (kafka.replication_factor)"
        protocol = self.security_protocol
        unused = f"not used, because kafka.security_protocol is {protocol}"
        yield from self._login(protocol, unused)
        for key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
            if getattr(self, key) is not None and not protocol.endswith("SSL"):
                yield (key, "security_protocol"), unused
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            yield ("ssl_keyfile", "ssl_certfile"), "needs kafka.ssl_certfile as well"

    def _login(self, protocol: str, unused: str) -> Iterator[Contradiction]:
        """What is missing of a login, and what of it is for another protocol or mechanism."""
        oauth = self.sasl_mechanism == "OAUTHBEARER"
        named, passed, file = bool(self.sasl_username), bool(self.sasl_password), self.sasl_password_file
        if not protocol.startswith("SASL"):
            given = {"sasl_username": named, "sasl_password": passed, "sasl_password_file": file is not None}
            for key in (key for key, is_given in given.items() if is_given):
                yield (key, "security_protocol"), unused
            if self.oauth.token_url is not None:
                yield ("oauth.token_url", "security_protocol"), unused
            return
        if oauth:
            if self.oauth.token_url is None:
                yield ("oauth.token_url", "sasl_mechanism"), "not set, and OAUTHBEARER needs it"
            return
        if not named:
            yield ("sasl_username", "security_protocol"), f"not set, and {protocol} needs it"
        if not passed and file is None:
            yield ("sasl_password", "security_protocol"), f"not set, and {protocol} needs it"
        if passed and file is not None:
            yield ("sasl_password", "sasl_password_file"), "set one of the two"

    @property
    def heartbeat_interval_ms(self) -> int:
        """How often a group member sends a heartbeat."""
        return max(300, self.session_timeout_ms // 5)


class DetectorSettings(Section):
    """The detector: reads every raw record."""

    batch_records: int = Field(10_000, ge=1, le=1_000_000, description="most records per poll")
    poll_ms: int = Field(200, ge=1, le=10_000, description="how long a poll waits for the first record")
    cluster_header: HeaderName = Field(
        "faultline-cluster", description="record header that names the cluster; without it, `cluster`"
    )
    snapshot_s: float = Field(
        15.0, gt=0, le=3600, description="how often the state of a partition is saved, if it changed"
    )


class InventorySettings(Section):
    """The inventory: watches the API server."""

    relist_s: float = Field(
        1800.0, ge=10, le=DAY_S, description="full list at least this often, besides the watch"
    )
    page_size: int = Field(500, ge=1, le=10_000, description="objects per page of a list")
    job_kinds: tuple[JobKind, ...] = Field(
        WATCHED_BY_DEFAULT,
        description="group/version/Kind of jobs to watch; those that are not installed, or not permitted, are asked for again "
        "every minute. Of several versions the first that is served is watched",
    )
    topology_file: Path | None = Field(
        None, description="YAML of switch ports, the host NICs behind them, and the location of nodes"
    )
    leaf_labels: tuple[LabelKey, ...] = Field(
        (), description="labels that name a node's leaf, tried first, e.g. a level of a Kueue Topology"
    )
    rack_labels: tuple[LabelKey, ...] = Field((), description="labels that name a node's rack, tried first")
    nvlink_domain_labels: tuple[LabelKey, ...] = Field(
        (), description="labels that name a node's NVLink domain, tried first"
    )
    training_labels: tuple[Label, ...] = Field(
        (),
        description="labels or annotations, as key or key=value, of pods and jobs that are training, whatever they look like",
    )
    part_labels: tuple[PartLabel, ...] = Field(
        (),
        description="labels that name what nodes share, as kind=label, tried first, e.g. power-feed=example.com/pdu",
    )
    protected_labels: tuple[Label, ...] = Field(
        (), description="labels, as key or key=value, of nodes that runbooks never act on"
    )
    node_selector: tuple[Label, ...] = Field(
        (),
        description="labels, as key or key=value, that all nodes of this installation bear; others are left out and never acted "
        "on: for a cluster that several installations share",
    )
    host_name_labels: tuple[str, ...] = Field(
        (),
        description="labels and annotations with other names of the machine in logs, separated by commas (a serial "
        "number, a name in another domain)",
    )
    maintenance_marks: tuple[Label, ...] = Field(
        (),
        description="labels, annotations or taints, as key or key=value, that say that somebody works on a node, besides "
        "those that are known",
    )
    lldp_folder: Path | None = Field(
        None, description="folder of LLDP tables, one file per host or switch, named like it"
    )


class CorrelatorSettings(Section):
    """The correlator: joins signals into incidents."""

    tick_s: float = Field(1.0, gt=0, le=15, description="how often rules that wait for time are checked")
    session_timeout_ms: int = Field(
        6000,
        ge=1000,
        le=300_000,
        description="how long a killed correlator keeps its clusters; at most kafka.session_timeout_ms",
    )
    retention_minutes: float = Field(
        45.0, gt=0, le=10_080, description="how long placements and signals are kept for back-dated faults"
    )
    hang_settle_s: float = Field(
        20.0, ge=0, le=3600, description="quiet time before watchdog reports alone name a culprit"
    )
    application_settle_s: float = Field(
        10.0, ge=0, le=3600, description="how long an application fault waits for hardware evidence"
    )
    node_settle_s: float = Field(
        30.0, ge=0, le=3600, description="how long a node must be NotReady before it is an incident"
    )
    notice_lead_s: float = Field(
        24 * 3600.0,
        ge=0,
        le=31 * DAY_S,
        description="how long before its announced end a node's notice opens its incident; until then it is only listed. More "
        "than responder.approval_expiry_s and responder.notices need, or people are asked too late; 31 days: at once",
    )


class Cap(Section):
    """How many nodes of a pool, rack, leaf or job may be cordoned at once. No limit when neither is set."""

    max_nodes: int | None = Field(None, ge=0, description="nodes cordoned by Faultline at once")
    max_share: float | None = Field(
        None, ge=0, le=1, description="share of its nodes, at least one node unless it is 0"
    )


class BlastRadius(Section):
    """How much may be under destructive action at once. Undo, uncordon and resume are never limited."""

    max_nodes: int = Field(3, ge=0, description="nodes cordoned by Faultline at once, per cluster")
    max_share: float = Field(
        0.1, ge=0, le=1, description="share of the cluster's nodes cordoned by Faultline at once"
    )
    max_per_window: int = Field(6, ge=0, description="destructive steps started per window and cluster")
    window_s: float = Field(3600.0, gt=0, le=31 * DAY_S, description="length of that window")
    per_pool: Cap = Field(Cap(), description="Nodes of one pool.")
    per_rack: Cap = Field(Cap(), description="Nodes of one rack.")
    per_leaf: Cap = Field(Cap(), description="Nodes behind one leaf switch.")
    per_job: Cap = Field(Cap(), description="Nodes that one job runs on or was moved from.")


class Breaker(Section):
    """When to stop all destructive steps until an operator resets the breaker."""

    failures: int = Field(3, ge=0, description="runs that failed after they started to act; 0: off")
    failures_window_s: float = Field(
        7200.0, gt=0, le=31 * DAY_S, description="length of the window in which they count"
    )
    mass_share: float = Field(
        0.3, gt=0, le=1, description="share of the cluster's nodes that open incidents would act on"
    )
    mass_min_nodes: int = Field(8, ge=0, description="and at least this many nodes; 0: off")
    mass_window_s: float = Field(
        600.0, gt=0, le=31 * DAY_S, description="length of the window in which new incidents count"
    )


class Protection(Section):
    """Nodes that runbooks never act on, and the capacity that pools and jobs keep."""

    nodes: tuple[NodePattern, ...] = Field(
        (), description="node names that runbooks never act on; an asterisk stands for any characters"
    )
    keep_per_pool: int = Field(
        1, ge=0, description="GPU nodes of a pool that stay schedulable, else approval is needed; 0: off"
    )
    keep_pool_share: float = Field(
        0.0, ge=0, le=1, description="and at least this share of the pool's GPU nodes"
    )
    keep_job_share: float = Field(
        0.0, ge=0, le=1, description="share of a job's nodes its pool must have free before it is moved"
    )


class ClosedTime(Section):
    """A period in which no destructive step starts: a change freeze, or a maintenance window."""

    name: Name = Field(description="shown with the steps it blocks")
    kind: Literal["freeze", "maintenance"] = Field("freeze", description="label only; both block the same")
    start: AwareDatetime | None = Field(None, description="one time, from here")
    end: AwareDatetime | None = Field(None, description="until here")
    cron: str | None = Field(
        None, description="recurring, from here: minute hour day-of-month month day-of-week"
    )
    duration_s: float | None = Field(None, gt=0, le=31 * DAY_S, description="length of a recurring period")
    tz: str = Field("UTC", description="time zone of cron, e.g. Europe/Berlin")
    clusters: tuple[ClusterName, ...] = Field((), description="only these; all when empty")
    pools: tuple[Name, ...] = Field((), description="only nodes of these pools")
    namespaces: tuple[Namespace, ...] = Field((), description="only jobs of these namespaces")

    @field_validator("cron")
    @classmethod
    def _is_cron(cls, value: str | None) -> str | None:
        if value is not None:
            check_cron(value)
        return value

    @field_validator("tz")
    @classmethod
    def _is_zone(cls, value: str) -> str:
        return check_zone(value)

    def contradictions(self) -> Iterator[Contradiction]:
        """Neither one time nor a recurring one, or both."""
        once = self.start is not None and self.end is not None
        again = self.cron is not None and self.duration_s is not None
        if (
            once is again
            or (self.start is None) is not (self.end is None)
            or (self.cron is None) is not (self.duration_s is None)
        ):
            yield (
                ("name", "start", "end", "cron", "duration_s"),
                f"{self.name}: takes either start and end, or cron and duration_s",
            )
        if self.start and self.end and self.end <= self.start:
            yield ("end", "start"), f"{self.name}: its end is not after its start"

    def until(self, now: datetime) -> datetime | None:
        """When the period that is active now ends; None when none is active."""
        if self.start is not None and self.end is not None:
            return self.end if self.start <= now < self.end else None
        if self.cron is None or self.duration_s is None:
            return None
        length = timedelta(seconds=self.duration_s)
        began = latest_cron(self.cron, now, ZoneInfo(self.tz), length)
        return None if began is None or began + length <= now else began + length


ActionClass = Literal["close", "move", "reset", "reboot", "replace"]
"""What a destructive step does to running jobs, the mildest first."""

GRAVE: frozenset[str] = frozenset({"reboot", "replace"})
"""Classes that need two approvers by default, where approval groups are set."""


class ApprovalClass(Section):
    """Who approves one class of actions."""

    group: str = Field("", description="one of responder.approval_groups; empty for all of them")
    quorum: int | None = Field(
        None, ge=1, le=10, description="how many approvers; by default 2 for reboot and replace, else 1"
    )


class ResponderSettings(Section):
    """The responder: runs the runbooks."""

    mode: Mode = Field(Mode.SHADOW, description="most permissive mode of any runbook; shadow changes nothing")
    kill_switch: bool = Field(False, description="stop every destructive step")
    runbook_dirs: tuple[Path, ...] = Field((), description="more runbooks, besides the shipped ones")
    blast_radius: BlastRadius = BlastRadius()
    breaker: Breaker = Breaker()
    protect: Protection = Protection()
    closed_times: tuple[ClosedTime, ...] = Field((), description="change freezes and maintenance windows")
    notices: NoticeSettings = NoticeSettings()
    rollout: tuple[PoolRollout, ...] = Field(
        (),
        description="how far runbooks go in each pool; a pool without a row is limited by responder.mode alone",
    )
    tenants: tuple[Tenant, ...] = Field(
        (), description="teams that share the cluster: whose a job is, and how far runbooks go with it"
    )
    lease_s: float = Field(
        12.0, gt=0, le=3600, description="how long after its intent is committed an outward call may start"
    )
    freshness_s: float = Field(
        3600.0,
        gt=0,
        le=31 * DAY_S,
        description="approval is needed for an incident not updated for longer, and for a fault whose newest "
        "evidence was older than this when it was read",
    )
    calls_at_once: int = Field(
        64, ge=1, le=1000, description="calls in flight that change the cluster or look up a change"
    )
    tickets_at_once: int = Field(8, ge=1, le=1000, description="calls in flight to the ticket system")
    tickets_per_10_min: int = Field(
        60,
        ge=1,
        le=1_000_000,
        description="tickets opened in ten minutes, the last quarter reserved for fresh decisive faults; others wait, "
        "and an incident that ends meanwhile gets none",
    )
    snooze_max_s: float = Field(
        3600.0, gt=0, le=DAY_S, description="how long people can delay a run in all, from its first snooze"
    )
    approval_expiry_s: float = Field(4 * 3600.0, gt=0, le=31 * DAY_S, description="approval timeout")
    approvers: tuple[Name, ...] = Field(
        (), description="who may approve; empty: everyone with write access to the commands topic"
    )
    approval_groups: Mapping[Name, tuple[Name, ...]] = Field(
        {},
        description="approvers by group; aliases of one person are separated by |; slack:S0123ABC and oidc:sre stand for "
        "everybody in that group of Slack or of the login",
    )
    people: tuple[Name, ...] = Field(
        (),
        description="people who approve through groups of several systems, each with all ids, separated by |: they count once",
    )
    approval_classes: Mapping[ActionClass, ApprovalClass] = Field(
        {}, description="a group and a quorum for each of close, move, reset, reboot and replace"
    )

    def contradictions(self) -> Iterator[Contradiction]:
        """An empty group, or a quorum larger than its group: every run would wait until it expires."""
        yield from contradictory(self.rollout)
        yield from contradictory_tenants(self.tenants, self.approval_groups)
        for name, members in self.approval_groups.items():
            if not members:
                yield (f"approval_groups.{name}",), "the group has no members"
        for name in (
            *self.approvers,
            *self.people,
            *(p for group in self.approval_groups.values() for p in group),
        ):
            if "|" in name and any(map(is_group, name.split("|"))):
                yield ("approvers", "approval_groups", "people"), f"{name}: a group is no alias of a person"
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
            if people and not any(map(is_group, people)) and len(people) < quorum:
                yield (
                    (key, "approval_groups", "approvers"),
                    f"needs {quorum} approvers, and {rule.group or 'all groups'} has {len(people)}; "
                    "set its quorum or add people",
                )
