"""What settings and files contradict in each other, though each is valid by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, get_args

from faultline.checks.finding import CheckFinding
from faultline.runtime.settings import Settings
from streams.model.clock import utc_now
from streams.model.errors import ConfigError
from streams.model.run import Mode

if TYPE_CHECKING:
    from runbooks.language.schema import Runbook


def contradictions(settings: Settings) -> list[CheckFinding]:
    """Every contradiction, in the order of the sections."""
    return [finding for check in _CHECKS for finding in check(settings)]


def _approvers(settings: Settings) -> Iterator[CheckFinding]:
    """Groups of people that nobody can prove to be in."""
    proven = {
        "slack": (
            settings.slack.takes_answers,
            "set slack.app_token or slack.signing_secret, or name people",
        ),
        "oidc": (settings.console.oidc.issuer is not None, "set console.oidc.issuer, or name people"),
    }
    for group, members in settings.responder.approval_groups.items():
        systems = {member.partition(":")[0] for member in members}
        unproven = [proven[system][1] for system in sorted(systems & proven.keys()) if not proven[system][0]]
        if unproven and systems <= {system for system in proven if not proven[system][0]}:
            what = f"nobody can be in it: {', '.join(members)} is of a system that is not set up"
            yield CheckFinding("fault", f"responder.approval_groups.{group}", what, unproven[0])


def _answers(settings: Settings) -> Iterator[CheckFinding]:
    slack = settings.slack
    if slack.signing_secret is not None and slack.app_token is None and settings.gateway.port == 0:
        yield CheckFinding(
            "fault", "gateway.port", "threads have buttons (slack.signing_secret), and no gateway listens for presses",
            "set gateway.port, or slack.app_token for Socket Mode",
        )  # fmt: skip
    if slack.token is None and (slack.channel or slack.routes):
        yield CheckFinding(
            "warning", "slack.token", "not set, so nothing is posted in slack.channel and slack.routes",
            "set slack.token to the app's bot token (xoxb-…)",
        )  # fmt: skip


def _sinks(settings: Settings) -> Iterator[CheckFinding]:
    for name, sink in settings.notifier.sinks.items():
        if sink.kind == "pagerduty" and sink.api_token is None:
            yield CheckFinding(
                "warning", f"notifier.sinks.{name}.api_token",
                "not set, so a page whose answer was lost cannot be looked up, nor what people did with it",
                "set it to a token that may read incidents",
            )  # fmt: skip


def _windows(settings: Settings) -> Iterator[CheckFinding]:
    """Windows that look further back than what they count is kept, and waits that outlast the evidence."""
    from runbooks.engine.partition_state import KEEP_FINISHED

    responder, correlator, kept_runs_s = (
        settings.responder,
        settings.correlator,
        KEEP_FINISHED.total_seconds(),
    )
    for key, seconds in (
        ("blast_radius.window_s", responder.blast_radius.window_s),
        ("breaker.failures_window_s", responder.breaker.failures_window_s),
        ("approval_expiry_s", responder.approval_expiry_s),
    ):
        if seconds > kept_runs_s:
            what = f"{seconds:g} s is longer than finished runs are kept ({kept_runs_s:g} s), so older ones do not count"
            yield CheckFinding("warning", f"responder.{key}", what, f"set it to {kept_runs_s:g} or less")
    kept_s = correlator.retention_minutes * 60
    for key in ("hang_settle_s", "application_settle_s", "node_settle_s"):
        if (seconds := getattr(correlator, key)) >= kept_s:
            what = f"{seconds:g} s of waiting outlast what is kept (correlator.retention_minutes: {kept_s:g} s): it never ends"
            yield CheckFinding(
                "fault", f"correlator.{key}", what, "make it shorter, or correlator.retention_minutes longer"
            )


def _rollout(settings: Settings) -> Iterator[CheckFinding]:
    from streams.config.rollout_settings import Stage, over

    now = utc_now()
    for key, what in over(settings.responder.rollout, now):
        yield CheckFinding("warning", key, what, "remove the row, or give the stage a new end")
    acting = [row for row in settings.responder.rollout if row.stage_at(now) is not Stage.OBSERVE]
    if acting and settings.responder.mode is Mode.SHADOW:
        pools = ", ".join(row.pool for row in acting)
        yield CheckFinding(
            "warning", "responder.mode", f"shadow, so nothing is done in {pools} either, whatever responder.rollout says",
            "set responder.mode to approve or auto once pools are to be acted on",
        )  # fmt: skip


def _refusals(settings: Settings) -> Iterator[CheckFinding]:
    """Limits and protections that let nothing through: a responder that looks well and never acts."""
    from streams.config.rollout_settings import EVERY_POOL, Stage

    responder = settings.responder
    if responder.mode is Mode.SHADOW:
        return  # nothing is meant to be done
    radius = responder.blast_radius
    for key, value in (
        ("max_nodes", radius.max_nodes), ("max_share", radius.max_share), ("max_per_window", radius.max_per_window),
    ):  # fmt: skip
        if value == 0:
            yield CheckFinding(
                "warning", f"responder.blast_radius.{key}", "0 refuses every destructive step",
                "raise it, or set responder.mode to shadow and say so",
            )  # fmt: skip
    if everything := [pattern for pattern in responder.protect.nodes if not pattern.strip("*")]:
        yield CheckFinding(
            "warning", "responder.protect.nodes", f"{everything[0]} protects every node, so nothing is ever cordoned",
            "name the nodes that are to be left alone",
        )  # fmt: skip
    rows = responder.rollout
    observed = all(row.stage_at(utc_now()) is Stage.OBSERVE for row in rows)
    if observed and any(row.pool == EVERY_POOL for row in rows):
        yield CheckFinding(
            "warning", "responder.rollout", f"every pool is at stage observe, whatever responder.mode {responder.mode} says",
            "move a pool to canary, or set responder.mode to shadow",
        )  # fmt: skip


def _runbooks(settings: Settings) -> Iterator[CheckFinding]:
    """Steps of own runbooks whose connector is not configured, and tickets that nobody opens."""
    from faultline.runtime.runbook_files import of_responder, read_library
    from runbooks.language.schema import NODE_WORK, TICKETS

    try:
        books = of_responder(settings.responder)
    except ConfigError:
        return  # told of by the check of files
    offered = configured_actions(settings)
    own = read_library(settings.responder.runbook_dirs, shipped=False).loaded
    for name, loaded in sorted(own.items()):
        for number, step in enumerate(loaded.runbook.steps):
            if step.action in offered or step.action in TICKETS:
                continue
            left = step.action in NODE_WORK
            yield CheckFinding(
                "warning" if left else "fault", loaded.place("steps", number),
                f"{name}: step {step.id} is {step.action}, for which nothing is configured: "
                + ("it is left to the operator" if left else "its run fails there"),
                _needed_for(step.action),
            )  # fmt: skip
    if settings.responder.mode is not Mode.SHADOW and "open_ticket" not in offered and _opens_tickets(books):
        yield CheckFinding(
            "warning", f"tickets.system ({settings.tickets.system})", "not configured, so ticket steps are skipped",
            "set jira.base_url, or tickets.system and its section",
        )  # fmt: skip


def _opens_tickets(books: tuple[Runbook, ...]) -> bool:
    return any(step.action == "open_ticket" for book in books for step in book.steps)


def configured_actions(settings: Settings) -> frozenset[str]:
    """The actions that a responder with these settings has a connector for."""
    from runbooks.language.schema import NODE_WORK, TICKETS, Action

    # All that the process builds without any setting, and what the engine does by itself.
    found = set(get_args(Action)) - NODE_WORK - TICKETS - {"collect_evidence"}
    found |= {name for name in NODE_WORK if settings.node_work.offers(name)}
    if settings.evidence.hooks:
        found.add("collect_evidence")
    if settings.jira.base_url is not None or settings.tickets.system not in ("jira", "jira-dc"):
        found |= TICKETS
    return frozenset(found)


def _needed_for(action: str) -> str:
    keys = {
        "power_cycle_node": "node_work.redfish or node_work.hook",
        "apply_template": "node_work.object_templates",
        "replace_node": "node_work.object_templates and node_work.replace_node",
        "diagnose_nodes": "node_work.pairs",
        "collect_evidence": "evidence.hooks",
    }
    return f"set {keys.get(action, f'node_work.{action}')}, or take the step out of the runbook"


_CHECKS: tuple[Callable[[Settings], Iterator[CheckFinding]], ...] = (
    _windows,
    _rollout,
    _refusals,
    _approvers,
    _answers,
    _runbooks,
    _sinks,
)
