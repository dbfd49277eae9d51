"""The message in the default channel that another channel is broken, and later that it works again.

It is kept in a thread document like any message, so it is there once, whatever crashes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from faultline.chat.channel_health import Breakage
from faultline.chat.thread_plan import Slot, Urgency
from streams.model.message import Fact, Facts, Heading, Message, Paragraph, Tone
from streams.model.thread import ROOT, Thread

PREFIX = "channel-"
"""How the ids of these documents begin."""
_BROKEN = "broken"
_MENDED = "mended"


@dataclass(frozen=True, slots=True)
class Trouble:
    """A channel that is or was broken, as seen from one partition. `cluster` is the one in which it was noticed first."""

    id: str
    cluster: str
    channel: str
    incarnation: int = 1


def trouble_id(channel: str, partition: int) -> str:
    """The id of the document, one for each channel and partition."""
    return f"{PREFIX}{channel}-{partition}"


def broken_before(thread: Thread) -> Trouble | None:
    """The trouble of which a document says last that the channel is broken, else None.

    A message that was sent when its process ended, and not noted as there, has no mark yet: it may stand, and says so as well.
    """
    root = thread.post(ROOT)
    if root is None or not (root.mark == _BROKEN or (not root.mark and root.may_stand)):
        return None
    channel = thread.incident.removeprefix(PREFIX).rpartition("-")[0]
    return Trouble(thread.incident, thread.cluster, channel)


def broken_again(thread: Thread) -> Thread:
    """The document for a new breakage: what was said about an earlier one that is over stays as it is."""
    root = thread.post(ROOT)
    if root is None or root.mark != _MENDED:
        return thread
    return replace(thread, generation=thread.generation + 1, posts=())


def notice_slots(trouble: Trouble, thread: Thread, broken: Mapping[str, Breakage]) -> tuple[Slot, ...]:
    """The message as it should be; none for a channel that is mended before anything was said."""
    breakage, root = broken.get(trouble.channel), thread.post(ROOT)
    if breakage is not None:
        if root is not None and root.mark == _BROKEN:
            return ()
        return (Slot(ROOT, _broken(trouble, breakage.reason, breakage.since), _BROKEN, Urgency.ROOT),)
    if root is None or (root.mark == _MENDED and root.shown):
        return ()
    return (Slot(ROOT, _mended(trouble), _MENDED, Urgency.ROOT),)


def _broken(trouble: Trouble, reason: str, since: datetime) -> Message:
    heading = f"⚠️ Threads cannot be kept in channel {trouble.channel}"
    words = "Incidents that belong there wait until it takes messages again; nothing else waits for them."
    return Message(
        heading,
        (
            Heading(heading),
            Facts((Fact("Slack says", reason), Fact("Since", at=since))),
            Paragraph(words),
            Paragraph(f"first noticed for {trouble.cluster}", quiet=True),
        ),
        Tone.BAD,
    )


def _mended(trouble: Trouble) -> Message:
    heading = f"🟢 Channel {trouble.channel} takes messages again"
    return Message(heading, (Heading(heading), Paragraph("What is open is told there now.")), Tone.GOOD)
