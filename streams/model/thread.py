"""An incident's thread: which messages are in the channel, under which keys, and what they show.

The document is committed to Kafka before each message is created and after it, like a run's; so a crash in between leads to
a lookup by key and never to a second message.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from streams.model.conversation import TimelineEntry
from streams.model.digest import digest
from streams.model.run import EffectRecord, EffectState

ROOT = "root"
"""The slot of the message in the channel that the others reply to."""
MEMBER = "member/"
"""How the slot begins of the one reply that an incident has in the thread of its summary."""


@dataclass(frozen=True, slots=True)
class Post:
    """One message of the thread. `slot` says which: `root`, `evidence`, `run/<run>`, `approval/<run>/<step>`, `log`; in threads
    of older versions `step/<run>/<step>`; in the thread of a summary `member/<summary>/<generation>`.

    `create` is the record of its creation; its result holds `channel` and `ts`. `shown` is the digest of what the message
    is known to show, empty while the outcome of an edit is unknown; `mark` is the state it was shown with: a new state is
    edited in at once, a detail may wait.
    """

    slot: str
    create: EffectRecord
    shown: str = ""
    mark: str = ""
    changed_at: datetime | None = None
    due_at: datetime | None = None
    """Not before this: a retry, a rate limit."""
    failures: int = 0
    check_at: datetime | None = None
    """When to check again for a duplicate, where a message had to be sent again; or whether what was taken came to be."""
    missed: int = 0
    """How often it was taken and never came to be, and was sent again."""
    gone: bool = False
    """A user deleted it: it stays deleted."""

    @property
    def stands(self) -> bool:
        """True when the message is known to be in the channel."""
        return self.create.state is EffectState.CONFIRMED and not self.gone

    @property
    def may_stand(self) -> bool:
        """True unless it is known not to be in the channel: what was sent without an answer may be."""
        return self.create.state is not EffectState.REFUSED and not self.gone

    @property
    def ts(self) -> str:
        """The chat system's id of the message, empty while it is not known."""
        return str(self.create.result.get("ts", ""))


@dataclass(frozen=True, slots=True)
class Thread:
    """The value of the `threads` topic: everything the chat process needs to continue. `generation` counts lost roots.

    `incident` is an incident's id, or that of a summary of several incidents.
    """

    incident: str
    cluster: str
    channel: str
    created_at: datetime
    updated_at: datetime
    revision: int = 1
    generation: int = 1
    posts: tuple[Post, ...] = ()
    log: tuple[TimelineEntry, ...] = ()
    """The latest lines of the incident's timeline."""
    log_offset: int = -1
    """Offset of the last timeline record that was added; earlier ones are skipped."""
    acked_by: str = ""
    """Who acknowledged the incident last; empty while nobody has."""
    silenced_until: datetime | None = None
    """Until when only decisions and the incident's state are told."""
    members: tuple[str, ...] = ()
    """The incidents that one page or mail tells of, the first one of them first; empty where it is one incident's own."""
    parent: str = ""
    """The summary whose thread this incident is told in; it keeps its membership when it gets a thread of its own."""
    schema: int = 1

    def post(self, slot: str) -> Post | None:
        """The message of a slot, or None when there is none."""
        return next((post for post in self.posts if post.slot == slot), None)

    def with_post(self, post: Post) -> Thread:
        """The same thread with this message added or replaced."""
        if self.post(post.slot) is None:
            return replace(self, posts=(*self.posts, post))
        return replace(self, posts=tuple(post if p.slot == post.slot else p for p in self.posts))


def post_key(incident: str, incarnation: int, generation: int, slot: str) -> str:
    """The idempotency key of one message. A lost root starts a new generation with new keys."""
    return digest("thread", incident, incarnation, generation, slot, size=16)
