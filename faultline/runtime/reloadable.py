"""Which settings take effect without a restart, and how: by the sections that each process uses. Pure.

- `live`: swapped between two steps; nothing stops.
- `anew`: the process finishes its step, leaves its group, and begins again in place, with the same process id.
- `restart`: what is fixed when a process starts. A set of files that changes such a setting is not loaded at all: half of a
  change would be a state that nobody wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from faultline.runtime.config_set import ConfigSet
from faultline.runtime.settings import Settings

How = Literal["same", "live", "anew", "restart"]

RESTART = ("cluster", "log_format", "log_level", "http_port", "http_host", "reload_s", "kafka", "kubernetes")
"""For every process: where it is, what it is called, and what it talks to. The wrong one must not be reached by an edit."""

LIVE = frozenset(
    f"responder.{key}"
    for key in (
        "mode", "kill_switch", "runbook_dirs", "tenants", "blast_radius", "breaker", "protect", "closed_times",
        "notices", "rollout", "freshness_s", "snooze_max_s", "approval_expiry_s", "approvers", "approval_groups",
        "people", "approval_classes",
    )
)  # fmt: skip
"""What the responder judges by. Its lease and the numbers of its calls are fixed when it takes up a partition."""

USES: Mapping[str, tuple[str, ...]] = {
    "detector": ("detector",),
    "inventory": ("inventory", "slurm"),
    "correlator": ("correlator",),
    "responder": ("responder", "node_work", "evidence", "slurm", "tickets", "jira", "inventory.maintenance_marks",
                  "console.public_url"),
    "chat": ("slack", "responder.lease_s", "responder.tenants"),
    "notifier": ("notifier", "posts", "console.public_url", "responder.lease_s", "responder.approval_expiry_s"),
    "gateway": ("gateway", "slack", "console", "responder"),
    "archive": ("archive",),
}  # fmt: skip
"""The sections and settings that a process reads, besides those of `RESTART`. A test holds it against the wiring."""

READS_CATALOG = frozenset({"detector", "correlator"})
READS_RUNBOOKS = frozenset({"responder", "gateway"})


@dataclass(frozen=True, slots=True)
class Change:
    """What a new set of files means for one process, and the settings that differ and matter to it."""

    how: How
    keys: tuple[str, ...] = ()


def how_of(key: str) -> How:
    """How a change of one setting takes effect in the processes that use it. What no process is known to use needs a restart."""
    if _within(key, RESTART) or not _within(key, {one for names in USES.values() for one in names}):
        return "restart"
    return "live" if _within(key, LIVE) else "anew"


def change_for(process: str, before: tuple[Settings, ConfigSet], after: tuple[Settings, ConfigSet]) -> Change:
    """What the difference between two sets means for a process."""
    (old, old_set), (new, new_set) = before, after
    keys = tuple(differing(old.model_dump(), new.model_dump()))
    if fixed := tuple(key for key in keys if how_of(key) == "restart"):
        return Change("restart", fixed)
    mine = tuple(key for key in keys if _within(key, USES[process]))
    books = process in READS_RUNBOOKS and old_set.runbooks != new_set.runbooks
    rows = process in READS_CATALOG and old_set.catalog != new_set.catalog
    owners = process == "chat" and old_set.owners != new_set.owners
    if not (mine or books or rows or owners):
        return Change("same")
    live = process == "responder" and all(_within(key, LIVE) for key in mine) and not rows
    return Change("live" if live else "anew", mine)


def differing(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """The keys of settings whose values differ, sections followed down to them. A list or a secret is one value."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from differing(old.get(key), new.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(old, BaseModel) and isinstance(new, BaseModel):
        yield from differing(dict(old), dict(new), path)
    elif old != new:
        yield path


def _within(key: str, names: Any) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in names)
