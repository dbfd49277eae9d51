"""Commands of operators, timeline entries, and dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, Field

from streams.model.signal import Attribute


class Verb(StrEnum):
    """What an operator can command. Free text never becomes a command."""

    ACK = "ack"
    APPROVE = "approve"
    REJECT = "reject"
    STOP = "stop"
    RESOLVE = "resolve"
    KILL = "kill"
    UNKILL = "unkill"
    FREEZE = "freeze"
    THAW = "thaw"
    RESET = "reset"
    OBSERVE = "observe"
    """The pool in `scope` goes back to stage observe: nothing is done there, whatever the settings say."""
    MAINTENANCE = "maintenance"
    """Begins planned work on `nodes`, or extends it, until `until`."""
    MAINTENANCE_STOP = "maintenance_stop"
    """Planned work on `nodes` is done: they are validated and given back."""
    LIFT = "lift"
    """Ends an `observe`: the stage of the settings holds again."""
    RELEASE = "release"
    HAND_OVER = "hand_over"
    """A person takes the incident over: its run stops, and what it did stays."""
    SNOOZE = "snooze"
    """Not now: destructive steps that have not begun wait until `until`."""
    SILENCE = "silence"
    """No posts and pages about the incident until `until`; decisions are still shown."""
    NOTE = "note"
    """The reason becomes a line of the incident's timeline."""
    DRILL = "drill"
    """Announces a drill on the host in `scope`: a responder that plans drills in shadow mode only says so. It changes nothing."""
    RUN = "run"
    """A person starts `runbook` for the incident, or for the node in `scope` where no incident is named."""
    CONTINUE = "continue"
    """A person takes up the run in `run`, which ended early, from its first unfinished step."""
    REDO = "redo"
    """A person has the failed `step` of the run in `run` done again."""


CLUSTER_VERBS = frozenset(
    {Verb.KILL, Verb.UNKILL, Verb.FREEZE, Verb.THAW, Verb.RESET, Verb.OBSERVE, Verb.LIFT}
)
"""Commands for a whole cluster: they change its `Control` and need no incident."""


BY_HAND = frozenset({Verb.RUN, Verb.CONTINUE, Verb.REDO})
"""Commands that start a run: each is bound by `digest` to the plan that the person was shown."""


GROUP_SOURCES = ("slack", "oidc")
"""Systems that say which groups a person is in; a group is written `source:name` (`slack:S0123ABC`, `oidc:sre`)."""


def is_group(name: str) -> bool:
    """Whether a name among approvers is a group of another system. No person's own name or id is ever taken for one."""
    return name.strip().partition(":")[0] in GROUP_SOURCES and ":" in name


_Name = Annotated[str, Field(max_length=1000)]
"""A name in a command, bounded because run documents store it; of a reason they store the beginning only."""


_Value = Annotated[str, Field(max_length=1000)] | bool | int | float


@dataclass(frozen=True, slots=True)
class Command:
    """One command about an incident, or about a cluster, and then `incident` is empty.

    `digest` binds an approval to the plan that was shown. A freeze and its thaw name their `scope` (`pool:NAME`,
    `namespace:NAME`, empty for the whole cluster); a freeze ends at `until` by itself, where that is given; a snooze and a
    silence always end at it. A release is of the node in its `scope` (`node:NAME`), and of one incident's hold on it where one
    is named.
    """

    id: _Name
    incident: _Name
    cluster: _Name
    verb: Verb
    actor: _Name
    at: AwareDatetime
    step: _Name | None = None
    digest: _Name | None = None
    reason: str = ""
    via: _Name = "cli"
    scope: _Name = ""
    until: AwareDatetime | None = None
    nodes: Annotated[tuple[_Name, ...], Field(max_length=2000)] = ()
    """The nodes that planned work is on."""
    groups: Annotated[tuple[_Name, ...], Field(max_length=500)] = ()
    """What the system that proved the actor's identity says the person is in: `slack:S0123ABC`, `oidc:sre`."""
    runbook: _Name = ""
    """Id of the runbook to start."""
    parameters: Annotated[Mapping[_Name, _Value], Field(max_length=40)] = field(default_factory=dict)
    """Values for its parameters; the others have their defaults."""
    run: _Name = ""
    """Id of the run to take up again."""
    seen: Annotated[tuple[_Name, ...], Field(max_length=300)] = ()
    """The plan as the person was shown it, a line for each step: where it differs by now, the answer says in what."""
    schema: int = 1


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One line of what happened and why. `actor` is a process or an operator; `event` is a short dotted name.

    `incident` is empty for events of the whole cluster; the record's key is then the cluster's name.
    """

    incident: str
    cluster: str
    at: AwareDatetime
    actor: str
    event: str
    text: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    schema: int = 1


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be processed: its coordinates, the stage that failed, and why. The bytes are the record's value."""

    stage: str
    reason: str
    topic: str
    partition: int
    offset: int
    timestamp: AwareDatetime
    size_bytes: int
    truncated: bool = False
    """Only the beginning of the value is kept."""
    tombstone: bool = False
    """The record had no value."""
    cut_short: bool = False
    """Only a part of its key or headers is kept."""
