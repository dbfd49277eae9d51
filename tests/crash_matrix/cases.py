"""Every case of the matrix, generated: which step, what goes wrong with its request, where the responder dies, how often.

A case plays one of `books/` from its incident to its end. What it ends in is compared with the same book and the same fault
undisturbed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

CALL_POINTS = (
    "before_intent",
    "in_intent",
    "after_intent",
    "before_request",
    "after_call",
    "before_commit",
    "in_commit",
    "after_commit",
)
LOOK_POINTS = ("before_intent", "in_intent", "after_intent", "after_call", "before_commit", "in_commit")
WRITE_POINTS = ("before_commit", "in_commit", "after_commit")
FAULT_POINTS = ("after_intent", "after_call", "before_commit", "after_commit")

FAULTS = ("throttled", "broken", "lost_answer", "no_answer")
"""429 with Retry-After; 503 without having acted; a cut after having acted; acted, and never answered."""

OCCUPIED = "occupied"
"""Instead of a fault: pods still use the node's GPUs, and end only after the responder has been seen to wait for them."""

CALLS = {
    "open_ticket": "tickets",
    "comment_ticket": "tickets",
    "close_ticket": "tickets",
    "cordon_node": "node",
    "drain_node": "node",
    "uncordon_node": "node",
    "suspend_job": "move",
    "resume_job": "move",
    "verify_job": "move",
    "undo_suspend_job": "back",
    "undo_cordon_node": "back",
    "undo_by_uncordon_node": "other",
    "reset_gpu": "mend",
    "validate_node": "mend",
    "reboot_node": "boot",
    "release_spare": "spare",
    "return_spare": "spare",
    "apply_template": "announce",
    "undo_apply_template": "announce",
    "replace_node": "replace",
    "diagnose_nodes": "pairs",
    "power_cycle_node": "power",
}
"""Steps with a call, and the book each is killed in."""

BESIDES = (
    ("validate_node", "session"),
    ("suspend_job", "evict"),
    ("undo_suspend_job", "evict"),
    ("cordon_node", "queue"),
    ("suspend_job", "queue"),
    ("drain_node", "queue"),
    ("resume_job", "queue"),
    ("verify_job", "queue"),
    ("uncordon_node", "queue"),
    ("undo_suspend_job", "queue_back"),
    ("undo_cordon_node", "queue_back"),
    ("suspend_job", "command"),
    ("resume_job", "command"),
    ("verify_job", "command"),
    ("undo_suspend_job", "command_back"),
    ("suspend_job", "admitted"),
    ("resume_job", "admitted"),
    ("verify_job", "admitted"),
    ("undo_suspend_job", "admitted_back"),
    ("suspend_job", "replaced"),
    ("cordon_node", "hand"),
    ("drain_node", "hand"),
    ("uncordon_node", "hand"),
    ("uncordon_node", "again"),
    ("uncordon_node", "redone"),
)
"""The same steps by other means: a session of diagnostics, a job that is moved by eviction, nodes and jobs of Slurm, jobs that
Volcano or Kueue moves; and in runs that people start, continue, or have a failed step of done again."""
NOT_SENT = ("after_intent", "before_request")
"""Where a call is certainly made anew once its lease is over: longer than the deadline that makes the reset of `redone` fail, so
that `mend` and `stay` die there instead."""
BY_HAND = ("hand", "again", "redone")
"""Books whose last run a person starts."""
CLEARED = ("back", "other", "announce", "evict", "queue_back", "command_back", "admitted_back")
"""Books whose incident turns out to be a false alarm."""
OPERATED = ("command", "command_back", "admitted", "admitted_back", "replaced")
ON_SLURM = ("queue", "queue_back")
PLAYED = (*CALLS.items(), *BESIDES)

IN_PARTS = (
    ("drain_node", "node"),
    ("suspend_job", "evict"),
    ("validate_node", "session"),
    ("diagnose_nodes", "pairs"),
    ("suspend_job", "queue"),
    ("resume_job", "queue"),
    ("undo_suspend_job", "queue_back"),
    ("power_cycle_node", "power"),
    ("suspend_job", "command"),
    ("resume_job", "command"),
    ("undo_suspend_job", "command_back"),
    ("suspend_job", "replaced"),
)
"""Steps that send several requests: dying at the second one leaves half of the work done."""

WRITTEN = {
    "begin": "node",
    "notify": "tickets",
    "approval": "asked",
    "command": "asked",
    "ask": "back",
    "await_progress": "move",
    "await_work": "work",
    "finish": "node",
}
"""What is written down without a call, likewise."""

READ_ONLY = (
    *(("verify_job", book) for book in ("move", "queue", "command", "admitted")),
    ("drain_node", "queue"),
)
AGAIN = (
    ("reset_gpu", "mend"),
    ("validate_node", "mend"),
    ("validate_node", "session"),
    ("reboot_node", "boot"),
    ("apply_template", "announce"),
    ("replace_node", "replace"),
    ("diagnose_nodes", "pairs"),
    ("suspend_job", "queue"),
    ("power_cycle_node", "power"),
    ("suspend_job", "command"),
    ("suspend_job", "admitted"),
    ("suspend_job", "replaced"),
)
"""Steps that are called again and again until what they have begun is over."""
_LOOKED_UP_AFTER = ("after_call", "before_commit", "in_commit")


