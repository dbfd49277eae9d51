"""Every metric that a process of Faultline exposes, in one table: name, kind, labels with their bounds, and who has it.

Names and units follow Prometheus: base units, `_total` for counters, no unit in a label. No label is a node, a pod, a job, an
incident or a person: their number has no bound. The cluster is a label of the scrape's target. `docs/reference/metrics.md` is
written from this table.
"""

from __future__ import annotations

from streams.model.conversation import Verb
from streams.model.incident import IncidentState
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.run import Mode, RunOutcome, RunState
from streams.telemetry.registry import Family, Label

DELAYS = (
    *(0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0),
    *(120.0, 300.0, 600.0, 1800.0, 3600.0),
)
"""Buckets along the way of a fault: from what a decisive one takes to what a collective's own timeout takes."""
CALLS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Buckets of calls, iterations and commits."""

READERS = frozenset({"detector", "correlator", "responder", "chat", "notifier", "gateway", "archive"})
"""The processes that read topics."""
CALLERS = frozenset({"responder", "chat", "notifier"})
"""The processes that call other systems."""
TELLERS = frozenset({"chat", "notifier"})
DETECTOR, INVENTORY, CORRELATOR = frozenset({"detector"}), frozenset({"inventory"}), frozenset({"correlator"})
RESPONDER, GATEWAY, ARCHIVE = frozenset({"responder"}), frozenset({"gateway"}), frozenset({"archive"})

STAGES = ("detector", "correlator", "responder", "chat", "notifier")
LETTER_REASONS = ("unreadable", "failed")
RECORD_OUTCOMES = ("signals", "ignored", "handled", "dead_letter")
UNKNOWN_KINDS = ("xid", "sxid", "line", "alert")
EFFECT_OUTCOMES = ("confirmed", "refused", "failed", "unknown", "undone", "would")
CALL_OUTCOMES = (
    *("done", "already_done", "absent", "waiting", "retry", "unknown", "refused", "blocked", "withheld"),
    "failed",
)
RULINGS = ("ask", "hold", "refuse")
PLACES = ("slack", "console", "jira", "pagerduty", "servicenow")
HOOKS = ("alertmanager", "events", "jira", "pagerduty", "servicenow", "slack")
FACTS = ("node", "pod", "job", "link")
STANDING = tuple(state.value for state in IncidentState if not state.is_over)

_TOPIC = Label("topic", most=40, meaning="a topic, without the installation's prefix")
_PARTITION = Label("partition", most=1000, meaning="number of the partition")
_FAMILY = Label("family", tuple(IncidentFamily), meaning="family of the incident")
_ACTION = Label("action", most=60, meaning="an action of runbooks")
_SYSTEM = Label("system", most=100, meaning="the system that is called, or the name of a sink")
_SINK = Label("sink", most=100, meaning="slack, or a name under notifier.sinks")

BUILD_INFO = Family(
    "build_info",
    "gauge",
    "Always 1; its labels tell the version and which process this is.",
    (
        Label("version", most=1, meaning="version of Faultline"),
        Label("component", most=1, meaning="the process"),
    ),
)
CONFIG_INFO = Family(
    "config_info",
    "gauge",
    "1 for the version of settings, runbooks and catalog in force, 0 for those before it; none where no file is loaded.",
    (Label("digest", most=50, meaning="digest of the files, and the revision behind a plus sign"),),
)
CONFIG_RELOADS = Family(
    "config_reloads",
    "counter",
    "Sets of changed files by what became of them: refused and needs_restart leave what was loaded before in force.",
    (Label("outcome", ("loaded", "refused", "needs_restart"), meaning="what became of the set"),),
)
CONFIG_PENDING = Family(
    "config_pending",
    "gauge",
    "1 while the files that lie there are not in force: they were refused, need a restart, or wait for REVISION; else 0.",
)
SPANS = Family(
    "spans",
    "counter",
    "Spans by what became of them: sent, failed (the collector did not take them) or dropped (the queue was full).",
    (Label("outcome", ("sent", "failed", "dropped"), meaning="what became of the span"),),
)
READY = Family("ready", "gauge", "1 while /ready answers 200.")
STALLED = Family("stalled", "gauge", "1 while /live answers 503: a loop or a partition does not move on.")
LAST_PROGRESS = Family(
    "last_progress_timestamp_seconds",
    "gauge",
    "When each loop of the process last made progress, idle iterations included, in seconds since 1970.",
    (Label("loop", most=1100, meaning="main loop, or the loop of a partition"),),
)

LAG_RECORDS = Family(
    "consumer_lag_records",
    "gauge",
    "Records of a partition that are not processed yet: its end offset less the position processed. 0 while it is idle.",
    (_TOPIC, _PARTITION),
    READERS,
)
LAG_SECONDS = Family(
    "consumer_lag_seconds",
    "gauge",
    "Seconds that the oldest unprocessed record of a partition has waited at most. 0 while there is none, however long the"
    " partition is idle; it ages by itself while a partition is stuck.",
    (_TOPIC, _PARTITION),
    READERS,
)
STUCK_SECONDS = Family(
    "consumer_stuck_seconds",
    "gauge",
    "Seconds for which a partition's processing has not moved although records wait and the broker answers. 0 while it is idle.",
    (_TOPIC, _PARTITION),
    READERS,
)
LAG_CHECKED = Family(
    "lag_checked_timestamp_seconds",
    "gauge",
    "When the broker last told where the partitions end, in seconds since 1970: older lag figures are out of date.",
    processes=READERS,
    absent=True,
)
RECORDS = Family(
    "records",
    "counter",
    "Records read, and what became of them.",
    (_TOPIC, Label("outcome", RECORD_OUTCOMES, meaning="what became of the record")),
    READERS,
)
DEAD_LETTERS = Family(
    "dead_letters",
    "counter",
    "Records written to dead-letters.",
    (
        Label("stage", STAGES, meaning="the process that could not read it"),
        Label(
            "reason", LETTER_REASONS, meaning="unreadable, or failed: a reader itself failed, which is a bug"
        ),
    ),
    frozenset(STAGES),
)

SIGNALS = Family(
    "signals",
    "counter",
    "Signals published, by their kind.",
    (Label("kind", tuple(SignalKind), meaning="kind of the signal"),),
    DETECTOR,
)
UNKNOWN_CODES = Family(
    "unknown_codes",
    "counter",
    "Codes, errors and alerts that no row of the catalogs knows.",
    (Label("kind", UNKNOWN_KINDS, meaning="what is unknown: a code, or a whole line or alert"),),
    DETECTOR,
)
SIGNAL_DELAY = Family(
    "signal_delay_seconds",
    "histogram",
    "From the time in the line, event or sample until its signal is acknowledged by the broker. Counts of repeats are left out:"
    " they wait for the end of their window.",
    processes=DETECTOR,
    buckets=DELAYS,
)
SHIPPER_LAST_RECORD = Family(
    "shipper_last_record_timestamp_seconds",
    "gauge",
    "When the last record of a raw topic was read, by the clock of the detector, in seconds since 1970.",
    (_TOPIC,),
    DETECTOR,
)
SHIPPER_LAST_EVENT = Family(
    "shipper_last_event_timestamp_seconds",
    "gauge",
    "The latest time that the records of a raw topic carry, in seconds since 1970.",
    (_TOPIC,),
    DETECTOR,
)

INVENTORY_FACTS = Family(
    "inventory_facts",
    "gauge",
    "Facts published about what is there now.",
    (Label("kind", FACTS, meaning="what the fact is about"),),
    INVENTORY,
)
INVENTORY_CHANGES = Family(
    "inventory_changes", "counter", "Facts and tombstones published.", processes=INVENTORY
)

INCIDENTS = Family(
    "incidents",
    "gauge",
    "Incidents that are not over, of the partitions that this correlator owns.",
    (Label("state", STANDING, meaning="state of the incident"), _FAMILY),
    CORRELATOR,
)
INCIDENTS_OPENED = Family("incidents_opened", "counter", "Incidents opened.", (_FAMILY,), CORRELATOR)
INCIDENT_DELAY = Family(
    "incident_delay_seconds",
    "histogram",
    "From when Kafka received the newest evidence of the fault until its incident is acknowledged by the broker.",
    (_FAMILY,),
    CORRELATOR,
    DELAYS,
)
DETECTION_DELAY = Family(
    "detection_delay_seconds",
    "histogram",
    "From the fault, in event time, until its incident was opened. Of a hanging job that includes the collective's own timeout.",
    processes=CORRELATOR,
    buckets=DELAYS,
)
CULPRIT_CHANGES = Family(
    "culprit_changes",
    "counter",
    "Incidents merged into another one because the root cause turned out to be elsewhere.",
    processes=CORRELATOR,
)

RUNS = Family(
    "runs",
    "gauge",
    "Runs that are not over, of the partitions that this responder owns.",
    (Label("state", tuple(state for state in RunState if not state.is_over), meaning="state of the run"),),
    RESPONDER,
)
RUNS_ENDED = Family(
    "runs_ended",
    "counter",
    "Runs that ended.",
    (Label("outcome", tuple(one for one in RunOutcome if one), meaning="how the run ended"),),
    RESPONDER,
)
EFFECTS = Family(
    "effects",
    "counter",
    "Outward changes, by what became of them: would is what shadow mode would have done, failed a call that is made again,"
    " unknown one that is looked up.",
    (_ACTION, Label("outcome", EFFECT_OUTCOMES, meaning="what became of it")),
    RESPONDER,
)
UNKNOWN_EFFECTS = Family(
    "unknown_effects",
    "gauge",
    "Outward changes of runs under way of which it is not known whether they took place: they are looked up until it is.",
    (_ACTION,),
    RESPONDER,
)
EFFECT_DELAY = Family(
    "effect_delay_seconds",
    "histogram",
    "From the opening of an incident until the first effect of its run is confirmed.",
    (_ACTION,),
    RESPONDER,
    DELAYS,
)
FAULT_TO_EFFECT = Family(
    "fault_to_effect_seconds",
    "histogram",
    "From the fault, in event time, until the first effect against it is confirmed.",
    processes=RESPONDER,
    buckets=DELAYS,
)
JOB_RECOVERY = Family(
    "job_recovery_seconds",
    "histogram",
    "From the fault, in event time, until the job that it stopped makes progress again.",
    processes=RESPONDER,
    buckets=DELAYS,
)
REFUSALS = Family(
    "refusals",
    "counter",
    "Objections of guardrails to a step: asked about, held or refused; of a step in shadow mode what it would have been.",
    (
        Label("guardrail", most=60, meaning="the rule, as timelines name it"),
        Label("ruling", RULINGS, meaning="what it means for the step"),
    ),
    RESPONDER,
)
BREAKER_OPEN = Family("breaker_open", "gauge", "Clusters whose breaker is open.", processes=RESPONDER)
KILL_SWITCH = Family("kill_switch", "gauge", "Clusters whose kill switch is engaged.", processes=RESPONDER)
FREEZES = Family("freezes", "gauge", "Freezes in force.", processes=RESPONDER)
MODE = Family(
    "mode",
    "gauge",
    "1 for the mode in responder.mode, 0 for the others.",
    (Label("mode", tuple(Mode), meaning="how far runs may go on their own"),),
    RESPONDER,
)
IN_FLIGHT = Family("in_flight_calls", "gauge", "Calls to other systems under way.", (_SYSTEM,), RESPONDER)
ITERATION = Family(
    "iteration_seconds",
    "histogram",
    "One iteration of a partition's runs: deciding and committing.",
    processes=RESPONDER,
    buckets=CALLS,
)
COMMANDS = Family(
    "commands",
    "counter",
    "Commands of people that the responder took.",
    (
        Label("verb", tuple(Verb), meaning="what was commanded"),
        Label("outcome", ("taken", "refused"), meaning="whether this responder may act on it"),
    ),
    RESPONDER,
)

SINK_BACKLOG = Family(
    "sink_backlog", "gauge", "Messages, pages or silences that are not as they should be.", (_SINK,), TELLERS
)
SINK_OLDEST = Family(
    "sink_oldest_seconds", "gauge", "Seconds for which the oldest of them has been due.", (_SINK,), TELLERS
)
CONNECTOR_CALLS = Family(
    "connector_calls",
    "counter",
    "Calls to other systems, by what they returned: failed is a connector that itself failed, withheld a call that was not sent.",
    (_SYSTEM, Label("outcome", CALL_OUTCOMES, meaning="what the call returned")),
    CALLERS,
)
CONNECTOR_SECONDS = Family(
    "connector_call_seconds", "histogram", "How long calls to other systems take.", (_SYSTEM,), CALLERS, CALLS
)

HOOK_DELIVERIES = Family(
    "hook_deliveries",
    "counter",
    "Deliveries of other systems to the gateway's hooks.",
    (
        Label("hook", HOOKS, meaning="the hook"),
        Label("outcome", ("accepted", "refused", "failed"), meaning="what was answered"),
    ),
    GATEWAY,
)
COMMANDS_SENT = Family(
    "commands_sent",
    "counter",
    "Commands that people gave here, written for the responder.",
    (
        Label("verb", tuple(Verb), meaning="what was commanded"),
        Label("via", PLACES, meaning="where it was given"),
    ),
    GATEWAY,
)
ARCHIVE_ROWS = Family("archive_rows", "counter", "Rows written to Parquet.", (_TOPIC,), ARCHIVE)

FAMILIES: tuple[Family, ...] = tuple(one for one in list(globals().values()) if isinstance(one, Family))
"""All of them, in the order in which they stand above."""
