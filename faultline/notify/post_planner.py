"""Mails and posts: an incident that is worth telling, what waits for a person, and its end. Never an edit, never each detail.

Incidents that come up together are one mail; while a mail of a cluster is younger than the window, the next ones wait for its
end. So two thousand incidents make a handful of mails. Nothing is reported of an incident that was over before its mail left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from faultline.chat.thread_plan import Slot, Urgency, weight
from faultline.notify.notice_texts import Told, post_message
from faultline.notify.planner import Looked, SinkPlanner, Wanted, earliest
from faultline.notify.situations import Situation
from runbooks.engine.escalation import is_for_owner
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.run import EffectState
from streams.model.thread import Thread

WAITS = (Situation.APPROVAL, Situation.HELD, Situation.FAILED, Situation.UNATTENDED)
"""What is told when it comes up."""
UNATTENDED_AFTER = timedelta(minutes=5)
"""How long an incident may have no run before that is told: a responder takes a moment, and one that restarts some minutes."""
MAX_MEMBERS = 5_000
MAX_REFUSALS = 5
"""How often a refused post is tried again."""


class PostPlanner(SinkPlanner):
    """The mails or posts of one sink."""

    def look(self, name: str, now: datetime) -> Looked:
        """The mails of an incident, and when it is to be told."""
        keys = tuple(one.incident for one in self._index.of(name))
        incident = self._sources.incidents.get(name)
        if keys or incident is None or not self._is_worth_telling(incident):
            return Looked(keys)
        attention = self._sources.attention(name)
        if attention.is_silent(now):
            return Looked(again_at=attention.silent_until)
        return Looked(due_at=incident.opened_at + timedelta(seconds=self._settings.settle_s))

    def start(self, due: Sequence[str], now: datetime) -> tuple[list[Thread], datetime | None]:
        """One mail per cluster for all that are due, unless its last one is too young."""
        window = timedelta(seconds=self._settings.group_window_s)
        by_cluster: dict[str, list[Incident]] = {}
        for name in due:
            if (incident := self._sources.incidents.get(name)) is not None:
                by_cluster.setdefault(incident.cluster, []).append(incident)
        made: list[Thread] = []
        again: datetime | None = None
        for cluster, incidents in by_cluster.items():
            if young := self._index.created_since(cluster, now - window):
                again = earliest(again, max(one.created_at for one in young) + window)
                continue
            incidents.sort(key=lambda one: (weight(one), one.opened_at, one.id))
            members = tuple(one.id for one in incidents[:MAX_MEMBERS])
            key = self._index.next_key(members[0])
            made.append(Thread(key, cluster, self._settings.kind, now, now, revision=0, members=members))
        return made, again

    def wanted(self, document: Thread, now: datetime) -> Wanted:
        """What is still to be told."""
        told = self._told(document)
        if not told:
            return Wanted()
        attentions = [self._sources.attention(incident.id) for incident, _ in told]
        silent = all(attention.is_silent(now) for attention in attentions)
        alone = [s.since + UNATTENDED_AFTER for _, s in told if s.situation is Situation.UNATTENDED]
        again = earliest(
            *(one.silent_until for one in attentions if one.is_silent(now)), *(at for at in alone if at > now)
        )
        wanted = self._slots(document, told, now, silent=silent)
        slots = tuple(slot for slot in wanted if not _is_sent(document, slot))
        return Wanted(slots, weight(told[0][0]), again)

    def _slots(
        self, document: Thread, told: Sequence[Told], now: datetime, *, silent: bool
    ) -> Iterator[Slot]:
        live = [one for one in told if not one[1].situation.is_settled]
        yield self._slot(document, live or told, "opened", moot=silent or not live)
        if not any(post.stands for post in document.posts):
            return  # what follows answers a first mail
        for situation in WAITS:
            waiting = [one for one in live if one[1].situation is situation]
            if situation is Situation.UNATTENDED:
                waiting = [one for one in waiting if one[1].since + UNATTENDED_AFTER <= now]
            yield self._slot(document, waiting or told, situation.value, moot=silent or not waiting)
        yield self._slot(document, told, "ended", moot=bool(live))

    def _slot(self, document: Thread, told: Sequence[Told], moment: str, *, moot: bool) -> Slot:
        lead = document.members[0]
        others = any(post.slot != moment for post in document.posts)
        title = self._sources.incidents[lead].title if lead in self._sources.incidents else told[0][0].title
        return Slot(
            moment,
            post_message(told, moment, self._console_url),
            moment,
            Urgency.ROOT if moment == "opened" else Urgency.STEP,
            params={
                "thread": lead,
                "first": not others,
                "subject": f"{title} · {document.cluster}",
                "incident": lead,
            },
            actions=("post", "post"),
            checked=False,
            moot=moot,
        )

    def _is_worth_telling(self, incident: Incident) -> bool:
        # Whoever wants a family's or a namespace's incidents means all of them.
        for_all = bool(self._settings.families or self._settings.namespaces)
        return (
            not incident.state.is_over
            and incident.state is not IncidentState.SUPPRESSED
            and (for_all or not is_for_owner(incident, self._sources.runs(incident.id)))
            and incident.certainty is not Certainty.WEAK
            and self._passes(incident)
        )


def _is_sent(document: Thread, slot: Slot) -> bool:
    """Whether nothing is left to do: it was sent, or refused so often that it never will be."""
    post = document.post(slot.name)
    if post is None:
        return False
    return post.create.state is EffectState.CONFIRMED or (
        post.create.state is EffectState.REFUSED and post.failures >= MAX_REFUSALS
    )