@dataclass(frozen=True, slots=True)
class Case:
    """One case. `deaths` are the points at which the responder dies, one after the other; each may have several names."""

    step: str
    book: str
    fault: str
    point: str
    deaths: tuple[tuple[str, ...], ...]

    @property
    def what(self) -> str:
        """The step, and by which of its means where it has several."""
        besides = (self.step.removeprefix("lookup_"), self.book) in BESIDES
        return f"{self.step}@{self.book}" if besides else self.step

    @property
    def name(self) -> str:
        """What is done, what goes wrong, where it dies and how often."""
        return f"{self.what}-{self.fault}-{self.point}-{len(self.deaths)}".replace("#", "-")

    @property
    def scenario(self) -> tuple[str, str, str]:
        """What is the same in the undisturbed run: book, fault, and the step whose request it befalls."""
        return self.book, self.fault, self.step if self.fault != "none" else ""


def undisturbed(scenario: tuple[str, str, str]) -> Case:
    """The case of a scenario in which nobody dies."""
    book, fault, step = scenario
    return Case(step or book, book, fault, "undisturbed", ())


def matrix() -> list[Case]:
    """Every case."""
    return [*_calls(), *_lookups(), *_faults(), *_occupied(), *_written(), *_by_hand()]


def sample(cases: Sequence[Case], count: int) -> list[Case]:
    """`count` of the cases, evenly spread over the matrix, the same every time."""
    return [cases[(2 * i + 1) * len(cases) // (2 * count)] for i in range(count)]


def _calls() -> Iterator[Case]:
    for step, book in PLAYED:
        for point in CALL_POINTS:
            if point != "before_request" or (step, book) not in READ_ONLY:
                yield from _once_and_twice(step, book, "none", point)
    for step, book in IN_PARTS:
        yield from _once_and_twice(step, book, "none", "before_request#2")
    for step, book in AGAIN:
        yield from _once_and_twice(step, book, "none", "after_call#2")


def _lookups() -> Iterator[Case]:
    """Died at the call, and the successor dies while it finds out what became of it."""
    for step, book in PLAYED:
        for point in LOOK_POINTS:
            deaths = ((f"{step}:after_intent",), (f"{_lookup(step)}:{point}",))
            yield Case(_lookup(step), book, "none", point, deaths)


def _faults() -> Iterator[Case]:
    for step, book in PLAYED:
        if (step, book) in READ_ONLY:
            continue
        # Slurm tells nobody to come later.
        for fault in FAULTS[1:] if book in ON_SLURM else FAULTS:
            for point in FAULT_POINTS:
                yield from _once_and_twice(step, book, fault, point)


def _occupied() -> Iterator[Case]:
    for point in CALL_POINTS:
        yield from _once_and_twice("reset_gpu", "stay", OCCUPIED, point)


def _written() -> Iterator[Case]:
    for step, book in WRITTEN.items():
        for point in WRITE_POINTS:
            yield from _once_and_twice(step, book, "none", point)


def _by_hand() -> Iterator[Case]:
    """At the command that starts the run, at what it looks up before it sends anything, and at the step that failed before."""
    # The run that is continued was ended by a command, too.
    for book, number in (("hand", ""), ("again", "#2"), ("redone", "")):
        for point in WRITE_POINTS:
            label = f"command:{point}{number}"
            yield Case(f"command_{book}", book, "none", point, ((label,),))
            yield Case(f"command_{book}", book, "none", point, ((label,), ("taken_up",)))
    for step, book in (("cordon_node", "again"), ("drain_node", "again"), ("cordon_node", "redone")):
        for point in LOOK_POINTS:
            label = f"{_lookup(step)}:{point}"
            yield Case(f"{_lookup(step)}_{book}", book, "none", point, ((label,),))
            yield Case(f"{_lookup(step)}_{book}", book, "none", point, ((label,), (label,)))
    for point in CALL_POINTS:
        if point in NOT_SENT:
            continue
        # Once the command is committed the step is one of the run that does it again.
        deaths = (("command:after_commit",), (f"reset_gpu:{point}",))
        yield Case("reset_gpu_redone", "redone", "none", point, deaths)


def _once_and_twice(step: str, book: str, fault: str, point: str) -> Iterator[Case]:
    """The second death is at the same point of the same step, or at that of its lookup where the first left only that."""
    # A connector is told to apply a compensation as it is told to apply anything else.
    label = f"{step.removeprefix('undo_by_') if point == 'before_request' else step}:{point}"
    base = point.partition("#")[0]
    yield Case(step, book, fault, point, ((label,),))
    if point == "after_commit":
        again: tuple[str, ...] = ("taken_up",)
    elif step not in WRITTEN and (base in _LOOKED_UP_AFTER or (step, book) in READ_ONLY):
        again = (label.partition("#")[0], f"{_lookup(step)}:{base}")
    else:
        again = (label.partition("#")[0],)  # part of it was done in the first life
    yield Case(step, book, fault, point, ((label,), again))


def _lookup(step: str) -> str:
    return f"lookup_{step}"
